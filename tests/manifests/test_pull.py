"""The init step that fetches a model, as the chart and the compose file have it, run by this machine's own sh, curl and sha256sum.

The chart says that any image with these three does, so it holds to what all of them understand: busybox's and coreutils'.
"""

import hashlib
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

import yaml

from chart import ROOT, WORKLOADS, manifests, pod
from matrix import MATRIX

MODEL = b"weights"


def steps():
    """The scripts, by where they are from."""
    (chart, *_) = [pod(item)["initContainers"][0] for item in manifests(MATRIX["no volume, pulled anew"])
                   if item["kind"] in WORKLOADS and "initContainers" in pod(item)]
    (compose,) = yaml.safe_load((ROOT / "deploy/compose/compose.pull.yaml").read_text())["services"]["pull"]["command"]
    return {"chart": chart["args"][0], "compose": compose.replace("$$", "$")}


class Pull(unittest.TestCase):
    """In a folder in the volume's place, from a file in the server's."""

    def pulled(self, script, checksum, before=None):
        """Its exit status, what it said, and the files that it left."""
        with tempfile.TemporaryDirectory() as folder, tempfile.NamedTemporaryFile() as source:
            source.write(MODEL)
            source.flush()
            file = Path(folder) / "target.gguf"
            if before is not None:
                file.write_bytes(before)
            settings = {"MODEL": file.name, "URL": f"file://{source.name}", "SHA256": checksum, "HOSTNAME": "here"}
            ended = subprocess.run(["sh", "-euc", script.replace("/models", folder)], env={**os.environ, **settings},
                                   capture_output=True, text=True, check=False)
            return ended, {path.name: path.read_bytes() for path in Path(folder).iterdir()}

    def test_a_model_is_fetched_where_it_is_missing_or_another(self):
        for name, script in steps().items():
            for before in (None, b"half"):
                with self.subTest(step=name, before=before):
                    ended, files = self.pulled(script, hashlib.sha256(MODEL).hexdigest(), before)
                    self.assertEqual((ended.returncode, ended.stderr), (0, ""))
                    self.assertEqual(files, {"target.gguf": MODEL})

    def test_a_model_that_is_there_is_left_alone(self):
        for name, script in steps().items():
            with self.subTest(step=name):
                ended, files = self.pulled(script, hashlib.sha256(b"there").hexdigest(), b"there")
                self.assertEqual((ended.returncode, files), (0, {"target.gguf": b"there"}))

    def test_a_broken_download_is_never_in_the_models_place(self):
        for name, script in steps().items():
            with self.subTest(step=name):
                ended, files = self.pulled(script, hashlib.sha256(b"other").hexdigest())
                self.assertNotEqual(ended.returncode, 0)
                self.assertIn("checksum", ended.stderr)
                self.assertEqual(files, {})


if __name__ == "__main__":
    unittest.main()
