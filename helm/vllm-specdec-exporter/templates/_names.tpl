{{/* Names and labels. All take the root context. */}}

{{/* The version of the exporter that this chart installs; as in Chart.yaml, and there for those who use the
sidecar template from a chart of their own, whose .Chart is another. */}}
{{- define "vllm-specdec-exporter.version" -}}
0.1.0
{{- end }}

{{- define "vllm-specdec-exporter.name" -}}
{{- /* An alias in a parent chart is its name, so that the same chart under two aliases makes objects of two names. */}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* At most 44 characters: the longest suffix, "-" and a dashboard's or group's name, needs 19. */}}
{{- define "vllm-specdec-exporter.fullname" -}}
{{- $name := include "vllm-specdec-exporter.name" . }}
{{- $full := .Values.fullnameOverride }}
{{- if not $full }}
{{- $own := eq .Chart.Name "vllm-specdec-exporter" }}
{{- $full = and $own (contains $name .Release.Name) | ternary .Release.Name (printf "%s-%s" .Release.Name $name) }}
{{- end }}
{{- /* Releases may have dots in their names, Services may not. */}}
{{- regexReplaceAll "-+$" ($full | replace "." "-" | trunc 44) "" }}
{{- end }}

{{- define "vllm-specdec-exporter.namespace" -}}
{{ .Values.namespaceOverride | default .Release.Namespace }}
{{- end }}

{{/* What a pod of the standalone Deployment is found by. Never anything that an upgrade changes. */}}
{{- define "vllm-specdec-exporter.selectorLabels" -}}
app.kubernetes.io/name: {{ include "vllm-specdec-exporter.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "vllm-specdec-exporter.labels" -}}
{{- $own := dict
  "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-")
  "app.kubernetes.io/version" (include "vllm-specdec-exporter.version" .)
  "app.kubernetes.io/managed-by" .Release.Service
  "app.kubernetes.io/part-of" "vllm-specdec-exporter" }}
{{- $selector := include "vllm-specdec-exporter.selectorLabels" . | fromYaml }}
{{- toYaml (merge $selector $own (.Values.commonLabels | default dict)) }}
{{- end }}

{{/* metadata of an object. Takes a dict: root, name, and optionally namespace, labels, annotations; prometheus for an
object that a Prometheus selects. */}}
{{- define "vllm-specdec-exporter.metadata" -}}
{{- $labels := include "vllm-specdec-exporter.labels" .root | fromYaml }}
{{- $annotations := merge (dict) (.annotations | default dict) (.root.Values.commonAnnotations | default dict) -}}
name: {{ .name | quote }}
namespace: {{ .namespace | default (include "vllm-specdec-exporter.namespace" .root) | quote }}
labels:
  {{- toYaml (merge (dict) $labels (.labels | default dict) (hasKey . "prometheus" | ternary .root.Values.prometheusLabels (dict) | default dict)) | nindent 2 }}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
