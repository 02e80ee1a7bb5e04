"""The runbook's commands for certificates, keys and secrets, run; and what they make, held by the services themselves."""

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import yaml

from callers import calls, container_of, files, probes
from chart import ROOT, WORKLOADS, by_kind, manifests, option, pod, service_of
from cluster import free_port

BINARIES = Path(os.environ["FORETOKEN_BINARIES"])
RUNBOOK = (ROOT / "deploy/README.md").read_text()
SECTION = RUNBOOK[RUNBOOK.index("## Encryption and keys"):RUNBOOK.index("## How workers are found")]

# Records what is asked for, and passes on what it makes of files: a Secret.
KUBECTL = """#!/usr/bin/env bash
case "$3" in create) printf '%s\\n' "$*" >> "$RECORD"; for word in "$@"; do
    [[ $word != --from-file=* ]] || { file=${word#--from-file=}; test -s "${file#*=}" || exit 1; }; done ;; esac
"""


def blocks(language):
    """The section's blocks in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", SECTION, re.MULTILINE | re.DOTALL)


class Commands(unittest.TestCase):
    """Run once, in a folder of their own."""

    @classmethod
    def setUpClass(cls):
        version = subprocess.run(["openssl", "version"], capture_output=True, text=True, check=False) if shutil.which("openssl") else None
        if version is None or not re.match(r"OpenSSL [3-9]", version.stdout):
            raise unittest.SkipTest("there is no OpenSSL 3 here")
        cls.folder = Path(tempfile.mkdtemp(prefix="foretoken-certificates-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        kubectl = cls.folder / "kubectl"
        kubectl.write_text(KUBECTL)
        kubectl.chmod(0o755)
        cls.compose, cls.kubernetes = blocks("bash")
        cls.sh(cls.compose + cls.kubernetes)

    @classmethod
    def sh(cls, text, check=True):
        """Runs commands as a reader would, who may have a strict umask."""
        environment = {**os.environ, "PATH": f"{cls.folder}:{os.environ['PATH']}", "RECORD": str(cls.folder / "record")}
        command = ["bash", "-euo", "pipefail", "-c", f"umask 077\n{text}"]
        ended = subprocess.run(command, cwd=cls.folder, env=environment, capture_output=True, text=True, check=False)
        if check and ended.returncode:
            raise AssertionError(ended.stderr)
        return ended

    def holds(self, folder, name, purpose="sslserver"):
        """Whether a folder's certificate is its own authority's, strictly, for this name and purpose."""
        how = "ip" if re.fullmatch(r"[0-9.]+", name) else "hostname"
        words = f"-x509_strict -CAfile tls/{folder}/ca.crt -purpose {purpose} -verify_{how} {name} tls/{folder}/tls.crt"
        return self.sh(f"openssl verify {words}", check=False).returncode == 0

    def test_compose_finds_certificates_for_the_names_that_are_dialled(self):
        services = {name: yaml.safe_load((ROOT / "deploy/compose" / name).read_text())["services"]
                    for name in ("compose.yaml", "compose.tls.yaml")}
        dialled = [option(services["compose.yaml"]["orchestrator"]["command"], flag) for flag in ("--verifiers", "--draft-workers")]
        for address in dialled:
            name = address.removeprefix("dns:///").split(":")[0]
            self.assertTrue(self.holds(name, name))
        for name, service in services["compose.tls.yaml"].items():
            self.assertTrue(self.holds(name, option(service["healthcheck"]["test"], "--tls-server-name")))
            self.assertTrue(self.holds(name, name, "sslclient"))
            for volume in service["volumes"]:
                source = re.fullmatch(r"\$\{FORETOKEN_TLS:-\./tls\}/([a-z-]+):/[a-z-]+:ro", volume)[1]
                self.assertTrue((self.folder / "tls" / source).is_dir())
        for name in ("localhost", "127.0.0.1"):
            self.assertTrue(self.holds("orchestrator", name))
        self.assertFalse(self.holds("draft-worker", "target-verifier"))

    def test_nobody_else_on_the_machine_reads_keys_and_containers_do(self):
        folder = self.folder / "tls"
        self.assertEqual(folder.stat().st_mode & 0o777, 0o700)
        self.assertEqual((folder / "ca/ca.key").stat().st_mode & 0o077, 0)
        for mounted in ("orchestrator", "target-verifier", "draft-worker", "api-keys"):
            self.assertEqual((folder / mounted).stat().st_mode & 0o005, 0o005)
            for file in (folder / mounted).iterdir():
                self.assertEqual(file.stat().st_mode & 0o004, 0o004)
                self.assertIn(file.name, ("tls.crt", "tls.key", "ca.crt", "api-keys"))

    def test_keys_have_a_name_and_enough_characters(self):
        line = (self.folder / "tls/api-keys/api-keys").read_text()
        self.assertRegex(line, r"\A\S+ \S{16,}\n\Z")
        self.assertEqual((self.folder / "tls/team-a.key").read_text(), line.split(" ")[1])

    def test_a_certificate_is_renewed_by_the_same_words(self):
        function, use = re.search(r"^certificate\(\) .*?^}$", self.compose, re.MULTILINE | re.DOTALL)[0], "certificate draft-worker DNS:draft-worker"
        place = self.folder / "tls/draft-worker/tls.crt"
        before = place.read_text()
        self.sh(f"{function}\n{use}")
        self.assertNotEqual(place.read_text(), before)
        self.assertTrue(self.holds("draft-worker", "draft-worker"))
        pair = self.sh("cd tls/draft-worker && openssl x509 -in tls.crt -noout -pubkey && openssl pkey -in tls.key -pubout").stdout
        key = re.findall(r"-----BEGIN.*?END PUBLIC KEY-----", pair, re.DOTALL)
        self.assertEqual(key[0], key[1])

    def test_the_plain_manifests_find_their_secrets_and_names(self):
        objects = plain()
        made = {}
        for line in (self.folder / "record").read_text().splitlines():
            words = line.split()
            self.assertEqual(words[:5], ["--namespace", "foretoken", "create", "secret", "generic"])
            given = [word.removeprefix("--from-file=") for word in words if word.startswith("--from-file=")]
            made[words[5]] = {name.split("=")[0] if "=" in name else os.path.basename(name): name for name in given}
        for item in objects:
            if pod(item):
                for secret, key in files(item).values():
                    self.assertIn(key, made[secret])
        folders = {secret: os.path.basename(os.path.dirname(names["tls.crt"])) for secret, names in made.items() if "tls.crt" in names}
        count = 0
        for call in calls(objects):
            secret, _ = files(call.callee)["/tls/tls.crt"]
            self.assertTrue(self.holds(folders[secret], call.name), call.name)
            count += 1
        self.assertEqual(count, 11)
        # The test pod's, which the plain manifests have not.
        self.assertEqual(set(made["foretoken-api-keys"]), {"api-keys", "test-key"})

    def test_services_take_them_and_probes_pass(self):
        """The plain manifests' own words, on loopback: the draft worker and the orchestrator need no model to answer."""
        workloads = {service_of(item): item for item in plain() if item["kind"] in WORKLOADS}
        for service in ("draft-worker", "orchestrator"):
            with self.subTest(service=service):
                item, port = workloads[service], free_port()
                words = [self.here(f"foretoken-{service}", word, port) for word in container_of(item)["args"]
                         if not word.startswith(("--metrics-listen", "--drain-timeout"))]
                startup, _, liveness = [[self.here(f"foretoken-{service}", word, port) for word in command] for command in probes(item)]
                with running([BINARIES / f"foretoken-{service}", *words]):
                    began = time.monotonic()
                    while (said := run(startup)).returncode and time.monotonic() - began < 30:
                        time.sleep(0.1)
                    self.assertEqual(said.returncode, 0, said.stderr)
                    self.assertEqual(run(liveness).returncode, 0)
                    # Who verifies another name, or trusts nobody, is told.
                    other = [word.replace("foretoken-", "other-") if word.startswith("--tls-server-name=") else word for word in liveness]
                    self.assertIn("is not for other-", run(other).stderr)
                    bare = [word for word in liveness if not word.startswith("--tls")]
                    self.assertNotEqual(run(bare).returncode, 0)
                    if service == "draft-worker":
                        shown = [word for word in liveness if not word.startswith("--tls-client")]
                        self.assertIn("asks for a certificate", run(shown).stderr)

    def here(self, folder, word, port):
        """A word of a pod's, on this machine."""
        return (word.replace("=/tls/", f"={self.folder}/tls/{folder}/").replace("=/api-keys/", f"={self.folder}/tls/api-keys/")
                .replace("/usr/local/bin/", f"{BINARIES}/").replace("0.0.0.0", "127.0.0.1")
                .replace("127.0.0.1:7450", f"127.0.0.1:{port}").replace("127.0.0.1:7452", f"127.0.0.1:{port}"))

    def test_cert_managers_objects_fit_the_values_beside_them(self):
        documents, values = blocks("yaml")
        objects = list(yaml.safe_load_all(documents))
        wanted = yaml.safe_load(values)["tls"]["certManager"]["issuerRef"]["name"]
        issuers = by_kind(objects, "Issuer")
        (authority,) = by_kind(objects, "Certificate").values()
        self.assertEqual(issuers[wanted]["spec"]["ca"]["secretName"], authority["spec"]["secretName"])
        self.assertIn(authority["spec"]["issuerRef"]["name"], issuers)
        self.assertEqual(len(by_kind(manifests(yaml.safe_load(values)), "Certificate")), 3)


def plain():
    """The manifests for those without Helm."""
    return list(yaml.safe_load_all((ROOT / "deploy/kubernetes/foretoken-tls.yaml").read_text()))


def bare_environment():
    """Without this process's settings."""
    return {key: value for key, value in os.environ.items() if not key.startswith("FORETOKEN_")}


@contextlib.contextmanager
def running(command):
    """A process for as long as it is looked at."""
    with subprocess.Popen(command, env=bare_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()


def run(command):
    """Runs a command to its end."""
    return subprocess.run(command, env=bare_environment(), capture_output=True, text=True, timeout=60, check=False)


if __name__ == "__main__":
    unittest.main()
