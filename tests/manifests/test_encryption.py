"""TLS and API keys: who holds what, who shows what to whom, and whether certificates hold the names that are dialled."""

import re
import shutil
import tempfile
import unittest
from collections import defaultdict
from pathlib import Path

import yaml

from callers import calls, container_of, files, probes
from chart import CHART, NAMESPACE, WORKLOADS, by_kind, option, pod, service_of, template
from matrix import KEYS, MATRIX, SECRETS, rendered

WORKERS = ("target-verifier", "draft-worker")
# The settings' names of the services.
SETTINGS = {"orchestrator": "orchestrator", "target-verifier": "targetVerifier", "draft-worker": "draftWorker", "test": "test"}


def tls(case):
    """The case's settings over the chart's own."""
    given = MATRIX[case].get("tls", {})
    return {"enabled": given.get("enabled", False), "mutual": given.get("mutual", True),
            "clients": given.get("clients", {}).get("mutual", False), "made": "certManager" in given}


class Encryption(unittest.TestCase):
    """The cases of the matrix, those without TLS too."""

    def cases(self, wanted=lambda settings: True):
        """Cases whose TLS settings are as wanted, each as a case of its own."""
        found = [case for case in MATRIX if wanted(tls(case))]
        self.assertTrue(found)
        for case in found:
            with self.subTest(case=case):
                yield case, rendered()[case]

    def workloads(self, objects):
        """Pods' makers, the test pod among them."""
        return [item for item in objects if pod(item) is not None]

    def test_a_secret_that_is_named_is_mounted_and_nothing_else_is(self):
        for _, objects in self.cases():
            for item in self.workloads(objects):
                asked = probes(item) if item["kind"] in WORKLOADS else []
                said = sum(asked, container_of(item)["args"])
                named = {word.split("=", 1)[1] for word in said if re.match(r"--(tls|api)-[a-z-]+=/", word)}
                self.assertEqual(named, set(files(item)))

    def test_secrets_are_mounted_so_that_they_can_change_and_be_read(self):
        for _, objects in self.cases():
            for item in self.workloads(objects):
                security = pod(item)["securityContext"]
                secrets = {volume["name"]: volume["secret"] for volume in pod(item).get("volumes", []) if "secret" in volume}
                for secret in secrets.values():
                    # Root owns the files: the group must be one of the process's, and nobody else may read.
                    self.assertEqual((secret["defaultMode"], security["fsGroup"]), (0o440, security["runAsGroup"]))
                    self.assertNotIn("optional", secret)
                for mount in container_of(item).get("volumeMounts", []):
                    if mount["name"] in secrets:
                        self.assertIs(mount["readOnly"], True)
                        # Such a file would stay what it was when the container started.
                        self.assertNotIn("subPath", mount)
                self.assertNotIn("secretKeyRef", str(container_of(item).get("env", "")))

    def test_services_speak_tls_when_told_to_and_only_then(self):
        for case, objects in self.cases():
            enabled = tls(case)["enabled"]
            for item in self.workloads(objects):
                words = container_of(item)["args"]
                if item["kind"] in WORKLOADS:
                    self.assertEqual(bool(option(words, "--tls-cert")), enabled)
                    self.assertEqual(bool(option(words, "--tls-key")), enabled)
                    self.assertEqual([bool(command) for command in probes(item)], [enabled] * 3)
                if not enabled:
                    self.assertEqual([word for word in words if word.startswith("--tls")], [])
            for service in by_kind(objects, "Service").values():
                (grpc,) = [port for port in service["spec"]["ports"] if port["name"] == "grpc"]
                self.assertEqual(grpc["appProtocol"], "https" if enabled else "kubernetes.io/h2c")

    def test_services_ask_for_certificates_as_they_are_told(self):
        for case, objects in self.cases():
            settings = tls(case)
            for item in objects:
                if item["kind"] in WORKLOADS:
                    asks = settings["mutual"] if service_of(item) in WORKERS else settings["clients"]
                    self.assertEqual(bool(option(container_of(item)["args"], "--tls-client-ca")), settings["enabled"] and asks)

    def test_who_asks_is_shown_a_certificate_and_every_caller_verifies(self):
        for case, objects in self.cases(lambda settings: settings["enabled"]):
            count = 0
            for call in calls(objects):
                asked = option(container_of(call.callee)["args"], "--tls-client-ca")
                shown = [option(call.words, f"--tls-client-{part}") for part in ("cert", "key")]
                # The orchestrator shows workers its own or none, and both kinds of worker ask alike.
                self.assertEqual([bool(part) for part in shown], [bool(asked)] * 2)
                mounted = files(call.caller)
                self.assertEqual(mounted[option(call.words, "--tls-ca")][1], "ca.crt")
                if asked:
                    self.assertEqual([mounted[part][1] for part in shown], ["tls.crt", "tls.key"])
                    self.assertEqual(len({mounted[part][0] for part in shown}), 1)
                    self.assertEqual(files(call.callee)[asked][1], "ca.crt")
                count += 1
            # Three probes of each service, the links to workers, and the test pod.
            self.assertEqual(count, 8 if "plain decoding" in case else 12)

    def test_certificates_hold_every_name_that_is_dialled_and_no_strangers(self):
        for case, objects in self.cases(lambda settings: settings["made"]):
            made = {item["spec"]["secretName"]: item for item in objects if item["kind"] == "Certificate"}
            dialled = defaultdict(set)
            for call in calls(objects):
                secret, key = files(call.callee)[option(container_of(call.callee)["args"], "--tls-cert")]
                self.assertEqual(key, "tls.crt")
                self.assertIn(call.name, made[secret]["spec"]["dnsNames"])
                dialled[secret].add(call.name)
            services = by_kind(objects, "Service")
            more = MATRIX[case]["tls"]["certManager"].get("orchestratorNames", [])
            for secret, certificate in made.items():
                names = certificate["spec"]["dnsNames"]
                self.assertEqual(len(names), len(set(names)))
                if service_of(certificate) == "test":
                    continue
                self.assertTrue(dialled[secret])
                own = {name for name, service in services.items() if service_of(service) == service_of(certificate)}
                # Clients of other namespaces add them; what a Service of this chart is not named is nobody's.
                wanted = {service + end for service in own for end in ("", f".{NAMESPACE}", f".{NAMESPACE}.svc")}
                self.assertEqual(set(names), wanted | (set(more) if service_of(certificate) == "orchestrator" else set()))

    def test_certificates_are_asked_for_as_the_values_say(self):
        for case, objects in self.cases(lambda settings: settings["made"]):
            given = MATRIX[case]["tls"]["certManager"]
            certificates = [item for item in objects if item["kind"] == "Certificate"]
            owners = {service_of(item) for item in objects if item["kind"] in WORKLOADS} | ({"test"} if tls(case)["clients"] else set())
            self.assertEqual({service_of(item) for item in certificates}, owners)
            for item in certificates:
                spec = item["spec"]
                self.assertEqual(spec["issuerRef"], {"kind": "Issuer", "group": "cert-manager.io", **given["issuerRef"]})
                self.assertEqual((spec["duration"], spec["renewBefore"]), (given.get("duration", "2160h"), given.get("renewBefore", "720h")))
                self.assertEqual(spec["privateKey"]["rotationPolicy"], "Always")
                serves = [] if service_of(item) == "test" else ["server auth"]
                self.assertEqual(spec["usages"], ["digital signature", *serves, "client auth"])

    def test_private_keys_and_api_keys_are_where_they_are_needed_and_nowhere_else(self):
        for case, objects in self.cases():
            holders = defaultdict(list)
            for item in self.workloads(objects):
                for secret, key in files(item).values():
                    if key != "ca.crt":
                        holders[secret, key].append(item["metadata"]["labels"]["app.kubernetes.io/component"])
            self.assertTrue(all(len(services) == 1 for services in holders.values()), holders)
            keys = MATRIX[case].get("apiKeys", {})
            held = {key: services for (secret, key), services in holders.items() if secret == KEYS["existingSecret"]}
            wanted = {keys.get("key", "api-keys"): ["orchestrator"], keys.get("testKey", "test-key"): ["test"]}
            self.assertEqual(held, wanted if keys else {})
            test = next(item for item in objects if item["kind"] == "Pod")
            for words, name, given in ((container_of(test)["args"], "--api-key-file", keys),
                                       *((container_of(item)["args"], "--api-keys", keys and service_of(item) == "orchestrator")
                                         for item in objects if item["kind"] in WORKLOADS)):
                self.assertEqual(bool(option(words, name)), bool(given))

    def test_secrets_that_are_there_are_the_ones_that_were_named(self):
        for case, objects in self.cases(lambda settings: settings["enabled"] and not settings["made"]):
            self.assertEqual([item for item in objects if item["kind"] == "Certificate"], [])
            named = {**SECRETS, **MATRIX[case]["tls"]["existingSecrets"]}
            for item in self.workloads(objects):
                service = item["metadata"]["labels"]["app.kubernetes.io/component"]
                holder = service if service != "test" or tls(case)["clients"] else "orchestrator"
                self.assertEqual({secret for secret, _ in files(item).values()}, {named[SETTINGS[holder]]})

    def test_drafts_from_elsewhere_keep_their_own_way(self):
        args = container_of(by_kind(rendered()["TLS and drafts from elsewhere"], "Deployment")["demo-orchestrator"])["args"]
        self.assertEqual(option(args, "--untrusted-draft"), "https://drafts.example.com:7452,http://10.0.0.9:7452")


