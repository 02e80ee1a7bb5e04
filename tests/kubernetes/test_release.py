"""The chart on a real kubelet: it comes up, answers, is disturbed while it answers, is upgraded under load, and goes.

The tests run in the order of their names, over one release. Answers are greedy: whatever happens on the way, their text is one.
"""

import hashlib
import json
import time
import unittest

from node import Node
from release import (CHART, MODEL, PROMPTS, RELEASE, SERVICES, Answering, Load, Release, namespace, served, until,
                     values, volume)

# A rollout waits for drains, of which a verifier's may take two minutes.
ROLLOUT = "9m"


class Installed(unittest.TestCase):
    """One node, one release."""

    @classmethod
    def setUpClass(cls):
        began = time.monotonic()
        cls.node = Node()
        cls.addClassCleanup(cls.node.stop)
        print(f"\nthe node was ready after {time.monotonic() - began:.0f} s", end="")
        cls.release = Release(cls.node)
        folder = cls.node.folder / "models"
        folder.mkdir()
        for item in (namespace(), volume(folder)):
            cls.node.kubectl("apply", "--filename", "-", stdin=json.dumps(item))
        address = cls.enterClassContext(served(MODEL.parent))
        with open(MODEL, "rb") as file:
            checksum = hashlib.file_digest(file, "sha256").hexdigest()
        cls.values = values(f"{address}/{MODEL.name}", checksum)

    @classmethod
    def upgrade(cls, key, **changes):
        """helm upgrade with some of a service's values changed from now on; waits until all is as asked for."""
        cls.values = {**cls.values, key: {**cls.values[key], **changes}}
        cls.release.helm("upgrade", RELEASE, CHART, "--values", "-", "--wait", "--timeout", ROLLOUT, given=cls.values)

    def restarts(self):
        """How often the kubelet had to start a container again, by pod."""
        return {pod["metadata"]["name"]: count for pod in self.release.pods()
                if (count := sum(entry["restartCount"] for entry in pod["status"].get("containerStatuses", [])))}


class Lifetime(Installed):
    """Everything a release goes through."""

    expected = {}

    def test_1_it_comes_up_and_helm_test_generates_a_sentence(self):
        began = time.monotonic()
        self.release.helm("install", RELEASE, CHART, "--values", "-", "--wait", "--timeout", "10m", given=self.values)
        print(f"\ninstalled in {time.monotonic() - began:.0f} s", end="")
        self.assertEqual(self.restarts(), {})
        said = self.release.helm("test", RELEASE, "--timeout", "3m")
        self.assertRegex(said, "Phase: +Succeeded")
        type(self).server = self.release.address()
        for prompt in PROMPTS:
            self.expected[prompt] = self.answer(prompt, "--draft-len", "0")["text"]
            self.assertTrue(self.expected[prompt].strip())

    def answer(self, prompt, *words, **more):
        record, error = Answering(self.server, prompt, *words, **more).ended()
        self.assertIsNotNone(record, error)
        return record

    def test_2_drafts_are_used_and_the_answer_is_the_targets(self):
        until(lambda: self.answer(PROMPTS[0])["drafter"].startswith("ngram"), "drafts are used")
        for prompt, text in self.expected.items():
            self.assertEqual(self.answer(prompt)["text"], text)

    def disturbed(self, service, disturb, tokens=2000):
        """An answer in whose middle `disturb(pod)` is done to a service's only pod: its record, what was said, the undisturbed text."""
        until(lambda: self.settled() and len(self.release.ready(service)) == 1, f"one {service} is ready, and no other serves")
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
        until(lambda: self.restarts().get(pod), f"{pod} is started again")

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

    def under_load(self, change):
        """No request fails while `change()` is done and for a moment after it, and every answer is the undisturbed one."""
        with Load(self.server) as load:
            until(lambda: len(load.answers) >= 2, "the load is answered")
            began = time.monotonic()
            change()
            took, answered = time.monotonic() - began, len(load.answers)
            # Whoever was told to go may still be draining.
            until(lambda: self.settled() and len(load.answers) >= answered + 4, "pods that were to go have gone")
        print(f"\n{took:.0f} s, {len(load.answers)} answers", end="")
        self.assertEqual(load.failures, [], self.release.told())
        for prompt, text in load.answers:
            self.assertEqual(text, self.expected[prompt])

    def settled(self):
        """Whether no pod is on its way out."""
        items = json.loads(self.release.kubectl("get", "pods", "--output", "json").stdout)["items"]
        return not [item for item in items if "deletionTimestamp" in item["metadata"]]

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
        self.release.helm("uninstall", RELEASE, "--wait", "--timeout", ROLLOUT)
        kinds = ("all,configmaps,secrets,serviceaccounts,networkpolicies,poddisruptionbudgets,horizontalpodautoscalers,"
                 "persistentvolumeclaims,endpointslices")
        until(self.settled, "every pod has gone")
        left = self.release.kubectl("get", kinds, "--output", "name").stdout.split()
        # A model is slow to come by: the claim is kept. The first two are any namespace's.
        self.assertEqual(left, ["configmap/kube-root-ca.crt", "serviceaccount/default",
                                f"persistentvolumeclaim/{RELEASE}-target-verifier-models"])


if __name__ == "__main__":
    unittest.main()
