{{/*
A value as a CEL literal. Takes a dict: value, and indent (what stands before the closing bracket).

A map stands for a Kubernetes object here as well as for a plain map, and each of its values is wrapped in dyn(), as
are those of a list unless all are texts: CEL in the API server wants the values of a literal to be of one type. JSON text is CEL text: what Go's encoder
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
{{- $texts := true -}}
{{- range .value -}}
{{- $texts = and $texts (kindIs "string" .) -}}
{{- end -}}
{{- $lines := list -}}
{{- range .value -}}
{{- $item := include "vllm-specdec-exporter.cel" (dict "value" . "indent" $inner) -}}
{{- $lines = append $lines (printf "%s%s" $inner (ternary $item (printf "dyn(%s)" $item) $texts)) -}}
{{- end -}}
{{- if $lines -}}
{{ printf "[\n%s\n%s]" (join ",\n" $lines) .indent }}
{{- else -}}
[]
{{- end -}}
{{- else if and (kindIs "float64" .value) (eq (floor .value | toString) (.value | toString)) -}}
{{ printf "%.0f" .value }}
{{- else -}}
{{ toJson .value }}
{{- end -}}
{{- end }}

{{/*
What the policy adds to a pod, by the list in its spec. The tap is in it whether it is enabled or not: an annotation
may ask for it, and where nobody does, `withTap` takes it out again.
*/}}
{{- define "vllm-specdec-exporter.injection.additions" -}}
{{- $all := dict "Values" (mustMergeOverwrite (deepCopy .Values) (dict "tap" (dict "enabled" true))) -}}
{{- $container := include "vllm-specdec-exporter.sidecar" $all | fromYaml -}}
{{- $volumes := printf "volumes:\n%s" (include "vllm-specdec-exporter.volumes" $all | default "[]") | fromYaml -}}
{{- $pull := printf "secrets:\n%s" (include "vllm-specdec-exporter.pullSecrets" . | default "[]") | fromYaml -}}
{{- toYaml (dict
  "initContainers" (list $container)
  "volumes" $volumes.volumes
  "imagePullSecrets" $pull.secrets) -}}
{{- end }}

{{/* Whether a pod gets the tap; CEL that may stand before variables exist. Takes the root context. */}}
{{- define "vllm-specdec-exporter.injection.tap" -}}
has(object.metadata.annotations) && "vllm-specdec-exporter/tap" in object.metadata.annotations
? object.metadata.annotations["vllm-specdec-exporter/tap"] == "true"
: {{ .Values.tap.enabled | default false }}
{{- end }}

{{/* A list as CEL, without what is the tap's in pods that have none. Takes a dict: value, and indent, as above. */}}
{{- define "vllm-specdec-exporter.injection.withTap" -}}
{{- $ofTap := list "tap" -}}
{{- $some := false -}}
{{- range .value -}}
{{- $some = or $some (has .name $ofTap) -}}
{{- end -}}
{{- include "vllm-specdec-exporter.cel" . -}}
{{- if $some -}}
.filter(one, variables.tap || !(one.name in {{ toJson $ofTap }}))
{{- end -}}
{{- end }}

{{/*
spec.variables of the policy: the flags for this pod, and what is added to each list of its spec. A flag from an
annotation stands in for the chart's flags of that name.
*/}}
{{- define "vllm-specdec-exporter.injection.variables" -}}
{{- $additions := include "vllm-specdec-exporter.injection.additions" . | fromYaml -}}
{{- $container := first $additions.initContainers -}}
{{- $fields := list "    \"args\": dyn(variables.args)" -}}
{{- range $key, $value := omit $container "args" -}}
{{- $template := ternary "vllm-specdec-exporter.injection.withTap" "vllm-specdec-exporter.cel" (has $key (list "ports" "volumeMounts")) -}}
{{- $text := include $template (dict "value" $value "indent" "    ") -}}
{{- $fields = append $fields (printf "    %s: dyn(%s)" (toJson $key) $text) -}}
{{- end -}}
- name: annotations
  expression: "has(object.metadata.annotations) ? object.metadata.annotations : {}"
- name: tap
  expression: |-
    {{- include "vllm-specdec-exporter.injection.tap" . | nindent 4 }}
- name: urlFlags
  expression: |-
    "vllm-specdec-exporter/vllm-url" in variables.annotations
    ? string(variables.annotations["vllm-specdec-exporter/vllm-url"]).split(",")
        .filter(url, url.trim() != "").map(url, "--vllm.url=" + url.trim())
    : []
- name: specFlags
  expression: |-
    "vllm-specdec-exporter/spec-config" in variables.annotations
    ? [string(variables.annotations["vllm-specdec-exporter/spec-config"])]
        .filter(json, json.trim() != "").map(json, "--spec.config=" + json)
    : []
- name: defaultFlags
  {{- dict "expression" (include "vllm-specdec-exporter.cel" (dict "value" $container.args "indent" "")) | toYaml | nindent 2 }}
- name: args
  expression: |-
    variables.defaultFlags.filter(flag,
      !(size(variables.urlFlags) > 0 && flag.startsWith("--vllm.url=")) &&
      !(size(variables.specFlags) > 0 && flag.startsWith("--spec.config=")) &&
      !(!variables.tap && flag.startsWith("--tap."))) +
    variables.urlFlags + variables.specFlags
