{{- define "fairlane.labels" -}}
app.kubernetes.io/name: fairlane
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "fairlane.selector" -}}
app.kubernetes.io/name: fairlane
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "fairlane.name" -}}
{{- if contains "fairlane" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-fairlane" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "fairlane.secrets" -}}
{{ .Values.secrets.existing | default (include "fairlane.name" .) }}
{{- end }}

{{- /* gateway.yaml: what the chart has to say itself wins over what is configured. */}}
{{- define "fairlane.config" -}}
{{- $store := dict "embedded" (dict "path" "/var/lib/fairlane/store") }}
{{- if .Values.redis.enabled }}
{{- $redis := merge (dict "url" "${REDIS_URL}" "spool" "/var/lib/fairlane/store" "advertise" "http://${POD_IP}:8081") .Values.redis.options }}
{{- $store = dict "redis" $redis }}
{{- end }}
{{- with (.Values.config.store).retention }}{{ $_ := set $store "retention" . }}{{ end }}
{{- $own := dict "listen" (dict "address" "0.0.0.0:8080") "admin" (dict "address" "0.0.0.0:8081") "store" $store }}
{{- $hosts := append ((.Values.config.admin).hosts | default list) (printf "%s-admin" (include "fairlane.name" .)) | uniq }}
{{- $_ := set $own.admin "hosts" $hosts }}
{{- if and .Values.redis.enabled .Values.redis.adminTokenKey }}
{{- $_ := set $own.admin "token" (printf "file:/etc/fairlane/secrets/%s" .Values.redis.adminTokenKey) }}
{{- end }}
{{- toYaml (mergeOverwrite (omit .Values.config "store" | deepCopy) $own) }}
{{- end }}