class Notes(unittest.TestCase):
    """What Helm tells whoever has installed it."""

    def notes(self, case):
        """The text. Helm writes it only for a cluster that is there, so here it is an object of a copy of the chart."""
        with tempfile.TemporaryDirectory() as folder:
            copy = shutil.copytree(CHART, f"{folder}/foretoken")
            text = (CHART / "templates/NOTES.txt").read_text()
            Path(copy, "templates/_notes.tpl").write_text('{{ define "notes" }}' + text + "{{ end }}")
            Path(copy, "templates/notes.yaml").write_text('notes: {{ include "notes" . | toJson }}')
            return yaml.safe_load(template(MATRIX[case], "--show-only", "templates/notes.yaml", chart=copy))["notes"]

    def test_the_command_shows_what_the_test_pod_shows(self):
        for case in ("defaults", "TLS by cert-manager", "TLS by secrets", "keys", "keys over TLS", "everything shown"):
            with self.subTest(case=case):
                notes, objects = self.notes(case), rendered()[case]
                command = next(line for line in notes.splitlines() if "foretoken generate" in line)
                test = next(item for item in objects if item["kind"] == "Pod")
                args = container_of(test)["args"]
                flags = {word.split("=")[0] for word in args if re.match(r"--(tls|api)", word)}
                # Through a forwarded port the name is not the address.
                flags |= {"--tls-server-name"} if tls(case)["enabled"] else set()
                self.assertEqual(set(re.findall(r"--(?:tls|api)[a-z-]+", command)), flags)
                if tls(case)["enabled"]:
                    orchestrator = by_kind(objects, "Deployment")["demo-orchestrator"]
                    secret, _ = files(orchestrator)["/tls/ca.crt"]
                    self.assertIn(f"get secret {secret} --output go-template='{{{{index .data \"ca.crt\" | base64decode}}}}' > ca.crt", notes)
                    self.assertIn("--tls-server-name demo-orchestrator ", command)
                    self.assertIn("gRPC over TLS", notes)
                else:
                    self.assertIn("gRPC without TLS", notes)

    def test_what_is_half_protected_is_said(self):
        self.assertIn("keys cross the network readable", self.notes("keys"))
        self.assertNotIn("readable", self.notes("keys over TLS"))
        self.assertIn("serve whoever reaches them", self.notes("TLS, workers serve anybody"))
        self.assertIn("show one of the same authority", self.notes("everything shown"))


if __name__ == "__main__":
    unittest.main()
