{{/*
The container, the same wherever it runs: as sidecar that you put into a pod template of yours, as sidecar that the
admission policy injects, and in the standalone Deployment.

From a chart of your own that has this one as a dependency:

    initContainers:
      - {{- include "vllm-specdec-exporter.sidecar" (dict "Values" (index .Values "vllm-specdec-exporter")) | nindent 8 }}

Nothing here may gate or restart vLLM: no readiness probe (it would decide on the readiness of the whole pod), no
startup probe (vLLM would wait for it), and a liveness probe that asks for the exporter's own loops alone.
*/}}

{{- define "vllm-specdec-exporter.sidecar" -}}
name: specdec-exporter
restartPolicy: Always
{{ include "vllm-specdec-exporter.container" (dict "Values" .Values "sidecar" true) }}
{{- end }}

{{/* What is the same for the sidecar and the standalone exporter. */}}
{{- define "vllm-specdec-exporter.container" -}}
{{- $exporter := .Values.exporter }}
image: {{ include "vllm-specdec-exporter.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
args:
  {{- include "vllm-specdec-exporter.args" . | nindent 2 }}
{{- with $exporter.extraEnv }}
env:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $exporter.extraEnvFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
ports:
  # A name that only sidecars have: the PodMonitor goes by it.
  - name: {{ ternary "specdec-metrics" "metrics" (eq (toString .sidecar) "true") }}
    containerPort: {{ $exporter.port }}
    protocol: TCP
  {{- if .Values.tap.enabled }}
  # Clients' way to vLLM. Probes and scrapes stay away from it: vLLM must not be restarted for the tap.
  - name: tap
    containerPort: {{ .Values.tap.port }}
    protocol: TCP
  {{- end }}
{{- with $exporter.livenessProbe }}
livenessProbe:
  {{- include "vllm-specdec-exporter.probe" (dict "Values" $.Values "path" "/-/healthy" "sidecar" $.sidecar) | nindent 2 }}
  {{- toYaml . | nindent 2 }}
{{- end }}
resources:
  {{- toYaml ($exporter.resources | default dict) | nindent 2 }}
{{- /* In the values of a parent chart no Helm takes null, and Helm 3.6 nowhere: empty text leaves a field out in all. */}}
{{- $security := dict }}
{{- range $key, $value := $exporter.securityContext }}
{{- if ne (toString $value) "" }}{{ $_ := set $security $key $value }}{{ end }}
{{- end }}
{{- with $security }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
terminationMessagePolicy: FallbackToLogsOnError
{{- $mounts := $exporter.extraVolumeMounts | default list }}
{{- range (include "vllm-specdec-exporter.secrets" . | fromYaml).secrets }}
{{- $mounts = append $mounts (dict "name" .name "mountPath" .folder "readOnly" true) }}
{{- end }}
{{- with $mounts }}
volumeMounts:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/*
How the kubelet probes a path of the exporter. With https it checks no certificate, and has none of its own. A sidecar
whose Secret is missing stands by without TLS: restarted for that again and again, it would take its pod, and vLLM, out of
the Service. So there the probe only looks whether the port is open, which a hung process passes.
*/}}
{{- define "vllm-specdec-exporter.probe" -}}
{{- $tls := eq (include "vllm-specdec-exporter.scheme" .) "https" }}
{{- if and $tls (or .Values.webConfig.clientCertificates (eq (toString .sidecar) "true")) -}}
# Whether it speaks TLS is a matter of the Secret: where that cannot be used, the exporter must not be restarted for it.
tcpSocket:
  port: {{ .Values.exporter.port }}
{{- else -}}
httpGet:
  path: {{ .path }}
  port: {{ .Values.exporter.port }}
  scheme: {{ ternary "HTTPS" "HTTP" $tls }}
{{- end }}
{{- end }}

{{/* The Secrets that are mounted, as a list under `secrets`: the volume's name, the Secret and the folder of each. */}}
{{- define "vllm-specdec-exporter.secrets" -}}
secrets:
{{- with .Values.webConfig }}
{{- if .existingSecret }}
  - {name: specdec-web-config, secret: {{ .existingSecret | quote }}, folder: {{ .mountPath | quote }}}
{{- end }}
{{- end }}
{{- with .Values.push.existingSecret }}
  - {name: specdec-push, secret: {{ . | quote }}, folder: /etc/vllm-specdec-exporter/push}
{{- end }}
{{- end }}

{{/*
The volumes that the container mounts, as a list; nothing where there are none. A Secret that is missing never holds
the pod back: the sidecar says so and stands by until it is there.
*/}}
{{- define "vllm-specdec-exporter.volumes" -}}
{{- $volumes := .Values.exporter.extraVolumes | default list }}
{{- range (include "vllm-specdec-exporter.secrets" . | fromYaml).secrets }}
{{- $volumes = append $volumes (dict "name" .name "secret" (dict "secretName" .secret "optional" true)) }}
{{- end }}
{{- with $volumes }}
{{- toYaml . }}
{{- end }}
{{- end }}

{{- define "vllm-specdec-exporter.scheme" -}}
{{ ternary "https" "http" (or .Values.webConfig.tls .Values.webConfig.clientCertificates false) }}
{{- end }}

{{- define "vllm-specdec-exporter.image" -}}
{{- $image := .Values.image }}
{{- with include "vllm-specdec-exporter.containerFaults" . | trim }}
{{- fail . }}
{{- end }}
{{- $name := $image.repository }}
{{- with ((.Values.global | default dict).imageRegistry | default $image.registry) }}
{{- $name = printf "%s/%s" (trimSuffix "/" .) $name }}
{{- end }}
{{- if or $image.tag (not $image.digest) }}
{{- $name = printf "%s:%s" $name ($image.tag | default (include "vllm-specdec-exporter.version" .)) }}
{{- end }}
{{- with $image.digest }}
{{- $name = printf "%s@%s" $name . }}
{{- end }}
{{- $name }}
{{- end }}

{{/* Pull secrets as a list of objects: those of the parent chart, and those of this one. */}}
{{- define "vllm-specdec-exporter.pullSecrets" -}}
{{- $secrets := list }}
{{- range concat ((.Values.global | default dict).imagePullSecrets | default list) (.Values.imagePullSecrets | default list) }}
{{- $secrets = append $secrets (kindIs "string" . | ternary (dict "name" .) .) }}
{{- end }}
{{- with $secrets }}
{{- toYaml . }}
{{- end }}
{{- end }}

{{/* The flags, as a list. */}}
{{- define "vllm-specdec-exporter.args" -}}
{{- $exporter := .Values.exporter }}
{{- $args := list }}
{{- /* A container that ends makes its pod not ready, and might keep vLLM from starting. */}}
{{- if .sidecar }}
{{- $args = append $args "--startup.on-error=wait" }}
{{- end }}
{{- range $exporter.vllmUrls }}
{{- $args = append $args (printf "--vllm.url=%s" .) }}
{{- end }}
{{- with $exporter.specConfig }}
{{- $args = append $args (printf "--spec.config=%s" (ternary . (toJson .) (kindIs "string" .))) }}
{{- end }}
{{- $thresholds := $exporter.thresholds }}
{{- if kindIs "string" $thresholds }}
{{- $thresholds = dict $thresholds true }}
{{- end }}
{{- range $name, $number := $thresholds }}
{{- if eq $name "published" }}
{{- if $number }}
{{- $args = append $args "--threshold=published" }}
{{- end }}
{{- else }}
{{- $args = append $args (printf "--threshold=%s=%s" $name (ternary $number (toJson $number) (kindIs "string" $number))) }}
{{- end }}
{{- end }}
{{- range $name, $setting := $exporter.settings }}
{{- range ternary $setting (list $setting) (kindIs "slice" $setting) }}
{{- $args = append $args (printf "--%s=%s" $name (ternary . (toJson .) (kindIs "string" .))) }}
{{- end }}
{{- end }}
{{- if ne (int $exporter.port) 9850 }}
{{- $args = append $args (printf "--web.listen-address=:%d" (int $exporter.port)) }}
{{- end }}
{{- if .Values.webConfig.existingSecret }}
{{- $args = append $args (printf "--web.config.file=%s/%s" .Values.webConfig.mountPath .Values.webConfig.key) }}
{{- end }}
{{- with .Values.tap }}
{{- if .enabled }}
{{- $args = append $args (printf "--tap.listen-address=:%d" (int .port)) }}
{{- with .upstream }}
{{- $args = append $args (printf "--tap.upstream=%s" .) }}
{{- end }}
{{- $args = append $args (printf "--tap.drain-timeout=%s" .drainTimeout) }}
{{- end }}
{{- end }}
{{- with .Values.push }}
{{- if .existingSecret }}
{{- $args = append $args (printf "--push.bearer-token-file=/etc/vllm-specdec-exporter/push/%s" .key) }}
{{- end }}
{{- end }}
{{- $args = concat $args ($exporter.extraArgs | default list) }}
{{- range $args }}
{{- /* With one of these toYaml gives nothing at all, and every flag would be lost. */}}
{{- if regexMatch "[\\x7f-\\x{9f}]" . }}
{{- fail (printf "exporter: the flag %q holds a control character, which YAML cannot carry: remove it from exporter.extraArgs, specConfig, vllmUrls or settings" .) }}
{{- end }}
{{- end }}
{{- toYaml $args }}
{{- end }}

{{/* Seconds that the standalone pod has for its end: what the tap may take for open connections, and some more. */}}
{{- define "vllm-specdec-exporter.gracePeriod" -}}
{{- $drain := ternary (include "vllm-specdec-exporter.milliseconds" .Values.tap.drainTimeout | int64) 0 (.Values.tap.enabled | default false) -}}
{{ add 10 (div (add $drain 999) 1000) }}
{{- end }}

{{/* The server that the tap stands before. */}}
{{- define "vllm-specdec-exporter.tapUpstream" -}}
{{ .Values.tap.upstream | default (first .Values.exporter.vllmUrls) }}
{{- end }}
