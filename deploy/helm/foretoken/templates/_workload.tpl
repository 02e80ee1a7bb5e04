{{- /*
One service's Deployment or StatefulSet: dict "root" $ "key" … "component" … "port" … "grpcService" … "args" <list>.
What differs between services is its arguments; what differs between pods of any service is nothing.
*/ -}}
{{- define "foretoken.workload" -}}
{{- $root := .root -}}
{{- $values := index $root.Values .key -}}
{{- $kind := default "Deployment" $values.kind -}}
{{- $gpus := int (dig "gpu" "count" 0 $values) -}}
{{- $hasVolume := include "foretoken.hasVolume" . -}}
{{- $ownVolumes := and $hasVolume (eq $kind "StatefulSet") (eq (dig "model" "volume" "type" "" $values) "create") -}}
{{- $secretMounts := include "foretoken.secretMounts" . -}}
{{- $secretVolumes := include "foretoken.secretVolumes" . -}}
{{- /* Seconds for the kubelet's question; with TLS for a process, which a pass may keep off the processors, and a handshake. */ -}}
{{- $patience := $root.Values.tls.enabled | ternary 4 2 -}}
apiVersion: apps/v1
kind: {{ $kind }}
metadata:
  name: {{ include "foretoken.name" . }}
  labels:
    {{- include "foretoken.labels" . | nindent 4 }}
