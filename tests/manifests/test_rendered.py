"""The plain manifests in the repository are what the chart renders."""

import subprocess
import tempfile
import unittest
from pathlib import Path

from chart import ROOT


class Rendered(unittest.TestCase):
    """For those without Helm."""

    def test_the_manifests_are_what_the_chart_renders(self):
        folder = ROOT / "deploy/kubernetes"
        with tempfile.TemporaryDirectory() as fresh:
            subprocess.run([folder / "render", fresh], check=True)
            for name in ("foretoken.yaml", "foretoken-tls.yaml"):
                rendered = Path(fresh, name).read_text()
                self.assertGreater(len(rendered), 1000)
                self.assertEqual(rendered, (folder / name).read_text(), "run deploy/kubernetes/render")


if __name__ == "__main__":
    unittest.main()
