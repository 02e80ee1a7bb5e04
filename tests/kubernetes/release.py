"""The chart on the node, as an operator installs it, and clients of it."""

import contextlib
import functools
import http.server
import json
import os
import subprocess
import threading
import time
import unittest
from pathlib import Path

from cluster import tool
from node import ADDRESS, NAME

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy/helm/foretoken"
# By their names among the values.
SERVICES = {"draftWorker": "draft-worker", "targetVerifier": "target-verifier", "orchestrator": "orchestrator"}
MODEL = Path(os.environ["FORETOKEN_TEST_MODEL"])
CLIENT = Path(os.environ["FORETOKEN_BINARIES"]) / "foretoken"
# Generous: the machine may be busy with something else.
PATIENCE = 300
PROMPTS = ("The capital of France is", "Once upon a time", "Water boils at", "A list of colours:")
TOKENS = 120


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


class Answering:
    """An answer on its way."""

    def __init__(self, server, prompt, *words, tokens=TOKENS):
        command = [CLIENT, "generate", "--json", "--server", server, "--max-tokens", str(tokens), "--ignore-eos", *words, prompt]
        self.prompt = prompt
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def ended(self):
        """Its record, or None and what the client said."""
        out, error = self.process.communicate(timeout=PATIENCE)
        return (json.loads(out), "") if self.process.returncode == 0 else (None, f"{error}{out}")


class Load:
    """Clients that ask one thing after another, each over a connection of its own."""

    def __init__(self, server, *words, clients=4):
        self.server, self.words = server, words
        self.answers, self.failures = [], []
        self.over = threading.Event()
        self.threads = [threading.Thread(target=self._ask, args=(PROMPTS[index % len(PROMPTS)],)) for index in range(clients)]

    def _ask(self, prompt):
        while not self.over.is_set():
            began = time.monotonic()
            record, error = Answering(self.server, prompt, *self.words).ended()
            if record is None:
                self.failures.append((time.strftime("%H:%M:%S"), f"after {time.monotonic() - began:.1f} s", error.strip()))
            else:
                self.answers.append((prompt, record["text"]))

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        for thread in self.threads:
            thread.join()


class Disturbed(unittest.TestCase):
    """What may be done to a release while it answers, and how its answers are compared."""

    release: Release
    server: str
    # Words that every client of this release needs.
    words = ()
    expected = {}

    def answer(self, prompt, *words, **more):
        """The record of one answer."""
        record, error = Answering(self.server, prompt, *self.words, *words, **more).ended()
        self.assertIsNotNone(record, error)
        return record

    def expect(self):
        """Notes the undisturbed answers: plain decoding's."""
        for prompt in PROMPTS:
            self.expected[prompt] = self.answer(prompt, "--draft-len", "0")["text"]
            self.assertTrue(self.expected[prompt].strip())

    def under_load(self, change):
        """No request fails while `change()` is done and for a moment after it, and every answer is the undisturbed one."""
        with Load(self.server, *self.words) as load:
            until(lambda: len(load.answers) >= 2, "the load is answered")
            began = time.monotonic()
            change()
            took, answered = time.monotonic() - began, len(load.answers)
            # Whoever was told to go may still be draining.
            until(lambda: self.release.settled() and len(load.answers) >= answered + 4, "pods that were to go have gone")
        print(f"\n{took:.0f} s, {len(load.answers)} answers", end="")
        self.assertEqual(load.failures, [], self.release.told())
        for prompt, text in load.answers:
            self.assertEqual(text, self.expected[prompt])


def until(done, what, patience=PATIENCE):
    """Waits until `done()` is true and returns how many seconds that took."""
    began = time.monotonic()
    while not done():
        if time.monotonic() - began > patience:
            raise AssertionError(f"waited {patience} s: {what}")
        time.sleep(0.2)
    return time.monotonic() - began
