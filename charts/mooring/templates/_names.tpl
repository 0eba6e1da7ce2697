{{- define "mooring.labels" -}}
app.kubernetes.io/name: mooring
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: mooring
{{- end }}

{{- /* The labels by which pods of a component are selected: list of the context and its name. */}}
{{- define "mooring.selector" -}}
app.kubernetes.io/name: mooring
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
mooring.dev/component: {{ index . 1 }}
{{- end }}

{{- /* An image, by digest where there is one: list of its values and the chart's version. */}}
{{- define "mooring.image" -}}
{{- $image := index . 0 }}
{{- if $image.digest }}{{ $image.repository }}@{{ $image.digest }}
{{- else }}{{ $image.repository }}:{{ $image.tag | default (index . 1) }}
{{- end }}
{{- end }}

{{- /* What a pod of this chart has in common: list of the context, the component's values and its name. */}}
{{- define "mooring.pod" -}}
{{- $root := index . 0 }}
{{- $values := index . 1 }}
serviceAccountName: mooring-{{ index . 2 }}
automountServiceAccountToken: true
enableServiceLinks: false
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if gt (int ($values.replicas | default 1)) 1 }}
topologySpreadConstraints:
- maxSkew: 1
  topologyKey: kubernetes.io/hostname
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      {{- include "mooring.selector" (list $root (index . 2)) | nindent 6 }}
{{- end }}
{{- end }}

{{- define "mooring.container.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- /* Namespaces that are looked after, as a selector. */}}
{{- define "mooring.namespaces" -}}
{{- with .Values.watchNamespaces -}}
{matchExpressions: [{key: kubernetes.io/metadata.name, operator: In, values: {{ toJson . }}}]}
{{- else -}}
{}
{{- end }}
{{- end }}

{{- /* Where operator and bot may go: names, the API server, and the harnesses. */}}
{{- define "mooring.egress" -}}
- ports:
  - {protocol: UDP, port: 53}
  - {protocol: TCP, port: 53}
  {{- range .Values.networkPolicy.apiServerPorts }}
  - {protocol: TCP, port: {{ . }}}
  {{- end }}
- to:
  - namespaceSelector: {{ include "mooring.namespaces" . }}
    podSelector: {matchLabels: {mooring.dev/component: harness}}
  ports:
  - {protocol: TCP, port: 7443}
{{- end }}
