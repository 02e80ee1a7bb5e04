{{- /* What a schema cannot say: settings that do not fit together. One sentence each: the setting, its value, what to do. */ -}}
{{- define "foretoken.validate" -}}
{{- include "foretoken.validateTls" . -}}
{{- include "foretoken.validateApiKeys" . -}}
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
{{- if and (include "foretoken.oneNode" (dict "root" $ "key" $key)) (or (gt (int $values.replicas) 1) $values.autoscaling.enabled $values.keda.enabled) -}}
{{- fail (printf "%s has more than one replica and one ReadWriteOnce volume, which one node can mount: set %s.kind to StatefulSet for a volume each, or accessModes to [ReadWriteMany]" $key $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if eq .Values.targetVerifier.model.path "ngram" -}}
{{- fail "targetVerifier.model.path is ngram: only a draft worker works without weights; name the target's file" -}}
{{- end -}}
{{- end -}}

{{- /* Nobody may believe to have what the values do not give: what would have no effect is refused as well. */ -}}
{{- define "foretoken.validateTls" -}}
{{- $tls := .Values.tls -}}
{{- $named := list -}}
{{- range $key, $name := $tls.existingSecrets -}}
{{- if $name }}{{ $named = append $named $key }}{{ end -}}
{{- end -}}
{{- if not $tls.enabled -}}
{{- if or $tls.certManager.enabled $named $tls.clients.mutual -}}
{{- $set := $tls.certManager.enabled | ternary "tls.certManager.enabled" ($tls.clients.mutual | ternary "tls.clients.mutual" "tls.existingSecrets") -}}
{{- fail (printf "%s is set and tls.enabled is false: nothing would be encrypted; set tls.enabled" $set) -}}
{{- end -}}
{{- range .Values.orchestrator.untrustedDraftWorkers -}}
{{- if hasPrefix "https://" . -}}
{{- fail (printf "orchestrator.untrustedDraftWorkers has %s: an orchestrator without tls.enabled verifies no certificate; set tls.enabled, or dial http://" .) -}}
{{- end -}}
{{- end -}}
{{- else if and $tls.certManager.enabled $named -}}
{{- fail (printf "tls.certManager is enabled and tls.existingSecrets names %s: certificates come from one of them; disable certManager, or empty existingSecrets" (join ", " $named)) -}}
{{- else if $tls.certManager.enabled -}}
{{- if not $tls.certManager.issuerRef.name -}}
{{- fail "tls.certManager.issuerRef.name is empty: name the issuer that signs this release's certificates" -}}
{{- end -}}
{{- if ge (trimSuffix "h" $tls.certManager.renewBefore | int) (trimSuffix "h" $tls.certManager.duration | int) -}}
{{- fail (printf "tls.certManager.renewBefore is %s: it must be shorter than duration, %s" $tls.certManager.renewBefore $tls.certManager.duration) -}}
{{- end -}}
{{- else if not $named -}}
{{- fail "tls.enabled is true and no certificates are named: enable tls.certManager, or name a secret for each service in tls.existingSecrets" -}}
{{- else -}}
{{- $needed := list "orchestrator" "targetVerifier" -}}
{{- if .Values.draftWorker.enabled }}{{ $needed = append $needed "draftWorker" }}{{ end -}}
{{- range $key := $needed -}}
{{- if not (index $tls.existingSecrets $key) -}}
{{- fail (printf "tls.existingSecrets.%s is empty: name the secret with its tls.crt, tls.key and ca.crt" $key) -}}
{{- end -}}
{{- end -}}
{{- if and $tls.clients.mutual (not $tls.existingSecrets.test) -}}
{{- fail "tls.existingSecrets.test is empty and tls.clients.mutual is true: name a secret with a client's tls.crt, tls.key and ca.crt for helm test" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "foretoken.validateApiKeys" -}}
{{- $keys := .Values.apiKeys -}}
{{- if and $keys.enabled (not $keys.existingSecret) -}}
{{- fail "apiKeys.enabled is true and apiKeys.existingSecret is empty: name the secret that holds the keys" -}}
{{- end -}}
{{- if and $keys.existingSecret (not $keys.enabled) -}}
{{- fail (printf "apiKeys.existingSecret is %s and apiKeys.enabled is false: the orchestrator would serve everybody; set apiKeys.enabled" $keys.existingSecret) -}}
{{- end -}}
{{- end -}}
