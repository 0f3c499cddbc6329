{{- define "hub.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "hub.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains (include "hub.name" .) .Release.Name }}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "hub.name" .) | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "hub.selector" -}}
app.kubernetes.io/name: {{ include "hub.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: hub
{{- end }}

{{- define "hub.labels" -}}
{{ include "hub.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "hub.postgresSelector" -}}
app.kubernetes.io/name: {{ include "hub.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: postgres
{{- end }}

{{- define "hub.image" -}}
{{- $repository := required "image.repository is needed: where your registry keeps the hub" .Values.image.repository }}
{{- if .Values.image.digest }}
{{- printf "%s@%s" $repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" $repository (.Values.image.tag | default .Chart.AppVersion) }}
{{- end }}
{{- end }}

{{- define "hub.account" -}}
{{- if .Values.serviceAccount.create }}
{{- .Values.serviceAccount.name | default (include "hub.fullname" .) }}
{{- else }}
{{- .Values.serviceAccount.name | default "default" }}
{{- end }}
{{- end }}

{{- define "hub.masterKeySecret" -}}
{{- if .Values.masterKey.existingSecret }}
{{- .Values.masterKey.existingSecret }}
{{- else if .Values.masterKey.generate }}
{{- printf "%s-master-key" (include "hub.fullname" .) }}
{{- else }}
{{- fail "masterKey.existingSecret is needed: a Secret with the key master.key, made with `kubectl create secret generic NAME --from-literal=master.key=\"$(head -c 32 /dev/urandom | base64)\"`; or set masterKey.generate=true" }}
{{- end }}
{{- end }}

{{- define "hub.databaseSecret" -}}
{{- if and .Values.postgres.bundled .Values.database.existingSecret }}
{{- fail "database.existingSecret and postgres.bundled exclude each other: use one" }}
{{- else if .Values.postgres.bundled }}
{{- printf "%s-database" (include "hub.fullname" .) }}
{{- else }}
{{- required "database.existingSecret is needed: a Secret with the URLs app, system and owner; or set postgres.bundled=true for a trial" .Values.database.existingSecret }}
{{- end }}
{{- end }}

{{- define "hub.metricsSecret" -}}
{{- .Values.metrics.token.existingSecret | default (printf "%s-metrics-token" (include "hub.fullname" .)) }}
{{- end }}

{{- define "hub.migrations" -}}
{{- if ne .Values.migrations.mode "auto" }}
{{- if and .Values.postgres.bundled (eq .Values.migrations.mode "job") }}
{{- fail "migrations.mode=job runs before the release is installed, when the bundled Postgres does not run yet: use start" }}
{{- end }}
{{- .Values.migrations.mode }}
{{- else if .Values.postgres.bundled }}start
{{- else }}job
{{- end }}
{{- end }}

{{/* The hub's configuration file. owner: whether this process migrates. */}}
{{- define "hub.config" -}}
{{- $root := .root }}
{{- $v := $root.Values }}
{{- $database := dict "appFile" "/etc/capstan/database/app" "systemFile" "/etc/capstan/database/system" }}
{{- if .owner }}{{- $_ := set $database "ownerFile" "/etc/capstan/database/owner" }}{{- end }}
{{- with $v.database.maxConns }}{{- $_ := set $database "maxConns" (int .) }}{{- end }}
{{- if not $v.agentHosts }}{{ fail "agentHosts is needed: host:port that agents dial, such as capstan.example.com:443" }}{{ end }}
{{- $listen := dict "http" "0.0.0.0:8080" "link" "0.0.0.0:8443" "internal" "0.0.0.0:9443" }}
{{- if $v.metrics.enabled }}{{- $_ := set $listen "metrics" "0.0.0.0:9090" }}{{- end }}
{{- $c := dict
  "listen" $listen
  "publicURL" (required "publicURL is needed: the address of the console, such as https://capstan.example.com" $v.publicURL)
  "agentHosts" $v.agentHosts
  "database" $database
  "masterKey" "/etc/capstan/master-key/master.key"
  "stateDir" "/var/lib/capstan"
  "log" (dict "format" "json")
}}
{{- $image := $v.agentChart.image | default (ternary (replace "capstan-hub" "capstan-agent" $v.image.repository) "" (hasSuffix "capstan-hub" $v.image.repository)) }}
{{- $agent := dict }}
{{- range $k, $value := dict "chart" $v.agentChart.chart "version" $v.agentChart.version "image" $image }}{{- if $value }}{{- $_ := set $agent $k $value }}{{- end }}{{- end }}
{{- if $agent }}{{- $_ := set $c "agentChart" $agent }}{{- end }}
{{- if $v.webhook.existingSecret }}{{- $_ := set $c "webhook" (dict "githubSecretFile" "/etc/capstan/webhook/github") }}{{- end }}
{{- if and $v.metrics.enabled (not (dig "metrics" "public" false $v.config)) }}{{- $_ := set $c "metrics" (dict "tokenFile" "/etc/capstan/metrics/token") }}{{- end }}
{{- if $v.plugins.definitions }}{{- $_ := set $c "render" (dict "plugins" (dict "folder" "/etc/capstan/plugins")) }}{{- end }}
{{- with $v.trustedProxies }}{{- $_ := set $c "trustedProxies" . }}{{- end }}
{{- with $v.proxyProtocol }}{{- $_ := set $c "proxyProtocol" . }}{{- end }}
{{- if and $v.proxyProtocol (not (include "hub.proxies" $root)) }}{{ fail "trustedProxies is needed: proxyProtocol is accepted only from proxies that are listed there" }}{{ end }}
{{- toYaml (mustMergeOverwrite $c (deepCopy $v.config)) }}
{{- end }}

{{/* The proxies whose X-Forwarded-For is used. */}}
{{- define "hub.proxies" -}}
{{- join ", " (dig "trustedProxies" .Values.trustedProxies .Values.config) }}
{{- end }}

{{/* POD_IP is the address at which other replicas reach the internal port. */}}
{{- define "hub.env" -}}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "hub.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "hub.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
privileged: false
capabilities: {drop: [ALL]}
{{- end }}

{{/* Files that only the hub and its group may read (288 is 0440); the hub refuses others. */}}
{{- define "hub.secretVolumes" -}}
- name: master-key
  secret: {secretName: {{ include "hub.masterKeySecret" .root | quote }}, defaultMode: 288, items: [{key: master.key, path: master.key}]}
- name: database
  secret:
    secretName: {{ include "hub.databaseSecret" .root | quote }}
    defaultMode: 288
    items:
      - {key: app, path: app}
      - {key: system, path: system}
      {{- if .owner }}
      - {key: owner, path: owner}
      {{- end }}
{{- end }}
