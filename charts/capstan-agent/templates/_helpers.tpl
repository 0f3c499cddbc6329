{{- define "agent.selector" -}}
app.kubernetes.io/name: capstan-agent
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "agent.labels" -}}
{{ include "agent.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "agent.image" -}}
{{- $repository := required "image.repository is needed: where your registry keeps the agent" .Values.image.repository }}
{{- if .Values.image.digest }}
{{- printf "%s@%s" $repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" $repository (.Values.image.tag | default .Chart.AppVersion) }}
{{- end }}
{{- end }}

{{- define "agent.account" -}}
{{- if .Values.serviceAccount.create }}
{{- .Values.serviceAccount.name | default .Release.Name }}
{{- else }}
{{- required "serviceAccount.name is needed with serviceAccount.create=false" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* The name of the roles that grant rights outside of the agent's namespace. */}}
{{- define "agent.grant" -}}
{{- printf "%s:%s" .Release.Namespace .Release.Name }}
{{- end }}

{{- define "agent.mode" -}}
{{- if and (eq .Values.mode "namespaced") (not .Values.namespaces) }}
{{- fail "namespaces is needed with mode=namespaced: the namespaces that the agent manages" }}
{{- end }}
{{- if and (eq .Values.mode "cluster") .Values.namespaces }}
{{- fail "namespaces has no meaning with mode=cluster: use mode=namespaced, or guard.namespaces" }}
{{- end }}
{{- .Values.mode }}
{{- end }}

{{/* The rights on objects that the agent applies or observes. */}}
{{- define "agent.rules" -}}
{{- $observes := eq (include "agent.mode" .) "observe" }}
{{- with .Values.rbac.rules }}
{{- toYaml . }}
{{- else }}
{{- .Files.Get (ternary "files/observe.yaml" "files/deploy.yaml" $observes) }}
{{- end }}
{{- if and .Values.rbac.manageRoles (not $observes) }}
{{ .Files.Get "files/roles.yaml" }}
{{- end }}
{{- if and .Values.events.enabled (not $observes) }}
{{ .Files.Get "files/events.yaml" }}
{{- end }}
{{- if and .Values.impersonation.enabled (not $observes) }}
{{ .Files.Get "files/impersonate.yaml" }}
{{- with .Values.impersonation.serviceAccounts }}
  resourceNames: {{ toJson . }}
{{- end }}
{{- end }}
{{- end }}

{{- define "agent.guard" -}}
{{- $g := deepCopy .Values.guard }}
{{- $deny := $g.deny }}
{{- if not $g.allowOwnNamespace }}
{{- range $kind := list "ClusterRole" "ClusterRoleBinding" "Role" "RoleBinding" }}
{{- $deny = append $deny (dict "group" "rbac.authorization.k8s.io" "kind" $kind "name" (include "agent.grant" $)) }}
{{- end }}
{{- end }}
{{- toYaml (set $g "deny" $deny) }}
{{- end }}

{{/* The policy for secrets, with the paths of what the chart mounts for it. */}}
{{- define "agent.secrets" -}}
{{- $p := deepCopy .Values.secrets.policy }}
{{- range $v := $p.vault }}
{{- if and $.Values.secrets.vaultAudience (not $v.tokenFile) }}
{{- $_ := set $v "tokenFile" "/var/run/secrets/capstan/vault/token" }}
{{- end }}
{{- if and $.Values.secrets.vaultCA.existingConfigMap (not $v.caFile) }}
{{- $_ := set $v "caFile" "/etc/capstan/vault-ca/ca.crt" }}
{{- end }}
{{- end }}
{{- toYaml $p }}
{{- end }}

{{/* The Secrets of age keys that the policy names, as JSON. */}}
{{- define "agent.ageSecrets" -}}
{{- $names := list }}
{{- range ((.Values.secrets.policy.sops | default dict).age | default list) }}
{{- $names = append $names .secret }}
{{- end }}
{{- toJson (uniq $names) }}
{{- end }}

{{- define "agent.joinSecret" -}}
{{- .Values.join.existingSecret | default "capstan-agent-join" }}
{{- end }}
