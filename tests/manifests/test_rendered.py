"""The plain manifests in the repository are what the chart renders."""

import subprocess
import unittest

from chart import ROOT


class Rendered(unittest.TestCase):
    """For those without Helm."""

    def test_the_manifests_are_what_the_chart_renders(self):
        script = ROOT / "deploy/kubernetes/render"
        rendered = subprocess.run([script, "-"], capture_output=True, text=True, check=True).stdout
        self.assertGreater(len(rendered), 1000)
        kept = (ROOT / "deploy/kubernetes/foretoken.yaml").read_text()
        self.assertEqual(rendered, kept, "run deploy/kubernetes/render")


if __name__ == "__main__":
    unittest.main()
