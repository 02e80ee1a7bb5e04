"""What holds for everything the chart renders, whatever the values."""

import unittest

import yaml

from chart import CHART, WORKLOADS, by_kind, flag, helm, pod, question, service_of, template
from matrix import MATRIX, rendered

GRPC = {"orchestrator": 7450, "target-verifier": 7451, "draft-worker": 7452}
NAMES = {
    "orchestrator": "foretoken.v1.Orchestrator",
    "target-verifier": "foretoken.v1.TargetVerifier",
    "draft-worker": "foretoken.v1.DraftWorker",
}


class Chart(unittest.TestCase):
    """The matrix is rendered once."""

    @classmethod
    def setUpClass(cls):
        cls.rendered = rendered()

    def each(self, *kinds):
        """Every object of these kinds, each as a case of its own."""
        for case, objects in self.rendered.items():
            for item in objects:
                if item["kind"] in kinds:
                    with self.subTest(case=case, kind=item["kind"], name=item["metadata"]["name"]):
                        yield item, objects

    def test_lint_has_nothing_to_say(self):
        said = helm("lint", CHART, "--strict")
        self.assertIn("0 chart(s) failed", said)
        self.assertNotIn("WARNING", said)

    def test_all_objects_have_labels_and_no_two_share_a_name(self):
        for case, objects in self.rendered.items():
            with self.subTest(case=case):
                names = [(item["apiVersion"], item["kind"], item["metadata"]["name"]) for item in objects]
                self.assertEqual(len(names), len(set(names)))
                for item in objects:
                    self.assertEqual(item["metadata"]["labels"]["app.kubernetes.io/part-of"], "foretoken")
                    self.assertLessEqual(len(item["metadata"]["name"]), 63)

    def test_the_longest_name_of_a_release_leaves_room_for_what_kubernetes_adds(self):
        values = MATRIX["stateful, a volume each, pulled"]
        longest = {"Service": 63, "StatefulSet": 52}
        for item in yaml.safe_load_all(template(values, release="r" * 53)):
            if item:
                self.assertLessEqual(len(item["metadata"]["name"]), longest.get(item["kind"], 63), item["metadata"]["name"])

    def test_each_service_is_a_workload_of_its_own(self):
        for case, objects in self.rendered.items():
            wanted = set(NAMES) - ({"draft-worker"} if "plain decoding" in case else set())
            found = [service_of(item) for item in objects if item["kind"] in WORKLOADS]
            self.assertEqual(sorted(found), sorted(wanted), case)

    def test_pods_meet_the_restricted_standard_with_a_read_only_root(self):
        for item, _ in self.each("Pod", *WORKLOADS):
            spec = pod(item)
            security = spec["securityContext"]
            self.assertIs(security["runAsNonRoot"], True)
            self.assertGreater(security["runAsUser"], 0)
            self.assertEqual(security["seccompProfile"], {"type": "RuntimeDefault"})
            self.assertIs(spec["automountServiceAccountToken"], False)
            self.assertIs(spec["enableServiceLinks"], False)
            for container in spec["containers"] + spec.get("initContainers", []):
                own = container["securityContext"]
                self.assertIs(own["allowPrivilegeEscalation"], False)
                self.assertIs(own["readOnlyRootFilesystem"], True)
                self.assertEqual(own["capabilities"], {"drop": ["ALL"]})
                self.assertIn("memory", container["resources"]["limits"])
                self.assertTrue({"cpu", "memory"} <= set(container["resources"]["requests"]))
                image = container["image"]
                self.assertRegex(image, r"(:[A-Za-z0-9_.-]+|@sha256:[0-9a-f]{64})$")
                self.assertFalse(image.endswith(":latest"))

    def test_probes_ask_three_questions(self):
        for item, _ in self.each(*WORKLOADS):
            service, (container,) = service_of(item), pod(item)["containers"]
            port = GRPC[service]
            self.assertEqual(question(container["readinessProbe"]), (port, NAMES[service]))
            # Liveness never depends on other services or on how long a model loads.
            self.assertEqual(question(container["livenessProbe"]), (port, ""))
            startup = container["startupProbe"]
            self.assertEqual(question(startup), (port, "" if service == "orchestrator" else NAMES[service]))
            values = MATRIX_STARTUP.get(self._case(item), {}).get(service, DEFAULT_STARTUP[service])
            self.assertGreaterEqual(startup["periodSeconds"] * startup["failureThreshold"], values)
            self.assertIn({"name": "grpc", "containerPort": port}, container["ports"])

    def _case(self, item):
        return next(case for case, objects in self.rendered.items() if any(item is other for other in objects))

    def test_a_pod_has_time_for_its_drain(self):
        for item, _ in self.each(*WORKLOADS):
            (container,) = pod(item)["containers"]
            drain = int(flag(container, "--drain-timeout").removesuffix("s"))
            pause = container["lifecycle"]["preStop"]["sleep"]["seconds"]
            # Streams get a second to end with a status, connections another, spans five.
            self.assertGreaterEqual(pod(item)["terminationGracePeriodSeconds"], pause + drain + 7)

    def test_selectors_match_their_own_pods_and_no_others(self):
        for item, objects in self.each("Service", "PodDisruptionBudget", "NetworkPolicy", *WORKLOADS):
            spec = item["spec"]
            selector = spec.get("podSelector") or spec["selector"]
            selector = selector.get("matchLabels", selector)
            matched = [
                service_of(other) for other in objects if other["kind"] in WORKLOADS
                and selector.items() <= other["spec"]["template"]["metadata"]["labels"].items()
            ]
            self.assertEqual(matched, [service_of(item)])

    def test_autoscaled_workloads_have_no_fixed_replicas(self):
        for item, objects in self.each(*WORKLOADS):
            name = item["metadata"]["name"]
            scalers = [kind for kind in ("HorizontalPodAutoscaler", "ScaledObject") if name in by_kind(objects, kind)]
            self.assertEqual("replicas" in item["spec"], not scalers)
            for kind in scalers:
                target = by_kind(objects, kind)[name]["spec"]["scaleTargetRef"]
                self.assertEqual((target["kind"], target["name"]), (item["kind"], name))

    def test_the_orchestrator_finds_its_workers_under_headless_services(self):
        for item, objects in self.each(*WORKLOADS):
            if service_of(item) != "orchestrator":
                continue
            services = by_kind(objects, "Service")
            (container,) = pod(item)["containers"]
            for name, service in (("--verifiers", "target-verifier"), ("--draft-workers", "draft-worker")):
                given = flag(container, name)
                if given is None:
                    self.assertEqual(name, "--draft-workers")
                    self.assertIn("plain decoding", self._case(item))
                    continue
                host, port = given.removeprefix("dns:///").split(":")
                self.assertTrue(given.startswith("dns:///"))
                self.assertEqual((services[host]["spec"]["clusterIP"], service_of(services[host])), ("None", service))
                self.assertIn(int(port), [entry["port"] for entry in services[host]["spec"]["ports"]])

    def test_clients_are_led_to_ready_orchestrators_only(self):
        for item, _ in self.each("Service"):
            unready = item["spec"].get("publishNotReadyAddresses", False)
            self.assertEqual(unready, service_of(item) != "orchestrator")

    def test_only_the_orchestrator_reaches_workers_and_it_may(self):
        for item, objects in self.each("NetworkPolicy"):
            service, spec = service_of(item), item["spec"]
            self.assertEqual(spec["policyTypes"], ["Ingress", "Egress"])
            on_grpc = [rule for rule in spec["ingress"] if {"port": GRPC[service], "protocol": "TCP"} in rule["ports"]]
            self.assertEqual(len(on_grpc), 1)
            for rule in spec["ingress"] + spec["egress"]:
                self.assertTrue(rule.get("ports") or rule.get("to"), "a rule allows everything")
            if service == "orchestrator":
                continue
            (peer,) = on_grpc[0]["from"]
            orchestrators = [other for other in objects if other["kind"] in WORKLOADS
                             and peer["podSelector"]["matchLabels"].items() <= other["spec"]["template"]["metadata"]["labels"].items()]
            self.assertEqual([service_of(other) for other in orchestrators], ["orchestrator"])
            allowed = [rule for policy in by_kind(objects, "NetworkPolicy").values() if service_of(policy) == "orchestrator"
                       for rule in policy["spec"]["egress"] if {"port": GRPC[service], "protocol": "TCP"} in rule.get("ports", [])]
            self.assertEqual(len(allowed), 1)

    def test_volumes_are_there_where_a_model_is_read(self):
        for item, objects in self.each(*WORKLOADS):
            (container,) = pod(item)["containers"]
            reads = any("/models/" in arg for arg in container["args"])
            mounts = [mount for mount in container.get("volumeMounts", []) if mount["mountPath"] == "/models"]
            self.assertEqual([mount["readOnly"] for mount in mounts], [True] if reads else [])
            for volume in pod(item).get("volumes", []):
                if "secret" in volume:
                    continue
                claim = volume.get("persistentVolumeClaim", {}).get("claimName")
                self.assertTrue("emptyDir" in volume or claim == "weights" or claim in by_kind(objects, "PersistentVolumeClaim"))

    def test_what_is_mounted_is_a_volume_and_every_volume_is_mounted(self):
        for item, _ in self.each("Pod", *WORKLOADS):
            spec = pod(item)
            volumes = [volume["name"] for volume in spec.get("volumes", [])]
            volumes += [claim["metadata"]["name"] for claim in item["spec"].get("volumeClaimTemplates", [])]
            for container in spec["containers"] + spec.get("initContainers", []):
                self.assertLessEqual({mount["name"] for mount in container.get("volumeMounts", [])}, set(volumes))
            mounted = {mount["name"] for mount in spec["containers"][0].get("volumeMounts", [])}
            self.assertEqual(sorted(volumes), sorted(mounted))

    def test_workers_with_weights_are_kept_below_their_containers_memory(self):
        for item, _ in self.each(*WORKLOADS):
            (container,) = pod(item)["containers"]
            limit = flag(container, "--memory-limit")
            weights = (flag(container, "--model") or "ngram") != "ngram"
            if weights and flag(container, "--device") == "cpu":
                self.assertLess(int(limit) * 2**20, size(container["resources"]["limits"]["memory"]))

    def test_gpus_are_asked_for_with_the_image_that_uses_them(self):
        for item, _ in self.each(*WORKLOADS):
            (container,) = pod(item)["containers"]
            gpus = container["resources"]["limits"].get("nvidia.com/gpu", 0)
            self.assertEqual(flag(container, "--device") == "cuda:0", gpus > 0)
            self.assertEqual(container["image"].endswith("-cuda"), gpus > 0)

    def test_draft_workers_are_drawn_to_verifiers(self):
        objects = self.rendered["defaults"]
        for service in ("draft-worker", "orchestrator"):
            affinity = pod(by_kind(objects, "Deployment")[f"demo-{service}"])["affinity"]["podAffinity"]
            ((term),) = affinity["preferredDuringSchedulingIgnoredDuringExecution"]
            labels = term["podAffinityTerm"]["labelSelector"]["matchLabels"]
            self.assertEqual(labels["app.kubernetes.io/component"], "target-verifier")
        required = pod(by_kind(self.rendered["required near"], "Deployment")["demo-draft-worker"])["affinity"]
        self.assertIn("requiredDuringSchedulingIgnoredDuringExecution", required["podAffinity"])
        self.assertIn("nodeAffinity", required)

    def test_pods_that_share_a_volume_of_one_node_are_drawn_together_and_others_spread(self):
        for item, objects in self.each("Deployment"):
            service = service_of(item)
            claim = by_kind(objects, "PersistentVolumeClaim").get(f"{item['metadata']['name']}-models")
            alone = claim is not None and claim["spec"]["accessModes"] == ["ReadWriteOnce"]
            spec = pod(item)
            terms = spec.get("affinity", {}).get("podAffinity", {}).get("preferredDuringSchedulingIgnoredDuringExecution", [])
            own = [term for term in terms if term["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"
                   and term["podAffinityTerm"]["labelSelector"]["matchLabels"]["app.kubernetes.io/component"] == service]
            self.assertEqual(len(own), int(alone))
            self.assertFalse(alone and "topologySpreadConstraints" in spec)

    def test_a_verifier_serves_until_its_successor_is_known(self):
        # An answer of DNS is kept for 30 s (kubeadm's records, a node's cache), and names are looked up every 5 s.
        for item, _ in self.each(*WORKLOADS):
            if service_of(item) == "target-verifier":
                (container,) = pod(item)["containers"]
                self.assertGreaterEqual(container["lifecycle"]["preStop"]["sleep"]["seconds"], 30 + 5)

    def test_the_test_pod_is_let_in(self):
        for case, objects in self.rendered.items():
            with self.subTest(case=case):
                test = by_kind(objects, "Pod")[next(iter(by_kind(objects, "Pod")))]
                self.assertEqual(test["metadata"]["annotations"]["helm.sh/hook"], "test")
                self.assertEqual(test["metadata"]["labels"]["foretoken.dev/client"], "true")
                server = flag(test["spec"]["containers"][0], "--server").split(":")[0]
                self.assertIn(server, by_kind(objects, "Service"))


DEFAULT_STARTUP = {"orchestrator": 60, "target-verifier": 600, "draft-worker": 300}
MATRIX_STARTUP = {"long drains": {"target-verifier": 3600}}


def size(quantity):
    """Bytes."""
    units = {"Mi": 2**20, "Gi": 2**30}
    return float(quantity[:-2]) * units[quantity[-2:]]


if __name__ == "__main__":
    unittest.main()
