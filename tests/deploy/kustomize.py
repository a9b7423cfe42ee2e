"""deploy/kubernetes as kubectl renders it."""

from __future__ import annotations

import functools
import pathlib
import re
import shutil
import subprocess
import sys

import yaml

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
KUBERNETES = REPOSITORY / "deploy/kubernetes"
OVERLAYS = sorted(path.parent.name for path in KUBERNETES.glob("overlays/*/kustomization.yaml"))
OLDEST = 5  # kustomize: components, and `patches` that delete, behave alike from here on

Manifest = dict  # one object, as YAML says it


def _kustomize_version(kubectl: str) -> int:
    text = subprocess.run(
        [kubectl, "version", "--client"], capture_output=True, text=True, check=False
    ).stdout
    found = re.search(r"Kustomize Version: v(\d+)\.", text)
    return int(found[1]) if found else 0


@functools.cache
def kubectls() -> list[str]:
    """That of scripts/venv.sh, and the machine's own when it is new enough, unlike Debian 12's."""
    found = [str(pathlib.Path(sys.prefix) / "bin/kubectl")]
    if (own := shutil.which("kubectl")) and _kustomize_version(own) >= OLDEST:
        found.append(own)
    return found


@functools.cache
def _rendered(folder: pathlib.Path, kubectl: str) -> str:
    return subprocess.run(
        [kubectl, "kustomize", str(folder)], capture_output=True, text=True, check=True
    ).stdout


def render(folder: pathlib.Path, kubectl: str = "") -> list[Manifest]:
    """Fresh objects at each call: who changes them changes nobody else's."""
    return list(yaml.safe_load_all(_rendered(folder, kubectl or kubectls()[0])))


def overlay(name: str) -> list[Manifest]:
    return render(KUBERNETES / "overlays" / name)


def of_kind(manifests: list[Manifest], kind: str) -> list[Manifest]:
    return [m for m in manifests if m["kind"] == kind]


def the(manifests: list[Manifest], kind: str) -> Manifest:
    (only,) = of_kind(manifests, kind)
    return only


def matches(selector: dict, labels: dict) -> bool:
    """matchLabels alone: a selector with expressions has no place in these manifests."""
    wanted = selector.get("matchLabels", selector)
    return "matchExpressions" not in selector and all(
        labels.get(key) == value for key, value in wanted.items()
    )
