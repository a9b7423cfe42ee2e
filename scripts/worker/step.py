"""The step of examples/mlp by torch, Linear and MLP: alone, and by eight processes.

    python3 step.py alone|together MODE [--graph]      adds nothing: prints the example's object
    python3 step.py figures PHASE                      alone in all modes, and what is wanted of it
    python3 step.py eight                              eight processes, torch's and MLP's
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import figure

SMALL = ["--hidden", "256", "--inner", "512", "--layers", "2", "--rows", "16"]


def example(mode: str, *more: str) -> dict[str, Any]:
    command = [sys.executable, os.path.join(figure.mlp_folder(), "mlp.py"), "--mode", mode, "--json"]
    if mode != "torch":
        command += ["--server", figure.server(), "--server-device", figure.device()]
    if not figure.device().startswith("cuda"):
        command += ["--device", "cpu"]
    if figure.quick():
        command += [*SMALL, "--steps", "30", "--seconds", "0.5"]
    done = subprocess.run(
        [*command, *more], stdout=subprocess.PIPE, text=True, timeout=float(os.environ.get("LIMIT", "80"))
    )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}; its error is above")
    return json.loads(done.stdout.splitlines()[-1])


def alone(phase: str) -> None:
    """`phase`: "mps" or "sliced"."""
    torch = example("torch")
    figure.add("1", f"step, torch BF16 in process, {phase}", torch["p50_us"], "us", p99_us=torch["p99_us"])
    wanted = {"Linear": 0.95, "MLP": 0.75} if phase == "mps" else {}
    for mode in ("Linear", "MLP"):
        try:
            found = example(mode)
        except Exception as error:
            print(f"{mode}: {error}", flush=True)
            figure.add("1", f"step, {mode}, {phase}, over torch", None, "ratio", wanted.get(mode))
            continue
        print("  ", found["layer"])
        detail = {"p50_us": found["p50_us"], "p99_us": found["p99_us"], "torch_p50_us": torch["p50_us"]}
        figure.add("1", f"step, {mode}, {phase}", found["p50_us"], "us",
                   1700 if phase == "sliced" and mode == "MLP" else None, p99_us=found["p99_us"])  # fmt: skip
        figure.add("1", f"step, {mode}, {phase}, over torch", found["p50_us"] / torch["p50_us"], "ratio",
                   wanted.get(mode), **detail)  # fmt: skip
    if phase == "mps" and figure.device().startswith("cuda"):
        found = example("MLP", "--graph")
        figure.add("1", "step, MLP in a captured graph, mps", found["p50_us"], "us", p99_us=found["p99_us"])


def eight() -> None:
    import gemmd

    workers = "2" if figure.quick() else "8"
    torch = example("torch", "--workers", workers)
    figure.add("2", f"{workers} torch processes", torch["steps_per_second"], "steps/s",
               slowest=torch["slowest_worker"])  # fmt: skip
    found = example("MLP", "--workers", workers)
    figure.add("2", f"{workers} MLP processes", found["steps_per_second"], "steps/s",
               slowest=found["slowest_worker"], fastest=found["fastest_worker"])  # fmt: skip
    figure.add("2", f"{workers} MLP processes over as many torch", found["steps_per_second"] / torch["steps_per_second"],
               "ratio", 1.3, at_most=False)  # fmt: skip
    figure.add("2", "different results among them", len(found["digests"]), "results", 1, digests=found["digests"])
    with gemmd.Client(figure.server()) as client:
        kept = [one for one in client.published() if one.published_name.startswith("examples/mlp/")]
        names = {one.published_name for one in kept}
        figure.add("2", "copies of a weight", len(kept) / max(1, len(names)), "copies", 1,
                   bytes=sum(one.size_bytes for one in kept), names=len(names))  # fmt: skip


def main() -> None:
    if sys.argv[1] == "figures":
        alone(sys.argv[2])
    elif sys.argv[1] == "eight":
        eight()
    else:
        more = [] if sys.argv[1] == "alone" else ["--workers", "8"]
        print(json.dumps(example(sys.argv[2], *more, *sys.argv[3:])))


if __name__ == "__main__":
    sys.exit(figure.guarded(main))
