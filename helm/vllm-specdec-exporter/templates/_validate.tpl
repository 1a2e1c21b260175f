{{/* Names that other charts have for a value, and what to do instead here. The schema lets them through to this message. */}}
{{- define "vllm-specdec-exporter.hints" -}}
affinity: use standalone.affinity
env: use exporter.extraEnv
extraArgs: use exporter.extraArgs
extraContainers: put them into a workload of your own, in extraManifests; standalone.enabled runs the exporter alone
hostNetwork: leave it out, because exporter.port would be taken on the whole node
image.pullSecrets: use imagePullSecrets, or global.imagePullSecrets for all charts of a parent
initContainers: put them into a workload of your own, in extraManifests; standalone.enabled runs the exporter alone
nodeSelector: use standalone.nodeSelector
podAnnotations: use standalone.podAnnotations
podMonitor.additionalLabels: use podMonitor.labels
prometheusRule.additionalLabels: use prometheusRule.labels, or prometheusLabels for monitors and rules alike
readinessProbe: leave it out, because vLLM would not be ready without the exporter; exporter.livenessProbe can be set
releaseLabel: use prometheusLabels, with the key release
replicaCount: leave it out, because a second exporter of standalone.enabled would count every engine twice
resources: use exporter.resources
securityContext: use exporter.securityContext
selfMonitor: use podMonitor.enabled for sidecars, serviceMonitor.enabled for the standalone exporter
serviceAccount: name an account that exists in standalone.serviceAccountName, because the exporter needs no rights
serviceMonitor.additionalLabels: use serviceMonitor.labels
standalone.resources: use exporter.resources
tolerations: use standalone.tolerations
volumeMounts: use exporter.extraVolumeMounts
volumes: use exporter.extraVolumes
vllm-specdec-exporter: leave this level out, which only the values of a parent chart have, and set what is below it, such as podMonitor.enabled
{{- end }}

{{- define "vllm-specdec-exporter.validate" -}}
{{- with include "vllm-specdec-exporter.faults" . | trim }}
{{- fail . }}
{{- end }}
{{- end }}

