"""The chart on a real kubelet: it comes up, answers, is disturbed while it answers, is upgraded under load, and goes.

The tests run in the order of their names, over one release. Answers are greedy: whatever happens on the way, their text is one.
"""

import hashlib
import json
import time
import unittest

from clients import PROMPTS, Answering, Disturbed
from node import Node
from release import MODEL, SERVICES, Release, modest, namespace, served, until, volume


class Lifetime(Disturbed):
    """Everything a release goes through."""

    expected = {}

    @classmethod
    def setUpClass(cls):
        cls.node = Node.only()
        cls.release = Release(cls.node, "demo", "inference")
        folder = cls.node.folder / "models"
        folder.mkdir()
        for item in (namespace("inference"), volume("models", folder)):
            cls.node.kubectl("apply", "--filename", "-", stdin=json.dumps(item))
        address = cls.enterClassContext(served(MODEL.parent))
        with open(MODEL, "rb") as file:
            checksum = hashlib.file_digest(file, "sha256").hexdigest()
        cls.values = modest()
        cls.values["targetVerifier"]["model"] |= {
            "volume": {"size": "1Gi", "accessModes": ["ReadWriteMany"]},
            "pull": {"enabled": True, "url": f"{address}/{MODEL.name}", "sha256": checksum, "image": "foretoken-test/curl:bookworm"}}
        cls.values["draftWorker"]["model"] = {"ngramTable": "SmolLM2-135M-Instruct"}

    @classmethod
    def upgrade(cls, key, **changes):
        """Some of a service's values are others from now on."""
        cls.values = {**cls.values, key: {**cls.values[key], **changes}}
        cls.release.roll_out("upgrade", cls.values)

    def test_1_it_comes_up_and_helm_test_generates_a_sentence(self):
        began = time.monotonic()
        self.release.roll_out("install", self.values)
        print(f"\ninstalled in {time.monotonic() - began:.0f} s", end="")
        self.assertEqual(self.release.restarts(), {})
        said = self.release.helm("test", self.release.name, "--timeout", "3m")
        self.assertRegex(said, "Phase: +Succeeded")
        type(self).server = self.release.address()
        self.expect()

    def test_2_drafts_are_used_and_the_answer_is_the_targets(self):
        until(lambda: self.answer(PROMPTS[0])["drafter"].startswith("ngram"), "drafts are used")
        for prompt, text in self.expected.items():
            self.assertEqual(self.answer(prompt)["text"], text)

    def disturbed(self, service, disturb, tokens=2000):
        """An answer in whose middle `disturb` is done to a service's only pod: its record, what was said, the undisturbed text."""
        until(lambda: self.release.settled() and len(self.release.ready(service)) == 1, f"one {service} serves, and no other")
        (pod,) = self.release.ready(service)
        whole = self.answer(PROMPTS[1], tokens=tokens)
        began = time.monotonic()
        answer = Answering(self.server, PROMPTS[1], tokens=tokens)
        time.sleep(1)
        self.assertIsNone(answer.process.poll(), "the answer ended too early")
        disturb(pod)
        record, error = answer.ended()
        print(f"\n{service} disturbed after 1 s, the answer's end after {time.monotonic() - began:.1f} s", end="")
        return record, error, whole["text"]

    def delete(self, pod):
        """As a node's drain does: another pod is made at once."""
        self.release.kubectl("delete", "pod", pod, "--wait=false")

    def kill(self, pod):
        """As a crash, or the kernel without memory: the kubelet starts the container again."""
        (entry,) = self.release.pod(pod)["status"]["containerStatuses"]
        killed = self.node.ctr("tasks", "kill", "--signal", "SIGKILL", entry["containerID"].removeprefix("containerd://"))
        self.assertEqual(killed.returncode, 0, killed.stderr)
        until(lambda: self.release.restarts().get(pod), f"{pod} is started again")

    def test_3_a_draft_worker_deleted_or_killed_mid_stream_is_not_missed(self):
        for disturb in (self.delete, self.kill):
            with self.subTest(disturb=disturb.__name__):
                record, error, text = self.disturbed("draft-worker", disturb)
                self.assertIsNotNone(record, error)
                self.assertEqual(record["text"], text)

    def test_4_a_verifier_deleted_mid_stream_ends_what_it_began(self):
        record, error, text = self.disturbed("target-verifier", self.delete)
        self.assertIsNotNone(record, error)
        self.assertEqual(record["text"], text)

    def test_5_a_verifier_killed_mid_stream_is_told_as_such_and_comes_back(self):
        record, error, _ = self.disturbed("target-verifier", self.kill)
        self.assertIsNone(record)
        self.assertIn("VERIFIER_LOST", error)
        until(lambda: len(self.release.ready("orchestrator")) == 2, "both orchestrators are ready")
        self.assertEqual(self.answer(PROMPTS[1])["text"], self.expected[PROMPTS[1]])

    def test_6_each_service_is_upgraded_under_load(self):
        for key, service in SERVICES.items():
            with self.subTest(service=service):
                before = self.release.ready(service)
                self.under_load(lambda: self.upgrade(key, podAnnotations={"upgraded": "once"}))
                self.assertFalse(before & self.release.ready(service))

    def test_7_verifiers_are_replaced_under_load_though_names_are_kept_for_half_a_minute(self):
        # As node-local caches do.
        self.node.names(cached=True)
        self.addCleanup(self.node.names)
        self.under_load(lambda: self.upgrade("targetVerifier", podAnnotations={"upgraded": "twice"}))

    def test_8_workers_are_scaled_up_and_down_under_load(self):
        def there_and_back():
            for replicas in (2, 1):
                for key in ("targetVerifier", "draftWorker"):
                    self.upgrade(key, replicas=replicas)
        self.under_load(there_and_back)

    def test_9_it_goes_and_leaves_its_models_only(self):
        self.release.helm("uninstall", self.release.name, "--wait", "--timeout", "9m")
        kinds = ("all,configmaps,secrets,serviceaccounts,networkpolicies,poddisruptionbudgets,horizontalpodautoscalers,"
                 "persistentvolumeclaims,endpointslices")
        until(self.release.settled, "every pod has gone")
        left = self.release.kubectl("get", kinds, "--output", "name").stdout.split()
        # A model is slow to come by: the claim is kept. The first two are any namespace's.
        self.assertEqual(left, ["configmap/kube-root-ca.crt", "serviceaccount/default",
                                f"persistentvolumeclaim/{self.release.name}-target-verifier-models"])


if __name__ == "__main__":
    unittest.main()
