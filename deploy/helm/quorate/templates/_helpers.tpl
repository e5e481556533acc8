{{- define "quorate.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{ include "quorate.selector" . }}
{{- end }}

{{- define "quorate.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- /* host name of a pod: (dict "root" $ "kind" "node" "pod" "quorate-node-1") */}}
{{- define "quorate.host" -}}
{{ .pod }}.{{ .root.Release.Name }}-{{ .kind }}s.{{ .root.Release.Namespace }}.svc.{{ .root.Values.clusterDomain }}
{{- end }}

{{- /* "host:port" of every node, one a line */}}
{{- define "quorate.nodes" -}}
{{- $root := .root }}{{ $port := .port }}
{{- range $id := untilStep 1 (int (add1 $root.Values.nodes.count)) 1 }}
{{ include "quorate.host" (dict "root" $root "kind" "node" "pod" (printf "%s-node-%d" $root.Release.Name $id)) }}:{{ $port }}
{{- end }}
{{- end }}

{{- define "quorate.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- /* what every pod has alike */}}
{{- define "quorate.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "quorate.container" -}}
image: {{ include "quorate.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- /* /livez: ends a pod that does not answer. /readyz: clients are served, and the next pod may be replaced. */}}
{{- define "quorate.probes" -}}
startupProbe:
  httpGet: {path: /livez, port: admin, scheme: HTTPS}
  periodSeconds: 5
  # a long log is applied before a node answers
  failureThreshold: 720
livenessProbe:
  httpGet: {path: /livez, port: admin, scheme: HTTPS}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: admin, scheme: HTTPS}
  periodSeconds: 2
  timeoutSeconds: 2
lifecycle:
  # Services forget the pod; then SIGTERM hands over what it leads.
  preStop:
    sleep: {seconds: 3}
{{- end }}

{{- define "quorate.spread" -}}
topologySpreadConstraints:
  {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: {{ if eq . "kubernetes.io/hostname" }}{{ $.root.Values.spread }}{{ else }}ScheduleAnyway{{ end }}
    labelSelector:
      matchLabels: {{- include "quorate.selector" $.root | nindent 8 }}
        app.kubernetes.io/component: {{ $.kind }}
  {{- end }}
{{- end }}

{{- /* files of all secrets, in /etc/quorate-secrets; the group of the pod may read them */}}
{{- define "quorate.secrets" -}}
- name: secrets
  projected:
    defaultMode: 0440
    sources:
      - secret: {name: {{ .Values.secrets.peer | quote }}}
      - secret: {name: {{ .Values.secrets.tokens | quote }}}
      - secret: {name: {{ .Values.secrets.tls | quote }}}
{{- end }}