{{/* What the schema cannot say: values that contradict each other. A line for each fault, which says what to change. */}}
{{- define "vllm-specdec-exporter.faults" -}}
{{- $v := .Values }}
{{- range $path, $instead := include "vllm-specdec-exporter.hints" . | fromYaml }}
{{- $place := $v }}
{{- range initial (splitList "." $path) }}
{{- $place = get $place . }}
{{- end }}
{{- if hasKey $place (last (splitList "." $path)) }}
{{- println (printf "%s: %s. The chart has no such value" $path $instead) }}
{{- end }}
{{- end }}
{{- if and $v.serviceMonitor.enabled (not $v.standalone.enabled) }}
{{- println "serviceMonitor.enabled needs standalone.enabled: a sidecar has no Service. For sidecars set podMonitor.enabled instead" }}
{{- end }}
{{- if and $v.podMonitor.enabled (or $v.podMonitor.basicAuth $v.podMonitor.authorization) ($v.podMonitor.namespaceSelector | default dict).any (eq (toJson $v.podMonitor.selector) "{}") }}
{{- println "podMonitor.basicAuth and podMonitor.authorization would be sent to every pod of the cluster that calls a port specdec-metrics: set podMonitor.namespaceSelector.matchNames or podMonitor.selector" }}
{{- end }}
{{- if and $v.standalone.enabled (eq (toJson $v.exporter.vllmUrls) "[\"http://127.0.0.1:8000\"]") }}
{{- println "standalone.enabled needs exporter.vllmUrls: there is no vLLM in its pod. Give the addresses of your vLLM pods, such as [\"http://vllm-0.vllm.default:8000\"], or a headless Service, [\"dns+http://vllm.default.svc:8000\"]; an ordinary Service in front of several replicas gives the counters of another one with each poll, use sidecars there" }}
{{- end }}
{{- if and $v.standalone.enabled (not (regexMatch "^[a-z]" (include "vllm-specdec-exporter.fullname" .))) }}
{{- println (printf "standalone.enabled makes a Service, which would be called %s, and a Service's name begins with a letter: set fullnameOverride" (include "vllm-specdec-exporter.fullname" .)) }}
{{- end }}
{{- if and $v.standalone.enabled $v.injection.enabled }}
{{- println "standalone.enabled and injection.enabled share exporter.*, and mean different servers by exporter.vllmUrls: install the chart twice, once for each" }}
{{- end }}
{{- range $name, $monitor := dict "podMonitor" $v.podMonitor "serviceMonitor" $v.serviceMonitor }}
{{- if and $monitor.enabled $monitor.interval $monitor.scrapeTimeout }}
{{- if gt (include "vllm-specdec-exporter.milliseconds" $monitor.scrapeTimeout | int64) (include "vllm-specdec-exporter.milliseconds" $monitor.interval | int64) }}
{{- println (printf "%s.scrapeTimeout %s is longer than %s.interval %s, which the operator refuses: set it to at most the interval" $name $monitor.scrapeTimeout $name $monitor.interval) }}
{{- end }}
{{- end }}
{{- if and $monitor.enabled $monitor.basicAuth $monitor.authorization }}
{{- println (printf "%s.basicAuth and %s.authorization exclude each other: keep one" $name $name) }}
{{- end }}
{{- if and $monitor.enabled $monitor.tlsConfig (eq ($monitor.scheme | default (include "vllm-specdec-exporter.scheme" $)) "http") }}
{{- println (printf "%s.tlsConfig without TLS: set webConfig.tls, or %s.scheme to https" $name $name) }}
{{- end }}
{{- end }}
{{- if and $v.vllmPodMonitor.enabled (not $v.vllmPodMonitor.selector) }}
{{- println "vllmPodMonitor.enabled needs vllmPodMonitor.selector: the labels of vLLM's pods, such as {matchLabels: {app: vllm}}" }}
{{- end }}
{{- if and $v.vllmPodMonitor.enabled (has $v.vllmPodMonitor.port (list "specdec-metrics" "tap")) }}
{{- println "vllmPodMonitor.port is the exporter's port: name vLLM's own, and leave the exporter to podMonitor" }}
{{- end }}
{{- if and (or $v.webConfig.tls $v.webConfig.clientCertificates) (not $v.webConfig.existingSecret) }}
{{- println "webConfig.tls and webConfig.clientCertificates describe what is in webConfig.existingSecret: name that Secret" }}
{{- end }}
{{- if and $v.prometheusRule.enabled $v.prometheusRule.groups (not ($v.prometheusRule.groups | default dict).recording) }}
{{- $others := list }}
{{- range $name, $on := omit $v.prometheusRule.groups "recording" }}
{{- $others = $on | ternary (append $others $name) $others }}
{{- end }}
{{- with $others }}
{{- println (printf "prometheusRule.groups.recording is off, and %s of prometheusRule.groups are made of what it records: switch it on, or the others off" (join ", " .)) }}
{{- end }}
{{- end }}
{{- if and $v.alertmanagerConfig.enabled (not $v.alertmanagerConfig.receivers.page) (not $v.alertmanagerConfig.receivers.ticket) }}
{{- println "alertmanagerConfig.enabled needs alertmanagerConfig.receivers.page or .ticket: nobody would be told of anything. Example: --set alertmanagerConfig.receivers.ticket.slackConfigs[0].channel=#specdec" }}
{{- end }}
{{- if and $v.dashboards.enabled (hasKey ($v.dashboards.labels | default dict) $v.dashboards.label) (ne (get ($v.dashboards.labels | default dict) $v.dashboards.label) $v.dashboards.labelValue) }}
{{- println (printf "dashboards.labels gives %s another value than dashboards.labelValue: remove it from dashboards.labels" $v.dashboards.label) }}
{{- end }}
{{- if and $v.dashboards.grafanaDashboard.enabled (not $v.dashboards.enabled) }}
{{- println "dashboards.grafanaDashboard.enabled needs dashboards.enabled: its resources refer to the ConfigMaps" }}
{{- end }}
{{- if $v.networkPolicy.enabled }}
{{- if not (or $v.standalone.enabled $v.networkPolicy.sidecar.podSelector) }}
{{- println "networkPolicy.enabled has nothing to protect: enable standalone, or set networkPolicy.sidecar.podSelector to the labels of the pods with sidecars" }}
{{- end }}
{{- if and $v.networkPolicy.sidecar.podSelector (not $v.networkPolicy.sidecar.keepOpen) }}
{{- println "networkPolicy.sidecar.podSelector selects pods of vLLM, and networkPolicy.sidecar.keepOpen is empty: that would cut vLLM off. Name its ports, such as [8000]" }}
{{- end }}
{{- end }}
{{- if $v.tap.enabled }}
{{- include "vllm-specdec-exporter.validateTap" . }}
{{- end }}
{{- if or $v.injection.enabled $v.standalone.enabled }}
{{- include "vllm-specdec-exporter.containerFaults" . }}
{{- end }}
{{- range $v.exporter.extraArgs }}
{{- if or (hasPrefix "--config.check" .) (eq "--help" .) (eq "-h" .) (eq "--version" .) }}
{{- println (printf "exporter.extraArgs has %s, with which the exporter ends at once: remove it" .) }}
{{- end }}
{{- if or (hasPrefix "--vllm.url" .) (hasPrefix "--spec.config" .) }}
{{- println (printf "exporter.extraArgs has %s: set exporter.vllmUrls and exporter.specConfig instead, which annotations of pods can replace" .) }}
{{- end }}
{{- if hasPrefix "--startup.on-error" . }}
{{- println (printf "exporter.extraArgs has %s: a sidecar waits and the standalone exporter exits, and neither can be changed: remove it" .) }}
{{- end }}
{{- if or (hasPrefix "--tap." .) (hasPrefix "--push." .) }}
{{- println (printf "exporter.extraArgs has %s: set tap and push instead, which ports, Services and volumes go by" .) }}
{{- end }}
{{- if or (hasPrefix "--web.listen-address" .) (hasPrefix "--web.config.file" .) }}
{{- println (printf "exporter.extraArgs has %s: set exporter.port and webConfig instead, which the probes and monitors go by" .) }}
{{- end }}
{{- end }}
{{- range $v.exporter.extraEnv }}
{{- if has .name (list "VLLM_SPECDEC_EXPORTER_WEB_LISTEN_ADDRESS" "VLLM_SPECDEC_EXPORTER_WEB_CONFIG_FILE" "VLLM_SPECDEC_EXPORTER_STARTUP_ON_ERROR") }}
{{- println (printf "exporter.extraEnv has %s: set exporter.port and webConfig instead, which the probes and monitors go by" .name) }}
{{- end }}
{{- if regexMatch "^VLLM_SPECDEC_EXPORTER_(TAP|PUSH)_" (toString .name) }}
{{- println (printf "exporter.extraEnv has %s: set tap and push instead, which ports, Services and volumes go by" .name) }}
{{- end }}
{{- end }}
{{- $resources := $v.exporter.resources | default dict }}
{{- range $resource := list "cpu" "memory" }}
{{- $limit := get ($resources.limits | default dict) $resource | toString }}
{{- /* Kubernetes takes the limit for a request that is missing, but not the other way round. */}}
{{- $request := get ($resources.requests | default dict) $resource | toString | default $limit }}
{{- if or (not $limit) (ne (include "vllm-specdec-exporter.quantity" $request) (include "vllm-specdec-exporter.quantity" $limit)) }}
{{- if not $v.exporter.allowBurstable }}
{{- println (printf "exporter.resources: the request and the limit of %s differ or are missing, which would make a Guaranteed vLLM pod Burstable and cost it its exclusive CPUs. Make them equal, or set exporter.allowBurstable" $resource) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* The same for the tap, where it is enabled. */}}
{{- define "vllm-specdec-exporter.validateTap" -}}
{{- $v := .Values }}
{{- if eq (int $v.tap.port) (int $v.exporter.port) }}
{{- println (printf "tap.port and exporter.port are both %d: give the tap another one" (int $v.tap.port)) }}
{{- end }}
{{- if and (or (gt (len $v.exporter.vllmUrls) 1) (hasPrefix "dns" (first $v.exporter.vllmUrls))) (not $v.tap.upstream) }}
{{- println "exporter.vllmUrls means several servers, and the tap stands before one: set tap.upstream to its address" }}
{{- end }}
{{- $itself := printf "^https?://([^/@]*@)?(127[.][0-9.]+|localhost|\\[::1\\]|0[.]0[.]0[.]0):%d(/|$)" (int $v.tap.port) }}
{{- range prepend $v.exporter.vllmUrls ($v.tap.upstream | default "") }}
{{- if regexMatch $itself . }}
{{- println (printf "tap.port is the port of %s: the tap would stand before itself, or in vLLM's place. Give it another one, and leave exporter.vllmUrls and tap.upstream to vLLM's own" .) }}
{{- end }}
{{- end }}
{{- if and $v.standalone.enabled (eq (int $v.standalone.service.tapPort) (int $v.standalone.service.port)) }}
{{- println (printf "standalone.service.port and standalone.service.tapPort are both %d: give one of them another" (int $v.standalone.service.port)) }}
{{- end }}
{{- range $v.networkPolicy.sidecar.keepOpen }}
{{- if and $v.networkPolicy.enabled $v.networkPolicy.tapFrom (eq (int .) (int $v.tap.port)) }}
{{- println (printf "networkPolicy.sidecar.keepOpen opens %d to everybody, which networkPolicy.tapFrom closes: remove it from one of them" (int .)) }}
{{- end }}
{{- end }}
{{- end }}

