"""A measured figure beside what is wanted of it, as a line of the file that $FIGURES names."""

from __future__ import annotations

import json
import math
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any


def add(
    line: str,
    name: str,
    value: float | None,
    unit: str,
    wanted: float | None = None,
    *,
    at_most: bool = True,
    **detail: Any,
) -> None:
    """`line`: of the list of what must be shown. Without `wanted` it is only told."""
    measured = value is not None and math.isfinite(value)
    ok = None
    if wanted is not None:
        ok = measured and (value <= wanted if at_most else value >= wanted)
    figure = {
        "line": line,
        "name": name,
        "value": round(value, 4) if measured else None,
        "unit": unit,
        "wanted": None if wanted is None else f"{'<=' if at_most else '>='} {wanted:g}",
        "ok": ok,
        "detail": detail,
    }
    with open(os.environ["FIGURES"], "a", encoding="utf-8") as file:
        print(json.dumps(figure), file=file)
    shown = "-" if value is None else f"{value:.4g}"
    print(f"   {line}: {name}: {shown} {unit}", {None: "", True: "ok", False: "SHORT"}[ok], flush=True)


def guarded(work: Callable[[], None]) -> int:
    """Runs a phase; its error is printed in full and ends that phase alone."""
    try:
        work()
    except Exception:
        traceback.print_exc()
        return 1
    return 0


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def server() -> str:
    return os.environ["SERVER"]


def device() -> str:
    """The server's: "cuda:0"."""
    return os.environ.get("DEVICE", "cuda:0")


def quick() -> bool:
    return os.environ.get("QUICK", "") != ""


def mlp_folder() -> str:
    """Where the example lies; put on the module path."""
    folder = os.environ["MLP"]
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return folder
