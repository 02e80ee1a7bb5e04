{{- /* Encryption and keys. Components are dict "root" $ "key" … "component" … "port" …, as everywhere; the test pod's key is "test". */ -}}

{{- /* Whether a component asks whoever connects for a certificate: workers the orchestrator, the orchestrator its clients. */ -}}
{{- define "foretoken.asksForCertificates" -}}
{{- $tls := .root.Values.tls -}}
{{- if and $tls.enabled (eq .key "orchestrator" | ternary $tls.clients.mutual $tls.mutual) }}true{{ end -}}
{{- end -}}

{{- /* The Service that a component is reached under, whose name its certificate is verified for. Workers have but a headless one. */ -}}
{{- define "foretoken.reachedAs" -}}
{{ include "foretoken.name" . }}{{ if ne .component "orchestrator" }}-headless{{ end }}
{{- end -}}

{{- /*
Every name that a component is dialled by. With dns:/// the name given is verified, whatever address is behind it, so that no pod
needs one of its own; probes dial 127.0.0.1 and verify the Service's name.
*/ -}}
{{- define "foretoken.dnsNames" -}}
{{- if eq .key "test" }}
- {{ include "foretoken.name" . }}
{{- else }}
{{- range $service := uniq (list (include "foretoken.reachedAs" .) (printf "%s-headless" (include "foretoken.name" .))) }}
- {{ $service }}
- {{ $service }}.{{ $.root.Release.Namespace }}
- {{ $service }}.{{ $.root.Release.Namespace }}.svc
{{- end }}
{{- end }}
{{- if eq .key "orchestrator" }}
{{- range .root.Values.tls.certManager.orchestratorNames }}
- {{ . | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* The test pod needs a certificate of its own only where clients are asked for one. */ -}}
{{- define "foretoken.hasCertificate" -}}
{{- if or (ne .key "test") .root.Values.tls.clients.mutual }}true{{ end -}}
{{- end -}}

{{- /* Where a component's tls.crt, tls.key and ca.crt are; who has no certificate takes the authority's from the orchestrator. */ -}}
{{- define "foretoken.tlsSecret" -}}
{{- if not (include "foretoken.hasCertificate" .) -}}
{{ include "foretoken.tlsSecret" (dict "root" .root "key" "orchestrator" "component" "orchestrator") }}
{{- else if .root.Values.tls.certManager.enabled -}}
{{ include "foretoken.name" . }}-tls
{{- else -}}
{{ index .root.Values.tls.existingSecrets .key }}
{{- end -}}
{{- end -}}

{{- /* What proxies and meshes take the port for: HTTP/2 without or with TLS. */ -}}
{{- define "foretoken.appProtocol" -}}
{{ .Values.tls.enabled | ternary "https" "kubernetes.io/h2c" }}
{{- end -}}

{{- /* Flags of a service: its own certificate, who else must have one, and how the orchestrator dials workers. */ -}}
{{- define "foretoken.tlsArgs" -}}
{{- $values := .root.Values -}}
{{- if $values.tls.enabled }}
- --tls-cert=/tls/tls.crt
- --tls-key=/tls/tls.key
{{- if include "foretoken.asksForCertificates" . }}
- --tls-client-ca=/tls/ca.crt
{{- end }}
{{- if eq .key "orchestrator" }}
- --tls-ca=/tls/ca.crt
{{- if $values.tls.mutual }}
- --tls-client-cert=/tls/tls.crt
- --tls-client-key=/tls/tls.key
{{- end }}
{{- end }}
{{- end }}
{{- if and (eq .key "orchestrator") $values.apiKeys.enabled }}
- --api-keys=/api-keys/api-keys
{{- end }}
{{- end -}}

