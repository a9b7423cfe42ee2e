"""Point 4: how long a program holds the device, whatever the cost model says of it."""

from __future__ import annotations

import contextlib
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
from daemon import Daemon, Programs, Wire, fill, view
from gemmd.v1 import compute_service_pb2 as compute
from gemmd.v1 import session_service_pb2 as sessions
from gemmd.v1 import types_pb2 as types

SIDE = 16384
SMALL = 512  # a matmul of that cube takes some milliseconds


def wait_for(future: Any, limit_s: float) -> tuple[float, str]:
    """Seconds until the call has ended, and how."""
    since = time.monotonic()
    try:
        future.result(timeout=limit_s)
        how = "ran"
    except grpc.FutureTimeoutError:
        how = "still runs"
    except grpc.RpcError as error:
        how = error.code().name + " " + str(dict(error.trailing_metadata() or ()).get("gemmd-reason", ""))
    return time.monotonic() - since, how.strip()


def tiny_op(daemon: Daemon, limit_s: float = 60) -> float:
    """Seconds that another session's tiny op takes."""
    with Wire(daemon.target()) as other:
        target = other.buffer(64)
        return wait_for(other.execute([fill(target)]), limit_s)[0]


def copies(programs: Programs, folder: pathlib.Path) -> tuple[bool, str]:
    with Daemon(programs, folder, "limits { max_program_ms: 1000 }") as daemon, Wire(daemon.target()) as wire:
        src, dst = wire.buffer(SIDE * SIDE), wire.buffer(SIDE * SIDE)
        copy = types.Copy(src=view(src, [SIDE, SIDE], strides=(1, SIDE)), dst=view(dst, [SIDE, SIDE]))
        running = wire.execute([types.Op(copy=copy)] * 9)
        time.sleep(0.3)
        tiny_s = tiny_op(daemon)
        _, how = wait_for(running, 60)
        return tiny_s <= 2, f"the copies: {how}; the tiny op took {tiny_s:.2f} s"


def products(wire: Wire, count: int) -> list[types.Op]:
    """That many matmuls, from zeros."""
    a, d = (wire.buffer(SMALL * SMALL * 4) for _ in range(2))
    of_a = types.Operand(values=view(a, [SMALL, SMALL], types.DTYPE_F32))
    matmul = types.Matmul(a=of_a, b=of_a, d=view(d, [SMALL, SMALL], types.DTYPE_F32))
    return [types.Op(matmul=matmul)] * count


def seconds_of(wire: Wire, ops: list[types.Op]) -> float:
    """By the clock, once."""
    return wait_for(wire.execute(ops), 60)[0]


def estimate_of(wire: Wire, ops: list[types.Op]) -> float:
    request = compute.CreatePlanRequest(session_id=wire.session_id, ops=ops)
    return float(wire.call("ComputeService/CreatePlan", request, compute.Plan).estimated_seconds)


def long_program(wire: Wire) -> list[types.Op]:
    """Of some 30 s, or 4000 ops."""
    return products(wire, min(4000, int(30 * 20 / seconds_of(wire, products(wire, 20)))))


def session(programs: Programs, folder: pathlib.Path) -> tuple[bool, str]:
    with Daemon(programs, folder) as daemon, Wire(daemon.target()) as wire, Wire(daemon.target()) as closer:
        running = wire.execute(long_program(wire), timeout_s=100)
        time.sleep(1)
        request = sessions.CloseSessionRequest(session_id=wire.session_id)
        closing = closer.start("SessionService/CloseSession", request, sessions.CloseSessionResponse)
        tiny_s = tiny_op(daemon)
        _, how = wait_for(running, 60)
        wait_for(closing, 60)
        return tiny_s <= 2, f"the program: {how}; a tiny op took {tiny_s:.2f} s"


@contextlib.contextmanager
def competitor(cpu: int) -> Iterator[None]:
    """A process that wants that processor, too, with more right to it."""
    loop = subprocess.Popen([sys.executable, "-c", f"import os\nos.sched_setaffinity(0, [{cpu}])\nwhile True: pass"])
    try:
        yield
    finally:
        loop.kill()
        loop.wait()


def yielding_to(cpu: int) -> Callable[[], None]:
    """What the daemon does before it begins: it stays on that processor and gives way there."""

    def before() -> None:
        os.sched_setaffinity(0, [cpu])
        os.nice(5)

    return before


def slowed(programs: Programs, folder: pathlib.Path, config: str, deadline_s: float) -> tuple[float, str, float]:
    """A program that the model takes for 2 s while something else has the processor: when its call ended, how, and what a
    tiny op took behind it."""
    cpu = min(os.sched_getaffinity(0))
    with (
        Daemon(programs, folder, config, before=yielding_to(cpu)) as daemon,
        Wire(daemon.target()) as wire,
        Wire(daemon.target()) as other,
    ):
        ops = products(wire, min(4000, int(2 / estimate_of(wire, products(wire, 1)))))
        target = other.buffer(64)
        with competitor(cpu):
            took_s, how = wait_for(wire.execute(ops, timeout_s=deadline_s), 100)
            tiny_s, _ = wait_for(other.execute([fill(target)]), 60)
        return took_s, how, tiny_s


def deadline(programs: Programs, folder: pathlib.Path) -> tuple[bool, str]:
    took_s, how, tiny_s = slowed(programs, folder, "", 3)
    return tiny_s <= 2, f"the call: {how} after {took_s:.1f} s; a tiny op behind it took {tiny_s:.2f} s"


def limit(programs: Programs, folder: pathlib.Path) -> tuple[bool, str]:
    took_s, how, _ = slowed(programs, folder, "limits { max_program_ms: 3000 }", 100)
    return took_s <= 5, f"{how} after {took_s:.1f} s"
