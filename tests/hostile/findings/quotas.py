"""Point 3: what a plan's data and unread results take of the host's memory, with the limits that a config has by default."""

from __future__ import annotations

import pathlib
import time

import grpc
from daemon import MIB, Daemon, Programs, Wire, view
from gemmd.v1 import compute_service_pb2 as compute
from gemmd.v1 import types_pb2 as types

RESULT = 39 * MIB // 10  # below max_inline_bytes' default


def plans(programs: Programs, folder: pathlib.Path) -> tuple[bool, str]:
    with Daemon(programs, folder) as daemon, Wire(daemon.target()) as wire:
        before = daemon.resident_bytes()
        dst = view(wire.buffer(RESULT), [RESULT])
        write = types.Op(write=types.Write(dst=dst, data=b"x" * RESULT))
        request = compute.CreatePlanRequest(session_id=wire.session_id, ops=[write])
        made, refusal = 0, ""
        while made < 400 and not refusal:
            try:
                wire.call("ComputeService/CreatePlan", request, compute.Plan)
                made += 1
            except grpc.RpcError as error:
                refusal = f", the next: {error.code().name} {dict(error.trailing_metadata()).get('gemmd-reason', '')}"
        grown = (daemon.resident_bytes() - before) // MIB
        return grown <= 1.1 * 1024, f"{made} plans made{refusal}; {grown} MiB"


def queues(programs: Programs, folder: pathlib.Path) -> tuple[bool, str]:
    with Daemon(programs, folder) as daemon, Wire(daemon.target()) as wire:
        before = daemon.resident_bytes()
        src = view(wire.buffer(RESULT), [RESULT])
        read = types.Op(read=types.Read(src=src))
        requests = [compute.QueueRequest(open=compute.QueueOpen(session_id=wire.session_id))]
        requests += [compute.QueueRequest(batch=compute.Batch(sequence=i, ops=[read])) for i in range(1, 65)]
        others = [Wire(daemon.target()) for _ in range(12)]
        calls = []
        for other in others:
            stub = other.channel.stream_stream("/gemmd.v1.ComputeService/Queue",
                                               compute.QueueRequest.SerializeToString, lambda data: data)
            calls.append(stub(held_open(requests)))
        grown, since = 0, time.monotonic()
        while time.monotonic() - since < 15:
            grown = max(grown, daemon.resident_bytes() - before)
            time.sleep(0.1)
        for call, other in zip(calls, others, strict=True):
            call.cancel()
            other.channel.close()
        return grown <= 576 * MIB, f"{grown // MIB} MiB at most in 15 s"


def held_open(requests: list[compute.QueueRequest]):
    """The stream's sending side does not end: it is cancelled."""
    yield from requests
    time.sleep(20)