{{/* The same for the container; a chart of yours that includes the sidecar comes here as well. */}}
{{- define "vllm-specdec-exporter.containerFaults" -}}
{{- if not .Values.image.repository }}
{{- println "image.repository is empty: set image.registry and image.repository to an image that your nodes can pull; docs/deployment.md says how to build one" }}
{{- end }}
{{- $config := .Values.exporter.specConfig }}
{{- if and $config (kindIs "string" $config) (hasKey (fromJson (toString $config)) "Error") }}
{{- println (printf "exporter.specConfig is not a JSON object: %s. Give it as vLLM has it, or as a map" $config) }}
{{- end }}
{{- end }}

{{/* A duration of Prometheus in milliseconds; the schema has seen to its form. */}}
{{- define "vllm-specdec-exporter.milliseconds" -}}
{{- $total := 0 }}
{{- range regexFindAll "[0-9]+[a-z]+" . -1 }}
{{- $number := regexFind "^[0-9]+" . | int64 }}
{{- $unit := regexFind "[a-z]+$" . }}
{{- $total = add $total (mul $number (get (dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000 "d" 86400000) $unit)) }}
{{- end }}
{{- $total }}
{{- end }}

{{/* A quantity as a number, so that equal ones are equal however they are spelled: 0.2 and 200m, 128Mi and 134217728. */}}
{{- define "vllm-specdec-exporter.quantity" -}}
{{- $number := regexFind "^[0-9.]+([eE][-+]?[0-9]+)?" . }}
{{- $unit := trimPrefix $number . }}
{{- $units := dict "n" 1e-9 "u" 1e-6 "m" 1e-3 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 }}
{{- if not $unit }}
{{- printf "%.6f" (float64 $number) }}
{{- else if and $number (hasKey $units $unit) }}
{{- printf "%.6f" (mulf (float64 $number) (get $units $unit)) }}
{{- else }}
{{- . }}
{{- end }}
{{- end }}
