"""The values that the chart is rendered with: every setting that changes what objects there are, or their shape."""

import functools

from chart import manifests

SHA256 = "a" * 64
PULL = {"enabled": True, "url": "https://example.com/target.gguf", "sha256": SHA256}
GPU = {"count": 1, "runtimeClassName": "nvidia"}
PEER = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "apps"}}}]

SECRETS = {"orchestrator": "front-cert", "targetVerifier": "target-cert", "draftWorker": "draft-cert"}
KEYS = {"enabled": True, "existingSecret": "keys"}


def made(**more):
    """TLS with certificates that cert-manager makes."""
    return {"enabled": True, "certManager": {"enabled": True, "issuerRef": {"name": "foretoken-ca"}}, **more}


def scaled(**more):
    """A service under a HorizontalPodAutoscaler by CPU and by metrics."""
    metrics = [{"name": "foretoken_worker_queue_wait_seconds_p95", "averageValue": "50m"}]
    return {"autoscaling": {"enabled": True, "cpuPercent": 60, "metrics": metrics}, **more}


MATRIX = {
    "defaults": {},
    "plain decoding": {"draftWorker": {"enabled": False}},
    "named": {"fullnameOverride": "llm", "serviceAccount": {"create": False, "name": "existing"}},
    "images": {
        "image": {"registry": "images.example.com/team", "tag": "1.2.3", "pullSecrets": [{"name": "registry"}]},
        "orchestrator": {"image": {"digest": f"sha256:{SHA256}"}},
        "draftWorker": {"image": {"tag": "edge"}},
    },
    "stateful, a volume each, pulled": {
        "targetVerifier": {"kind": "StatefulSet", "replicas": 3, "model": {"pull": PULL}},
        "draftWorker": {"kind": "StatefulSet", "replicas": 2, "model": {"path": "small.gguf", "pull": PULL}},
    },
    "shared volume": {
        "targetVerifier": {"replicas": 2, "model": {"volume": {"accessModes": ["ReadWriteMany"], "storageClass": "nfs"}}},
    },
    "claims that are there": {
        "targetVerifier": {"model": {"volume": {"type": "claim", "claimName": "weights"}}},
        "draftWorker": {"model": {"path": "small.gguf", "volume": {"type": "claim", "claimName": "weights"}}},
    },
    "no volume, pulled anew": {"targetVerifier": {"model": {"volume": {"type": "emptyDir"}, "pull": PULL}}},
    "a table on a volume": {"draftWorker": {"model": {"ngramTable": "/models/target.ngram"}}},
    "a table by name": {"draftWorker": {"model": {"ngramTable": "SmolLM2-135M-Instruct"}}},
    "GPUs": {
        "targetVerifier": {"gpu": GPU, "rollout": {"maxSurge": 0, "maxUnavailable": 1}, "nodeSelector": {"gpu": "h200"}},
        "draftWorker": {"gpu": GPU, "model": {"path": "small.gguf", "memoryMiB": 8000, "kvTokens": 65536, "kvType": "f16"}},
    },
    "autoscaled": {
        "orchestrator": scaled(),
        "targetVerifier": scaled(kind="StatefulSet"),
        "draftWorker": scaled(),
    },
    "KEDA": {
        "orchestrator": {"keda": {"enabled": True}},
        "targetVerifier": {"keda": {"enabled": True}, "kind": "StatefulSet"},
        "draftWorker": {"keda": {"enabled": True}},
    },
    "required near": {
        "orchestrator": {"nearVerifiers": {"mode": "off"}},
        "draftWorker": {
            "nearVerifiers": {"mode": "required", "topologyKey": "kubernetes.io/hostname"},
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["cheap"]}]}]}}},
            "tolerations": [{"key": "spot", "operator": "Exists"}],
            "spread": {"enabled": False},
        },
    },
    "watched": {
        "metrics": {"serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}}},
        "otlp": {"endpoint": "http://otel-collector.monitoring:4317", "traceRatio": 0.1, "metrics": True},
    },
    "unwatched": {"metrics": {"enabled": False}, "log": {"format": "text", "filter": "warn,foretoken_engine=debug"}},
    "open networks": {"networkPolicy": {"enabled": False}, "orchestrator": {"podDisruptionBudget": {"enabled": False}}},
    "named peers": {
        "networkPolicy": {"clients": PEER, "metricsFrom": PEER, "otlpTo": PEER, "pullTo": PEER},
        "targetVerifier": {"model": {"pull": PULL}},
        "otlp": {"endpoint": "http://otel-collector.monitoring:4317"},
    },
    "long drains": {
        "orchestrator": {"drainSeconds": 900, "preStopSeconds": 15, "service": {"type": "LoadBalancer", "port": 443}},
        "targetVerifier": {"drainSeconds": 3600, "startupSeconds": 3600, "threads": 16},
    },
    "untrusted drafts": {"orchestrator": {"untrustedDraftWorkers": ["dns:///drafts.example.com:7452", "10.0.0.9:7452"]}},
    "extras": {
        "orchestrator": {
            "extraArgs": ["--verify-timeout=20s"], "extraEnv": [{"name": "RUST_BACKTRACE", "value": "1"}],
            "podLabels": {"team": "a"}, "podAnnotations": {"note": "b"}, "priorityClassName": "high",
            "service": {"annotations": {"a": "b"}},
        },
        "draftWorker": {"enabled": True, "replicas": 4},
    },
    "TLS by cert-manager": {"tls": made()},
    "TLS by cert-manager, another issuer": {
        "fullnameOverride": "llm",
        "tls": made(certManager={
            "enabled": True, "issuerRef": {"name": "corp", "kind": "ClusterIssuer"}, "duration": "24h", "renewBefore": "8h",
            "orchestratorNames": ["llm.example.com", "*.llm.example.com"]}),
        "orchestrator": {"service": {"type": "LoadBalancer", "port": 443}},
    },
    "TLS by secrets": {"tls": {"enabled": True, "existingSecrets": SECRETS}},
    "TLS by secrets, plain decoding": {
        "tls": {"enabled": True, "existingSecrets": {**SECRETS, "draftWorker": ""}},
        "draftWorker": {"enabled": False},
    },
    "TLS, workers serve anybody": {"tls": made(mutual=False)},
    "TLS, clients show certificates": {"tls": made(clients={"mutual": True})},
    "TLS by secrets, clients show certificates": {
        "tls": {"enabled": True, "clients": {"mutual": True}, "existingSecrets": {**SECRETS, "test": "tester-cert"}},
    },
    "TLS, only clients show certificates": {"tls": made(mutual=False, clients={"mutual": True})},
    "TLS and volumes": {
        "tls": made(),
        "targetVerifier": {"kind": "StatefulSet", "replicas": 2, "model": {"pull": PULL}},
        "draftWorker": {"model": {"path": "small.gguf", "volume": {"type": "claim", "claimName": "weights"}}},
    },
    "TLS and drafts from elsewhere": {
        "tls": made(),
        "orchestrator": {"untrustedDraftWorkers": ["https://drafts.example.com:7452", "http://10.0.0.9:7452"]},
    },
    "keys": {"apiKeys": KEYS},
    "keys over TLS": {"tls": made(), "apiKeys": {**KEYS, "key": "clients.txt", "testKey": "tester"}},
    "everything shown": {"tls": made(clients={"mutual": True}), "apiKeys": KEYS},
}


@functools.cache
def rendered():
    """The objects of every case; not to be changed."""
    return {case: manifests(values) for case, values in MATRIX.items()}
