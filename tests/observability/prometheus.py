"""A real Prometheus: its own folder, a free port of loopback, the rules of deploy/, one daemon."""

from __future__ import annotations

import contextlib
import json
import math
import pathlib
import random
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

import yaml

from repository import RULES, program

SCRAPE_EVERY = "1s"
JOB = {"job": "gemmd", "namespace": "gemmd", "pod": "gemmd-0"}  # as the ServiceMonitor labels it


class Prometheus:
    def __init__(self, address: str):
        self.address = address

    def get(self, path: str, **query: str):
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise ValueError(f"{query}: {json.load(error)['error']}") from None

    def ask(self, query: str) -> list[tuple[dict, float]]:
        """Labels and value of each series that answers; ValueError when the query is wrong."""
        return [
            (series["metric"], float(series["value"][1]))
            for series in self.get("query", query=query)["result"]
        ]

    def numbers(self, query: str) -> list[float]:
        """The answers that are numbers: a quantile of nothing is none."""
        return [value for _, value in self.ask(query) if not math.isnan(value)]

    def wait_for(self, query: str, timeout_s: float = 90) -> list[float]:
        """Asks until something answers; [] when nothing has by then."""
        deadline = time.monotonic() + timeout_s
        while not (found := self.numbers(query)) and time.monotonic() < deadline:
            time.sleep(0.25)
        return found


def _free_port() -> int:
    """Below those that the system gives to whoever asks for any: nobody else takes it meanwhile."""
    while True:
        port = random.randrange(20000, 30000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


@contextlib.contextmanager
def scraping(folder: pathlib.Path, target: str):
    config = {
        "global": {"scrape_interval": SCRAPE_EVERY, "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [
            {
                "job_name": JOB["job"],
                "scrape_timeout": SCRAPE_EVERY,
                "static_configs": [
                    {"targets": [target], "labels": {k: v for k, v in JOB.items() if k != "job"}}
                ],
            }
        ],
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    address = f"127.0.0.1:{_free_port()}"
    with (folder / "log").open("w", encoding="utf-8") as log:
        process = subprocess.Popen(
            [
                program("prometheus"),
                f"--config.file={folder / 'prometheus.yaml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={address}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        deadline = time.monotonic() + 60
        while True:
            assert process.poll() is None, (folder / "log").read_text(encoding="utf-8")
            assert time.monotonic() < deadline, "Prometheus is not ready within a minute"
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://{address}/-/ready", timeout=5).close()
                break
            time.sleep(0.1)
        yield Prometheus(address)
    finally:
        process.terminate()
        process.wait(60)
