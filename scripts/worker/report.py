"""Puts the figures that the phases left into one document, and shows them. Beside it, in OUT.md, they are rows of the
table of docs/benchmarks/h200-worker.md.

    python3 report.py OUT.json COMMIT
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
import sys
from typing import Any


def gpu() -> list[str]:
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=20)
    except OSError:
        return ["none", "none"]
    words = (done.stdout.splitlines() or ["none, none"])[0].split(", ")
    return words if len(words) == 2 else ["none", "none"]


def row(one: dict[str, Any]) -> str:
    value = "-" if one["value"] is None else f"{one['value']:.4g}"
    verdict = {None: "", True: "holds", False: "short"}[one["ok"]]
    return f"| {one['line']} | {one['name']} | {value} {one['unit']} | {one['wanted'] or ''} | {verdict} |"


def main() -> None:
    out, commit = sys.argv[1:]
    figures = []
    if os.path.exists(os.environ["FIGURES"]):
        with open(os.environ["FIGURES"], encoding="utf-8") as file:
            figures = [json.loads(line) for line in file]
    figures.sort(key=lambda one: one["line"])
    name, driver = gpu()
    document = {
        "gpu": name,
        "driver": driver,
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": commit,
        "command": "scripts/worker.sh DIST OUT",
        "machine": {"cores": os.cpu_count(), "python": platform.python_version()},
        "figures": figures,
    }
    with open(out, "w", encoding="utf-8") as file:
        json.dump(document, file, indent=1)
        file.write("\n")
    with open(out.removesuffix(".json") + ".md", "w", encoding="utf-8") as file:
        for one in figures:
            print(row(one), file=file)
    for one in figures:
        value = "-" if one["value"] is None else f"{one['value']:.4g}"
        verdict = {None: "", True: "ok", False: "SHORT"}[one["ok"]]
        print(f"{one['line']:>2}  {one['name'][:78]:<78} {value:>10} {one['unit']:<8} {one['wanted'] or '':>8} {verdict}")
    short = sum(one["ok"] is False for one in figures)
    print(f"{len(figures)} figures, {short} short, on {name}, driver {driver}")


if __name__ == "__main__":
    main()
