"""What a call costs beyond its run: on the device's timeline, of the host, and by the host alone.

    python3 tax.py PHASE stream|host       PHASE: "mps" or "sliced"; "host" makes no GPU context of its own
"""

from __future__ import annotations

import sys
import time

import figure

import gemmd

ROWS, K, N = (16, 256, 256) if figure.quick() else (16, 4096, 4096)
HELD_CYCLES = 2_000_000  # a millisecond: longer than the host takes to queue what is timed


def by_host(session: gemmd.Session, phase: str) -> None:
    """No stream: the host rings and waits."""
    count = 200 if figure.quick() else 3000
    w = session.create_buffer(shape=(64, K), dtype="bf16")
    x = session.create_buffer(shape=(ROWS, K), dtype="bf16")
    result = session.create_buffer(shape=(ROWS, 64), dtype="bf16")
    session.execute([gemmd.fill(w, 0.5), gemmd.fill(x, 1)])
    with session.plan([gemmd.matmul(x, w, result)]) as plan, plan.arm() as armed:
        for _ in range(100):
            armed.run(10)
        beyond, device = [], []
        for _ in range(count):
            began = time.perf_counter_ns()
            armed.ring()
            armed.wait(10)
            took = time.perf_counter_ns() - began
            until = time.perf_counter_ns() + 200_000
            report = armed.report
            while report.device_seconds == 0 and time.perf_counter_ns() < until:
                report = armed.report  # a GPU's times follow its done word
            device.append(report.device_seconds * 1e6)
            beyond.append(took / 1e3 - device[-1])
    figure.add("3", f"by host, beyond the device time, p50, {phase}", figure.percentile(beyond, 0.5), "us", 12,
               p99_us=figure.percentile(beyond, 0.99), device_p50_us=figure.percentile(device, 0.5))  # fmt: skip


class Timeline:
    """Kernel, call, kernel on one stream, with events around the call. A stream that is held has all of a group queued
    before it begins, so that no event waits for the host; otherwise the host queues alongside, and where the stream
    overtakes it the host's time is in the figure.
    """

    def __init__(self, torch: object, call: object, rows_at: object) -> None:
        self.torch, self.call, self.spare = torch, call, rows_at

    def measure(self, groups: int, in_a_row: int, report: object, held: bool) -> tuple[list[float], list[float]]:
        torch = self.torch
        taxes, device = [], []
        for _ in range(groups):
            pairs = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(in_a_row)]
            if held:
                torch.cuda._sleep(HELD_CYCLES)
            for before, after in pairs:
                self.spare.add_(1)
                before.record()
                self.call()
                after.record()
                self.spare.add_(1)
            torch.cuda.synchronize()
            time.sleep(0.0005)  # the last run's report follows its done word
            device_us = report() * 1e6
            for before, after in pairs:
                taxes.append(before.elapsed_time(after) * 1e3 - device_us)
            device.append(device_us)
        return taxes, device


def by_stream(session: gemmd.Session, phase: str) -> None:
    import torch

    wanted = phase == "mps"
    x = session.create_buffer(shape=(ROWS, K), dtype="bf16", memory_kind="device_shared")
    y = session.create_buffer(shape=(ROWS, N), dtype="bf16", memory_kind="device_shared")
    w = session.create_buffer(shape=(N, K), dtype="bf16")
    session.execute([gemmd.fill(w, 0.01), gemmd.fill(x, 1)])
    spare = torch.zeros(1024, device="cuda")
    groups = 10 if figure.quick() else 150
    with session.plan([gemmd.matmul(x, w, y)]) as plan, plan.arm(by_stream=True) as armed:
        stream = torch.cuda.current_stream().cuda_stream

        def call() -> None:
            armed.ring_on(stream)
            armed.wait_on(stream)

        for _ in range(50):
            call()
        torch.cuda.synchronize()
        line = Timeline(torch, call, spare)
        for in_a_row, held in ((16, True), (16, False), (1, False)):
            taxes, device = line.measure(groups, in_a_row, lambda: armed.report.device_seconds, held)
            mine = wanted and held
            queued = "" if held else ", the host alongside"
            name = f"device timeline beyond the run, {in_a_row} in a row{queued}, {phase}"
            figure.add("3", f"{name}, p50", figure.percentile(taxes, 0.5), "us", 15 if mine else None,
                       device_p50_us=figure.percentile(device, 0.5))  # fmt: skip
            first = taxes[::in_a_row]
            rest = [tax for at, tax in enumerate(taxes) if at % in_a_row] or first
            figure.add("3", f"{name}, p99", figure.percentile(taxes, 0.99), "us", 30 if mine else None,
                       first_p50_us=figure.percentile(first, 0.5), first_p99_us=figure.percentile(first, 0.99),
                       rest_p90_us=figure.percentile(rest, 0.9), rest_p99_us=figure.percentile(rest, 0.99),
                       most_us=max(taxes), over_30=sum(tax > 30 for tax in taxes), of=len(taxes))  # fmt: skip
        host_time(torch, armed, stream, phase)
    layer_tax(torch, session, phase, spare, groups)


def host_time(torch: object, armed: gemmd.Armed, stream: int, phase: str) -> None:
    """Of RingOn and WaitOn alone: the native module's two functions, which are C++'s with 0.1 us more."""
    times = []
    ring_on, wait_on = armed.slot.ring_on, armed.slot.wait_on
    for index in range(3000 if not figure.quick() else 100):
        began = time.perf_counter_ns()
        ring_on(stream)
        wait_on(stream)
        times.append((time.perf_counter_ns() - began) / 1e3)
        if index % 32 == 31:
            torch.cuda.synchronize()
    figure.add("3", f"host time of RingOn and WaitOn, {phase}, p50", figure.percentile(times, 0.5), "us",
               8 if phase == "mps" else None, p99_us=figure.percentile(times, 0.99))  # fmt: skip


def layer_tax(torch: object, session: gemmd.Session, phase: str, spare: object, groups: int) -> None:
    """The same through a layer, which copies x in and the result out; and its host time."""
    wanted = phase == "mps"
    weight = torch.randn(N, K, device="cuda", dtype=torch.bfloat16)
    layer = gemmd.Linear(session, weight)
    x = torch.randn(ROWS, K, device="cuda", dtype=torch.bfloat16)
    for _ in range(50):
        layer(x)
    torch.cuda.synchronize()
    seats = next(iter(layer._local._gpu.values())).seats.values()
    seat = max(seats, key=lambda one: one.used)  # which the calls in a row ring
    line = Timeline(torch, lambda: layer(x), spare)
    taxes, _ = line.measure(groups, 16, lambda: seat.armed.report.device_seconds, held=True)
    for share, name in ((0.5, "p50"), (0.99, "p99")):
        figure.add("3", f"the same through gemmd.Linear, which copies x in, {phase}, {name}",
                   figure.percentile(taxes, share), "us")  # fmt: skip
    times = []
    for index in range(3000 if not figure.quick() else 100):
        began = time.perf_counter_ns()
        layer(x)
        times.append((time.perf_counter_ns() - began) / 1e3)
        if index % 32 == 31:
            torch.cuda.synchronize()
    figure.add("3", f"host time of a call in Python, {phase}, p50", figure.percentile(times, 0.5), "us",
               20 if wanted else None, p99_us=figure.percentile(times, 0.99))  # fmt: skip


def main() -> None:
    phase, how = sys.argv[1:]
    with gemmd.Client(figure.server()) as client, client.session(label="tax", device=figure.device()) as session:
        {"host": by_host, "stream": by_stream}[how](session, phase)


if __name__ == "__main__":
    sys.exit(figure.guarded(main))
