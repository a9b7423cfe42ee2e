"""What the Python client costs against a running server:
`python3 bench/python/calls.py --server TARGET --json`.

Latencies are of 16x16x16 float32 matmuls on resident buffers, where the device's part is next to
nothing: what is measured is the way there and back.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import grpc
import numpy as np

import gemmd
import gemmd.aio
from gemmd.ops import Op
from gemmd.session import SharedMemory

_EDGE = 16
_IN_FLIGHT = 64
# What a matmul of 64x4096x7168 in FP8 brings and takes, about.
_INLINE_IN, _INLINE_OUT = 448 << 10, 512 << 10
_WAYS: tuple[SharedMemory, ...] = ("off", "auto")


def percentiles(name: str, seconds: Sequence[float]) -> dict[str, float]:
    """p50 and p99 in microseconds."""
    p50, p99 = np.percentile(np.asarray(seconds) * 1e6, [50, 99])
    return {f"{name}_p50_us": round(float(p50), 1), f"{name}_p99_us": round(float(p99), 1)}


def time_calls(call: Callable[[], Any], count: int) -> list[float]:
    """Seconds of each call, after a tenth as many to warm up."""
    for _ in range(count // 10 + 1):
        call()
    seconds = []
    for _ in range(count):
        began = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began)
    return seconds


def tiny_program(session: gemmd.Session, random: np.random.Generator) -> list[Op]:
    a, b = (session.upload(random.standard_normal((_EDGE, _EDGE), "f4")) for _ in range(2))
    return [gemmd.matmul(a, b, session.create_buffer(shape=(_EDGE, _EDGE), dtype="f32"))]


def latencies(session: gemmd.Session, count: int) -> dict[str, float]:
    random = np.random.default_rng(1)
    program = tiny_program(session, random)
    plan, prepared = session.plan(program), session.prepare(program)
    array = random.standard_normal((_EDGE, _EDGE), "f4")
    return {
        **percentiles("execute_tiny", time_calls(lambda: session.execute(program), count)),
        **percentiles("prepared_tiny", time_calls(prepared, count)),
        **percentiles("plan_run_tiny", time_calls(plan.run, count)),
        **percentiles(
            "matmul_arrays_tiny", time_calls(lambda: session.matmul(array, array), count)
        ),
    }


def queue_rate(session: gemmd.Session, count: int) -> dict[str, float]:
    """Batches a second through one queue, as many in flight as the server allows."""
    program = tiny_program(session, np.random.default_rng(2))
    with session.queue(report="summary") as queue:
        queue.submit(program).result()
        began = time.perf_counter()
        for future in [queue.submit(program) for _ in range(count)]:
            future.result()
        return {"queue_batches_per_s": round(count / (time.perf_counter() - began))}


def inline_latencies(client: gemmd.Client, count: int) -> dict[str, float]:
    """Of an Execute and of a plan's run that write 448 KiB and read 512 KiB, in messages and by
    shared memory if there is some.
    """
    data = np.random.default_rng(5).integers(-128, 127, _INLINE_IN, np.int8)
    figures: dict[str, float] = {}
    for way in _WAYS:
        with client.session(label="bench", shared_memory=way) as session:
            x = session.create_buffer(shape=data.shape, dtype="i8")
            y = session.create_buffer(shape=(_INLINE_OUT,), dtype="i8")

            plan = session.plan([gemmd.write(x, data), gemmd.read(y)])

            def execute() -> gemmd.Result:
                return session.execute([gemmd.write(x, data), gemmd.read(y)])  # noqa: B023

            def run_plan() -> gemmd.Result:
                return plan.run(inputs=[data])  # noqa: B023

            for name, run in (("execute", execute), ("plan", run_plan)):
                path = "shm" if run().report.ops[0].kernel.endswith("copy") else "grpc"
                seconds = time_calls(lambda: run().outputs, count)  # noqa: B023
                figures |= percentiles(f"{name}_inline_{path}", seconds)
    return figures


def transfer_rates(client: gemmd.Client, nbytes: int) -> dict[str, float]:
    """GB/s of one large array each way, by gRPC and by shared memory if there is some; downloads
    to an array that is there. Best of 3.
    """
    data = np.random.default_rng(3).integers(-128, 127, nbytes, np.int8)
    out = np.zeros_like(data)
    rates: dict[str, float] = {}
    for way in _WAYS:
        with client.session(label="bench", shared_memory=way) as session:
            buffer = session.create_buffer(shape=data.shape, dtype="i8")
            for _ in range(3):
                up, down = buffer.upload(data), buffer.download(out=out).transfer
                if down is None or (way == "auto" and up.path != "shm"):
                    continue
                for name, transfer in (("upload", up), ("download", down)):
                    key = f"{name}_{transfer.path}_gb_per_s"
                    rates[key] = max(rates.get(key, 0.0), round(transfer.gb_per_s, 2))
    return rates


async def asyncio_figures(target: str, count: int, security: dict[str, Any]) -> dict[str, float]:
    """Latency of one call, and calls and batches a second with many in flight."""
    array = np.random.default_rng(4).standard_normal((_EDGE, _EDGE), "f4")
    async with (
        gemmd.aio.Client(target, **security) as client,
        client.session(label="bench") as session,
    ):
        a = await session.upload(array)
        d = await session.create_buffer(shape=array.shape, dtype="f32")
        step = session.prepare([gemmd.matmul(a, a, d)])
        seconds = []
        for _ in range(count):
            began = time.perf_counter()
            await step()
            seconds.append(time.perf_counter() - began)
        began = time.perf_counter()
        for _ in range(count // _IN_FLIGHT):
            await asyncio.gather(*(step() for _ in range(_IN_FLIGHT)))
        rate = count // _IN_FLIGHT * _IN_FLIGHT / (time.perf_counter() - began)
        flying: deque[asyncio.Future[Any]] = deque()
        async with session.queue(report="summary") as queue:
            began = time.perf_counter()
            for _ in range(count):
                flying.append(await queue.submit(step.ops))
            for future in flying:
                await future
            queued = count / (time.perf_counter() - began)
    return {
        **percentiles("aio_execute_tiny", seconds[count // 10 :]),
        "aio_executes_per_s": round(rate),
        "aio_queue_batches_per_s": round(queued),
    }


def add_security_flags(parser: argparse.ArgumentParser) -> None:
    """As gemmctl's."""
    parser.add_argument("--tls", action="store_true", help="TLS, with this system's authorities")
    parser.add_argument("--tls-ca", metavar="FILE", help="TLS, with the authorities in this file")
    parser.add_argument("--tls-cert", metavar="FILE", help="this client's certificate")
    parser.add_argument("--tls-key", metavar="FILE", help="its private key")
    parser.add_argument("--tls-server-name", metavar="NAME", default="", help="instead of HOST")
    parser.add_argument("--token-file", metavar="FILE", help="holds a bearer token")
    parser.add_argument("--send-token-in-plaintext", action="store_true", help="beyond this host")


