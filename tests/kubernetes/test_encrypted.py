"""The release of the plain manifests with TLS and keys: certificates, claim and secrets as the runbook makes them.

Probes are the service's own binary here, run by the kubelet in pods that may write nothing.
"""

import json
import os
import re
import shutil
import subprocess
import unittest

from clients import PROMPTS, Answering, Disturbed
from cluster import BIN
from node import Node
from release import MODEL, ROOT, SERVICES, Release, modest, namespace, until, volume

# The name that the runbook's commands and the manifests' values have for all.
NAME = "foretoken"


class Encrypted(Disturbed):
    """One release, reached by clients who verify it and have a key."""

    expected = {}

    @classmethod
    def setUpClass(cls):
        cls.node = Node.only()
        cls.release = Release(cls.node, NAME, NAME)
        folder = cls.node.folder / "weights"
        folder.mkdir()
        shutil.copy(MODEL, folder / "target.gguf")
        claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "foretoken-models", "namespace": NAME},
                 "spec": {"volumeName": "weights", "accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}}
        for item in (namespace(NAME), volume("weights", folder), claim):
            cls.node.kubectl("apply", "--filename", "-", stdin=json.dumps(item))
        cls.folder = cls.node.folder / "runbook"
        cls.folder.mkdir()
        cls.certificates, cls.secrets = re.findall(r"^```bash\n(.*?)^```$", (ROOT / "deploy/README.md").read_text(),
                                                   re.MULTILINE | re.DOTALL)
        cls.shell(cls.certificates + cls.secrets)
        kubernetes = ROOT / "deploy/kubernetes"
        cls.release.roll_out("install", modest(), "--values", kubernetes / "values.yaml", "--values", kubernetes / "values-tls.yaml")
        cls.server = cls.release.address()
        cls.words = (f"--tls-ca={cls.folder}/tls/ca/ca.crt", f"--tls-server-name={NAME}-orchestrator",
                     f"--api-key-file={cls.folder}/tls/team-a.key")

    @classmethod
    def shell(cls, commands):
        """Runs the runbook's commands in a folder of their own."""
        environment = {**os.environ, "KUBECONFIG": str(cls.node.kubeconfig), "PATH": f"{BIN}:{os.environ['PATH']}"}
        ended = subprocess.run(["bash", "-euo", "pipefail", "-c", commands], cwd=cls.folder, env=environment, check=False,
                               capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr

    def test_1_probes_and_helm_test_pass(self):
        self.assertEqual(self.release.restarts(), {})
        self.assertEqual([len(self.release.ready(service)) for service in SERVICES.values()], [2, 2, 2])
        self.assertRegex(self.release.helm("test", NAME, "--timeout", "3m"), "Phase: +Succeeded")
        self.expect()

    def test_2_who_has_no_key_or_no_tls_gets_no_answer(self):
        authority, name, _ = self.words
        for words, said in (((authority, name), "API key"), ((), "cannot use the server")):
            record, error = Answering(self.server, PROMPTS[0], *words).ended()
            self.assertIsNone(record)
            self.assertIn(said, error)

    def test_3_certificates_are_exchanged_under_load(self):
        # The runbook's own commands again; nobody restarts.
        before = {service: self.served(service) for service in SERVICES.values()}

        def exchange():
            functions = re.search(r"^certificate\(\).*?^}$", self.certificates, re.MULTILINE | re.DOTALL)[0]
            self.shell(f"{functions}\n{self.secrets}")
            until(lambda: not any(self.served(service) & {"", *old} for service, old in before.items()),
                  "new certificates are served")
        self.under_load(exchange)
        self.assertEqual(self.release.restarts(), {})

    def served(self, service):
        """The serial numbers of the certificates that a service's pods show; of none an empty one."""
        port = {"orchestrator": 7450, "target-verifier": 7451, "draft-worker": 7452}[service]
        shown = set()
        for pod in self.release.pods(service):
            address = f"{pod['status']['podIP']}:{port}"
            talk = subprocess.run(["openssl", "s_client", "-connect", address], stdin=subprocess.DEVNULL, capture_output=True,
                                  text=True, check=False)
            told = subprocess.run(["openssl", "x509", "-noout", "-serial"], input=talk.stdout, capture_output=True, text=True,
                                  check=False)
            shown.add(told.stdout.strip())
        return shown

    def test_4_each_service_is_upgraded_under_load(self):
        changed = modest(podAnnotations={"upgraded": "once"})
        self.under_load(lambda: self.release.roll_out("upgrade", changed, "--reuse-values"))
        self.assertEqual(self.release.restarts(), {})


if __name__ == "__main__":
    unittest.main()
