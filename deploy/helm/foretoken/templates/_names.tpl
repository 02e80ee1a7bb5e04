{{- /* Names and labels. Components are passed as dict "root" $ "key" <key of values> "component" <name in objects>. */ -}}

{{- /* A StatefulSet's name and a revision's hash are a label of 63 characters at most: 36, "-target-verifier", a dash and ten. */ -}}
{{- define "foretoken.fullname" -}}
{{- default .Release.Name .Values.fullnameOverride | trunc 36 | trimSuffix "-" -}}
{{- end -}}

{{- define "foretoken.name" -}}
{{ include "foretoken.fullname" .root }}-{{ .component }}
{{- end -}}

{{- define "foretoken.serviceAccount" -}}
{{- default (include "foretoken.fullname" .) .Values.serviceAccount.name -}}
{{- end -}}

{{- define "foretoken.selector" -}}
app.kubernetes.io/name: foretoken
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "foretoken.labels" -}}
{{ include "foretoken.selector" . }}
{{ include "foretoken.commonLabels" .root }}
{{- end -}}

{{- define "foretoken.commonLabels" -}}
app.kubernetes.io/part-of: foretoken
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- /* dict "root" $ "image" <values> "suffix" <of the default tag> */ -}}
{{- define "foretoken.image" -}}
{{- $global := .root.Values.image -}}
{{- $name := .image.repository -}}
{{- if $global.registry }}{{ $name = printf "%s/%s" (trimSuffix "/" $global.registry) $name }}{{ end -}}
{{- if .image.digest -}}
{{ $name }}@{{ .image.digest }}
{{- else if .image.tag -}}
{{ $name }}:{{ .image.tag }}
{{- else -}}
{{ $name }}:{{ default .root.Chart.AppVersion $global.tag }}{{ .suffix }}
{{- end -}}
{{- end -}}

{{- /* What the restricted Pod Security Standard asks of a container, and a read-only root file system. */ -}}
{{- define "foretoken.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- /* … and of a pod. 65532 is the user of the images. */ -}}
{{- define "foretoken.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
# Large volumes are not walked through at every start.
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- /* Whether a component reads a model from a volume. */ -}}
{{- define "foretoken.hasVolume" -}}
{{- $model := index .root.Values .key "model" -}}
{{- if $model -}}
{{- if or (ne $model.path "ngram") (hasPrefix "/" (default "" $model.ngramTable)) }}true{{ end -}}
{{- end -}}
{{- end -}}

{{- /* Whether all pods of a component share one volume that one node can mount. */ -}}
{{- define "foretoken.oneNode" -}}
{{- $values := index .root.Values .key -}}
{{- if and (include "foretoken.hasVolume" .) (eq (default "Deployment" $values.kind) "Deployment") -}}
{{- $volume := $values.model.volume -}}
{{- if and (eq $volume.type "create") (eq (join "," $volume.accessModes) "ReadWriteOnce") }}true{{ end -}}
{{- end -}}
{{- end -}}

{{- /* MiB for weights and KV cache: as told, else 85 % of the container's limit, else nothing. */ -}}
{{- define "foretoken.memoryMiB" -}}
{{- $values := index .root.Values .key -}}
{{- if $values.model.memoryMiB -}}
{{ int $values.model.memoryMiB }}
{{- else if eq (int $values.gpu.count) 0 -}}
{{- $limit := default "" (dig "limits" "memory" "" $values.resources) | toString -}}
{{- if hasSuffix "Gi" $limit -}}
{{ mulf (trimSuffix "Gi" $limit | float64) 1024 0.85 | int }}
{{- else if hasSuffix "Mi" $limit -}}
{{ mulf (trimSuffix "Mi" $limit | float64) 0.85 | int }}
{{- else if $limit -}}
{{- fail (printf "%s.resources.limits.memory is %s: write it in Mi or Gi, or set %s.model.memoryMiB, so that the KV cache fits the container" .key $limit .key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
