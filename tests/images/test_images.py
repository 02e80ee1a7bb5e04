"""The images, and the three services as containers of them. The tests run in the order of their names, over one cluster."""

import json
import subprocess
import tarfile
import tempfile
import time
import unittest

from containers import DOCKER, MODEL, docker, generate, generating, inspect, start, until, until_serving

IMAGES = ("draft-worker", "target-verifier", "orchestrator", "cli")
SERVICES = IMAGES[:3]
PROMPT = "The capital of France is"
# Beyond the base. The final images have none, so it is all they are.
LARGEST = 60e6


def verifier(name=None):
    """Starts a verifier; the only one with a volume, which it cannot write."""
    return start("target-verifier", ["verify"], [f"--model=/models/{MODEL.name}", "--kv-tokens=4096", "--drain-timeout=30s"],
                 "--volume", f"{MODEL.parent}:/models:ro", name=name)


class Images(unittest.TestCase):
    """What an image is, before anything runs."""

    def test_images_are_small_and_run_as_nobody(self):
        for name in IMAGES:
            with self.subTest(image=name):
                image = inspect(f"foretoken/{name}:0.1.0")
                print(f"\n{name}: {image['Size'] / 1e6:.1f} MB", end="")
                self.assertLess(image["Size"], LARGEST)
                self.assertEqual(image["Config"]["User"], "65532:65532")
                labels = image["Config"]["Labels"]
                self.assertRegex(labels["org.opencontainers.image.revision"], "^[0-9a-f]{40}$")
                self.assertEqual(labels["org.opencontainers.image.title"], f"foretoken-{name}")
                if name in SERVICES:
                    self.assertEqual(image["Config"]["Healthcheck"]["Test"][-1], "healthcheck")

    def test_images_hold_a_binary_its_libraries_and_what_it_is_made_of(self):
        for name in IMAGES:
            with self.subTest(image=name), tempfile.NamedTemporaryFile() as file:
                container = docker("create", f"foretoken/{name}:0.1.0").stdout.strip()
                docker("export", "--output", file.name, container)
                docker("rm", container)
                with tarfile.open(file.name) as root:
                    files = [member for member in root.getmembers() if member.isfile()]
                    (sbom,) = [member for member in files if member.name.startswith("usr/share/sbom/")]
                    bill = json.load(root.extractfile(sbom))
                # Docker adds some files to every container, and says of them all that they can be run.
                added = (".dockerenv", "dev/console", "etc/hostname", "etc/hosts", "etc/resolv.conf")
                files = [member for member in files if member.name not in added]
                programs = [member.name for member in files if member.mode & 0o111 and ".so" not in member.name]
                self.assertEqual(len(programs), 1, programs)
                self.assertFalse([member.name for member in files if member.mode & 0o6022], "writable or setuid")
                self.assertEqual((bill["bomFormat"], bill["specVersion"]), ("CycloneDX", "1.5"))
                crates = {component["name"] for component in bill["components"]}
                self.assertTrue({"tonic", "tokio", "foretoken-transport"} <= crates)
                outside = [part for part in bill["components"] if not part["name"].startswith("foretoken")]
                self.assertTrue(all("hashes" in part and "licenses" in part for part in outside))


