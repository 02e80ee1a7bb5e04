"""From nothing to the first token by one command: the compose files, as they are, with the images that were built.

The observers' own images cannot be had without a registry. Prometheus and Jaeger are put into images from the binaries that
other suites use, under the names that the overlay has for them; without these binaries their test is skipped. Jaeger takes the
collector's place: services send their spans to the same name.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import unittest
import urllib.parse
import urllib.request
from pathlib import Path

from containers import MODEL, docker, generate, until

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy/compose"
SERVICES = ("orchestrator", "target-verifier", "draft-worker")
SETTINGS = {
    "FORETOKEN_MODELS": str(MODEL.parent), "FORETOKEN_TARGET": MODEL.name, "FORETOKEN_KV_TOKENS": "4096",
    "COMPOSE_PROJECT_NAME": "demo", "FORETOKEN_PORT": "17450",
    "PROMETHEUS_IMAGE": "foretoken-test/prometheus", "OTEL_COLLECTOR_IMAGE": "foretoken-test/jaeger",
}


class Compose(unittest.TestCase):
    """Docker's own health checks decide what is healthy here."""

    files = ("compose.yaml",)
    settings = SETTINGS

    def compose(self, *words):
        """Runs docker-compose over the test's files."""
        files = [word for name in self.files for word in ("--file", name)]
        ended = subprocess.run(["docker-compose", *files, *words], cwd=FOLDER, env={**os.environ, **self.settings},
                               capture_output=True, text=True, timeout=600, check=False)
        if ended.returncode:
            raise AssertionError(ended.stderr)
        return ended.stdout

    def tearDown(self):
        self.compose("down", "--timeout", "40", "--volumes")

    def healthy(self, service):
        """How many of a service's containers docker calls healthy."""
        containers = self.compose("ps", "--quiet", service).split()
        asked = [docker("inspect", "--format", "{{.State.Health.Status}}", name).stdout.strip() for name in containers]
        return asked.count("healthy")

    def answered(self):
        """An answer through the port's service, from a container on the clients' network."""
        return generate("The capital of France is", network="demo_clients", tokens=8)

    def test_one_command_to_the_first_token_and_replicas_by_another(self):
        began = time.monotonic()
        self.compose("up", "--detach", "--no-build")
        text = self.answered()["text"]
        print(f"\nfirst answer {time.monotonic() - began:.1f} s after `up`", end="")
        self.assertTrue(text.strip())
        for service in SERVICES:
            until(lambda: self.healthy(service) == 1, f"{service} is healthy")

        self.compose("up", "--detach", "--no-build", "--scale", "draft-worker=3", "draft-worker")
        until(lambda: self.found(7452) == 3, "the orchestrator has found three draft workers")

    def found(self, port):
        """Workers that the orchestrator's log has called ready."""
        said = [line for line in self.compose("logs", "--no-color", "orchestrator").splitlines() if '"worker ready"' in line]
        return len(set(re.findall(rf'"worker":"([^"]+:{port})"', "\n".join(said))))


class Encrypted(Compose):
    """The same with TLS, with certificates shown to workers and a key by clients, all made by the runbook's commands."""

    files = ("compose.yaml", "compose.tls.yaml")

    @classmethod
    def setUpClass(cls):
        folder = Path(tempfile.mkdtemp(prefix="foretoken-certificates-"))
        cls.addClassCleanup(shutil.rmtree, folder)
        commands = re.search(r"^```bash\n(.*?)^```$", (ROOT / "deploy/README.md").read_text(), re.MULTILINE | re.DOTALL)[1]
        subprocess.run(["bash", "-euo", "pipefail", "-c", commands], cwd=folder, check=True, capture_output=True)
        cls.settings = {**SETTINGS, "FORETOKEN_TLS": str(folder / "tls")}
        cls.client = folder / "client"
        cls.client.mkdir()
        for file in ("ca/ca.crt", "team-a.key"):
            shutil.copy(folder / "tls" / file, cls.client)
        for file in (cls.client, *cls.client.iterdir()):
            file.chmod(0o755)

    def answered(self, authority="/client/ca.crt", key="/client/team-a.key"):
        """An answer to a client who verifies the orchestrator and has a key."""
        return generate("The capital of France is", f"--tls-ca={authority}", f"--api-key-file={key}", network="demo_clients",
                        tokens=8, options=("--volume", f"{self.client}:/client:ro"))

    def test_who_has_no_key_or_no_tls_gets_no_answer(self):
        self.compose("up", "--detach", "--no-build")
        until(lambda: self.healthy("orchestrator") == 1, "the orchestrator is healthy")
        self.assertTrue(self.answered()["text"].strip())
        with self.assertRaisesRegex(AssertionError, "asks for an API key"):
            self.answered(key="")
        with self.assertRaisesRegex(AssertionError, "cannot use the server"):
            self.answered(authority="")


