"""Everything the chart renders, given to a real API server with the restricted Pod Security Standard enforced."""

import copy
import json
import unittest

import yaml

from chart import NAMESPACE, ROOT, manifests
from cluster import Cluster
from matrix import MATRIX, rendered

ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
TEXT = {"type": "string"}


def fields(required=(), **properties):
    """An object with these fields and no others."""
    return {"type": "object", "properties": properties, **({"required": list(required)} if required else {})}


def one_of(*words):
    """One of these words."""
    return {"type": "string", "enum": list(words)}


# What of cert-manager's Certificate the chart uses; that no field has another name or kind is checked.
CERTIFICATE = fields(spec=fields(
    ["issuerRef", "secretName"],
    secretName=TEXT, duration=TEXT, renewBefore=TEXT,
    issuerRef=fields(["name"], name=TEXT, kind=TEXT, group=TEXT),
    privateKey=fields(algorithm=one_of("RSA", "ECDSA", "Ed25519"), encoding=one_of("PKCS1", "PKCS8"),
                      rotationPolicy=one_of("Never", "Always"), size={"type": "integer"}),
    usages={"type": "array", "items": one_of("digital signature", "key encipherment", "server auth", "client auth")},
    dnsNames={"type": "array", "items": TEXT},
))
# The kinds that are not Kubernetes' own; their real definitions come with KEDA, the Prometheus operator and cert-manager.
FOREIGN = {
    "ScaledObject": ("keda.sh", "v1alpha1", "scaledobjects", ANYTHING),
    "ServiceMonitor": ("monitoring.coreos.com", "v1", "servicemonitors", ANYTHING),
    "Certificate": ("cert-manager.io", "v1", "certificates", CERTIFICATE),
}


def definition(kind, group, version, plural, schema):
    """A definition in the place of the real one."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": {"kind": kind, "plural": plural},
                 "versions": [{"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}]},
    }


class Admission(unittest.TestCase):
    """No node runs anything here: this is what the server says of the objects."""

    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster()
        cls.addClassCleanup(cls.cluster.stop)
        restricted = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn", "audit")}
        cls.give([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": restricted}},
                  {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000},
                  {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}, "handler": "nvidia"},
                  *[definition(kind, *names) for kind, names in FOREIGN.items()]])
        for group, _, plural, _ in FOREIGN.values():
            cls.cluster.kubectl("wait", "--for=condition=Established", f"crd/{plural}.{group}", "--timeout=60s")

    @classmethod
    def give(cls, objects, *words, check=True):
        text = "---\n".join(yaml.safe_dump(item) for item in objects)
        return cls.cluster.kubectl("apply", "--server-side", "--namespace", NAMESPACE, "--filename", "-", *words,
                                   stdin=text, check=check)

    def test_it_is_a_real_server(self):
        version = json.loads(self.cluster.kubectl("get", "--raw", "/version").stdout)
        print(f"\nKubernetes {version['gitVersion']}", end="")
        self.assertEqual(version["major"], "1")

    def test_every_manifest_is_accepted_without_a_warning(self):
        for case, objects in rendered().items():
            with self.subTest(case=case):
                said = self.give(objects, "--dry-run=server", "--validate=strict", "--warnings-as-errors")
                self.assertEqual(said.stderr, "")
                self.assertEqual(len(said.stdout.splitlines()), len(objects))

    def test_the_plain_manifests_are_accepted_for_real(self):
        # One over the other, as whoever switches TLS on does it.
        for name in ("foretoken.yaml", "foretoken-tls.yaml"):
            said = self.cluster.kubectl("apply", "--server-side", "--warnings-as-errors", "--validate=strict", "--filename",
                                        str(ROOT / "deploy/kubernetes" / name))
            self.assertEqual(said.stderr, "")
            kinds = "deployments,services,networkpolicies,poddisruptionbudgets,serviceaccounts"
            kept = json.loads(self.cluster.kubectl("get", kinds, "--namespace", "foretoken", "--output", "json").stdout)
            self.assertEqual(len([item for item in kept["items"] if item["kind"] == "Deployment"]), 3)
            self.assertEqual(len([item for item in kept["items"] if item["kind"] == "NetworkPolicy"]), 3)

    def test_pods_are_admitted_and_a_laxer_one_is_not(self):
        for case in ("defaults", "GPUs", "no volume, pulled anew", "everything shown"):
            for item in rendered()[case]:
                if item["kind"] not in ("Deployment", "StatefulSet"):
                    continue
                template = item["spec"]["template"]
                pod = {"apiVersion": "v1", "kind": "Pod", "spec": template["spec"],
                       "metadata": {"name": "admitted", "labels": template["metadata"]["labels"]}}
                with self.subTest(case=case, name=item["metadata"]["name"]):
                    self.assertEqual(self.give([pod], "--dry-run=server", "--warnings-as-errors").stderr, "")
                    lax = copy.deepcopy(pod)
                    del lax["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"]
                    refused = self.give([lax], "--dry-run=server", check=False)
                    self.assertNotEqual(refused.returncode, 0)
                    self.assertIn("violates PodSecurity", refused.stderr)

    def test_the_server_notices_a_certificate_that_cert_manager_would_not_take(self):
        certificate = next(item for item in manifests(MATRIX["TLS by cert-manager"]) if item["kind"] == "Certificate")
        self.assertEqual(self.give([certificate], "--dry-run=server", "--validate=strict").stderr, "")
        certificate["spec"]["dnsName"] = certificate["spec"].pop("dnsNames")
        refused = self.give([certificate], "--dry-run=server", "--validate=strict", check=False)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("dnsName", refused.stderr)

    def test_the_server_notices_a_field_that_does_not_exist(self):
        deployment = next(item for item in manifests({}) if item["kind"] == "Deployment")
        deployment["spec"]["template"]["spec"]["readinesProbe"] = {}
        refused = self.give([deployment], "--dry-run=server", "--validate=strict", check=False)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("readinesProbe", refused.stderr)


if __name__ == "__main__":
    unittest.main()
