{{- /* What a schema cannot say: settings that do not fit together. One sentence each: the setting, its value, what to do. */ -}}
{{- define "foretoken.validate" -}}
{{- if .Values.tls.enabled -}}
{{- fail "tls.enabled is true: the services of this version speak gRPC without TLS; leave it false and put a service mesh around the release" -}}
{{- end -}}
{{- if .Values.apiKeys.enabled -}}
{{- fail "apiKeys.enabled is true: the orchestrator of this version takes no keys; leave it false and put a gateway in front of it" -}}
{{- end -}}
{{- range $key := list "orchestrator" "targetVerifier" "draftWorker" -}}
{{- $values := index $.Values $key -}}
{{- if and $values.autoscaling.enabled $values.keda.enabled -}}
{{- fail (printf "%s.autoscaling and %s.keda are both enabled: two autoscalers would fight over one workload; enable one" $key $key) -}}
{{- end -}}
{{- if and $values.autoscaling.enabled (not $values.autoscaling.cpuPercent) (not $values.autoscaling.metrics) -}}
{{- fail (printf "%s.autoscaling has nothing to go by: set cpuPercent, or list metrics" $key) -}}
{{- end -}}
{{- if gt (int $values.autoscaling.minReplicas) (int $values.autoscaling.maxReplicas) -}}
{{- fail (printf "%s.autoscaling.minReplicas is %d: it must be at most maxReplicas, %d" $key (int $values.autoscaling.minReplicas) (int $values.autoscaling.maxReplicas)) -}}
{{- end -}}
{{- if and (eq (toString $values.rollout.maxSurge) "0") (eq (toString $values.rollout.maxUnavailable) "0") -}}
{{- fail (printf "%s.rollout.maxSurge and maxUnavailable are both 0: an upgrade could neither add nor take away a pod" $key) -}}
{{- end -}}
{{- end -}}
{{- range $key := list "targetVerifier" "draftWorker" -}}
{{- $values := index $.Values $key -}}
{{- $model := $values.model -}}
{{- $volume := $model.volume -}}
{{- if and (include "foretoken.hasVolume" (dict "root" $ "key" $key)) (or (eq $key "targetVerifier") $.Values.draftWorker.enabled) -}}
{{- if and (eq $volume.type "claim") (not $volume.claimName) -}}
{{- fail (printf "%s.model.volume.type is claim: name the claim in %s.model.volume.claimName" $key $key) -}}
{{- end -}}
{{- if and (eq $volume.type "emptyDir") (not $model.pull.enabled) -}}
{{- fail (printf "%s.model.volume.type is emptyDir: it starts empty, so enable %s.model.pull" $key $key) -}}
{{- end -}}
{{- if and $model.pull.enabled (or (not $model.pull.url) (not $model.pull.sha256)) -}}
{{- fail (printf "%s.model.pull is enabled: give its url and its sha256" $key) -}}
{{- end -}}
{{- if and (eq $volume.type "create") (eq $values.kind "Deployment") (or (gt (int $values.replicas) 1) $values.autoscaling.enabled $values.keda.enabled) (eq (join "," $volume.accessModes) "ReadWriteOnce") -}}
{{- fail (printf "%s has more than one replica and one ReadWriteOnce volume, which one node can mount: set %s.kind to StatefulSet for a volume each, or accessModes to [ReadWriteMany]" $key $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if eq .Values.targetVerifier.model.path "ngram" -}}
{{- fail "targetVerifier.model.path is ngram: only a draft worker works without weights; name the target's file" -}}
{{- end -}}
{{- end -}}
