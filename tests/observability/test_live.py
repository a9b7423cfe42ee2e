"""A real Prometheus scrapes a real daemon under mixed load: every query of ours answers."""

import re
import subprocess

import dashboard
import pytest
import yaml

from repository import REPOSITORY, alerts, program, recorded

PANELS = [panel for _, row in dashboard.rows() for panel in row]
EVERYWHERE = [panel for panel in PANELS if not panel.gpu_only]
WITH_GPUS = [panel for panel in PANELS if panel.gpu_only]

ALL = {"instance": ".*", "device": ".*", "tenant": ".*"}


def substituted(query: str, chosen: dict[str, str]) -> str:
    """As Grafana does it; a rate's time is four scrapes at least."""
    query = query.replace("$__rate_interval", "10s")
    for name, value in chosen.items():
        query = query.replace(f"${name}", value)
    assert "$" not in query, query
    return query


def names_in(query: str) -> set[str]:
    return {
        re.sub(r"_(bucket|sum|count)$", "", name)
        for name in re.findall(r"\b(?:gemmd|process)_[a-z0-9_]+", query)
    }


def test_the_exposition_has_no_fault_that_promtool_knows(observed):
    checked = subprocess.run(
        [program("promtool"), "check", "metrics"],
        input=observed.daemon.scrape(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert checked.stdout + checked.stderr == "", "a warning"


def test_promtool_finds_a_planted_fault():
    """The negative control of the test above."""
    checked = subprocess.run(
        [program("promtool"), "check", "metrics"],
        input="# TYPE gemmd_milliseconds counter\ngemmd_milliseconds 1\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert checked.returncode != 0 or checked.stdout + checked.stderr


@pytest.mark.parametrize("panel", EVERYWHERE, ids=lambda panel: panel.title)
def test_every_query_of_the_dashboard_answers(observed, panel):
    for query, legend in panel.targets():
        asked = substituted(query, ALL)
        assert observed.prometheus.wait_for(asked), f"{panel.title}, {legend}: nothing for {asked}"


@pytest.mark.parametrize("panel", EVERYWHERE, ids=lambda panel: panel.title)
def test_every_query_answers_for_one_instance_device_and_tenant(observed, panel):
    chosen = {"instance": observed.daemon.metrics_address, "device": "cpu:0", "tenant": "team-b"}
    for query, legend in panel.targets():
        asked = substituted(query, chosen)
        assert observed.prometheus.wait_for(asked), f"{panel.title}, {legend}: nothing for {asked}"


@pytest.mark.parametrize("panel", WITH_GPUS, ids=lambda panel: panel.title)
def test_what_only_gpus_have_is_not_there(observed, panel):
    """These panels are left out above: prove that they have to be."""
    kinds = set(re.findall(r"^# TYPE (\S+)", observed.daemon.scrape(), re.M))
    for query, _ in panel.targets():
        assert observed.prometheus.ask(substituted(query, ALL)) == []
        for name in names_in(query):
            assert name not in kinds


def test_nothing_but_what_only_gpus_have_is_left_out():
    assert {panel.title for panel in WITH_GPUS} == {
        "Clock",
        "Power",
        "Temperature",
        "Quarantined kernels",
        "Transfers beside programs",
    }


def test_a_query_of_nothing_is_noticed(observed):
    """The negative control: a metric that nobody exports, a label that nothing has."""
    assert observed.prometheus.wait_for("gemmd_nothing_total", timeout_s=1) == []
    other = substituted(EVERYWHERE[0].targets()[0][0], {**ALL, "device": "cpu:9"})
    assert observed.prometheus.wait_for(other, timeout_s=1) == []
    with pytest.raises(ValueError, match="parse error"):
        observed.prometheus.ask("sum(")


@pytest.mark.parametrize("name", dashboard.VARIABLES)
def test_every_variable_has_values(observed, name):
    query = dashboard.VARIABLES[name]
    selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", query).groups()
    answers = observed.prometheus.ask(substituted(selector, ALL))
    values = {labels[label] for labels, _ in answers}
    assert (
        values
        >= {
            "instance": {observed.daemon.metrics_address},
            "device": {"cpu:0", "cpu:1"},
            "tenant": {"team-a", "team-b"},
        }[name]
    )


def test_prometheus_evaluates_every_rule(observed):
    observed.prometheus.wait_for("gemmd:call_faults:ratio_rate5m")
    groups = observed.prometheus.get("rules")["groups"]
    health = {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}
    assert set(health) == set(alerts()) | set(recorded())
    assert {name for name, state in health.items() if state == "err"} == set()


@pytest.mark.parametrize("name", recorded())
def test_every_recorded_series_is_there(observed, name):
    assert observed.prometheus.wait_for(name), recorded()[name]["expr"]


def test_refusals_and_bad_requests_are_no_faults_of_ours(observed):
    assert observed.prometheus.wait_for('gemmd_requests_total{code="RESOURCE_EXHAUSTED"} > 0')
    assert observed.prometheus.wait_for('gemmd_requests_total{code="INVALID_ARGUMENT"} > 0')
    assert observed.prometheus.wait_for("gemmd:call_faults:ratio_rate5m") == [0]


def test_no_device_and_no_certificate_alerts_under_healthy_load(observed):
    names = {labels["alertname"] for labels, _ in observed.prometheus.ask("ALERTS")}
    assert not any(name.startswith(("GemmdDevice", "GemmdNoDevice")) for name in names), names
    assert not any("Certificate" in name or "Kernel" in name for name in names), names


def test_a_bad_reload_is_an_alert(observed):
    assert observed.prometheus.wait_for('ALERTS{alertname="GemmdConfigReloadFailed"}')


# What a rule reads and only a GPU or a fault has: it cannot be asked for here.
def test_every_metric_that_a_rule_reads_is_exported(observed):
    kinds = set(re.findall(r"^# TYPE (\S+)", observed.daemon.scrape(), re.M))
    for rule in {**alerts(), **recorded()}.values():
        for name in names_in(re.sub(r"gemmd:[\w:]+", "", rule["expr"])):
            assert name in kinds, f"{rule['expr']} reads {name}"


def test_the_autoscalers_query_answers(observed):
    path = REPOSITORY / "deploy/kubernetes/components/autoscaling/prometheus-adapter.yaml"
    for rule in yaml.safe_load(path.read_text(encoding="utf-8"))["rules"]:
        series = re.match(r"\w+", rule["seriesQuery"])[0]
        assert observed.prometheus.ask(rule["seriesQuery"]), "the adapter finds no series"
        query = (
            rule["metricsQuery"]
            .replace("<<.Series>>", series)
            .replace("<<.LabelMatchers>>", 'namespace="gemmd",pod="gemmd-0"')
            .replace("<<.GroupBy>>", "pod")
        )
        assert len(observed.prometheus.wait_for(query)) == 1


def test_a_scrape_is_small(observed):
    (samples,) = observed.prometheus.wait_for("scrape_samples_scraped > 0")
    monitor = REPOSITORY / "deploy/kubernetes/components/monitoring/servicemonitor.yaml"
    limit = yaml.safe_load(monitor.read_text(encoding="utf-8"))["spec"]["sampleLimit"]
    assert samples < limit / 8  # it is for eight GPUs, and this daemon has two CPU devices
