{{- /* What stands around a service's pods: dict "root" $ "key" … "component" … "port" … */ -}}

{{- /*
The addresses of all pods. Of workers not ready ones too: the orchestrator follows their health by itself, and so sees a pod as
soon as it serves, not when DNS has heard of it. Clients of the orchestrator need not do that.
*/ -}}
{{- define "foretoken.headless" -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ include "foretoken.name" . }}-headless
  labels:
    {{- include "foretoken.labels" . | nindent 4 }}
    foretoken.dev/job: foretoken-{{ .component }}
spec:
  clusterIP: None
  {{- if ne .component "orchestrator" }}
  publishNotReadyAddresses: true
  {{- end }}
  selector:
    {{- include "foretoken.selector" . | nindent 4 }}
  ports:
    - {name: grpc, port: {{ .port }}, targetPort: grpc, appProtocol: {{ include "foretoken.appProtocol" .root }}}
    {{- if .root.Values.metrics.enabled }}
    - {name: metrics, port: {{ .root.Values.metrics.port }}, targetPort: metrics}
    {{- end }}
{{- end -}}

{{- define "foretoken.disruption" -}}
{{- $values := index .root.Values .key -}}
{{- if $values.podDisruptionBudget.enabled }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "foretoken.name" . }}
  labels:
    {{- include "foretoken.labels" . | nindent 4 }}
spec:
  maxUnavailable: {{ $values.podDisruptionBudget.maxUnavailable }}
  # A pod that is not ready serves nobody: it must not keep a node from being drained.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "foretoken.selector" . | nindent 6 }}
{{- end }}
{{- end -}}

{{- define "foretoken.scaling" -}}
{{- $values := index .root.Values .key -}}
{{- $name := include "foretoken.name" . -}}
{{- $kind := default "Deployment" $values.kind -}}
{{- if $values.autoscaling.enabled }}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {{ $name }}
  labels:
    {{- include "foretoken.labels" . | nindent 4 }}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: {{ $kind }}, name: {{ $name }}}
  minReplicas: {{ $values.autoscaling.minReplicas }}
  maxReplicas: {{ $values.autoscaling.maxReplicas }}
  behavior:
    scaleDown:
      stabilizationWindowSeconds: {{ $values.autoscaling.scaleDownSeconds }}
      policies:
        - {type: Pods, value: 1, periodSeconds: {{ add $values.preStopSeconds $values.drainSeconds 10 }}}
  metrics:
    {{- with $values.autoscaling.cpuPercent }}
    - type: Resource
      resource:
        name: cpu
        target: {type: Utilization, averageUtilization: {{ . }}}
    {{- end }}
    {{- range $values.autoscaling.metrics }}
    - type: Pods
      pods:
        metric: {name: {{ .name }}}
        target: {type: AverageValue, averageValue: {{ .averageValue | quote }}}
    {{- end }}
{{- else if $values.keda.enabled }}
---
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  name: {{ $name }}
  labels:
    {{- include "foretoken.labels" . | nindent 4 }}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: {{ $kind }}, name: {{ $name }}}
  minReplicaCount: {{ $values.autoscaling.minReplicas }}
  maxReplicaCount: {{ $values.autoscaling.maxReplicas }}
  cooldownPeriod: {{ $values.autoscaling.scaleDownSeconds }}
  triggers:
    {{- range $values.keda.triggers }}
    - type: prometheus
      metadata:
        serverAddress: {{ $values.keda.prometheus | quote }}
        query: {{ .query | replace "$namespace" $.root.Release.Namespace | replace "$service" (printf "%s-headless" $name) | quote }}
        threshold: {{ .threshold | quote }}
    {{- end }}
{{- end }}
{{- end -}}

{{- /* A claim that all pods of a Deployment share. Kept when the release goes: weights are slow to come by. */ -}}
{{- define "foretoken.sharedClaim" -}}
{{- $values := index .root.Values .key -}}
{{- $volume := $values.model.volume -}}
{{- if and (include "foretoken.hasVolume" .) (eq $volume.type "create") (eq (default "Deployment" $values.kind) "Deployment") }}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: {{ include "foretoken.name" . }}-models
  labels:
    {{- include "foretoken.labels" . | nindent 4 }}
  annotations:
    helm.sh/resource-policy: keep
spec:
  {{- include "foretoken.claim" $volume | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* Only the orchestrator reaches a worker. */ -}}
{{- define "foretoken.workerPolicy" -}}
{{- if .root.Values.networkPolicy.enabled }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ include "foretoken.name" . }}
  labels:
    {{- include "foretoken.labels" . | nindent 4 }}
spec:
  podSelector:
    matchLabels:
      {{- include "foretoken.selector" . | nindent 6 }}
  policyTypes: [Ingress, Egress]
  ingress:
    - from:
        - podSelector:
            matchLabels:
              {{- include "foretoken.selector" (dict "root" .root "component" "orchestrator") | nindent 14 }}
      ports:
        - {port: {{ .port }}, protocol: TCP}
    {{- include "foretoken.metricsIngress" .root | nindent 4 }}
  egress:
    {{- include "foretoken.commonEgress" .root | nindent 4 }}
    {{- $model := index .root.Values .key "model" }}
    {{- if and (include "foretoken.hasVolume" .) $model.pull.enabled }}
    # The init step, and nothing else in the pod, fetches a model.
    {{- with .root.Values.networkPolicy.pullTo }}
    - to:
        {{- toYaml . | nindent 8 }}
    {{- else }}
    - ports:
        - {port: 443, protocol: TCP}
    {{- end }}
    {{- end }}
{{- end }}
{{- end -}}

{{- define "foretoken.metricsIngress" -}}
{{- if .Values.metrics.enabled -}}
- from:
    {{- with .Values.networkPolicy.metricsFrom }}
    {{- toYaml . | nindent 4 }}
    {{- else }}
    - namespaceSelector:
        matchLabels:
          kubernetes.io/metadata.name: monitoring
    {{- end }}
  ports:
    - {port: {{ .Values.metrics.port }}, protocol: TCP}
{{- end }}
{{- end -}}

{{- /* Names, and where spans go. */ -}}
{{- define "foretoken.commonEgress" -}}
- ports:
    - {port: 53, protocol: UDP}
    - {port: 53, protocol: TCP}
{{- if .Values.otlp.endpoint }}
- to:
    {{- with .Values.networkPolicy.otlpTo }}
    {{- toYaml . | nindent 4 }}
    {{- else }}
    - namespaceSelector: {}
    {{- end }}
{{- end }}
{{- end -}}
