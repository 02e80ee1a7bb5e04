"""Renders the chart, and tells what a manifest is."""

import os
import subprocess
import tempfile
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy/helm/foretoken"
HELM = Path(os.environ["FORETOKEN_TOOLS"]) / "bin/helm"
NAMESPACE = "inference"
# What the chart is rendered for: a helm built from its module knows only an old default.
KUBERNETES = "1.34.0"


class Refused(Exception):
    """The chart does not take these values; the text is helm's."""


def helm(*words):
    """Runs helm with a cache of its own; its standard output, or Refused."""
    with tempfile.TemporaryDirectory() as home:
        places = {"HELM_CACHE_HOME": home, "HELM_CONFIG_HOME": home, "HELM_DATA_HOME": home}
        ended = subprocess.run([HELM, *words], env={**os.environ, **places}, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise Refused(ended.stderr)
    return ended.stdout


def template(values, *words, release="demo", chart=CHART):
    """The chart's text with these values over its own."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(values, file)
        file.flush()
        common = ("--namespace", NAMESPACE, "--kube-version", KUBERNETES)
        return helm("template", release, chart, *common, "--values", file.name, *words)


def manifests(values, *words):
    """The chart's objects with these values."""
    return [document for document in yaml.load_all(template(values, *words), UniqueKeys) if document]


class UniqueKeys(yaml.SafeLoader):
    """YAML in which a key that is written twice is an error, as for Kubernetes' own tools."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key, deep=deep) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise ValueError(f"{key} is there twice at {node.start_mark}")
        return super().construct_mapping(node, deep)


def pod(manifest):
    """The pod's specification that an object makes, if it makes any."""
    if manifest["kind"] == "Pod":
        return manifest["spec"]
    return manifest.get("spec", {}).get("template", {}).get("spec") if manifest["kind"] in WORKLOADS else None


WORKLOADS = ("Deployment", "StatefulSet")


def by_kind(objects, kind):
    """The objects of a kind, by name."""
    return {object["metadata"]["name"]: object for object in objects if object["kind"] == kind}


def service_of(workload):
    """draft-worker, target-verifier or orchestrator."""
    return workload["metadata"]["labels"]["app.kubernetes.io/component"]


def flag(container, name):
    """The value of a flag, None where it is not given."""
    return option(container["args"], name)


def option(words, name):
    """The value of an option among a command's words, None where it is not given."""
    return next((word.split("=", 1)[1] for word in words if word.startswith(name + "=")), None)


def question(probe):
    """The port and the service's name that a probe asks after: the kubelet by itself, or the service's binary."""
    if "grpc" in probe:
        return probe["grpc"]["port"], probe["grpc"].get("service", "")
    command = probe["exec"]["command"]
    host, port = option(command, "--address").split(":")
    if command[1] != "healthcheck" or host != "127.0.0.1":
        raise AssertionError(f"{command} does not ask its own service")
    return int(port), option(command, "--service")
