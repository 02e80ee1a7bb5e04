"""Values that the chart does not take, and what it says about them."""

import unittest

from chart import Refused, template

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
    ({"tls": {"enabled": True}}, ["/tls/enabled", "must be false"]),
    ({"apiKeys": {"enabled": True}}, ["/apiKeys/enabled", "must be false"]),
    ({"tls": {"certManager": {"issuer": "ca"}}}, ["/tls", "certManager", "not allowed"]),
    # What a schema cannot say.
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
]


class Refusals(unittest.TestCase):
    """Each wrong value is refused, and the text says where and why."""

    def test_wrong_values_are_refused_readably(self):
        for values, words in REFUSALS:
            with self.subTest(values=values), self.assertRaises(Refused) as refused:
                template(values)
            for word in words:
                self.assertIn(word, str(refused.exception), values)

    def test_what_is_not_there_cannot_be_forced(self):
        for key, reason in (("tls", "without TLS"), ("apiKeys", "takes no keys")):
            with self.subTest(key=key), self.assertRaises(Refused) as refused:
                template({key: {"enabled": True}}, "--skip-schema-validation")
            self.assertIn(reason, str(refused.exception))


if __name__ == "__main__":
    unittest.main()
