"""The compose files: networks apart, nothing writable, names that fit together. Running them is tests/images' part."""

import os
import subprocess
import unittest

import yaml

from chart import ROOT, option

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

    def test_services_get_certificates_of_their_own_and_nothing_of_others(self):
        overlay, base = read("compose.tls.yaml")["services"], read("compose.yaml")["services"]
        self.assertEqual(set(overlay), set(SERVICES))
        for name, service in overlay.items():
            with self.subTest(service=name):
                self.assertEqual(set(service), {"environment", "volumes", "healthcheck"})
                settings = service["environment"]
                # Folders, so that files can be replaced: an image's own are read-only.
                places = dict(volume.removesuffix(":ro").rsplit(":", 1)[::-1] for volume in service["volumes"])
                self.assertTrue(all(volume.endswith(":ro") for volume in service["volumes"]))
                wanted = {"/tls": f"${{FORETOKEN_TLS:-./tls}}/{name}"}
                if name == "orchestrator":
                    wanted["/api-keys"] = "${FORETOKEN_TLS:-./tls}/api-keys"
                self.assertEqual(places, wanted)
                self.assertEqual({os.path.dirname(path) for path in settings.values()}, set(places))
                files = {key.removeprefix("FORETOKEN_TLS_"): os.path.basename(path) for key, path in settings.items() if "_TLS_" in key}
                # Its certificate for callers, and the same shown where it calls: workers, and itself.
                shown = {"CERT": "tls.crt", "KEY": "tls.key", "CA": "ca.crt", "CLIENT_CERT": "tls.crt", "CLIENT_KEY": "tls.key"}
                self.assertEqual(files, shown if name == "orchestrator" else {**shown, "CLIENT_CA": "ca.crt"})
                self.assertEqual("FORETOKEN_API_KEYS" in settings, name == "orchestrator")
                check = service["healthcheck"]["test"]
                self.assertEqual(check[:3], ["CMD", f"/usr/local/bin/foretoken-{name}", "healthcheck"])
                self.assertEqual(option(check, "--tls-server-name"), name)
        for flag, name in (("--verifiers", "target-verifier"), ("--draft-workers", "draft-worker")):
            self.assertEqual(option(base["orchestrator"]["command"], flag), f"dns:///{name}:{SERVICES[name]}")

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
        overlays = ("compose.pull.yaml", "compose.observability.yaml", "compose.tls.yaml")
        files = [word for name in ("compose.yaml", *overlays) for word in ("-f", name)]
        ended = subprocess.run([*command, *files, "config"], cwd=COMPOSE, env=environment, capture_output=True, text=True, check=False)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertIn("service_completed_successfully", ended.stdout)
        # What one overlay gives a service stands beside what another gives it.
        for setting in ("FORETOKEN_TLS_CERT: /tls/tls.crt", "FORETOKEN_METRICS_LISTEN: 0.0.0.0:9464"):
            self.assertEqual(ended.stdout.count(setting), len(SERVICES))


if __name__ == "__main__":
    unittest.main()
