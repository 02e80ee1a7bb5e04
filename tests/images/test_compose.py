"""From nothing to the first token by one command: the compose file, as it is, with the images that were built."""

import os
import re
import subprocess
import time
import unittest
from pathlib import Path

from containers import MODEL, docker, generate, until

FOLDER = Path(__file__).resolve().parents[2] / "deploy/compose"
SERVICES = ("orchestrator", "target-verifier", "draft-worker")


def compose(*words):
    """Runs docker-compose over the file without observability."""
    told = {"FORETOKEN_MODELS": str(MODEL.parent), "FORETOKEN_TARGET": MODEL.name, "FORETOKEN_KV_TOKENS": "4096",
            "COMPOSE_PROJECT_NAME": "demo", "FORETOKEN_PORT": "17450"}
    ended = subprocess.run(["docker-compose", "--file", "compose.yaml", *words], cwd=FOLDER, env={**os.environ, **told},
                           capture_output=True, text=True, timeout=600, check=False)
    if ended.returncode:
        raise AssertionError(ended.stderr)
    return ended.stdout


class Compose(unittest.TestCase):
    """Docker's own health checks decide what is healthy here."""

    def tearDown(self):
        compose("down", "--timeout", "40")

    def healthy(self, service):
        """How many of a service's containers docker calls healthy."""
        containers = compose("ps", "--quiet", service).split()
        asked = [docker("inspect", "--format", "{{.State.Health.Status}}", name).stdout.strip() for name in containers]
        return asked.count("healthy")

    def test_one_command_to_the_first_token_and_replicas_by_another(self):
        began = time.monotonic()
        compose("up", "--detach", "--no-build")
        answer = generate("The capital of France is", network="demo_clients", tokens=8)
        print(f"\nfirst answer {time.monotonic() - began:.1f} s after `up`", end="")
        self.assertTrue(answer["text"].strip())
        for service in SERVICES:
            until(lambda: self.healthy(service) == 1, f"{service} is healthy")

        compose("up", "--detach", "--no-build", "--scale", "draft-worker=3", "draft-worker")
        until(lambda: self.found("draft-worker") == 3, "the orchestrator has found three draft workers")

    def found(self, service):
        """Workers that the orchestrator's log has called ready."""
        port = {"target-verifier": 7451, "draft-worker": 7452}[service]
        said = compose("logs", "--no-color", "orchestrator")
        return len(set(re.findall(rf'"worker":"([^"]+:{port})"', "\n".join(
            line for line in said.splitlines() if '"worker ready"' in line))))


if __name__ == "__main__":
    unittest.main()
