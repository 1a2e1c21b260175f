{{/*
A value as a CEL literal. Takes a dict: value, and indent (what stands before the closing bracket).

A map stands for a Kubernetes object here as well as for a plain map, and each of its values is wrapped in dyn():
CEL in the API server wants the values of a map literal to be of one type. JSON text is CEL text: what Go's encoder
escapes (quotes, backslashes, control characters, <, > and &) CEL unescapes. Whole numbers arrive from YAML as
floats, and must be printed as integers: 9850.0 is no port.
*/}}
{{- define "vllm-specdec-exporter.cel" -}}
{{- $inner := printf "%s  " .indent -}}
{{- if kindIs "map" .value -}}
{{- $lines := list -}}
{{- range $key, $item := .value -}}
{{- $lines = append $lines (printf "%s%s: dyn(%s)" $inner (toJson $key) (include "vllm-specdec-exporter.cel" (dict "value" $item "indent" $inner))) -}}
{{- end -}}
{{- if $lines -}}
{{ printf "{\n%s\n%s}" (join ",\n" $lines) .indent }}
{{- else -}}
{}
{{- end -}}
{{- else if kindIs "slice" .value -}}
{{- $lines := list -}}
{{- range .value -}}
{{- $item := include "vllm-specdec-exporter.cel" (dict "value" . "indent" $inner) -}}
{{- $lines = append $lines (printf "%s%s" $inner (ternary $item (printf "dyn(%s)" $item) (kindIs "string" .))) -}}
{{- end -}}
{{- if $lines -}}
{{ printf "[\n%s\n%s]" (join ",\n" $lines) .indent }}
{{- else -}}
[]
{{- end -}}
{{- else if and (kindIs "float64" .value) (eq (floor .value) .value) -}}
{{ printf "%.0f" .value }}
{{- else -}}
{{ toJson .value }}
{{- end -}}
{{- end }}

{{/* What the policy adds to a pod, by the list in its spec. */}}
{{- define "vllm-specdec-exporter.injection.additions" -}}
{{- $container := include "vllm-specdec-exporter.sidecar" . | fromYaml -}}
{{- $volumes := printf "volumes:\n%s" (include "vllm-specdec-exporter.volumes" . | default "[]") | fromYaml -}}
{{- toYaml (dict
  "initContainers" (list $container)
  "volumes" $volumes.volumes
  "imagePullSecrets" .Values.imagePullSecrets) -}}
{{- end }}

{{/* spec.variables of the policy: the flags of this pod, and what is added to each list. */}}
{{- define "vllm-specdec-exporter.injection.variables" -}}
{{- $additions := include "vllm-specdec-exporter.injection.additions" . | fromYaml -}}
{{- $container := first $additions.initContainers -}}
{{- $flags := list
  (dict "variable" "urlFlags" "flag" "--vllm.url=" "annotation" "vllm-specdec-exporter/vllm-url")
  (dict "variable" "specFlags" "flag" "--spec.config=" "annotation" "vllm-specdec-exporter/spec-config") -}}
{{- $fields := list "\n    \"args\": dyn(variables.args)" -}}
{{- range $key, $value := omit $container "args" -}}
{{- $fields = append $fields (printf "\n    %s: dyn(%s)" (toJson $key) (include "vllm-specdec-exporter.cel" (dict "value" $value "indent" "    "))) -}}
{{- end -}}
{{- $variables := list
  (dict "name" "annotations" "expression" "has(object.metadata.annotations) ? object.metadata.annotations : {}")
  (dict "name" "defaults" "expression" (include "vllm-specdec-exporter.cel" (dict "value" $container.args "indent" "")))
  (dict "name" "urlFlags" "expression" "\"vllm-specdec-exporter/vllm-url\" in variables.annotations\n? string(variables.annotations[\"vllm-specdec-exporter/vllm-url\"]).split(\",\").filter(url, url.trim() != \"\").map(url, \"--vllm.url=\" + url.trim())\n: []")
  (dict "name" "specFlags" "expression" "\"vllm-specdec-exporter/spec-config\" in variables.annotations\n? [string(variables.annotations[\"vllm-specdec-exporter/spec-config\"])].filter(json, json.trim() != \"\").map(json, \"--spec.config=\" + json)\n: []")
  (dict "name" "args" "expression" "variables.urlFlags + variables.specFlags + variables.defaults.filter(flag,\n  !(size(variables.urlFlags) > 0 && flag.startsWith(\"--vllm.url=\")) &&\n  !(size(variables.specFlags) > 0 && flag.startsWith(\"--spec.config=\")))")
  (dict "name" "initContainers" "expression" (printf "[\n  {%s\n  }\n]" (join "," $fields))) -}}
{{- range $list := list "volumes" "imagePullSecrets" -}}
{{- with get $additions $list -}}
{{- $variables = append $variables (dict "name" $list "expression" (include "vllm-specdec-exporter.cel" (dict "value" . "indent" ""))) -}}
{{- end -}}
{{- end -}}
{{- toYaml $variables -}}
{{- end }}