def security_of(options: argparse.Namespace) -> dict[str, Any]:
    """Arguments of a Client."""
    named = (options.tls_ca, options.tls_cert, options.tls_key, options.tls_server_name)
    return {
        "tls": gemmd.Tls(*named) if options.tls or any(named) else None,
        "token_file": options.token_file,
        "send_token_in_plaintext": options.send_token_in_plaintext,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="calls.py", description=__doc__)
    parser.add_argument("--server", required=True, help='"127.0.0.1:8470", "unix:/path"')
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--count", type=int, default=5000, help="calls a figure (default 5000)")
    parser.add_argument("--mib", type=int, default=64, help="size of a transfer (default 64)")
    add_security_flags(parser)
    options = parser.parse_args(arguments)
    if options.count < _IN_FLIGHT or options.mib < 1:
        parser.error(f"--count is {_IN_FLIGHT} at least, --mib 1 at least")
    security = security_of(options)
    try:
        with gemmd.Client(options.server, **security) as client:
            figures: dict[str, Any] = {
                "server": client.info().version,
                "grpcio": grpc.__version__,
                "count": options.count,
            }
            with client.session(label="bench") as session:
                figures |= latencies(session, options.count)
                figures |= queue_rate(session, options.count)
            figures |= inline_latencies(client, max(options.count // 10, 1))
            figures |= transfer_rates(client, options.mib << 20)
        figures |= asyncio.run(asyncio_figures(options.server, options.count, security))
    except (gemmd.Error, OSError, ValueError) as error:
        print(f"calls.py: {error}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:32} {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
