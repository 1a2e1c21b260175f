{{/*
A file of rules with what the values say: alerts switched off left out, addresses and labels put in. Takes a dict:
text, values. The files themselves are made by `make generate`, the same that Prometheus loads without Helm.
*/}}
{{- define "vllm-specdec-exporter.rules" -}}
{{- $values := .values }}
{{- $text := .text }}
{{- with $values.runbookUrl }}
{{- $text = $text | replace "https://github.com/OWNER/vllm-specdec-exporter/blob/main/alerts/runbooks" (trimSuffix "/" .) }}
{{- end }}
{{- with $values.grafanaUrl }}
{{- $text = $text | replace "https://grafana.example.com" (trimSuffix "/" .) }}
{{- end }}
{{- $groups := list }}
{{- range $group := (fromYaml $text).groups }}
{{- $rules := list }}
{{- range $group.rules }}
{{- if not .alert }}
{{- $rules = append $rules . }}
{{- else if not (get ($values.disabled | default dict) .alert) }}
{{- $annotations := merge (dict) .annotations ($values.extraAnnotations | default dict) }}
{{- if not $values.runbookUrl }}{{ $annotations = omit $annotations "runbook_url" }}{{ end }}
{{- if not $values.grafanaUrl }}{{ $annotations = omit $annotations "dashboard_url" }}{{ end }}
{{- $labels := merge (dict) .labels ($values.extraLabels | default dict) }}
{{- $rules = append $rules (merge (dict "labels" $labels "annotations" $annotations) (omit . "labels" "annotations")) }}
{{- end }}
{{- end }}
{{- with $rules }}
{{- $groups = append $groups (merge (dict "rules" .) (omit $group "rules")) }}
{{- end }}
{{- end }}
{{- toYaml (dict "groups" $groups) }}
{{- end }}
