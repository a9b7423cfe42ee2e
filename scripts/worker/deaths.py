"""Clients that are killed at random points between arm, ring and done, beside one whose results must stay
right; then the daemon's gauges.

    python3 deaths.py                  METRICS is the daemon's page of metrics
    python3 deaths.py --client         one client: arms, says so, rings until it is killed
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request

import figure
import numpy as np

import gemmd

AT_ONCE = (os.cpu_count() or 4) + 4
MOST_SECONDS = 75  # then no other is started
# Of what a client owns; device memory in use has the daemon's own caches in it.
GAUGES = re.compile(r"^(gemmd_(?:sessions|buffers|plans|armed[a-z_]*|queued[a-z_]*|running[a-z_]*)(?:\{[^}]*\})?) ([0-9.e+]+)$")


def doomed() -> None:
    with gemmd.Client(figure.server()) as client, client.session(label="doomed", device=figure.device()) as session:
        shapes = {"x": (16, 512), "w": (256, 512), "y": (16, 256)}
        x, w, y = (session.create_buffer(shape=shape, dtype="bf16") for shape in shapes.values())
        plan = session.plan([gemmd.matmul(x, w, y)] * 20)
        print("ready", flush=True)
        while True:
            with plan.arm() as armed:
                for _ in range(random.randrange(1, 40)):
                    armed.ring()
                    armed.wait(20)


def gauges() -> dict[str, float]:
    page = urllib.request.urlopen(os.environ["METRICS"], timeout=10).read().decode()
    found = (GAUGES.match(line) for line in page.splitlines())
    names = {match[1]: float(match[2]) for match in found if match}
    return {name: value for name, value in names.items() if not name.partition("{")[0].endswith(("_total", "_count", "_sum"))}


class Witness:
    """A client that is not killed: every result of its armed plan must be right."""

    def __init__(self) -> None:
        self.runs, self.wrong, self.error = 0, 0, ""
        self._stop = threading.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()
        self._ready.wait(20)

    def _work(self) -> None:
        try:
            with gemmd.Client(figure.server()) as client, client.session(label="witness", device=figure.device()) as session:
                layer = gemmd.Linear(session, np.eye(128, dtype="f4"), quantize=None)
                layer(np.zeros((4, 128), "f4"))
                self._ready.set()
                while not self._stop.is_set():
                    x = np.full((4, 128), self.runs % 251, "f4")
                    self.wrong += not np.array_equal(layer(x), x)
                    self.runs += 1
        except Exception as error:
            self.error = repr(error)
            self._ready.set()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(30)


def kill_all(count: int) -> int:
    """Starts and kills `count` clients, AT_ONCE beside each other. Returns how many were killed at work."""
    command = [sys.executable, __file__, "--client"]
    killed, left, lock = 0, count, threading.Lock()
    end = time.monotonic() + MOST_SECONDS

    def lane() -> None:
        nonlocal killed, left
        while True:
            with lock:
                if left == 0 or time.monotonic() > end:
                    return
                left -= 1
            one = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            ready = one.stdout.readline().strip() == "ready"
            time.sleep(random.uniform(0, 0.03))
            at_work = ready and one.poll() is None
            one.send_signal(signal.SIGKILL)
            one.wait()
            with lock:
                killed += at_work

    lanes = [threading.Thread(target=lane) for _ in range(AT_ONCE if not figure.quick() else 2)]
    for one in lanes:
        one.start()
    for one in lanes:
        one.join()
    return killed


def main() -> None:
    if sys.argv[1:] == ["--client"]:
        doomed()
        return
    count = 4 if figure.quick() else 500
    before = gauges()
    witness = Witness()
    began = time.monotonic()
    killed = kill_all(count)
    seconds = time.monotonic() - began
    witness.stop()
    end = time.monotonic() + 15  # sessions end after their grace
    while (after := gauges()) != before and time.monotonic() < end:
        time.sleep(0.2)
    changed = {name: (before.get(name, 0), value) for name, value in after.items() if value != before.get(name, 0)}
    figure.add("6", "clients killed at work", float(killed), "clients", count, at_most=False, seconds=seconds)
    figure.add("6", "gauges that did not come back", float(len(changed)), "gauges", 0, changed=changed, watched=len(before))
    figure.add("6", f"wrong results of another client meanwhile, of {witness.runs}", float(witness.wrong), "results", 0,
               error=witness.error)  # fmt: skip
    assert not witness.error and witness.runs > 0, witness.error


if __name__ == "__main__":
    sys.exit(figure.guarded(main))
