{{/* How Prometheus scrapes one endpoint: what PodMonitor and ServiceMonitor have in common. Takes a dict: root, monitor. */}}
{{- define "vllm-specdec-exporter.endpoint" -}}
{{- $monitor := .monitor -}}
path: /metrics
scheme: {{ $monitor.scheme | default (include "vllm-specdec-exporter.scheme" .root) }}
{{- with $monitor.interval }}
interval: {{ . }}
{{- end }}
{{- with $monitor.scrapeTimeout }}
scrapeTimeout: {{ . }}
{{- end }}
honorLabels: {{ $monitor.honorLabels | default false }}
{{- with $monitor.tlsConfig }}
tlsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $monitor.basicAuth }}
basicAuth:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $monitor.authorization }}
authorization:
  {{- toYaml . | nindent 2 }}
{{- end }}
relabelings:
  # The alert rules and dashboards look for this job, whatever the release is called.
  - targetLabel: job
    replacement: vllm-specdec-exporter
    action: replace
  {{- with $monitor.relabelings }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $monitor.metricRelabelings }}
metricRelabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* What both have outside of the endpoint. */}}
{{- define "vllm-specdec-exporter.monitorSpec" -}}
{{- with .podTargetLabels }}
podTargetLabels:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .sampleLimit }}
sampleLimit: {{ . | int64 }}
{{- end }}
{{- with .labelLimit }}
labelLimit: {{ . | int64 }}
{{- end }}
{{- end }}