- name: initContainers
  {{- dict "expression" (printf "[\n  {\n%s\n  }\n]" (join ",\n" $fields)) | toYaml | nindent 2 }}
{{- range $list := list "volumes" "imagePullSecrets" }}
{{- with get $additions $list }}
- name: {{ $list }}
  {{- dict "expression" (include "vllm-specdec-exporter.injection.withTap" (dict "value" . "indent" "")) | toYaml | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}

{{/*
The patch. For each list: it is made where the pod has none, and gets what it has not yet, by name, at its end. The
sidecar so starts behind all other init containers and right before vLLM.
*/}}
{{- define "vllm-specdec-exporter.injection.patch" -}}
{{- $additions := include "vllm-specdec-exporter.injection.additions" . | fromYaml -}}
{{- $patches := list -}}
{{- range $list := list "volumes" "imagePullSecrets" "initContainers" -}}
{{- if get $additions $list -}}
{{- $patches = append $patches (printf "(has(object.spec.%s) ? [] : [JSONPatch{op: \"add\", path: \"/spec/%s\", value: []}])" $list $list) -}}
{{- $patches = append $patches (printf "variables.%s\n  .filter(new, !has(object.spec.%s) || !object.spec.%s.exists(old, has(old.name) && old.name == new.name))\n  .map(new, JSONPatch{op: \"add\", path: \"/spec/%s/-\", value: new})" $list $list $list $list) -}}
{{- end -}}
{{- end -}}
{{ join " +\n" $patches }}
{{- end }}

{{/* What a pod must be for the policy to touch it; CEL, before variables exist. Each guards fields that may be absent. */}}
{{- define "vllm-specdec-exporter.injection.conditions" -}}
{{- $container := first (include "vllm-specdec-exporter.injection.additions" . | fromYaml).initContainers -}}
{{- $all := "(object.spec.containers + (has(object.spec.initContainers) ? object.spec.initContainers : []))" -}}
- name: no-sidecar-yet
  expression: |-
    !{{ $all }}.exists(container,
      container.name == {{ toJson $container.name }})
{{- range $port := $container.ports }}
- name: port-{{ $port.name }}-is-free
  expression: |-
    {{- if eq $port.name "tap" }}
    !(
      {{- include "vllm-specdec-exporter.injection.tap" $ | nindent 6 }}
    ) ||
    {{- end }}
    !{{ $all }}.exists(container,
      has(container.ports) && container.ports.exists(port,
        port.containerPort == {{ $port.containerPort }} || (has(port.name) && port.name == {{ toJson $port.name }})))
{{- end }}
{{- if .Values.exporter.livenessProbe }}
# Any restart of a container makes all pods of such a group anew.
- name: not-in-a-leaderworkerset
  expression: |-
    !(has(object.metadata.labels) && "leaderworkerset.sigs.k8s.io/name" in object.metadata.labels)
{{- end }}
# The API server refuses a pod whose containers ask for more than the pod as a whole: it would not start at all.
- name: no-resources-of-the-pod
  expression: "!has(object.spec.resources)"
# The port would be the node's: a second pod could not be scheduled there, or its probe would reach the first one.
- name: not-in-the-hosts-network
  expression: "!(has(object.spec.hostNetwork) && object.spec.hostNetwork)"
- name: not-windows
  expression: |-
    !(has(object.spec.os) && object.spec.os.name == "windows") &&
    !(has(object.spec.nodeSelector) && "kubernetes.io/os" in object.spec.nodeSelector &&
      object.spec.nodeSelector["kubernetes.io/os"] == "windows")
# The kubelet's picture of a static pod: what is changed in it, nothing runs.
- name: not-a-mirror
  expression: |-
    !(has(object.metadata.annotations) && "kubernetes.io/config.mirror" in object.metadata.annotations)
{{- end }}

{{/* Which namespaces: what the user says, and never those of the cluster itself. */}}
{{- define "vllm-specdec-exporter.injection.namespaceSelector" -}}
{{- $system := dict "key" "kubernetes.io/metadata.name" "operator" "NotIn" "values" (list "kube-system" "kube-public" "kube-node-lease") -}}
{{- $selector := .Values.injection.namespaceSelector -}}
{{- toYaml (merge (dict "matchExpressions" (prepend ($selector.matchExpressions | default list) $system)) $selector) -}}
{{- end }}

{{/* The version of the API: as the values say, else the one that the cluster has. */}}
{{- define "vllm-specdec-exporter.injection.apiVersion" -}}
{{- $api := .Capabilities.APIVersions -}}
{{- if .Values.injection.apiVersion -}}
{{ .Values.injection.apiVersion }}
{{- else if $api.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy" -}}
v1
{{- else if $api.Has "admissionregistration.k8s.io/v1beta1/MutatingAdmissionPolicy" -}}
v1beta1
{{- else if semverCompare ">=1.36.0-0" .Capabilities.KubeVersion.Version -}}
v1
{{- else -}}
{{- fail (printf "injection.enabled needs MutatingAdmissionPolicy, which Kubernetes %s does not have: on 1.34 and 1.35 switch on its feature gate and set injection.apiVersion to v1beta1, or use a sidecar of your own" .Capabilities.KubeVersion.Version) }}
{{- end -}}
{{- end }}
