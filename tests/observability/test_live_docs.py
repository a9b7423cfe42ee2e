"""docs/metrics.md and the runbook's queries against a real daemon and a real Prometheus."""

import re

import pytest

from repository import METRICS, RUNBOOK

ROW = re.compile(r"^\| `([a-z_]+)` \| (\w+) \| ([^|]*)\| ([^|]+) \| (.+) \|$", re.M)
QUERIES = [
    query
    for block in re.findall(r"```promql\n(.*?)```", RUNBOOK.read_text(encoding="utf-8"), re.S)
    for query in block.strip().split("\n")
]


def documented() -> dict[str, tuple[str, set[str], str]]:
    """Name -> type, labels, meaning."""
    return {
        name: (kind, set(re.findall(r"`(\w+)`", labels)), meaning)
        for name, kind, labels, _, meaning in ROW.findall(METRICS.read_text(encoding="utf-8"))
    }


def exported(text: str) -> dict[str, tuple[str, set[str]]]:
    """Name -> type, and the labels of its series without a histogram's `le`."""
    found = {name: (kind, set()) for name, kind in re.findall(r"^# TYPE (\S+) (\w+)$", text, re.M)}
    for sample, labels in re.findall(r"^(\w+)(?:\{(.*)\})? \S+$", text, re.M):
        name = sample if sample in found else re.sub(r"_(bucket|sum|count)$", "", sample)
        found[name][1].update(set(re.findall(r'(\w+)="', labels)) - {"le"})
    return found


def test_every_metric_is_documented_as_it_is(observed):
    documents = documented()
    for name, (kind, labels) in exported(observed.daemon.scrape()).items():
        assert name in documents, f"{name} is not in docs/metrics.md"
        assert documents[name][:2] == (kind, labels), name


def test_every_documented_metric_exists(observed):
    there = exported(observed.daemon.scrape())
    for name, (_, _, meaning) in documented().items():
        if "GPUs only" in meaning:
            assert name not in there, f"{name} is there without a GPU"
        else:
            assert name in there, f"{name} is not exported"


def test_the_documents_rows_are_all_read():
    """A row that the pattern misses would not be compared."""
    text = METRICS.read_text(encoding="utf-8")
    assert len(documented()) == len(re.findall(r"^\| `", text, re.M))


def test_every_histogram_has_the_buckets_that_the_document_names(observed):
    bounds: dict[str, set[float]] = {}
    for name, le in re.findall(r'^(\w+)_bucket\{.*le="([^"]+)"\}', observed.daemon.scrape(), re.M):
        bounds.setdefault(name, set()).add(float(le))
    for name, found in bounds.items():
        finite = sorted(found - {float("inf")})
        first, count = (1e-4, 18) if name == "gemmd_transfer_seconds" else (5e-6, 21)
        assert finite == pytest.approx([first * 2**k for k in range(count)]), name


@pytest.mark.parametrize("query", QUERIES)
def test_every_query_of_the_runbook_is_one(observed, query):
    observed.prometheus.ask(query)  # nothing may answer where nothing is wrong


def test_the_runbook_has_queries():
    assert len(QUERIES) >= 10
