"""Whether a process grows: its memory, descriptors and threads, looked at from outside."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import statistics
import threading
import time


@dataclasses.dataclass(frozen=True)
class Use:
    resident_bytes: int
    descriptors: int
    threads: int


def use_of(pid: int) -> Use:
    status = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    return Use(
        resident_bytes=int(fields["VmRSS"].split()[0]) << 10,
        descriptors=len(os.listdir(f"/proc/{pid}/fd")),
        threads=int(fields["Threads"]),
    )


class Watch:
    """Looks at a process a few times a second until told to stop."""

    EVERY_S = 0.25

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._stop = threading.Event()
        self.looks: list[Use] = []
        self._thread = threading.Thread(target=self._run, name="watch")

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self.EVERY_S):
            self.looks.append(use_of(self._pid))


# Medians of two spans, so that what a burst takes for a moment is not growth: the second third of
# the run (in the first, caches and arenas fill), and its last sixth.
def growth(looks: list[Use]) -> list[str]:
    """What grew beyond its bound, in words; empty when nothing did."""
    n = len(looks)
    if n < 24:
        raise ValueError(f"{n} looks are too few to see a slope in; run for longer")
    early, late = looks[n // 3 : 2 * n // 3], looks[-(n // 6) :]
    complaints = []
    for name, fraction, slack in (
        ("resident_bytes", 0.03, 6 << 20),  # an arena more or less
        ("descriptors", 0.0, 32),  # connections that happen to be open; more on a busy machine
        ("threads", 0.0, 6),  # gRPC's pool breathes
    ):
        before = statistics.median(getattr(use, name) for use in early)
        after = statistics.median(getattr(use, name) for use in late)
        if after > before * (1 + fraction) + slack:
            complaints.append(f"{name} grew from {before:.0f} to {after:.0f}")
    return complaints


def wait_until(condition, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