spec:
  {{- if not (or $values.autoscaling.enabled $values.keda.enabled) }}
  replicas: {{ $values.replicas }}
  {{- end }}
  selector:
    matchLabels:
      {{- include "foretoken.selector" . | nindent 6 }}
  {{- if eq $kind "Deployment" }}
  strategy:
    type: RollingUpdate
    rollingUpdate:
      maxSurge: {{ $values.rollout.maxSurge }}
      maxUnavailable: {{ $values.rollout.maxUnavailable }}
  # A rollout that makes no progress is reported, after every wait that is allowed to one pod.
  progressDeadlineSeconds: {{ add $values.startupSeconds $values.preStopSeconds $values.drainSeconds 120 }}
  {{- else }}
  serviceName: {{ include "foretoken.name" . }}-headless
  podManagementPolicy: Parallel
  updateStrategy:
    type: RollingUpdate
  {{- end }}
  template:
    metadata:
      labels:
        {{- include "foretoken.labels" . | nindent 8 }}
        {{- with $values.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      annotations:
        kubectl.kubernetes.io/default-container: {{ .component }}
        {{- with $values.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      serviceAccountName: {{ include "foretoken.serviceAccount" $root }}
      automountServiceAccountToken: false
      # They would become environment variables that begin like ours.
      enableServiceLinks: false
      # The pause, the drain, what streams and spans may take after it, and some room.
      terminationGracePeriodSeconds: {{ add $values.preStopSeconds $values.drainSeconds 10 }}
      securityContext:
        {{- include "foretoken.podSecurity" $root | nindent 8 }}
      {{- with $root.Values.image.pullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $values.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      {{- with dig "gpu" "runtimeClassName" "" $values }}
      runtimeClassName: {{ . }}
      {{- end }}
      {{- with $values.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- if or $values.tolerations $gpus }}
      tolerations:
        {{- if $gpus }}
        - {key: {{ $values.gpu.resource }}, operator: Exists, effect: NoSchedule}
        {{- end }}
        {{- with $values.tolerations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- end }}
      {{- with include "foretoken.affinity" . | trim }}
      {{- . | trim | nindent 6 }}
      {{- end }}
      {{- if and $values.spread.enabled $values.spread.topologyKeys (not (include "foretoken.oneNode" .)) }}
      topologySpreadConstraints:
        {{- range $values.spread.topologyKeys }}
        - maxSkew: 1
          topologyKey: {{ . }}
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels:
              {{- include "foretoken.selector" $ | nindent 14 }}
        {{- end }}
      {{- end }}
      {{- if and $hasVolume $values.model.pull.enabled }}
      initContainers:
        {{- include "foretoken.pull" . | nindent 8 }}
      {{- end }}
      containers:
        - name: {{ .component }}
          image: {{ include "foretoken.image" (dict "root" $root "image" $values.image "suffix" (ternary "-cuda" "" (gt $gpus 0))) }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          args:
            {{- range concat .args (include "foretoken.commonArgs" . | fromYamlArray) (include "foretoken.tlsArgs" . | fromYamlArray) $values.extraArgs }}
            - {{ . | quote }}
            {{- end }}
          {{- with $values.extraEnv }}
          env:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          ports:
            - {name: grpc, containerPort: {{ .port }}}
            {{- if $root.Values.metrics.enabled }}
            - {name: metrics, containerPort: {{ $root.Values.metrics.port }}}
            {{- end }}
          # Three questions: has it come up, does it take work (by the service's name), does the process live (by the
          # empty name, which is answered while a model loads, while workers are waited for, and while it drains).
          startupProbe:
            {{- include "foretoken.question" (merge (dict "service" (ternary .grpcService "" .startsReady) "seconds" $patience) .) | nindent 12 }}
            periodSeconds: 2
            timeoutSeconds: {{ $patience }}
            failureThreshold: {{ div (add $values.startupSeconds 1) 2 }}
          readinessProbe:
            {{- include "foretoken.question" (merge (dict "service" .grpcService "seconds" $patience) .) | nindent 12 }}
            periodSeconds: 3
            timeoutSeconds: {{ $patience }}
            failureThreshold: 2
          livenessProbe:
            {{- include "foretoken.question" (merge (dict "service" "" "seconds" 5) .) | nindent 12 }}
            periodSeconds: 10
            timeoutSeconds: 5
            failureThreshold: 6
          lifecycle:
            preStop:
              sleep:
                seconds: {{ $values.preStopSeconds }}
          resources:
            {{- include "foretoken.resources" . | nindent 12 }}
          securityContext:
            {{- include "foretoken.containerSecurity" $root | nindent 12 }}
          {{- if or $hasVolume $secretMounts }}
          volumeMounts:
            {{- if $hasVolume }}
            - {name: models, mountPath: /models, readOnly: true}
            {{- end }}
            {{- with $secretMounts }}
            {{- . | trim | nindent 12 }}
            {{- end }}
          {{- end }}
      {{- if or (and $hasVolume (not $ownVolumes)) $secretVolumes }}
      volumes:
        {{- if and $hasVolume (not $ownVolumes) }}
        - name: models
          {{- if eq $values.model.volume.type "emptyDir" }}
          emptyDir:
            sizeLimit: {{ $values.model.volume.size }}
          {{- else }}
          persistentVolumeClaim:
            claimName: {{ default (printf "%s-models" (include "foretoken.name" .)) $values.model.volume.claimName }}
          {{- end }}
        {{- end }}
        {{- with $secretVolumes }}
        {{- . | trim | nindent 8 }}
        {{- end }}
      {{- end }}
  {{- if $ownVolumes }}
  persistentVolumeClaimRetentionPolicy: {whenDeleted: Retain, whenScaled: Retain}
  volumeClaimTemplates:
    - metadata:
        name: models
      spec:
        {{- include "foretoken.claim" $values.model.volume | nindent 8 }}
  {{- end }}
{{- end -}}

{{- /* Flags that every service takes. */ -}}
{{- define "foretoken.commonArgs" -}}
{{- $root := .root -}}
{{- $values := index $root.Values .key -}}
- --listen=0.0.0.0:{{ .port }}
- --drain-timeout={{ $values.drainSeconds }}s
- --log-format={{ $root.Values.log.format }}
- --log-filter={{ $root.Values.log.filter }}
{{- if $root.Values.metrics.enabled }}
- --metrics-listen=0.0.0.0:{{ $root.Values.metrics.port }}
{{- end }}
{{- with $root.Values.otlp.endpoint }}
- --otlp-endpoint={{ . }}
- --trace-ratio={{ $root.Values.otlp.traceRatio }}
- --metrics-exporter={{ ternary "otlp" "none" $root.Values.otlp.metrics }}
{{- end }}
{{- end -}}

{{- /* Flags that both workers take for their model. */ -}}
{{- define "foretoken.modelArgs" -}}
{{- $values := index .root.Values .key -}}
{{- $model := $values.model -}}
- --model={{ if eq $model.path "ngram" }}ngram{{ else }}/models/{{ $model.path }}{{ end }}
- --max-sessions={{ $values.maxSessions }}
{{- if ne $model.path "ngram" }}
- --device={{ if $values.gpu.count }}cuda:0{{ else }}cpu{{ end }}
- --kv-type={{ $model.kvType }}
{{- with $model.kvTokens }}
- --kv-tokens={{ int . }}
{{- end }}
{{- with include "foretoken.memoryMiB" . }}
- --memory-limit={{ . }}
{{- end }}
{{- with $values.threads }}
- --threads={{ int . }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "foretoken.resources" -}}
{{- $values := index .root.Values .key -}}
{{- $resources := deepCopy $values.resources -}}
{{- if dig "gpu" "count" 0 $values -}}
{{- $limits := merge (dict $values.gpu.resource (int $values.gpu.count)) (default dict $resources.limits) -}}
{{- $_ := set $resources "limits" $limits -}}
{{- end -}}
{{- toYaml $resources -}}
{{- end -}}

{{- /*
What the values say, closeness to the verifiers, and where one node has the volume closeness to one's own: an upgrade's new pod could
not mount it elsewhere while the old one is there.
*/ -}}
{{- define "foretoken.affinity" -}}
{{- $values := index .root.Values .key -}}
{{- $affinity := deepCopy (default dict $values.affinity) -}}
{{- if include "foretoken.oneNode" . -}}
{{- $key := "preferredDuringSchedulingIgnoredDuringExecution" -}}
{{- $term := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" (dict "matchLabels" (include "foretoken.selector" . | fromYaml)) -}}
{{- $pods := default dict $affinity.podAffinity -}}
{{- $_ := set $pods $key (append (default list (index $pods $key)) (dict "weight" 100 "podAffinityTerm" $term)) -}}
{{- $_ := set $affinity "podAffinity" $pods -}}
{{- end -}}
{{- $near := default (dict "mode" "off") $values.nearVerifiers -}}
{{- if ne $near.mode "off" -}}
{{- $selector := include "foretoken.selector" (dict "root" .root "component" "target-verifier") | fromYaml -}}
{{- $term := dict "topologyKey" $near.topologyKey "labelSelector" (dict "matchLabels" $selector) -}}
{{- $pods := default dict $affinity.podAffinity -}}
{{- if eq $near.mode "required" -}}
{{- $key := "requiredDuringSchedulingIgnoredDuringExecution" -}}
{{- $_ := set $pods $key (append (default list (index $pods $key)) $term) -}}
{{- else -}}
{{- $key := "preferredDuringSchedulingIgnoredDuringExecution" -}}
{{- $_ := set $pods $key (append (default list (index $pods $key)) (dict "weight" 100 "podAffinityTerm" $term)) -}}
{{- end -}}
{{- $_ := set $affinity "podAffinity" $pods -}}
{{- end -}}
{{- with $affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "foretoken.claim" -}}
accessModes:
  {{- toYaml .accessModes | nindent 2 }}
{{- with .storageClass }}
storageClassName: {{ . }}
{{- end }}
resources:
  requests:
    storage: {{ .size }}
{{- end -}}

{{- /* Fetches the model beside its place and moves it there once its checksum is right: a broken download is never read. */ -}}
{{- define "foretoken.pull" -}}
{{- $values := index .root.Values .key -}}
{{- $pull := $values.model.pull -}}
- name: pull
  image: {{ $pull.image }}
  imagePullPolicy: {{ .root.Values.image.pullPolicy }}
  command: [sh, -euc]
  args:
    - |
      cd /models
      right() { echo "$SHA256  $1" | sha256sum -c >/dev/null 2>&1; }
      if [ -f "$MODEL" ] && right "$MODEL"; then echo "$MODEL is here"; exit 0; fi
      mkdir -p "$(dirname "$MODEL")"
      part="$MODEL.$HOSTNAME.part"
      curl --fail --location --silent --show-error --retry 5 --retry-connrefused --output "$part" "$URL"
      if ! right "$part"; then rm -f "$part"; echo "$URL has another checksum than $SHA256" >&2; exit 1; fi
      mv "$part" "$MODEL"
  env:
    - {name: MODEL, value: {{ $values.model.path | quote }}}
    - {name: URL, value: {{ $pull.url | quote }}}
    - {name: SHA256, value: {{ $pull.sha256 | quote }}}
  resources:
    {{- toYaml $pull.resources | nindent 4 }}
  securityContext:
    {{- include "foretoken.containerSecurity" .root | nindent 4 }}
  volumeMounts:
    - {name: models, mountPath: /models}
{{- end -}}
