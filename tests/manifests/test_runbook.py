"""The runbook against what it speaks of: reasons, flags, names."""

import os
import re
import subprocess
import unittest
from pathlib import Path

import yaml

from chart import CHART, ROOT

RUNBOOK = (ROOT / "deploy/README.md").read_text()
BINARIES = Path(os.environ["FORETOKEN_BINARIES"])


class Runbook(unittest.TestCase):
    """What an operator reads is there."""

    def test_every_reason_has_an_action(self):
        table = (ROOT / "crates/proto/src/error.rs").read_text()
        reasons = re.findall(r'^    \w+ = "([A-Z_]+)",', table, re.MULTILINE)
        self.assertGreater(len(reasons), 20)
        self.assertEqual([reason for reason in reasons if f"`{reason}`" not in RUNBOOK], [])

    def test_handshakes_fail_with_the_words_that_are_explained(self):
        says = "".join(path.read_text() for path in (ROOT / "crates/transport/src/tls").glob("*.rs"))
        table = RUNBOOK[RUNBOOK.index("Why a handshake fails"):RUNBOOK.index("## Tests")]
        quoted = re.findall(r'"([^"]+)"', " ".join(row.split("|")[1] for row in table.splitlines() if row.startswith("|")))
        self.assertGreater(len(quoted), 10)
        self.assertEqual([words for words in quoted if words not in says], [])

    def test_every_flag_exists(self):
        help_texts = "".join(
            subprocess.run([BINARIES / f"foretoken-{service}", "--help"], capture_output=True, text=True, check=True).stdout
            for service in ("orchestrator", "target-verifier", "draft-worker"))
        help_texts += subprocess.run([BINARIES / "foretoken", "generate", "--help"], capture_output=True, text=True, check=True).stdout
        flags = set(re.findall(r"`(--[a-z-]+)[ `]", RUNBOOK)) - {"--full", "--target", "--json"}
        self.assertGreater(len(flags), 8)
        self.assertEqual([flag for flag in flags if f"{flag} " not in help_texts], [])

    def test_every_ledger_field_exists(self):
        ledger = (ROOT / "proto/foretoken/v1/generate.proto").read_text()
        for field in ("drafting_ns", "plain_step_ns", "break_even_seconds", "gain_seconds", "target_passes"):
            self.assertIn(f"`{field}`" if field != "target_passes" else field, RUNBOOK)
            self.assertIn(f" {field} = ", ledger)

    def test_the_adapters_metrics_are_the_ones_that_the_chart_asks_for(self):
        rules = yaml.safe_load((ROOT / "deploy/helm/prometheus-adapter.yaml").read_text())["rules"]["custom"]
        made = {rule["name"]["as"] for rule in rules}
        values = yaml.safe_load((CHART / "values.yaml").read_text())
        asked = {metric["name"] for metric in values["targetVerifier"]["autoscaling"]["metrics"]}
        self.assertTrue(asked and asked <= made, asked - made)


if __name__ == "__main__":
    unittest.main()
