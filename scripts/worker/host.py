"""Line 4, on the CPU backend: what a run costs beside an echo, many in a row, and tenants' shares.

    python3 host.py echo ARMED_BENCH | tests E2E_ARMED_TEST
"""

from __future__ import annotations

import os
import re
import subprocess
import sys

import figure

TESTS = {
    "20,000 armed runs in a row": "*TwentyThousandInARow*",
    "two tenants within 5 % while both keep their slots rung": "*TenantsThatKeepTheirSlotsRung*",
}


def run(*command: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "GEMMD_TEST_DEVICE"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=50)
    print(done.stdout[-3000:], done.stderr[-3000:], flush=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}")
    return done.stdout


def echo(program: str) -> None:
    text = run(program, "2000" if figure.quick() else "20000")
    rows = dict(re.findall(r"^(echo RPC|armed|RunPlan) +([0-9.]+)", text, re.M))
    figure.add("4", "armed run over a bare echo RPC, p50, CPU backend", float(rows["armed"]) / float(rows["echo RPC"]),
               "ratio", 0.15, p50_us=rows, processors=os.cpu_count())  # fmt: skip


def tests(program: str) -> None:
    for name, test in TESTS.items():
        try:
            passed = "1 test." in run(program, f"--gtest_filter={test}").split("PASSED")[-1]
        except Exception as error:
            print(error, flush=True)
            passed = False
        figure.add("4", name, float(passed), "1 is yes", 1, at_most=False)


if __name__ == "__main__":
    sys.exit(figure.guarded(lambda: {"echo": echo, "tests": tests}[sys.argv[1]](sys.argv[2])))
