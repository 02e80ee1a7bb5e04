"""How suites wait for what happens elsewhere."""

import time


def until(done, what, patience, pause=0.2):
    """Waits until `done()` is true and returns how many seconds that took."""
    began = time.monotonic()
    while not done():
        if time.monotonic() - began > patience:
            raise AssertionError(f"waited {patience} s: {what}")
        time.sleep(pause)
    return time.monotonic() - began
