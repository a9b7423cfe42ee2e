"""deploy/prometheus: the rules, their unit tests, and that nothing of them is forgotten."""

import copy
import re
import subprocess

import pytest
import yaml

from repository import (
    METRICS,
    PROMETHEUS,
    REPOSITORY,
    RULE_TESTS,
    RULES,
    RUNBOOK,
    alerts,
    program,
    recorded,
    rules,
)


def promtool(*arguments, folder=PROMETHEUS):
    return subprocess.run(
        [program("promtool"), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def cases() -> list[tuple[str, bool]]:
    """Of every case in the test files: which alert, and whether it is to fire."""
    return [
        (check["alertname"], bool(check["exp_alerts"]))
        for path in RULE_TESTS
        for test in yaml.safe_load(path.read_text(encoding="utf-8"))["tests"]
        for check in test["alert_rule_test"]
    ]


def test_the_rules_are_valid():
    checked = promtool("check", "rules", RULES.name)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"{len(rules())} rules found" in checked.stdout + checked.stderr


@pytest.mark.parametrize("path", RULE_TESTS, ids=lambda path: path.stem)
def test_the_unit_tests_of_the_rules_pass(path):
    tested = promtool("test", "rules", path.name)
    assert tested.returncode == 0, tested.stdout + tested.stderr


@pytest.mark.parametrize("name", alerts())
def test_every_alert_has_a_case_that_fires_it_and_one_that_does_not(name):
    assert (name, True) in cases()
    assert (name, False) in cases()


def test_every_case_is_of_an_alert_that_exists():
    assert {name for name, _ in cases()} == set(alerts())


def test_an_alert_that_never_fires_fails_its_case(tmp_path):
    """The negative control of the unit tests, on a rule of few series."""
    changed = copy.deepcopy(yaml.safe_load(RULES.read_text(encoding="utf-8")))
    for group in changed["groups"]:
        for rule in group["rules"]:
            if rule.get("alert") == "GemmdDeviceFenced":
                rule["expr"] = "gemmd_device_state == 7"
    tests = yaml.safe_load((PROMETHEUS / "rules_test.yaml").read_text(encoding="utf-8"))
    tests["tests"] = [
        test
        for test in tests["tests"]
        if test["alert_rule_test"][0]["alertname"] == "GemmdDeviceFenced"
    ]
    (tmp_path / RULES.name).write_text(yaml.safe_dump(changed), encoding="utf-8")
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(tests), encoding="utf-8")
    tested = promtool("test", "rules", "test.yaml", folder=tmp_path)
    assert tested.returncode != 0
    assert "GemmdDeviceFenced" in tested.stdout + tested.stderr


@pytest.mark.parametrize("name, alert", alerts().items(), ids=alerts())
def test_every_alert_says_how_bad_what_and_where_to_read_on(name, alert):
    assert re.fullmatch(r"Gemmd[A-Za-z]+", name)
    assert alert["labels"]["severity"] in ("critical", "warning")
    assert alert["annotations"]["summary"]
    assert "{{ $value" in alert["annotations"]["description"] or "up{" in alert["expr"]
    assert alert["annotations"]["runbook_url"] == f"docs/runbook.md#{name.lower()}"


def test_the_runbook_has_an_entry_for_every_alert_and_no_other():
    headings = re.findall(r"^### (Gemmd\w+)$", RUNBOOK.read_text(encoding="utf-8"), re.M)
    assert headings == list(alerts()), "in the order of the rules"


@pytest.mark.parametrize("name", alerts())
def test_every_entry_of_the_runbook_has_its_parts(name):
    text = RUNBOOK.read_text(encoding="utf-8")
    entry = re.search(rf"^### {name}$(.*?)(?=^##|\Z)", text, re.M | re.S)[1]
    for part in ("**Means**", "**Look**", "**Do**"):
        assert part in entry, f"{name} has no {part}"


def test_every_recorded_series_is_used():
    everything = " ".join(rule["expr"] for rule in rules())
    for name in recorded():
        assert re.search(rf"{name}(?![\w:])", everything), f"{name} is recorded and not used"


def test_every_recorded_series_that_is_used_is_recorded():
    used = {name for rule in rules() for name in re.findall(r"\bgemmd:[\w:]+", rule["expr"])}
    assert used == set(recorded())


def test_the_scrape_config_of_the_documentation_is_valid(tmp_path):
    text = METRICS.read_text(encoding="utf-8")
    (config,) = re.findall(r"```yaml\n(.*?)```", text, re.S)
    (tmp_path / "prometheus.yml").write_text(
        config.replace("deploy/", f"{REPOSITORY}/deploy/"), encoding="utf-8"
    )
    checked = promtool("check", "config", "prometheus.yml", folder=tmp_path)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert str(RULES) in checked.stdout + checked.stderr
