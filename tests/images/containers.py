"""Containers as an operator would run them: each service on its own network, nothing writable, nobody privileged."""

import functools
import json
import os
import subprocess
from pathlib import Path

import waiting

DOCKER = os.environ["DOCKER"]
MODEL = Path(os.environ["FORETOKEN_TEST_MODEL"])
HARDENED = ("--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges:true")
# Generous: the machine may be busy with something else.
PATIENCE = 180
# Starts are timed with it.
until = functools.partial(waiting.until, patience=PATIENCE, pause=0.1)


def docker(*words, check=True, timeout=PATIENCE):
    """Runs a docker command to its end."""
    ended = subprocess.run([DOCKER, *words], capture_output=True, text=True, timeout=timeout, check=False)
    if check and ended.returncode:
        raise AssertionError(f"docker {' '.join(words)}: {ended.stderr}{ended.stdout}")
    return ended


def inspect(name):
    """What docker knows of a container or an image."""
    return json.loads(docker("inspect", name).stdout)[0]


def start(service, networks, args, *options, name=None):
    """Starts a service's container and tells how long it took to serve."""
    name = name or service
    first, *others = networks
    docker("create", "--name", name, "--network", first, "--network-alias", service, *HARDENED, *options,
           f"foretoken/{service}:0.1.0", *args)
    for network in others:
        docker("network", "connect", "--alias", service, network, name)
    docker("start", name)
    return until_serving(name)


def until_serving(name):
    """Waits by the image's own probe, asked more often than docker does."""
    binary = inspect(name)["Config"]["Entrypoint"][0]
    return until(lambda: docker("exec", name, binary, "healthcheck", check=False).returncode == 0, f"{name} serves")


def generating(prompt, *args, tokens=32, network="clients", options=()):
    """A client's container that generates, started and not waited for."""
    command = [DOCKER, "run", "--rm", "--network", network, *HARDENED, *options, "foretoken/cli:0.1.0", "generate", "--json",
               "--server", "orchestrator:7450", "--max-tokens", str(tokens), *args, prompt]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def generate(prompt, *args, **more):
    """The record of one answer; that of a failed one tells why."""
    out, error = generating(prompt, *args, **more).communicate(timeout=PATIENCE)
    assert out, error
    record = json.loads(out)
    assert "error" not in record, record["error"]["message"]
    return record
