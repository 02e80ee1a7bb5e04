"""The chart's arguments, given to the real binaries: every flag exists and takes its value."""

import os
import subprocess
import unittest
from pathlib import Path

import yaml

from callers import probes
from chart import ROOT, WORKLOADS, pod, service_of
from matrix import rendered

BINARIES = Path(os.environ["FORETOKEN_BINARIES"])

# Values are read in order, so with this one behind them the others have passed if it is what is complained about.
WRONG = "--max-message-bytes=1"


class Flags(unittest.TestCase):
    """No service is started."""

    def test_the_binaries_take_what_the_chart_gives_them(self):
        seen = set()
        for case, objects in rendered().items():
            for item in objects:
                if item["kind"] not in WORKLOADS:
                    continue
                service, args = service_of(item), pod(item)["containers"][0]["args"]
                if (service, *args) in seen:
                    continue
                seen.add((service, *args))
                with self.subTest(case=case, service=service):
                    ended = run(service, *args, WRONG)
                    self.assertEqual(ended.returncode, 2, ended.stderr)
                    self.assertIn("--max-message-bytes", ended.stderr.splitlines()[0])
        self.assertGreater(len(seen), len(WORKLOADS))

    def test_a_flag_that_is_not_there_would_be_noticed(self):
        for service in ("orchestrator", "target-verifier", "draft-worker"):
            ended = run(service, "--no-such-flag=1", WRONG)
            self.assertNotIn("--max-message-bytes", ended.stderr.splitlines()[0])

    def test_the_test_pods_command_exists(self):
        for case in ("defaults", "keys", "everything shown"):
            with self.subTest(case=case):
                args = next(item for item in rendered()[case] if item["kind"] == "Pod")["spec"]["containers"][0]["args"]
                args = [arg for arg in args if not arg.startswith("--max-tokens")]
                ended = run("", *args, "--max-tokens=none")
                self.assertEqual(ended.returncode, 2)
                self.assertIn("--max-tokens", ended.stderr.splitlines()[0])

    def test_the_probes_commands_exist(self):
        for case in ("TLS by cert-manager", "everything shown"):
            for item in rendered()[case]:
                if item["kind"] not in WORKLOADS:
                    continue
                for program, *words in probes(item):
                    with self.subTest(case=case, program=program):
                        self.assertEqual(program, f"/usr/local/bin/foretoken-{service_of(item)}")
                        words = [word for word in words if not word.startswith("--timeout")]
                        ended = run(service_of(item), *words, "--timeout=soon")
                        self.assertEqual(ended.returncode, 2)
                        self.assertIn("--timeout", ended.stderr.splitlines()[0])

    def test_composes_variables_are_the_ones_that_the_binaries_read(self):
        for service, overlay in yaml.safe_load((ROOT / "deploy/compose/compose.tls.yaml").read_text())["services"].items():
            said = run(service, "--help").stdout + run(service, "healthcheck", "--help").stdout
            # A line may end behind "env:".
            said = " ".join(said.split())
            for name in overlay["environment"]:
                self.assertIn(f"env: {name}=", said, service)

    def test_probes_can_be_asked_by_the_binary_itself(self):
        for service in ("orchestrator", "target-verifier", "draft-worker"):
            ended = run(service, "healthcheck", "--address", "127.0.0.1:1", "--timeout", "200ms")
            self.assertEqual(ended.returncode, 1)
            self.assertIn("is not serving", ended.stderr)


def run(service, *args):
    """Runs a service's binary, or with no name the command's, to its end, without this process's settings."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("FORETOKEN_")}
    command = [BINARIES / f"foretoken-{service}".rstrip("-"), *args]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=False)


if __name__ == "__main__":
    unittest.main()