{{- /* Flags of whoever calls a component. */ -}}
{{- define "foretoken.tlsClientArgs" -}}
{{- if .root.Values.tls.enabled }}
- --tls-ca=/tls/ca.crt
{{- if include "foretoken.asksForCertificates" . }}
- --tls-client-cert=/tls/tls.crt
- --tls-client-key=/tls/tls.key
{{- end }}
{{- end }}
{{- end -}}

{{- /*
A probe's question: a component and "service" <the name that is asked after> "seconds" <the probe's timeout>. The kubelet's own
gRPC probes speak plaintext, so with TLS the binary asks itself, and verifies its certificate as any client would. It gives up
before the kubelet does, so that the kubelet is told what was waited for.
*/ -}}
{{- define "foretoken.question" -}}
{{- if .root.Values.tls.enabled -}}
exec:
  command:
    - /usr/local/bin/foretoken-{{ .component }}
    - healthcheck
    - --address=127.0.0.1:{{ .port }}
    - --service={{ .service }}
    - --timeout={{ sub .seconds 1 }}s
    - --tls-server-name={{ include "foretoken.reachedAs" . }}
    {{- include "foretoken.tlsClientArgs" . | trim | nindent 4 }}
{{- else -}}
grpc:
  port: {{ .port }}
  {{- with .service }}
  service: {{ . }}
  {{- end }}
{{- end }}
{{- end -}}

{{- define "foretoken.secretMounts" -}}
{{- if .root.Values.tls.enabled }}
- {name: tls, mountPath: /tls, readOnly: true}
{{- end }}
{{- if and .root.Values.apiKeys.enabled (has .key (list "orchestrator" "test")) }}
- {name: api-keys, mountPath: /api-keys, readOnly: true}
{{- end }}
{{- end -}}

{{- /*
Whole folders, because a file that is mounted by subPath never changes: the kubelet swaps a folder's content when the secret
does, and the services read it again. Files belong to root and to the pod's fsGroup, which may read them.
*/ -}}
{{- define "foretoken.secretVolumes" -}}
{{- $keys := .root.Values.apiKeys -}}
{{- if .root.Values.tls.enabled }}
- name: tls
  secret:
    secretName: {{ include "foretoken.tlsSecret" . }}
    defaultMode: 0440
    items:
      - {key: ca.crt, path: ca.crt}
      {{- if include "foretoken.hasCertificate" . }}
      - {key: tls.crt, path: tls.crt}
      - {key: tls.key, path: tls.key}
      {{- end }}
{{- end }}
{{- if and $keys.enabled (has .key (list "orchestrator" "test")) }}
- name: api-keys
  secret:
    secretName: {{ $keys.existingSecret }}
    defaultMode: 0440
    items:
      {{- if eq .key "test" }}
      - {key: {{ $keys.testKey }}, path: key}
      {{- else }}
      - {key: {{ $keys.key }}, path: api-keys}
      {{- end }}
{{- end }}
{{- end -}}

{{- /* A Certificate of cert-manager. The key is a new one each time: nobody pins it. */ -}}
{{- define "foretoken.certificate" -}}
{{- $tls := .root.Values.tls -}}
{{- if and $tls.enabled $tls.certManager.enabled (include "foretoken.hasCertificate" .) }}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata:
  name: {{ include "foretoken.name" . }}
  labels:
    {{- include "foretoken.labels" . | nindent 4 }}
spec:
  secretName: {{ include "foretoken.tlsSecret" . }}
  issuerRef:
    {{- toYaml $tls.certManager.issuerRef | nindent 4 }}
  duration: {{ $tls.certManager.duration }}
  renewBefore: {{ $tls.certManager.renewBefore }}
  privateKey: {algorithm: ECDSA, size: 256, encoding: PKCS8, rotationPolicy: Always}
  # A service is a client too: of workers, and of itself when it is probed.
  usages: [digital signature{{ if ne .key "test" }}, server auth{{ end }}, client auth]
  dnsNames:
    {{- include "foretoken.dnsNames" . | trim | nindent 4 }}
{{- end }}
{{- end -}}
