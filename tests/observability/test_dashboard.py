"""deploy/grafana: the committed dashboard is what its source makes, and hangs together."""

import json
import re

import dashboard
import pytest

from repository import REPOSITORY

PANELS = [panel for _, row in dashboard.rows() for panel in row]


def committed() -> dict:
    return json.loads(dashboard.FILE.read_text(encoding="utf-8"))


def test_the_committed_dashboard_is_what_its_source_makes():
    """Not the same? build/venv/bin/python deploy/grafana/dashboard.py writes it."""
    assert dashboard.FILE.read_text(encoding="utf-8") == dashboard.text()


def test_it_covers_what_an_operator_asks():
    assert [title for title, _ in dashboard.rows()] == [
        "Now",
        "Traffic",
        "Latency",
        "Queue",
        "Devices",
        "Memory",
        "Transfers",
        "Tenants",
        "Refusals and faults",
        "Certificates and reloads",
        "Process",
    ]
    assert [variable["name"] for variable in committed()["templating"]["list"]] == [
        "datasource",
        "instance",
        "device",
        "tenant",
    ]


def test_every_panel_and_query_is_its_own():
    panels = committed()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        targets = panel.get("targets", [])
        assert len({target["refId"] for target in targets}) == len(targets)
        assert panel["type"] == "row" or targets, panel["title"]


def test_every_source_is_the_chosen_one():
    text = dashboard.FILE.read_text(encoding="utf-8")
    assert set(re.findall(r'"uid": "([^"]*)"', text)) == {"gemmd", "${datasource}"}


def test_no_panels_overlap():
    taken: dict[tuple[int, int], str] = {}
    for panel in committed()["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24, panel["title"]
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                assert (x, y) not in taken, f"{panel['title']} lies on {taken[(x, y)]}"
                taken[(x, y)] = panel["title"]


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.title)
def test_every_query_is_narrowed_and_spelt_out(panel):
    for query, legend in panel.targets():
        assert '=~"$instance"' in query
        assert legend
        for word in dashboard.WORDS:
            assert not re.search(rf"\b{word}\b", query), f"{word} is left in {query}"


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.title)
def test_every_variable_in_a_query_exists(panel):
    known = {*dashboard.VARIABLES, "__rate_interval"}
    for query, _ in panel.targets():
        assert set(re.findall(r"\$\{?(\w+)", query)) <= known


def test_the_documentation_names_the_dashboard():
    text = (REPOSITORY / "docs/metrics.md").read_text(encoding="utf-8")
    assert "deploy/grafana/gemmd.json" in text
