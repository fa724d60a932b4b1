{{- define "txnwatch.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* At most 52 characters: the StatefulSet's controller appends a hash to it in a label of at most 63. */}}
{{- define "txnwatch.fullname" -}}
{{- $name := include "txnwatch.name" . }}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) }}
{{- default $full .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- end }}

{{- define "txnwatch.selector" -}}
app.kubernetes.io/name: {{ include "txnwatch.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "txnwatch.labels" -}}
{{ include "txnwatch.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "txnwatch.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end }}
{{- end }}

{{- define "txnwatch.serviceAccountName" -}}
{{- default (ternary (include "txnwatch.fullname" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name }}
{{- end }}

{{/*
One rule of egress: the TCP ports of a setting (host:port or URLs, comma-separated), the further ports and the peers of
a service. A reference to a file or a variable hides a port; then a further port must be named.
*/}}
{{- define "txnwatch.egress" -}}
{{- $ofScheme := dict "http" 80 "https" 443 "redis" 6379 "rediss" 6379 "redis+cluster" 6379 "rediss+cluster" 6379 }}
{{- $ofScheme = merge $ofScheme (dict "redis+sentinel" 26379 "rediss+sentinel" 26379) }}
{{- $further := default list .rule.ports }}
{{- $scheme := "" }}
{{- $ports := list }}
{{- range splitList "," (regexReplaceAll "[$][{][^{}]*[}]" (default "" .text) "*") }}
{{- $parts := splitList "://" . }}
{{- $scheme = ternary (first $parts) $scheme (gt (len $parts) 1) }}
{{- $place := regexReplaceAll "^.*@" (regexReplaceAll "[/?].*$" (last $parts) "") "" }}
{{- $port := default (get $ofScheme $scheme) (regexFind "[0-9]+$" (regexFind ":[0-9]+$" $place)) }}
{{- if and $port (not (hasSuffix "*" $place)) }}
{{- $ports = append $ports (int $port) }}
{{- else if and . (ne $scheme "unix") (not $further) }}
{{- fail (printf "%s.ports: expected the port of %s, which is not in the value: name it here" $.service $.of) }}
{{- end }}
{{- end }}
{{- range $further }}
{{- $ports = append $ports (int .) }}
{{- end }}
{{- if $ports -}}
- ports:
    {{- range uniq $ports }}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
  {{- with .rule.to }}
  to: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- end }}

{{/* The pods of `txnwatch page` have a name of their own: what selects those of the watcher must not select them. */}}
{{- define "txnwatch.pageSelector" -}}
app.kubernetes.io/name: {{ include "txnwatch.name" . }}-page
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "txnwatch.pageLabels" -}}
{{ merge (include "txnwatch.pageSelector" . | fromYaml) (include "txnwatch.labels" . | fromYaml) | toYaml }}
{{- end }}

{{/* The value of a variable: a list is comma-separated. toJson writes a large number without an exponent. */}}
{{- define "txnwatch.settingValue" -}}
{{- if kindIs "slice" . }}{{ join "," . }}{{ else if kindIs "string" . }}{{ . }}{{ else }}{{ toJson . }}{{ end }}
{{- end }}
