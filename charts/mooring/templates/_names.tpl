{{- define "mooring.labels" -}}
app.kubernetes.io/name: mooring
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: mooring
{{- end }}

{{- define "mooring.operator.selector" -}}
app.kubernetes.io/name: mooring
app.kubernetes.io/instance: {{ .Release.Name }}
mooring.dev/component: operator
{{- end }}

{{- /* An image, by digest where there is one: list of its values and the chart's version. */}}
{{- define "mooring.image" -}}
{{- $image := index . 0 }}
{{- if $image.digest }}{{ $image.repository }}@{{ $image.digest }}
{{- else }}{{ $image.repository }}:{{ $image.tag | default (index . 1) }}
{{- end }}
{{- end }}
