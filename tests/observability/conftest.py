import dataclasses
import pathlib
import sys
import time

import pytest

from repository import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "deploy/grafana"))  # for dashboard.py


def pytest_addoption(parser):
    parser.addoption("--gemmd", default=str(REPOSITORY / "build/cpu/server/gemmd"))
    parser.addoption("--gemmctl", default=str(REPOSITORY / "build/cpu/client/cli/gemmctl"))


@dataclasses.dataclass
class Observed:
    daemon: object
    prometheus: object


def _built(request, option: str) -> str:
    path = request.config.getoption(option)
    assert pathlib.Path(path).is_file(), f"build {path} first"
    return path


@pytest.fixture(scope="session")
def gemmd(request) -> str:
    return _built(request, "--gemmd")


@pytest.fixture(scope="session")
def gemmctl(request) -> str:
    return _built(request, "--gemmctl")


@pytest.fixture(scope="session")
def observed(gemmd, tmp_path_factory):
    """A daemon under mixed load, and a Prometheus that scrapes it."""
    import daemon
    import load
    import prometheus

    with (
        daemon.running(gemmd, tmp_path_factory.mktemp("gemmd")) as one,
        prometheus.scraping(tmp_path_factory.mktemp("prometheus"), one.metrics_address) as scraper,
        load.mixed_load(one) as failed,
    ):
        # Rates need two scrapes of everything, refusals and reloads included.
        deadline = time.monotonic() + 60
        while not scraper.numbers(
            "rate(gemmd_tenant_rejected_total[10s]) > 0"
            " and on (instance) count by (instance) (gemmd_transfer_bytes_total) > 4"
        ):
            assert not failed, failed
            assert time.monotonic() < deadline, "the load does not show in Prometheus"
            time.sleep(0.2)
        yield Observed(one, scraper)
