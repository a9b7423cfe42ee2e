"""Names of metrics in rules, autoscaler, adapter and monitors against those that the daemon has."""

from __future__ import annotations

import re
from collections.abc import Iterator

import yaml

from checks import Deployed
from daemon import METRIC
from kustomize import KUBERNETES, of_kind

ADAPTER = KUBERNETES / "components/autoscaling/prometheus-adapter.yaml"
HISTOGRAM = re.compile(r"_(bucket|sum|count)$")


def adapter_rules() -> list[dict]:
    return yaml.safe_load(ADAPTER.read_text(encoding="utf-8"))["rules"]


def adapter_query(rule: dict, matchers: str, group_by: str) -> str:
    """The query that prometheus-adapter makes of a rule."""
    text = rule["metricsQuery"]
    series = METRIC.search(rule["seriesQuery"])[0]
    for placeholder, value in (
        ("Series", series),
        ("LabelMatchers", matchers),
        ("GroupBy", group_by),
    ):
        text = text.replace(f"<<.{placeholder}>>", value)
    return text


def _unknown(deployed: Deployed, text: str, own: set[str] = frozenset()) -> list[str]:
    """Names in a text that nobody exports; `own`: names that recording rules make."""
    known = deployed.facts.metrics
    return [
        name
        for name in METRIC.findall(text)
        if name not in known and name not in own and HISTOGRAM.sub("", name) not in known
    ]


def check_rules(deployed: Deployed) -> Iterator[str]:
    for manifest in of_kind(deployed.manifests, "PrometheusRule"):
        rules = [rule for group in manifest["spec"]["groups"] for rule in group["rules"]]
        if not any("alert" in rule for rule in rules):
            yield "metrics: PrometheusRule has no alert"
        for rule in rules:
            for name in _unknown(deployed, str(rule["expr"])):
                rule_name = rule.get("alert") or rule.get("record")
                yield f"metrics: {rule_name} asks for {name}, which gemmd has not"


def check_monitor_relabelings(deployed: Deployed) -> Iterator[str]:
    for monitor in of_kind(deployed.manifests, "ServiceMonitor"):
        for name in _unknown(deployed, str(monitor["spec"]["endpoints"])):
            yield f"metrics: the monitor relabels {name}, which gemmd has not"


def check_autoscaler(deployed: Deployed, rules: list[dict] | None = None) -> Iterator[str]:
    rules = adapter_rules() if rules is None else rules
    served = {rule["name"]["as"] for rule in rules}
    for rule in rules:
        for name in _unknown(deployed, rule["seriesQuery"]) + _unknown(
            deployed, rule["metricsQuery"]
        ):
            yield f"metrics: the adapter's rule asks for {name}, which gemmd has not"
        if set(rule["resources"]["overrides"]) != {"namespace", "pod"}:
            yield "metrics: the adapter's rule does not say which labels are namespace and pod"
    for scaler in of_kind(deployed.manifests, "HorizontalPodAutoscaler"):
        for metric in scaler["spec"]["metrics"]:
            name = metric["pods"]["metric"]["name"] if metric["type"] == "Pods" else metric["type"]
            if name not in served:
                yield f"metrics: the autoscaler asks for {name}, for which the adapter has no rule"
