{{- /* What the bot may do in the namespaces whose Workspaces it serves. */}}
{{- define "mooring.bot.rules" -}}
- apiGroups: [mooring.dev]
  resources: [workspaces]
  verbs: [get, list, watch]
# The condition DiscordReady, under a field manager of its own.
- apiGroups: [mooring.dev]
  resources: [workspaces/status]
  verbs: [patch]
{{- end }}
