{{/* The name of all objects, and the label of the pods. */}}
{{- define "shardwatch.name" -}}
{{ .Release.Name | trunc 48 | trimSuffix "-" }}
{{- end }}

{{- define "shardwatch.labels" -}}
app.kubernetes.io/name: {{ include "shardwatch.name" . }}
{{- end }}

{{/* The job of the nodes in Prometheus: unique in the namespace, and the alerts require "shardwatch" in it. */}}
{{- define "shardwatch.job" -}}
{{- $name := include "shardwatch.name" . -}}
{{ $name }}-{{ ternary "nodes" "shardwatch" (contains "shardwatch" $name) }}
{{- end }}

{{- define "shardwatch.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- end }}

{{/* The environment of cachenode: a line for each flag that is set. */}}
{{- define "shardwatch.settings" -}}
{{- $name := include "shardwatch.name" . }}
{{- $all := dict "join" (printf "%s-nodes" $name) }}
{{- if .Values.tls.enabled }}
{{- $_ := merge $all (dict
    "tls-cert" "/etc/shardwatch/clients/tls.crt" "tls-key" "/etc/shardwatch/clients/tls.key" "tls-client-ca" "/etc/shardwatch/clients/ca.crt"
    "peer-tls-cert" "/etc/shardwatch/peers/tls.crt" "peer-tls-key" "/etc/shardwatch/peers/tls.key" "peer-tls-ca" "/etc/shardwatch/peers/ca.crt"
    "http-tls-cert" "/etc/shardwatch/clients/tls.crt" "http-tls-key" "/etc/shardwatch/clients/tls.key" "http-tls-client-ca" "/etc/shardwatch/clients/ca.crt"
    "gossip-key-file" "/etc/shardwatch/gossip/key") }}
{{- end }}
{{- if .Values.etcdTLS.secretName }}
{{- $_ := merge $all (dict "etcd-ca" "/etc/shardwatch/etcd/ca.crt" "etcd-cert" "/etc/shardwatch/etcd/tls.crt" "etcd-key" "/etc/shardwatch/etcd/tls.key") }}
{{- end }}
{{- if .Values.policy }}
{{- $_ := set $all "policy" "/etc/shardwatch/policy/policy.yaml" }}
{{- end }}
{{- range $flag, $value := mergeOverwrite $all .Values.settings }}
{{- if kindIs "slice" $value }}{{ $value = join "," $value }}{{ end }}
{{- if kindIs "float64" $value }}{{ $value = $value | int64 }}{{ end }}
{{- if and (not (kindIs "invalid" $value)) (ne (toString $value) "") }}
CACHENODE_{{ $flag | upper | replace "-" "_" }}: {{ $value | toString | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* Mistakes that a schema cannot tell. */}}
{{- define "shardwatch.check" -}}
{{- if not .Values.settings.etcd }}
{{- fail "settings.etcd is empty: list the addresses of etcd, as in --set 'settings.etcd={https://etcd-0:2379,https://etcd-1:2379}'" }}
{{- end }}
{{- if and (not .Values.tls.enabled) (not .Values.settings.insecure) (not (index .Values.settings "tls-cert")) }}
{{- fail "ports have no certificates: set tls.enabled=true (needs cert-manager), or settings.insecure=all to try the chart without encryption" }}
{{- end }}
{{- if and .Values.prometheus.enabled (regexMatch "shardwatch-kube(-|$)" (include "shardwatch.job" .)) }}
{{- fail (printf "release %s: choose a name without shardwatch-kube; the alerts take such nodes for those that serve Kubernetes' API" .Release.Name) }}
{{- end }}
{{- /* mustDateModify reads the duration, and fails for a wrong one. */}}
{{- $drain := index .Values.settings "drain-timeout" | default "30s" | toString }}
{{- $start := toDate "2006" "2000" }}
{{- $need := sub (mustDateModify (printf "+%s" $drain) $start | unixEpoch) (unixEpoch $start) | add 15 }}
{{- if lt (int64 .Values.terminationGracePeriodSeconds) $need }}
{{- fail (printf "terminationGracePeriodSeconds=%d is too short for settings.drain-timeout=%s: Kubernetes would kill nodes while they drain; set it to %d or more" (int .Values.terminationGracePeriodSeconds) $drain $need) }}
{{- end }}
{{- if lt (int .Values.replicas) (int (index .Values.settings "bootstrap-expect")) }}
{{- fail (printf "replicas=%d is less than settings.bootstrap-expect=%d: the cluster would wait for the missing pods" (int .Values.replicas) (int (index .Values.settings "bootstrap-expect"))) }}
{{- end }}
{{- end }}
