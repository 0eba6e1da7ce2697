{{- /* What the operator may do in the namespaces that it looks after. */}}
{{- define "mooring.operator.rules" -}}
# Workspaces: read, and say how they are.
- apiGroups: [mooring.dev]
  resources: [workspaces]
  verbs: [get, list, watch]
- apiGroups: [mooring.dev]
  resources: [workspaces/status]
  verbs: [patch]
# Approvals: count them, and remove old ones. Making them and writing their
# status is handed on to harnesses (nobody can grant what they do not have); the
# admission policy refuses both to the operator itself.
- apiGroups: [mooring.dev]
  resources: [approvals]
  verbs: [get, list, watch, delete, create]
- apiGroups: [mooring.dev]
  resources: [approvals/status]
  verbs: [patch]
# What a workspace is made of. Secrets are written and never read.
- apiGroups: [""]
  resources: [serviceaccounts, services]
  verbs: [get, list, watch, create, patch]
- apiGroups: [""]
  resources: [secrets]
  verbs: [create, patch]
- apiGroups: [rbac.authorization.k8s.io]
  resources: [roles, rolebindings]
  verbs: [get, list, watch, create, patch]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch]
# Deleted, without their pods, only to let a volume grow.
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, patch]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end }}
