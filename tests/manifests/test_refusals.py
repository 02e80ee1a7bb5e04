"""Values that the chart does not take, and what it says about them."""

import unittest

from chart import Refused, template
from matrix import SECRETS, made

# What is wrong, and words that the refusal must have: where, and what would be right.
REFUSALS = [
    ({"replicas": 3}, ["replicas", "not allowed"]),
    ({"orchestrator": {"replica": 3}}, ["/orchestrator", "replica", "not allowed"]),
    ({"orchestrator": {"replicas": "3"}}, ["/orchestrator/replicas", "integer"]),
    ({"orchestrator": {"replicas": -1}}, ["/orchestrator/replicas", "minimum"]),
    ({"orchestrator": {"rule": "typical"}}, ["/orchestrator/rule", "token", "block", "gumbel"]),
    ({"orchestrator": {"drainSeconds": 0}}, ["/orchestrator/drainSeconds", "minimum"]),
    ({"orchestrator": {"untrustedDraftWorkers": ["https://drafts:1/x"]}}, ["/orchestrator/untrustedDraftWorkers/0", "pattern"]),
    ({"orchestrator": {"service": {"type": "ExternalName"}}}, ["/orchestrator/service/type", "ClusterIP"]),
    ({"orchestrator": {"resources": {"limits": {"memory": "lots"}}}}, ["/orchestrator/resources/limits/memory", "pattern"]),
    ({"targetVerifier": {"kind": "DaemonSet"}}, ["/targetVerifier/kind", "StatefulSet"]),
    ({"targetVerifier": {"gpu": {"count": 1.5}}}, ["/targetVerifier/gpu/count", "integer"]),
    ({"targetVerifier": {"model": {"path": "/models/target.gguf"}}}, ["/targetVerifier/model/path", "pattern"]),
    ({"targetVerifier": {"model": {"kvType": "q8"}}}, ["/targetVerifier/model/kvType", "f16"]),
    ({"targetVerifier": {"model": {"pull": {"sha256": "abc"}}}}, ["/targetVerifier/model/pull/sha256", "pattern"]),
    ({"draftWorker": {"nearVerifiers": {"mode": "always"}}}, ["/draftWorker/nearVerifiers/mode", "preferred"]),
    ({"otlp": {"endpoint": "collector:4317"}}, ["/otlp/endpoint", "pattern"]),
    ({"otlp": {"traceRatio": 10}}, ["/otlp/traceRatio", "maximum"]),
    ({"tls": {"enabled": "yes"}}, ["/tls/enabled", "boolean"]),
    ({"tls": {"certManager": {"issuer": "ca"}}}, ["/tls/certManager", "issuer", "not allowed"]),
    ({"tls": {"certManager": {"duration": "90d"}}}, ["/tls/certManager/duration", "pattern"]),
    ({"tls": {"certManager": {"orchestratorNames": ["https://llm.example.com"]}}}, ["/orchestratorNames/0", "pattern"]),
    ({"tls": {"existingSecrets": {"verifier": "a"}}}, ["/tls/existingSecrets", "verifier", "not allowed"]),
    ({"tls": {"key": "-----BEGIN PRIVATE KEY-----"}}, ["/tls", "key", "not allowed"]),
    ({"apiKeys": {"keys": ["me 0123456789abcdef"]}}, ["/apiKeys", "keys", "not allowed"]),
    ({"apiKeys": {"existingSecret": "my keys"}}, ["/apiKeys/existingSecret", "pattern"]),
]
# The same for what a schema cannot say.
UNFIT = [
    ({"targetVerifier": {"replicas": 2}}, ["ReadWriteOnce", "StatefulSet", "ReadWriteMany"]),
    ({"targetVerifier": {"model": {"volume": {"type": "claim"}}}}, ["targetVerifier.model.volume.claimName"]),
    ({"targetVerifier": {"model": {"volume": {"type": "emptyDir"}}}}, ["emptyDir", "targetVerifier.model.pull"]),
    ({"targetVerifier": {"model": {"pull": {"enabled": True}}}}, ["targetVerifier.model.pull", "url", "sha256"]),
    ({"targetVerifier": {"model": {"path": "ngram"}}}, ["targetVerifier.model.path is ngram"]),
    ({"targetVerifier": {"resources": {"limits": {"memory": "4G"}}}}, ["targetVerifier.resources.limits.memory is 4G", "Gi"]),
    ({"draftWorker": {"autoscaling": {"enabled": True}, "keda": {"enabled": True}}}, ["draftWorker.autoscaling", "keda", "fight"]),
    ({"draftWorker": {"autoscaling": {"enabled": True, "cpuPercent": 0}}}, ["draftWorker.autoscaling", "cpuPercent"]),
    ({"orchestrator": {"autoscaling": {"minReplicas": 9}}}, ["orchestrator.autoscaling.minReplicas is 9", "8"]),
    ({"orchestrator": {"rollout": {"maxSurge": 0}}}, ["orchestrator.rollout", "both 0"]),
    ({"tls": {"enabled": True}}, ["tls.enabled", "tls.certManager", "tls.existingSecrets"]),
    ({"tls": made(existingSecrets={"orchestrator": "a"})}, ["tls.certManager", "tls.existingSecrets", "orchestrator", "one of them"]),
    ({"tls": {"enabled": True, "certManager": {"enabled": True}}}, ["tls.certManager.issuerRef.name is empty"]),
    ({"tls": made(certManager={"enabled": True, "issuerRef": {"name": "a"}, "duration": "8h", "renewBefore": "8h"})},
     ["tls.certManager.renewBefore is 8h", "shorter than duration, 8h"]),
    ({"tls": {"enabled": True, "existingSecrets": {**SECRETS, "targetVerifier": ""}}}, ["tls.existingSecrets.targetVerifier is empty"]),
    ({"tls": {"enabled": True, "existingSecrets": {**SECRETS, "draftWorker": ""}}}, ["tls.existingSecrets.draftWorker is empty"]),
    ({"tls": {"enabled": True, "existingSecrets": SECRETS, "clients": {"mutual": True}}}, ["tls.existingSecrets.test", "helm test"]),
    ({"tls": made(enabled=False)}, ["tls.certManager.enabled is set", "tls.enabled is false"]),
    ({"tls": {"existingSecrets": SECRETS}}, ["tls.existingSecrets is set", "tls.enabled is false"]),
    ({"tls": {"clients": {"mutual": True}}}, ["tls.clients.mutual is set", "tls.enabled is false"]),
    ({"orchestrator": {"untrustedDraftWorkers": ["https://drafts:1"]}}, ["https://drafts:1", "tls.enabled"]),
    ({"apiKeys": {"enabled": True}}, ["apiKeys.enabled", "apiKeys.existingSecret is empty"]),
    ({"apiKeys": {"existingSecret": "keys"}}, ["apiKeys.existingSecret is keys", "apiKeys.enabled is false", "serve everybody"]),
]


class Refusals(unittest.TestCase):
    """Each wrong value is refused, and the text says where and why."""

    def test_wrong_values_are_refused_readably(self):
        for values, words in REFUSALS + UNFIT:
            with self.subTest(values=values), self.assertRaises(Refused) as refused:
                template(values)
            for word in words:
                self.assertIn(word, str(refused.exception), values)

    def test_what_does_not_fit_together_is_refused_without_the_schema_too(self):
        for values, words in UNFIT:
            with self.subTest(values=values), self.assertRaises(Refused) as refused:
                template(values, "--skip-schema-validation")
            self.assertIn(words[0], str(refused.exception))


if __name__ == "__main__":
    unittest.main()
