"""A real Kubernetes API server over a real etcd, without nodes: it defaults, validates and admits as any cluster's does."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

BIN = Path(os.environ["FORETOKEN_TOOLS"]) / "bin"


def tool(name):
    """One that was built, else the system's."""
    return str(BIN / name) if (BIN / name).exists() else shutil.which(name)


def free_port():
    """A port that nobody has, for a moment at least."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


class Cluster:
    """Two processes and a folder; everything on loopback."""

    # No controller runs here that would make the default service account.
    options = ("--disable-admission-plugins", "ServiceAccount")

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="foretoken-cluster-"))
        self.processes = []
        self.port = free_port()
        clients, peers = free_port(), free_port()
        etcd = f"http://127.0.0.1:{clients}"
        self._run("etcd", "--data-dir", self.folder / "etcd", "--listen-client-urls", etcd, "--advertise-client-urls", etcd,
                  "--listen-peer-urls", f"http://127.0.0.1:{peers}")
        key = self.key = self.folder / "service-accounts.key"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        tokens = self.folder / "tokens.csv"
        tokens.write_text("admin,admin,admin,system:masters\n")
        self._run("kube-apiserver", "--etcd-servers", etcd, "--secure-port", self.port, "--bind-address", "127.0.0.1",
                  "--cert-dir", self.folder / "certificates", "--service-cluster-ip-range", "10.0.0.0/24",
                  "--service-account-issuer", "https://kubernetes.default", "--service-account-key-file", key,
                  "--service-account-signing-key-file", key, "--token-auth-file", tokens, "--authorization-mode", "RBAC",
                  *self.options)
        self._until(lambda: self.kubectl("get", "--raw", "/readyz", check=False).returncode == 0)

    def _run(self, name, *words):
        with open(self.folder / f"{name}.log", "w", encoding="utf-8") as log:
            self.processes.append(subprocess.Popen([tool(name), *map(str, words)], stdout=log, stderr=log))

    def _until(self, done, patience=300):
        """Waits, and says what the processes said when one of them ends or patience does."""
        began = time.monotonic()
        while not done():
            for process in self.processes:
                if process.poll() is not None or time.monotonic() - began > patience:
                    logs = [path.read_text()[-2000:] for path in self.folder.glob("*.log")]
                    raise AssertionError("the API server did not come up:\n" + "\n".join(logs))
            time.sleep(0.2)

    def kubectl(self, *words, stdin=None, check=True):
        """Runs kubectl as the cluster's administrator."""
        command = [tool("kubectl"), "--server", f"https://127.0.0.1:{self.port}", "--token", "admin",
                   "--insecure-skip-tls-verify", "--cache-dir", self.folder / "cache", *words]
        environment = {**os.environ, "KUBECONFIG": "/dev/null"}
        ended = subprocess.run(command, input=stdin, capture_output=True, text=True, env=environment, check=False)
        if check and ended.returncode:
            raise AssertionError(f"kubectl {' '.join(words)}: {ended.stderr}")
        return ended

    def stop(self):
        """Ends both processes and forgets everything."""
        for process in reversed(self.processes):
            process.terminate()
            process.wait()
        shutil.rmtree(self.folder)
