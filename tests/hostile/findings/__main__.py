#!/usr/bin/env python3
"""Runs old findings against the programs of one or more commits, through doors that all of them have: no config names a
limit that the oldest one lacks. Wants Python with the package gemmd (build/venv has it), and root for `cgroup` and `share`.

    build/venv/bin/python tests/hostile/findings BUILD..            each a build folder: build/cpu
    build/venv/bin/python tests/hostile/findings build/cpu --only share --only clock

Prints a table in Markdown. Exit status 1 if a finding does not hold with the last of the builds, or could not be tried."""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import cgroup
import clock
import descriptors
import quotas
import share
import terminal
from daemon import Programs


@dataclasses.dataclass
class Finding:
    name: str
    point: str
    wanted: str
    look: Callable[[Programs, pathlib.Path], tuple[bool, str]]


FINDINGS = [
    Finding("plans", "3", "400 plans with 3.9 MiB of data each add at most 1.1 GiB", quotas.plans),
    Finding("queues", "3", "12 unread Queues of 64 results, 3.9 MiB each, add at most 576 MiB", quotas.queues),
    Finding("copies", "4", "nine strided copies under a limit of 1 s leave another's tiny op under 2 s", clock.copies),
    Finding("deadline", "4", "a program of 2 s by estimate, slowed, leaves the device within 2 s of its deadline of 3 s", clock.deadline),
    Finding("session", "4", "a long program leaves the device within 2 s of its session's end", clock.session),
    Finding("limit", "4", "a program of 2 s by estimate, slowed, stops within 2 s of max_program_ms, 3 s", clock.limit),
    Finding("cgroup_v1", "10", "under a v1 limit of 400 MiB a CPU device offers at most 200 MiB", cgroup.version_1),
    Finding("systemd", "10", "the same under a v2 limit of the process's own group", cgroup.version_2),
    Finding("terminal", "11", "no control character of a server or a file reaches gemmctl's output", terminal.look),
    Finding("share_uid", "13", "another user can put a descriptor while one puts all it can", share.users),
    Finding("share_tenant", "13", "another tenant can export while one exports all it can", share.tenants),
    Finding("descriptors", "14", "without descriptors a Unix listener logs at most 10 lines in 5 s", descriptors.look),
]


def commit_of(build: pathlib.Path) -> str:
    """Of the checkout that the build folder lies in."""
    done = subprocess.run(["git", "-C", str(build), "rev-parse", "--short=7", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip() or str(build)


def tried(finding: Finding, programs: Programs) -> tuple[bool, str]:
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="findings.") as folder:
        try:
            holds, seen = finding.look(programs, pathlib.Path(folder))
        except Exception as error:  # the others are tried all the same
            return False, f"could not be tried: {type(error).__name__}: {error}"
    print(f"{programs.name} {finding.name}: {seen} ({time.monotonic() - begin:.0f} s)", file=sys.stderr, flush=True)
    return holds, ("holds: " if holds else "**fails**: ") + seen


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("builds", nargs="+", type=pathlib.Path, metavar="BUILD")
    parser.add_argument("--only", action="append", choices=[one.name for one in FINDINGS])
    options = parser.parse_args()
    builds = [Programs(commit_of(build), build.resolve()) for build in options.builds]
    print("| point | finding | wanted | " + " | ".join(one.name for one in builds) + " |")
    print("|---|---|---|" + "---|" * len(builds))
    all_hold = True
    for finding in FINDINGS:
        if options.only and finding.name not in options.only:
            continue
        results = [tried(finding, programs) for programs in builds]
        all_hold = all_hold and results[-1][0]
        print(f"| {finding.point} | {finding.name} | {finding.wanted} | " + " | ".join(text for _, text in results) + " |",
              flush=True)
    return 0 if all_hold else 1


if __name__ == "__main__":
    sys.exit(main())
