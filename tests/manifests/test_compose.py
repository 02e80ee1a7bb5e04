"""The compose files: networks apart, nothing writable, names that fit together. Running them is tests/images' part."""

import os
import subprocess
import unittest

import yaml

from chart import ROOT

COMPOSE = ROOT / "deploy/compose"
SERVICES = {"orchestrator": 7450, "target-verifier": 7451, "draft-worker": 7452}


def read(name):
    """A compose file, as YAML."""
    return yaml.safe_load((COMPOSE / name).read_text())


class Compose(unittest.TestCase):
    """What a reader would check by eye."""

    def test_services_share_networks_only_with_the_orchestrator(self):
        services, networks = read("compose.yaml")["services"], read("compose.yaml")["networks"]
        self.assertEqual(set(services), set(SERVICES))
        verifier, drafter = set(services["target-verifier"]["networks"]), set(services["draft-worker"]["networks"])
        self.assertFalse(verifier & drafter)
        self.assertLess(verifier | drafter, set(services["orchestrator"]["networks"]))
        self.assertTrue(all(networks[name]["internal"] for name in verifier | drafter))
        self.assertNotIn("volumes", services["orchestrator"])

    def test_services_run_without_rights(self):
        for name, service in read("compose.yaml")["services"].items():
            with self.subTest(service=name):
                self.assertIs(service["read_only"], True)
                self.assertEqual((service["user"], service["cap_drop"]), ("65532:65532", ["ALL"]))
                drain = next(arg for arg in service["command"] if arg.startswith("--drain-timeout="))
                self.assertGreaterEqual(int(service["stop_grace_period"][:-1]), int(drain.split("=")[1][:-1]) + 7)

    def test_the_observers_join_the_services_networks_and_not_the_other_way_round(self):
        overlay = read("compose.observability.yaml")["services"]
        for name in SERVICES:
            self.assertEqual(set(overlay[name]), {"environment"})
        for name in ("otel-collector", "prometheus"):
            self.assertTrue({"clients", "verify", "draft"} <= set(overlay[name]["networks"]))

    def test_every_file_that_is_mounted_is_there(self):
        for service in read("compose.observability.yaml")["services"].values():
            for volume in service.get("volumes", []):
                source = volume.split(":")[0]
                if source.startswith("."):
                    self.assertTrue(any((COMPOSE / source).iterdir()), source)
        rules = yaml.safe_load((COMPOSE / "prometheus/prometheus.yml").read_text())["rule_files"]
        for rule in rules:
            self.assertTrue((ROOT / "deploy/prometheus" / os.path.basename(rule)).is_file(), rule)

    def test_docker_compose_reads_them(self):
        environment = {**os.environ, "FORETOKEN_MODEL_URL": "https://example.com/m", "FORETOKEN_MODEL_SHA256": "0" * 64}
        for command in (["docker-compose"], ["docker", "compose"]):
            try:
                subprocess.run([*command, "version"], check=True, capture_output=True)
                break
            except (OSError, subprocess.CalledProcessError):
                continue
        else:
            self.skipTest("there is no docker compose here")
        files = [word for name in ("compose.yaml", "compose.pull.yaml", "compose.observability.yaml") for word in ("-f", name)]
        ended = subprocess.run([*command, *files, "config"], cwd=COMPOSE, env=environment, capture_output=True, text=True, check=False)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertIn("service_completed_successfully", ended.stdout)


if __name__ == "__main__":
    unittest.main()
