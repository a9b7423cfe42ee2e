"""Ports of containers, probes, Services, policies and monitors against the config's listeners."""

from __future__ import annotations

from collections.abc import Iterator

from checks import Deployed
from kustomize import of_kind

LOOPBACK = ("127.", "[::1]", "localhost")


def _port(address: str) -> int | None:
    """None: a Unix socket, or nothing that another pod or the kubelet reaches."""
    if not address or address.startswith(("unix:", "unix-abstract:", *LOOPBACK)):
        return None
    return int(address.rpartition(":")[2])


def purposes(deployed: Deployed) -> dict[int, str]:
    """What the daemon serves where: grpc, health or metrics."""
    found = {
        _port(listener.address): "health" if listener.health_only else "grpc"
        for listener in deployed.config.listeners
    }
    found[_port(deployed.config.metrics.address)] = "metrics"
    found.pop(None, None)
    return found


def _container_port(deployed: Deployed, port: int | str) -> int | None:
    """A port by its number or by its name in the container."""
    return next(
        (
            p["containerPort"]
            for p in deployed.container()["ports"]
            if port in (p["containerPort"], p["name"])
        ),
        None,
    )


def check_containers(deployed: Deployed) -> Iterator[str]:
    declared = {p["containerPort"]: p["name"] for p in deployed.container()["ports"]}
    for port, purpose in purposes(deployed).items():
        if declared.get(port) != purpose:
            there = declared.get(port, "nothing")
            yield f"ports: the daemon serves {purpose} at {port}, the container declares {there}"
    for port in declared.keys() - purposes(deployed):
        yield f"ports: the daemon serves nothing at {port}, which the container declares"


def check_probes(deployed: Deployed) -> Iterator[str]:
    for name in ("startupProbe", "readinessProbe", "livenessProbe"):
        probe = deployed.container().get(name)
        if not probe or "grpc" not in probe:
            yield f"ports: no gRPC {name}"
        elif purposes(deployed).get(probe["grpc"]["port"]) != "health":
            port = probe["grpc"]["port"]
            yield f"ports: {name} asks {port}, where there is no plaintext health service"
        elif probe["grpc"].get("service"):
            asked = probe["grpc"]["service"]
            yield f"ports: {name} asks for the service {asked}; the daemon's own has an empty name"


def check_services(deployed: Deployed) -> Iterator[str]:
    for service in deployed.services():
        for port in service["spec"]["ports"]:
            target = _container_port(deployed, port.get("targetPort", port["port"]))
            purpose = purposes(deployed).get(target)
            if purpose is None or purpose != port["name"] or port["port"] != target:
                name = service["metadata"]["name"]
                yield f"ports: Service {name} calls {port['port']} {port['name']}; it is {purpose}"
    kinds = {s["spec"].get("clusterIP") == "None" for s in deployed.services()}
    if kinds != {True, False}:
        yield "ports: one Service must be headless and one not"


def check_policies(deployed: Deployed) -> Iterator[str]:
    served, opened = purposes(deployed), set()
    for policy in of_kind(deployed.manifests, "NetworkPolicy"):
        if set(policy["spec"].get("policyTypes", [])) != {"Ingress", "Egress"} or policy[
            "spec"
        ].get("egress"):
            yield "ports: the policy lets something out"
        for rule in policy["spec"]["ingress"]:
            if not rule.get("from") or not rule.get("ports"):
                yield "ports: a rule of the policy lets in everybody, or to every port"
            for port in rule.get("ports", []):
                if port["port"] not in served:
                    yield f"ports: the policy opens {port['port']}, where nothing is served"
                opened.add(served.get(port["port"]))
    if opened != {"grpc", "metrics"}:
        found = sorted(str(purpose) for purpose in opened)
        yield f"ports: the policy opens {found}, it should be grpc and metrics"


def check_monitors(deployed: Deployed) -> Iterator[str]:
    for monitor in of_kind(deployed.manifests, "ServiceMonitor"):
        selected = [
            s
            for s in deployed.services()
            if monitor["spec"]["selector"]["matchLabels"].items() <= s["metadata"]["labels"].items()
        ]
        for endpoint in monitor["spec"]["endpoints"]:
            ports = [
                p for s in selected for p in s["spec"]["ports"] if p["name"] == endpoint.get("port")
            ]
            if len(ports) != 1:
                name = endpoint.get("port")
                yield f"ports: the monitor finds {len(ports)} Services with a port {name}, not one"
            for port in ports:
                if (
                    purposes(deployed).get(_container_port(deployed, port["targetPort"]))
                    != "metrics"
                ):
                    yield f"ports: the monitor scrapes {port['name']}, where there are no metrics"
            if endpoint.get("path", "/metrics") != "/metrics":
                yield f"ports: metrics are at /metrics, the monitor asks {endpoint['path']}"