class Observed(Compose):
    """The same with the observers' overlay."""

    files = ("compose.yaml", "compose.observability.yaml")
    test_one_command_to_the_first_token_and_replicas_by_another = None

    @classmethod
    def setUpClass(cls):
        binaries = {"prometheus": shutil.which("prometheus"), "jaeger": os.environ.get("FORETOKEN_TEST_JAEGER")}
        cls.observers = {name for name, path in binaries.items() if path and Path(path).exists()}
        for name in cls.observers:
            path = binaries[name]
            with tempfile.TemporaryDirectory() as context:
                shutil.copy(path, Path(context) / name)
                lines = ["FROM foretoken-test/base:bookworm", f"COPY {name} /usr/bin/"]
                if name == "jaeger":
                    # The trace suite's settings, reached from other containers; the overlay's arguments are for a collector.
                    settings = (ROOT / "tests/jaeger/config.yaml").read_text().replace("127.0.0.1", "0.0.0.0")
                    (Path(context) / "config.yaml").write_text(settings)
                    lines += ["COPY config.yaml /etc/jaeger.yaml",
                              "ENV JAEGER_OTLP_PORT=4317 JAEGER_QUERY_HTTP_PORT=16686 JAEGER_QUERY_GRPC_PORT=16685"]
                    start = ["/bin/sh", "-c", "exec /usr/bin/jaeger --config /etc/jaeger.yaml"]
                else:
                    start = ["/usr/bin/prometheus"]
                (Path(context) / "Dockerfile").write_text("\n".join([*lines, f"ENTRYPOINT {json.dumps(start)}", ""]))
                docker("build", "--tag", f"foretoken-test/{name}", context)

    def up(self, observer, service):
        """Starts the services and one observer, and has a sentence generated."""
        if observer not in self.observers:
            self.skipTest(f"there is no binary of {observer} here")
        self.compose("up", "--detach", "--no-build", *SERVICES, service)
        self.assertTrue(self.answered()["text"].strip())

    def test_prometheus_has_the_metrics(self):
        self.up("prometheus", "prometheus")
        up = 'count by (job) (up{job=~"foretoken-.+"} == 1)'
        until(lambda: len(self.prometheus("query", query=up)["result"]) == 3, "all three are scraped")
        tokens = "sum(foretoken_generation_tokens_total)"
        until(lambda: [entry["value"][1] for entry in self.prometheus("query", query=tokens)["result"]] == ["8"],
              "Prometheus has the answer's tokens")
        rules = [rule["name"] for group in self.prometheus("rules")["groups"] for rule in group["rules"]]
        self.assertIn("ForetokenNoVerifierReady", rules)

    def test_jaeger_shows_the_trace(self):
        self.up("jaeger", "otel-collector")
        # The first answer may have come before the draft worker was known.
        everyone = {f"foretoken-{name}" for name in SERVICES}
        until(lambda: self.answered() and self.traced() == everyone, "Jaeger has a trace across all three")

    def prometheus(self, what, **query):
        """What Prometheus' published port answers."""
        address = f"http://127.0.0.1:9090/api/v1/{what}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(address, timeout=10) as answer:
                return json.load(answer)["data"]
        except OSError:
            return {"result": [], "groups": []}

    def traced(self):
        """The services whose spans are in one trace, as Jaeger tells it from its own network."""
        (container,) = self.compose("ps", "--quiet", "otel-collector").split()
        networks = json.loads(docker("inspect", container).stdout)[0]["NetworkSettings"]["Networks"]
        address = f"http://{networks['demo_clients']['IPAddress']}:16686/api/traces?service=foretoken-orchestrator"
        try:
            with urllib.request.urlopen(address, timeout=10) as answer:
                traces = json.load(answer)["data"]
        except OSError:
            return set()
        return max(({process["serviceName"] for process in trace["processes"].values()} for trace in traces), key=len, default=set())


if __name__ == "__main__":
    unittest.main()
