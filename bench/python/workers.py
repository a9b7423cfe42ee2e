"""What workers that share one resident weight complete together: processes that each hold a
connection, a session, activations and a queue of their own.

    python3 bench/python/workers.py --server TARGET --device cuda:0 --values NAME --scales NAME

The weight [n, k] in float8_e4m3fn and its scales of 128x128 are published under these names; the
activations [rows, k] are quantised once, before the clock starts. `gemmd_bench serving`
publishes them, runs this, and holds the figures against those of one client of its own.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from calls import add_security_flags, security_of

import gemmd
from gemmd.ops import Granularity, Op, Operand

_WARM_UP_S = 0.3


@dataclass(frozen=True)
class Span:
    """From when to when is counted, by the monotonic clock that the processes of a host share."""

    begin: float
    end: float


def step(session: gemmd.Session, options: argparse.Namespace) -> tuple[list[Op], int]:
    """One matmul on the shared weight, and the bytes of this worker's own buffers."""
    values, scales = session.find(options.values), session.find(options.scales)
    n, k = values.shape
    weight = Operand(
        values.tensor(),
        scales.tensor(Granularity.BLOCK_128X128.scales_shape((n, k)), "f32"),
        Granularity.BLOCK_128X128,
    )
    x = np.random.default_rng(8).standard_normal((options.rows, k), "f4")
    activations = session.operand(x.shape, Granularity.BLOCK_1X128)
    source = session.upload(x)
    session.execute([gemmd.quantize(source, activations)])
    source.delete()
    result = session.create_buffer(shape=(options.rows, n), dtype="bf16")
    assert activations.scales is not None
    own = sum(
        one.size_bytes for one in (activations.values.owner, activations.scales.owner, result)
    )
    return [gemmd.matmul(activations, weight, result)], own


def completed_by_queue(session: gemmd.Session, program: list[Op], span: Span) -> int:
    """Batches that complete in `span`, as many in flight as the server allows."""
    times: list[float] = []

    def done(future: Future[gemmd.Result]) -> None:
        if future.exception() is None:
            times.append(time.monotonic())

    with session.queue(report="summary") as queue:
        last = queue.submit(program)
        while time.monotonic() < span.end:
            last = queue.submit(program)
            last.add_done_callback(done)
        last.result()
    return sum(span.begin <= at < span.end for at in times)


def completed_by_execute(session: gemmd.Session, program: list[Op], span: Span) -> int:
    """Calls that complete in `span`, one at a time."""
    call: Callable[[], Any] = session.prepare(program, report="summary")
    count = 0
    while time.monotonic() < span.end:
        call()
        count += span.begin <= time.monotonic() < span.end
    return count


_WAYS = {"queue": completed_by_queue, "execute": completed_by_execute}


def work(options: argparse.Namespace) -> None:
    """One worker. Says what it holds; then, for every line with a way and a span, what it did."""
    with (
        gemmd.Client(options.server, **security_of(options)) as client,
        client.session(label="bench worker", device=options.device) as session,
    ):
        program, own = step(session, options)
        print(own, flush=True)
        for line in sys.stdin:
            way, begin, end = line.split()
            print(_WAYS[way](session, program, Span(float(begin), float(end))), flush=True)


@contextmanager
def workers(arguments: Sequence[str], count: int) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that run `work` until the block ends."""
    command = [sys.executable, __file__, "--work", *arguments]
    running = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(count)
    ]
    try:
        yield running
        for one in running:
            one.communicate()
    finally:
        for one in running:
            if one.poll() is None:
                one.kill()
            one.wait()


def answer(worker: subprocess.Popen[str]) -> int:
    """The next number that a worker says.

    Raises
    ------
    OSError
        It has ended instead; its traceback is on stderr.
    """
    assert worker.stdout is not None
    line = worker.stdout.readline()
    if not line:
        raise OSError(f"a worker ended with status {worker.wait()}")
    return int(line)


def measure(running: list[subprocess.Popen[str]], way: str, seconds: float) -> float:
    """What they complete together, a second."""
    begin = time.monotonic() + _WARM_UP_S
    for worker in running:
        assert worker.stdin is not None
        print(way, begin, begin + seconds, file=worker.stdin, flush=True)
    return sum(answer(worker) for worker in running) / seconds


def used_bytes(client: gemmd.Client, device: str) -> int:
    return sum(one.used_bytes for one in client.devices() if one.name == device)


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(prog="workers.py", description=__doc__)
    parser.add_argument("--server", required=True, help='"127.0.0.1:8470", "unix:/path"')
    parser.add_argument("--device", required=True, help="where the weight is")
    parser.add_argument("--values", required=True, metavar="NAME", help="the weight's")
    parser.add_argument("--scales", required=True, metavar="NAME", help="those of its scales")
    parser.add_argument("--rows", type=int, default=64, help="of the activations (default 64)")
    parser.add_argument("--workers", type=int, default=8, help="processes (default 8)")
    parser.add_argument("--seconds", type=float, default=2, help="a figure (default 2)")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)  # be one worker
    add_security_flags(parser)
    options = parser.parse_args(given)
    if options.workers < 1 or options.rows < 1 or not 0 < options.seconds < math.inf:
        parser.error("--workers and --rows are 1 at least, --seconds is above 0")
    if options.work:
        work(options)
        return 0
    try:
        with gemmd.Client(options.server, **security_of(options)) as client:
            before = used_bytes(client, options.device)
            with workers(given, options.workers) as running:
                own = sum(answer(worker) for worker in running)
                grew = used_bytes(client, options.device) - before
                rates = {way: measure(running, way, options.seconds) for way in _WAYS}
    except (gemmd.Error, OSError, ValueError) as error:
        print(f"workers.py: {error}", file=sys.stderr)
        return 1
    figures = {
        "workers": options.workers,
        "queue_per_second": rates["queue"],
        "execute_per_second": rates["execute"],
        "used_bytes_grew_by": grew,
        "workers_own_bytes": own,
    }
    print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
