"""Requests that carry programs, put together from bytes that were encoded before."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Mapping, Sequence, Sized
from typing import Any, Literal

import numpy.typing as npt

from gemmd import ops as ops_
from gemmd import words
from gemmd._wire import wire
from gemmd.handle import Handle
from gemmd.ops import Op
from gemmd.report import PRIORITIES, REPORT_LEVELS
from gemmd.tensor import Tensor
from gemmd.v1 import compute_service_pb2 as pb

Priority = Literal["normal", "high", "low"]
ReportLevel = Literal["full", "summary", "none"]
Rebind = Mapping[Handle, Handle]

# Field numbers, the same in ExecuteRequest and RunPlanRequest; then one of ExecuteRequest alone.
_SESSION, _PRIORITY, _REPORT = 1, 3, 4
_DETERMINISTIC = 6
_INPUTS = 3  # of PlanRun
_SHOWN_OPS = 6
_OP_ID_HEADER = wire.header(5, 16)


_ALL_OPS = frozenset({Op})


def program_of(ops: Iterable[Op]) -> Sequence[Op]:
    """What a caller gave as a program.

    Raises
    ------
    TypeError
        It is no list of ops. Names what is none.
    """
    if isinstance(ops, (list, tuple)):
        program: Sequence[Op] = ops
    elif isinstance(ops, Iterable):
        program = list(ops)
    else:
        raise TypeError(f"ops has type {type(ops).__name__}; give a list, [gemmd.write(..), ..]")
    if not _ALL_OPS.issuperset(map(type, program)):
        at = next(at for at, op in enumerate(program) if type(op) is not Op)
        raise TypeError(
            f"ops[{at}] has type {type(program[at]).__name__}, which is no op; gemmd.matmul,"
            " gemmd.read and their like make ops"
        )
    return program


class OpIds:
    """The op_id field of a session's requests: unique, so that a retry is recognised.
    Thread-safe.
    """

    def __init__(self) -> None:
        self._head = _OP_ID_HEADER + os.urandom(8)
        self._next = itertools.count()

    def field(self) -> bytes:
        return self._head + next(self._next).to_bytes(8, "little")


def shown(ops: Sequence[Op]) -> str:
    """ "write, matmul, read", of a long program its length and its beginning."""
    names = [op.name for op in ops]
    if len(names) <= _SHOWN_OPS:
        return ", ".join(names)
    return f"{len(names)} ops: {', '.join(names[:_SHOWN_OPS])}, .."


def session_field(session_id: bytes) -> bytes:
    return wire.field(_SESSION, session_id)


def options(priority: Priority, report: ReportLevel, deterministic: bool = False) -> bytes:
    """`deterministic` is Execute's; a plan was made with its own."""
    fields = wire.integer(_PRIORITY, words.chosen("priority", priority, PRIORITIES))
    fields += wire.integer(_REPORT, words.chosen("report", report, REPORT_LEVELS))
    return fields + wire.integer(_DETERMINISTIC, 1) if deterministic else fields


def pieces_of(ops: Iterable[Op]) -> list[wire.BytesLike]:
    """The `ops` field of any request that has one, to be joined with what else the request has:
    every join copies the data of write ops once.
    """
    return [piece for op in ops for piece in op.pieces]


def encode_ops(ops: Iterable[Op]) -> bytes:
    """The same in one."""
    return b"".join(pieces_of(ops))


def reads_of(ops: Iterable[Op]) -> list[Tensor]:
    return [op.reads for op in ops if op.reads is not None]


def writes_of(ops: Iterable[Op]) -> list[Tensor]:
    """Destinations of the write ops, in order."""
    return [op.owners[0] for op in ops if op.name == "write"]


def payloads(writes: Sequence[Tensor], inputs: Sequence[npt.ArrayLike]) -> list[memoryview]:
    """What a plan's write ops are to write, as bytes.

    Raises
    ------
    ValueError
        Unless there is one input for each write op of the plan, of its shape.
    """
    if not isinstance(inputs, Sized):
        raise TypeError(
            f"inputs has type {type(inputs).__name__}; give a list, an array each write"
        )
    if len(inputs) != len(writes):
        raise ValueError(f"{len(inputs)} inputs for a plan with {len(writes)} write ops")
    return [ops_.payload(tensor, data) for tensor, data in zip(writes, inputs, strict=True)]


def rebindings(rebind: Rebind | None) -> list[pb.Rebinding]:
    """Of buffers to buffers.

    Raises
    ------
    TypeError
        It is no mapping of them.
    """
    if rebind is None:
        return []
    if not isinstance(rebind, Mapping):
        raise TypeError(
            f"rebind has type {type(rebind).__name__}; give a dict of buffers, {{old: new}}, and"
            " arrays to write as inputs=[..]"
        )
    for one in (*rebind.keys(), *rebind.values()):
        if not hasattr(one, "buffer_id"):
            raise TypeError(f"rebind has {one!r} in it, which is no buffer; give {{old: new}}")
    return [
        pb.Rebinding(from_buffer_id=old.buffer_id, to_buffer_id=new.buffer_id)
        for old, new in rebind.items()
    ]


def plan_run(
    plan_id: bytes, writes: Sequence[Tensor], rebind: Rebind | None, inputs: Sequence[Any] | None
) -> list[wire.BytesLike]:
    """What to run and on what: a PlanRun message in pieces, inputs where they are. Errors as
    `payloads`'.
    """
    head = pb.PlanRun(plan_id=plan_id, rebind=rebindings(rebind))
    pieces: list[wire.BytesLike] = [head.SerializeToString()]
    for data in [] if inputs is None else payloads(writes, inputs):
        pieces += wire.framed(_INPUTS, [data])
    return pieces


def run_field(run: Sequence[wire.BytesLike]) -> list[wire.BytesLike]:
    """RunPlanRequest.run, in pieces."""
    return wire.framed(2, run)
