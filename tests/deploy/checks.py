"""Whether rendered manifests and the daemon agree.

Each check yields sentences about what does not; none is what one wants.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Iterator

from google.protobuf import text_format

from daemon import Facts, parse_config
from kustomize import Manifest, matches, of_kind, the

CONFIG_FILE = "gemmd.textproto"
# Secrets that an operator or cert-manager makes; their keys.
SECRETS = {"gemmd-tls": {"tls.crt", "tls.key", "ca.crt"}, "gemmd-tokens": {"tokens"}}


@dataclasses.dataclass
class Deployed:
    """What the checks look at, found once."""

    manifests: list[Manifest]
    facts: Facts
    config: object = None  # as the file says
    effective: object = None  # with the daemon's defaults
    complaint: str = ""

    def __post_init__(self):
        (text,) = [
            m["data"][CONFIG_FILE]
            for m in of_kind(self.manifests, "ConfigMap")
            if CONFIG_FILE in m.get("data", {})
        ]
        moved = {
            m["mountPath"]: str(self.facts.secrets)
            for m in self.mounts()
            if "secret" in self.volume(m)
        }
        self.complaint, self.effective = self.facts.check(text, moved)
        try:
            self.config = parse_config(text)
        except text_format.ParseError as error:
            self.complaint = (
                self.complaint or f"the daemon takes what config.proto does not: {error}"
            )

    def pod(self) -> Manifest:
        return the(self.manifests, "Deployment")["spec"]["template"]["spec"]

    def labels(self) -> dict:
        return the(self.manifests, "Deployment")["spec"]["template"]["metadata"]["labels"]

    def container(self) -> Manifest:
        (container,) = [c for c in self.pod()["containers"] if c["name"] == "gemmd"]
        return container

    def mounts(self) -> list[Manifest]:
        return self.container()["volumeMounts"]

    def volume(self, mount: Manifest) -> Manifest:
        return next((v for v in self.pod()["volumes"] if v["name"] == mount["name"]), {})

    def mount_of(self, path: str) -> Manifest | None:
        inside = [
            m for m in self.mounts() if pathlib.PurePosixPath(path).is_relative_to(m["mountPath"])
        ]
        return max(inside, key=lambda m: len(m["mountPath"]), default=None)

    def services(self) -> list[Manifest]:
        return of_kind(self.manifests, "Service")


Check = Callable[[Deployed], Iterator[str]]


def check_config(deployed: Deployed) -> Iterator[str]:
    if deployed.complaint:
        yield f"config: {deployed.complaint}"


def check_drain(deployed: Deployed) -> Iterator[str]:
    """SIGKILL must come after the drain's end, and not long after it."""
    pod, container = deployed.pod(), deployed.container()
    pre_stop = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
    drain = (deployed.effective.drain.notice_ms + deployed.effective.drain.limit_ms) / 1000
    needed = pre_stop + drain + 5
    grace = pod.get("terminationGracePeriodSeconds", 30)
    if not pre_stop:
        yield "drain: no preStop: endpoints are taken away while SIGTERM is under way already"
    if grace != needed:
        parts = f"preStop, notice, limit and 5 s are {needed:g}"
        yield f"drain: terminationGracePeriodSeconds is {grace}; {parts}"
    probe = container["livenessProbe"]
    patience = probe.get("periodSeconds", 10) * probe.get("failureThreshold", 3)
    if patience <= drain:
        yield f"drain: liveness gives up after {patience} s, within a drain of {drain:g} s"


def check_flags(deployed: Deployed) -> Iterator[str]:
    container = deployed.container()
    if command := container.get("command"):
        yield f"flags: command {command} stands in for the image's entry point"
    for argument in container.get("args", []):
        if argument.startswith("--") and argument.split("=")[0] not in deployed.facts.flags:
            yield f"flags: gemmd has no {argument}"
    runs = [
        container.get(probe, {}).get("exec")
        for probe in ("startupProbe", "readinessProbe", "livenessProbe")
    ]
    runs += [
        container.get("lifecycle", {}).get(hook, {}).get("exec")
        for hook in ("preStop", "postStart")
    ]
    for command in (run["command"] for run in runs if run):
        program, *rest = command
        if program not in ("gemmd", "gemmctl"):
            yield f"flags: {program} is no program of the image"
            continue
        text = deployed.facts.help_of(program, *rest[:1])
        for word in (word for word in rest if word.startswith("--")):
            if word.split("=")[0] not in text:
                yield f"flags: {program} {rest[0]} has no {word}"


def check_references(deployed: Deployed) -> Iterator[str]:
    """Names and labels by which one object means another."""
    manifests, labels, pod = deployed.manifests, deployed.labels(), deployed.pod()
    names = {(m["kind"], m["metadata"]["name"]) for m in manifests}
    if ("ServiceAccount", pod.get("serviceAccountName")) not in names:
        yield f"references: no ServiceAccount {pod.get('serviceAccountName')}"
    for volume in pod["volumes"]:
        if "configMap" in volume and ("ConfigMap", volume["configMap"]["name"]) not in names:
            yield f"references: no ConfigMap {volume['configMap']['name']}"
        if "secret" in volume and volume["secret"]["secretName"] not in SECRETS:
            yield f"references: nobody makes the Secret {volume['secret']['secretName']}"
    for kind in ("PodDisruptionBudget", "NetworkPolicy", "Service"):
        for manifest in of_kind(manifests, kind):
            selector = manifest["spec"].get(
                "podSelector" if kind == "NetworkPolicy" else "selector", {}
            )
            if not selector or not matches(selector, labels):
                yield f"references: {kind} {manifest['metadata']['name']} selects no pod of gemmd"
    for constraint in pod.get("topologySpreadConstraints", []):
        if not matches(constraint["labelSelector"], labels):
            key = constraint["topologyKey"]
            yield f"references: topology spread over {key} selects no pod of gemmd"
    for scaler in of_kind(manifests, "HorizontalPodAutoscaler"):
        target = scaler["spec"]["scaleTargetRef"]
        if (target["kind"], target["name"]) not in names:
            yield f"references: the autoscaler's {target['kind']} {target['name']} is not there"
        if "replicas" in the(manifests, "Deployment")["spec"]:
            yield "references: the Deployment sets replicas, and so does the autoscaler"
    for certificate in of_kind(manifests, "Certificate"):
        issuer = certificate["spec"]["issuerRef"]
        if (issuer["kind"], issuer["name"]) not in names:
            yield f"references: no {issuer['kind']} {issuer['name']}"


def check_certificate_names(deployed: Deployed) -> Iterator[str]:
    """A client that calls a Service by its name must find that name in the certificate."""
    certificates = [
        c
        for c in of_kind(deployed.manifests, "Certificate")
        if c["spec"]["secretName"] == "gemmd-tls"
    ]
    for certificate in certificates:
        names = set(certificate["spec"].get("dnsNames", []))
        services = {
            (s["metadata"]["name"], s["metadata"]["namespace"]) for s in deployed.services()
        }
        wanted = {
            name + suffix
            for name, space in services
            for suffix in ("", f".{space}", f".{space}.svc", f".{space}.svc.cluster.local")
        }
        for name in sorted(wanted ^ names):
            yield f"certificate: {name} is {'missing' if name in wanted else 'no Service'}"
