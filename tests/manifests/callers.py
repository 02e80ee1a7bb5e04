"""Who calls whom within what the chart renders, with which words, and which secrets are at hand."""

from typing import NamedTuple

from chart import WORKLOADS, by_kind, option, pod, service_of


class Call(NamedTuple):
    """Somebody dials a service of the release: what he says on the way."""

    caller: dict
    words: list
    callee: dict
    name: str


def container_of(item):
    """The one container of a pod."""
    (container,) = pod(item)["containers"]
    return container


def files(item):
    """Where a pod's secrets are: path to (secret, key)."""
    volumes = {volume["name"]: volume["secret"] for volume in pod(item).get("volumes", []) if "secret" in volume}
    return {
        f"{mount['mountPath']}/{entry['path']}": (volumes[mount["name"]]["secretName"], entry["key"])
        for mount in container_of(item).get("volumeMounts", []) if mount["name"] in volumes
        for entry in volumes[mount["name"]]["items"]
    }


def probes(item):
    """The commands of a workload's probes."""
    container = container_of(item)
    return [container[kind].get("exec", {}).get("command", []) for kind in ("startupProbe", "readinessProbe", "livenessProbe")]


def calls(objects):
    """Every call within the release that the objects' words make."""
    workloads = {service_of(item): item for item in objects if item["kind"] in WORKLOADS}
    services = by_kind(objects, "Service")
    for item in objects:
        if pod(item) is None:
            continue
        words = container_of(item)["args"]
        for name in ("--verifiers", "--draft-workers", "--server"):
            if option(words, name):
                host = option(words, name).removeprefix("dns:///").split(":")[0]
                yield Call(item, words, workloads[service_of(services[host])], host)
        if item["kind"] in WORKLOADS:
            for command in probes(item):
                yield Call(item, command, item, option(command, "--tls-server-name"))
