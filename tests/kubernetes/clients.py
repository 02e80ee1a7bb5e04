"""Clients of a release, alone and as a load, and what is asked of their answers while something is done to it."""

import json
import os
import subprocess
import threading
import time
import unittest
from pathlib import Path

from release import PATIENCE, Release, until

CLIENT = Path(os.environ["FORETOKEN_BINARIES"]) / "foretoken"
PROMPTS = ("The capital of France is", "Once upon a time", "Water boils at", "A list of colours:")
TOKENS = 120


class Answering:
    """An answer on its way."""

    def __init__(self, server, prompt, *words, tokens=TOKENS):
        command = [CLIENT, "generate", "--json", "--server", server, "--max-tokens", str(tokens), "--ignore-eos", *words, prompt]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def ended(self):
        """Its record, or None and what the client said."""
        try:
            out, error = self.process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return None, f"no end within {PATIENCE} s"
        return (json.loads(out), "") if self.process.returncode == 0 else (None, f"{error}{out}")


class Load:
    """Clients that ask one thing after another, each over a connection of its own."""

    def __init__(self, server, *words, clients=4):
        self.server, self.words = server, words
        self.answers, self.failures = [], []
        self.over = threading.Event()
        self.threads = [threading.Thread(target=self._ask, args=(PROMPTS[index % len(PROMPTS)],)) for index in range(clients)]

    def _ask(self, prompt):
        while not self.over.is_set():
            began = time.monotonic()
            record, error = Answering(self.server, prompt, *self.words).ended()
            if record is None:
                self.failures.append((time.strftime("%H:%M:%S"), f"after {time.monotonic() - began:.1f} s", error.strip()))
            else:
                self.answers.append((prompt, record["text"]))

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        for thread in self.threads:
            thread.join()


class Disturbed(unittest.TestCase):
    """What may be done to a release while it answers, and how its answers are compared."""

    release: Release
    server: str
    # Words that every client of this release needs.
    words = ()
    # Prompts and their undisturbed answers.
    expected: dict

    def answer(self, prompt, *words, **more):
        """The record of one answer."""
        record, error = Answering(self.server, prompt, *self.words, *words, **more).ended()
        self.assertIsNotNone(record, error)
        return record

    def expect(self):
        """Notes the undisturbed answers: plain decoding's."""
        for prompt in PROMPTS:
            self.expected[prompt] = self.answer(prompt, "--draft-len", "0")["text"]
            self.assertTrue(self.expected[prompt].strip())

    def under_load(self, change):
        """No request fails while `change()` is done and for a moment after it, and every answer is the undisturbed one."""
        with Load(self.server, *self.words) as load:
            until(lambda: len(load.answers) >= 2, "the load is answered")
            began = time.monotonic()
            change()
            took, answered = time.monotonic() - began, len(load.answers)
            # Whoever was told to go may still be draining.
            until(lambda: self.release.settled() and len(load.answers) >= answered + 4, "pods that were to go have gone")
        print(f"\n{took:.0f} s, {len(load.answers)} answers", end="")
        self.assertEqual(load.failures, [], self.release.told())
        for prompt, text in load.answers:
            self.assertEqual(text, self.expected[prompt])
