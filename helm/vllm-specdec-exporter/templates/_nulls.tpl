{{/*
Null leaves a value out: every null is removed, and what the templates read gets the empty value of its kind. In place,
once for a chart; every template includes this first. Takes a dict with Values.
*/}}
{{- define "vllm-specdec-exporter.prepare" -}}
{{- if not (hasKey .Values "prepared") }}
{{- include "vllm-specdec-exporter.prune" .Values }}
{{- include "vllm-specdec-exporter.fill" (dict "into" .Values "from" (include "vllm-specdec-exporter.nulls" . | fromYaml)) }}
{{- $_ := set .Values "prepared" true }}
{{- end }}
{{- end }}

{{- define "vllm-specdec-exporter.prune" -}}
{{- $map := . }}
{{- range $key, $value := . }}
{{- if kindIs "invalid" $value }}
{{- $_ := unset $map $key }}
{{- else if and (kindIs "map" $value) (ne $key "specConfig") }}
{{- include "vllm-specdec-exporter.prune" $value }}
{{- end }}
{{- end }}
{{- end }}

{{- define "vllm-specdec-exporter.fill" -}}
{{- $into := .into }}
{{- range $key, $value := .from }}
{{- if kindIs "map" $value }}
{{- if not (hasKey $into $key) }}{{ $_ := set $into $key dict }}{{ end }}
{{- include "vllm-specdec-exporter.fill" (dict "into" (get $into $key) "from" $value) }}
{{- else if not (hasKey $into $key) }}
{{- $_ := set $into $key (first $value) }}
{{- end }}
{{- end }}
{{- end }}
