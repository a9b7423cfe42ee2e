"""The rule file and its wrapping are one; a real Prometheus answers the autoscaler's query."""

import contextlib
import json
import pathlib
import random
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request

import pytest
import yaml

import checks
from checks_metrics import adapter_query, adapter_rules, check_autoscaler
from daemon import SMALL, running
from kustomize import REPOSITORY, overlay, the

RULES = REPOSITORY / "deploy/prometheus/rules.yaml"


def test_the_prometheus_rule_is_the_rule_file():
    """Not the same? scripts/prometheus_rule.sh writes the one from the other."""
    assert the(overlay("production"), "PrometheusRule")["spec"] == yaml.safe_load(
        RULES.read_text(encoding="utf-8")
    )


@pytest.mark.parametrize(
    "change, sentence",
    [
        (("seriesQuery", "gemmd_queued_seconds{}"), "gemmd_queued_seconds"),
        (("metricsQuery", "sum(gemmd_queue_dept)"), "gemmd_queue_dept"),
        (("resources", {"overrides": {"pod": {}}}), "which labels"),
        (("name", {"as": "queued"}), "no rule"),
    ],
)
def test_a_mistake_in_the_adapters_rule_is_reported(change, sentence, facts):
    key, value = change
    rules = [{**rule, key: value} for rule in adapter_rules()]
    found = list(check_autoscaler(checks.Deployed(overlay("production"), facts), rules))
    assert any(sentence in line for line in found), found


def _free_port() -> int:
    """Below those that the system gives to whoever asks for any: nobody else takes it meanwhile."""
    while True:
        port = random.randrange(20000, 30000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


@contextlib.contextmanager
def _prometheus(folder: pathlib.Path, targets: dict[str, str]):
    """Scrapes as the ServiceMonitor says, but more often; targets: pod -> address."""
    (endpoint,) = the(overlay("production"), "ServiceMonitor")["spec"]["endpoints"]
    static = [
        {"targets": [address], "labels": {"namespace": "gemmd", "pod": pod}}
        for pod, address in targets.items()
    ]
    job = {
        "job_name": "gemmd",
        "metrics_path": endpoint["path"],
        "scrape_interval": "1s",
        "scrape_timeout": "1s",
        "static_configs": static,
    }
    (folder / "prometheus.yaml").write_text(
        yaml.safe_dump({"scrape_configs": [job]}), encoding="utf-8"
    )
    program = shutil.which("prometheus")
    assert program, "scripts/packages.sh installs prometheus"
    port = _free_port()
    with (folder / "log").open("w", encoding="utf-8") as log:
        server = subprocess.Popen(
            [
                program,
                f"--config.file={folder / 'prometheus.yaml'}",
                f"--storage.tsdb.path={folder}/data",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stderr=log,
            stdout=log,
        )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(60)


def _ask(address: str, query: str) -> list[dict]:
    url = f"{address}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return json.load(answer)["data"]["result"]
    except urllib.error.URLError:  # not there yet
        return []


def test_the_autoscalers_query_answers_once_for_each_pod(facts, tmp_path):
    (rule,) = adapter_rules()
    query = adapter_query(rule, 'namespace="gemmd",pod=~"gemmd-a|gemmd-b"', "pod")
    with (
        running(facts.gemmd, SMALL) as one,
        running(facts.gemmd, SMALL) as other,
        _prometheus(tmp_path, {"gemmd-a": one, "gemmd-b": other, "another": one}) as prometheus,
    ):
        deadline = time.monotonic() + 60
        while len(result := _ask(prometheus, query)) < 2 and time.monotonic() < deadline:
            time.sleep(0.2)
    # Two devices each, and one value a pod: nothing is queued.
    assert {entry["metric"]["pod"]: float(entry["value"][1]) for entry in result} == {
        "gemmd-a": 0,
        "gemmd-b": 0,
    }
