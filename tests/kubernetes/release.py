"""The chart on the node, as an operator installs it."""

import contextlib
import functools
import http.server
import json
import os
import subprocess
import threading
from pathlib import Path

import waiting
from cluster import tool
from node import ADDRESS, NAME

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy/helm/foretoken"
# By their names among the values.
SERVICES = {"draftWorker": "draft-worker", "targetVerifier": "target-verifier", "orchestrator": "orchestrator"}
MODEL = Path(os.environ["FORETOKEN_TEST_MODEL"])
# Generous: the machine may be busy with something else.
PATIENCE = 300
until = functools.partial(waiting.until, patience=PATIENCE)


def modest(**more):
    """For each service what a node of two processors has, and more that is all services'."""
    services = {key: {"resources": {"requests": {"cpu": "100m"}}, **more} for key in SERVICES}
    services["targetVerifier"]["model"] = {"kvTokens": 8192}
    return services


def namespace(name):
    """With the restricted Pod Security Standard enforced."""
    labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn", "audit")}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def volume(name, folder):
    """A local volume, for a claim of any name."""
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [NAME]}]}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"], "local": {"path": str(folder)},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}}


class Files(http.server.SimpleHTTPRequestHandler):
    """A web server's answers, untold."""

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def served(folder):
    """A web server over the folder, for pods; its address."""
    with http.server.ThreadingHTTPServer((ADDRESS, 0), functools.partial(Files, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://{ADDRESS}:{server.server_port}"
        server.shutdown()


class Release:
    """helm and kubectl, towards one release in a namespace."""

    def __init__(self, node, name, namespace_):
        self.node, self.name, self.namespace = node, name, namespace_

    def helm(self, *words, given=None):
        """Runs helm; its standard output."""
        home = self.node.folder / "helm"
        environment = {**os.environ, "KUBECONFIG": str(self.node.kubeconfig), "HELM_CACHE_HOME": str(home),
                       "HELM_CONFIG_HOME": str(home), "HELM_DATA_HOME": str(home)}
        ended = subprocess.run([tool("helm"), "--namespace", self.namespace, *map(str, words)], env=environment, check=False,
                               input=None if given is None else json.dumps(given), capture_output=True, text=True)
        if ended.returncode:
            raise AssertionError(f"helm {' '.join(map(str, words))}: {ended.stderr}\n{self.told()}")
        return ended.stdout

    def roll_out(self, verb, given, *words):
        """helm install or upgrade with these values; waits until all is as asked for. A verifier may take two minutes to drain."""
        self.helm(verb, self.name, CHART, *words, "--values", "-", "--wait", "--timeout", "9m", given=given)

    def kubectl(self, *words, **more):
        """kubectl within the release's namespace."""
        return self.node.kubectl("--namespace", self.namespace, *words, **more)

    def told(self):
        """What pods and events say, for whoever looks into a failure."""
        return "\n".join(self.kubectl(*words, check=False).stdout[-6000:] for words in (
            ("get", "pods", "--output", "wide"), ("get", "events", "--sort-by", ".lastTimestamp"),
            *(("logs", f"--selector=app.kubernetes.io/component={name}", "--tail", "15", "--prefix") for name in SERVICES.values())))

    def settled(self):
        """Whether no pod is on its way out."""
        items = json.loads(self.kubectl("get", "pods", "--output", "json").stdout)["items"]
        return not [item for item in items if "deletionTimestamp" in item["metadata"]]

    def restarts(self):
        """How often the kubelet had to start a container again, by pod."""
        return {pod["metadata"]["name"]: count for pod in self.pods()
                if (count := sum(entry["restartCount"] for entry in pod["status"].get("containerStatuses", [])))}

    def pods(self, service=None):
        """The release's pods, or a service's, that are not about to go."""
        label = "app.kubernetes.io/name=foretoken" + (f",app.kubernetes.io/component={service}" if service else "")
        items = json.loads(self.kubectl("get", "pods", "--selector", label, "--output", "json").stdout)["items"]
        return [item for item in items if "deletionTimestamp" not in item["metadata"]]

    def pod(self, name):
        """A pod, as the API server has it."""
        return json.loads(self.kubectl("get", "pod", name, "--output", "json").stdout)

    def ready(self, service):
        """Names of a service's ready pods."""
        def is_ready(pod):
            return any(entry["type"] == "Ready" and entry["status"] == "True" for entry in pod["status"].get("conditions", []))
        return {pod["metadata"]["name"] for pod in self.pods(service) if is_ready(pod)}

    def address(self):
        """The orchestrator's Service, as pods and this node reach it."""
        found = self.kubectl("get", "service", f"{self.name}-orchestrator", "--output", "jsonpath={.spec.clusterIP}")
        return f"{found.stdout}:7450"