class Cluster(unittest.TestCase):
    """Three services, three networks."""

    @classmethod
    def setUpClass(cls):
        docker("network", "create", "clients")
        for network in ("verify", "draft"):
            docker("network", "create", "--internal", network)
        took = {"target-verifier": verifier()}
        took["draft-worker"] = start("draft-worker", ["draft"], ["--ngram-table=SmolLM2-135M-Instruct", "--drain-timeout=20s"])
        # No volume, no weights.
        took["orchestrator"] = start("orchestrator", ["clients", "verify", "draft"], [
            "--verifiers=dns:///target-verifier:7451", "--draft-workers=dns:///draft-worker:7452", "--drain-timeout=60s"])
        for name, seconds in took.items():
            print(f"\n{name}: served {seconds:.2f} s after its start", end="")
        cls.expected = generate(PROMPT, "--draft-len", "0")["text"]

    @classmethod
    def tearDownClass(cls):
        for name in SERVICES:
            docker("rm", "--force", name, check=False)
        for network in ("clients", "verify", "draft"):
            docker("network", "rm", network, check=False)

    def test_1_a_sentence_is_generated_with_drafts_and_is_the_targets(self):
        answer = self.drafted()
        self.assertEqual(answer["text"], self.expected)
        self.assertTrue(self.expected.strip())

    def drafted(self):
        """An answer that was drafted for; a draft worker may be known a moment later than its orchestrator serves."""
        answers = []

        def speculated():
            answers.append(generate(PROMPT, "--draft-len", "4"))
            return answers[-1]["drafter"].startswith("ngram")
        until(speculated, "drafts are used")
        return answers[-1]

    def test_2_processes_have_no_rights_and_nothing_to_write(self):
        for name in SERVICES:
            with self.subTest(service=name):
                state = inspect(name)
                self.assertTrue(state["HostConfig"]["ReadonlyRootfs"])
                with open(f"/proc/{state['State']['Pid']}/status", encoding="utf-8") as file:
                    status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
                self.assertEqual(set(status["Uid"].split()), {"65532"})
                self.assertEqual((status["CapEff"], status["NoNewPrivs"]), ("0" * 16, "1"))
                shell = docker("exec", name, "/bin/sh", "-c", "true", check=False)
                self.assertIn("no such file", shell.stderr + shell.stdout)
                self.assertEqual([mount["RW"] for mount in state["Mounts"]], [False] if name == "target-verifier" else [])

    def test_3_only_the_orchestrator_is_reached_by_clients(self):
        asked = {name: self.ask("clients", f"{name}:{port}") for name, port in
                 (("orchestrator", 7450), ("target-verifier", 7451), ("draft-worker", 7452))}
        self.assertEqual([name for name, answer in asked.items() if answer.returncode == 0], ["orchestrator"], asked)
        self.assertNotEqual(self.ask("draft", "target-verifier:7451").returncode, 0)

    def ask(self, network, address):
        """A probe from somewhere else: whether anything lives there."""
        return docker("run", "--rm", "--network", network, "foretoken/orchestrator:0.1.0", "healthcheck", "--service", "",
                      "--address", address, check=False)

    def test_4_a_killed_draft_worker_is_not_missed(self):
        answer = generating("Once upon a time", tokens=200)
        time.sleep(2)
        docker("kill", "draft-worker")
        out, error = answer.communicate(timeout=120)
        self.assertEqual(answer.returncode, 0, error)
        self.assertEqual(json.loads(out)["text"], generate("Once upon a time", "--draft-len", "0", tokens=200)["text"])
        docker("start", "draft-worker")
        until_serving("draft-worker")
        self.assertEqual(self.drafted()["text"], self.expected)

    def test_5_a_killed_verifier_and_a_killed_orchestrator_come_back(self):
        for name in ("target-verifier", "orchestrator"):
            with self.subTest(service=name):
                docker("kill", name)
                answer = generating(PROMPT)
                answer.communicate(timeout=120)
                self.assertNotEqual(answer.returncode, 0)
                docker("start", name)
                until_serving(name)
                until_serving("orchestrator")
                self.assertEqual(generate(PROMPT)["text"], self.expected)

    def test_6_a_second_verifier_is_found_under_the_name_and_takes_over(self):
        verifier("second")
        try:
            until(lambda: self.ready() == 2, "the second verifier is ready")
            docker("stop", "--time", "40", "target-verifier")
            self.assertEqual(inspect("target-verifier")["State"]["ExitCode"], 0)
            self.assertEqual(generate(PROMPT)["text"], self.expected)
            docker("start", "target-verifier")
            until_serving("target-verifier")
        finally:
            docker("rm", "--force", "second")

    def ready(self):
        """Verifiers that the orchestrator's log has called ready, each once."""
        lines = docker("logs", "orchestrator").stderr.splitlines()
        said = [json.loads(line)["fields"] for line in lines if line.startswith("{")]
        return len({fields["worker"] for fields in said if fields.get("message") == "worker ready" and ":7451" in fields["worker"]})

    def test_7_sigterm_lets_an_answer_end(self):
        answer = generating("Once upon a time", tokens=300)
        time.sleep(2)
        began = time.monotonic()
        stopping = subprocess.Popen([DOCKER, "stop", "--time", "90", "orchestrator"], stdout=subprocess.DEVNULL)
        out, error = answer.communicate(timeout=120)
        self.assertEqual(answer.returncode, 0, error)
        self.assertEqual(json.loads(out)["output_tokens"], 300)
        self.assertEqual(stopping.wait(timeout=120), 0)
        print(f"\norchestrator drained in {time.monotonic() - began:.1f} s", end="")
        for name in SERVICES:
            docker("stop", "--time", "40", name)
            self.assertEqual(inspect(name)["State"]["ExitCode"], 0, name)


if __name__ == "__main__":
    unittest.main()
