"""A real Kubernetes of one node: API server, controllers, scheduler, kubelet over containerd, kube-proxy and CoreDNS.

It is made for namespaces of its own (`run`): links, packet filters and mounts go with the first process in them.
"""

import functools
import json
import os
import subprocess
import time
from pathlib import Path

from cluster import Cluster

# The node's address is the bridge's to which its pods are tied; nothing leads further.
ADDRESS, PODS = "10.244.0.1", "10.244.0.0/24"
BRIDGE, NAME = "pods", "node"
# As kubeadm writes it, less what serves other names and the plugins' own ports.
COREFILE = """.:53 {
    bind %(address)s
    errors
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        kubeconfig %(kubeconfig)s
        pods insecure
        ttl 30
    }
    cache 30 {
        %(cached)s
    }
    loadbalance
}
"""


class Node(Cluster):
    """The API server's two processes and the node's seven."""

    # Here no name leads to the node.
    options = ("--advertise-address", ADDRESS, "--kubelet-preferred-address-types", "InternalIP")

    @classmethod
    @functools.cache
    def only(cls):
        """The node, ready. Test cases share it: there is room for one on a machine."""
        began = time.monotonic()
        node = cls()
        print(f"\nthe node was ready after {time.monotonic() - began:.0f} s", end="")
        return node

    def __init__(self):
        super().__init__()
        self.kubeconfig = self._write("kubeconfig", {
            "apiVersion": "v1", "kind": "Config", "current-context": NAME,
            "clusters": [{"name": NAME, "cluster": {"server": f"https://127.0.0.1:{self.port}", "insecure-skip-tls-verify": True}}],
            "users": [{"name": NAME, "user": {"token": "admin"}}],
            "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": NAME}}],
        })
        for words in (f"link add {BRIDGE} type bridge", f"address add {ADDRESS}/24 dev {BRIDGE}", f"link set {BRIDGE} up",
                      f"route add default dev {BRIDGE}"):
            subprocess.run(["ip", *words.split()], check=True)
        self._run("kube-controller-manager", "--kubeconfig", self.kubeconfig, "--leader-elect=false", "--secure-port=0",
                  "--service-account-private-key-file", self.key)
        self._run("kube-scheduler", "--kubeconfig", self.kubeconfig, "--leader-elect=false", "--secure-port=0")
        self._containerd()
        self._kubelet()
        self._proxy()
        self.names()
        ready = 'jsonpath={.status.conditions[?(@.type=="Ready")].status}'
        self._until(lambda: self.kubectl("get", "node", NAME, "--output", ready, check=False).stdout == "True")

    def _write(self, name, content):
        """A file in the cluster's folder; of JSON, which YAML's readers take."""
        path = self.folder / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    def _containerd(self):
        """Debian's, with a folder of its own, the bridge for pods, and the images that were built."""
        plugins = [{"type": "bridge", "bridge": BRIDGE, "isGateway": True, "hairpinMode": True,
                    "ipam": {"type": "host-local", "ranges": [[{"subnet": PODS}]], "dataDir": str(self.folder / "addresses"),
                             "routes": [{"dst": "0.0.0.0/0"}]}}]
        (self.folder / "cni").mkdir()
        self._write("cni/pods.conflist", {"cniVersion": "1.0.0", "name": "pods", "plugins": plugins})
        self.containerd = self.folder / "containerd.sock"
        self._run("containerd", "--config", self._write("containerd.toml", f"""
            version = 2
            root = "{self.folder}/containerd"
            state = "{self.folder}/state"
            [grpc]
            address = "{self.containerd}"
            [plugins."io.containerd.grpc.v1.cri"]
            sandbox_image = "foretoken-test/curl:bookworm"
            # Who may not make a process less likely to be killed leaves it as it is.
            restrict_oom_score_adj = true
            [plugins."io.containerd.grpc.v1.cri".cni]
            bin_dir = "/usr/lib/cni"
            conf_dir = "{self.folder}/cni"
            """))
        self._until(lambda: self.ctr("version").returncode == 0)
        for archive in sorted(Path(os.environ["FORETOKEN_IMAGES"]).glob("*.tar")):
            imported = self.ctr("images", "import", archive)
            assert imported.returncode == 0, imported.stderr

    def ctr(self, *words):
        """containerd's own client, in Kubernetes' namespace of images."""
        command = ["ctr", "--address", self.containerd, "--namespace", "k8s.io", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def _kubelet(self):
        self._run("kubelet", "--kubeconfig", self.kubeconfig, "--hostname-override", NAME, "--node-ip", ADDRESS, "--root-dir",
                  self.folder / "kubelet", "--cert-dir", self.folder / "kubelet/pki", "--config", self._write("kubelet.json", {
                      "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "address": ADDRESS,
                      "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
                      "authorization": {"mode": "AlwaysAllow"}, "healthzPort": 0, "readOnlyPort": 0,
                      "containerRuntimeEndpoint": f"unix://{self.containerd}", "cgroupDriver": "cgroupfs", "failCgroupV1": False,
                      "podLogsDir": str(self.folder / "logs"), "failSwapOn": False, "resolvConf": "",
                      "clusterDNS": [ADDRESS], "clusterDomain": "cluster.local",
                      # Whoever fills this machine's disk, it is not the node's concern.
                      "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
                      "imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 99}))

    def _proxy(self):
        self._run("kube-proxy", "--config", self._write("kube-proxy.json", {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "mode": "iptables",
            "clientConnection": {"kubeconfig": str(self.kubeconfig)}, "hostnameOverride": NAME, "clusterCIDR": PODS,
            "bindAddress": ADDRESS, "healthzBindAddress": "", "metricsBindAddress": "",
            # The table of connections is the machine's.
            "conntrack": {"maxPerCore": 0, "min": 0}}))

    def names(self, cached=False):
        """Starts CoreDNS, anew where it runs: as kubeadm has it, or with answers kept as long as they last, as node caches do."""
        for process in [process for process in self.processes if Path(process.args[0]).name == "coredns"]:
            process.terminate()
            process.wait()
            self.processes.remove(process)
        words = {"address": ADDRESS, "kubeconfig": self.kubeconfig,
                 "cached": "" if cached else "disable success cluster.local\n        disable denial cluster.local"}
        self._run("coredns", "-conf", self._write("Corefile", COREFILE % words))

    def stop(self):
        """Nothing: processes, mounts and links end with the namespaces, files with the folder that `run` made."""
