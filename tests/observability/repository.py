"""Where things are, and what the rules and their tests say."""

from __future__ import annotations

import functools
import pathlib
import shutil

import yaml

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
PROMETHEUS = REPOSITORY / "deploy/prometheus"
RULES = PROMETHEUS / "rules.yaml"
RULE_TESTS = sorted(PROMETHEUS.glob("rules*_test.yaml"))
RUNBOOK = REPOSITORY / "docs/runbook.md"
METRICS = REPOSITORY / "docs/metrics.md"


def program(name: str) -> str:
    found = shutil.which(name)
    assert found, f"{name} is not installed; scripts/packages.sh does"
    return found


@functools.cache
def rules() -> list[dict]:
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def alerts() -> dict[str, dict]:
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


def recorded() -> dict[str, dict]:
    return {rule["record"]: rule for rule in rules() if "record" in rule}
