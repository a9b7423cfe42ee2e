"""PlanHandle: what both faces' plans know without asking."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gemmd._connection.here_only import Unpickled
from gemmd._memory import inline
from gemmd._memory.inline import Block, Run, Sharing
from gemmd._wire import programs
from gemmd._wire.programs import Rebind
from gemmd._wire.wire import BytesLike
from gemmd.ops import Op
from gemmd.v1 import compute_service_pb2 as pb


class PlanHandle(Unpickled):
    """What both faces' plans know without asking.

    Attributes
    ----------
    plan_id : bytes
    device : str
        Of a plan on several "cuda:0,cuda:1".
    estimated_seconds : float
        Of device time, by the server's model.
    kernels : tuple of str
        One an op.
    deterministic : bool
        Whether its kernels are those that came with the server, whatever was tuned.
    """

    def __init__(
        self, message: pb.Plan, ops: Sequence[Op], label: str, deterministic: bool = False
    ) -> None:
        self.plan_id = message.plan_id
        self.device = message.device
        self.estimated_seconds = message.estimated_seconds
        self.kernels = tuple(step.kernel for step in message.steps)
        self.label = label
        self.deterministic = deterministic
        self.ops = tuple(ops)
        self.moves = tuple(op for op in ops if op.moved is not None)
        self.moved_bytes = Sharing.bytes_of(self.moves)  # of shared memory, if they go there
        self.reads = programs.reads_of(ops)
        self.writes = programs.writes_of(ops)
        self._plain = self._encode(None, None)
        self._head = programs.plan_run(self.plan_id, (), None, None)
        self._places = (b"", 0, b"")

    _elsewhere = "make the plan in each process, session.plan(ops)"

    def __repr__(self) -> str:
        named = f' "{self.label}"' if self.label else ""
        return f"Plan{named}({programs.shown(self.ops)} on {self.device})"

    def _encode(self, rebind: Rebind | None, inputs: Sequence[Any] | None) -> list[BytesLike]:
        return programs.run_field(programs.plan_run(self.plan_id, self.writes, rebind, inputs))

    def _body(
        self, rebind: Rebind | None, inputs: Sequence[Any] | None, options: bytes
    ) -> list[BytesLike]:
        """RunPlanRequest without session and op_id, in pieces."""
        plain = rebind is None and inputs is None
        return [*(self._plain if plain else self._encode(rebind, inputs)), options]

    def _data_to_share(
        self, sharing: Sharing, inputs: Sequence[Any] | None
    ) -> Sequence[BytesLike] | None:
        """What the writes of a run through shared memory write; None if the run goes by message.
        The data that the ops were made with is on the server already.
        """
        # One on several devices takes its data in messages alone.
        if "," in self.device or not sharing.wants(self.moves):
            return None
        if inputs is None:
            return None if self.writes else ()
        return programs.payloads(self.writes, inputs)

    def _run_at(
        self,
        sharing: Sharing,
        block: Block,
        rebind: Rebind | None,
        data: Sequence[BytesLike],
    ) -> Run:
        """A run with its data in the block."""
        places = self._places  # another thread may put another block's there meanwhile
        if places[:2] != (block.arena.buffer_id, block.at):
            encoded = inline.places(self.moves, block)
            self._places = places = (block.arena.buffer_id, block.at, encoded)
        run = self._head if rebind is None else programs.plan_run(self.plan_id, (), rebind, None)
        return Run(sharing, block, programs.run_field([*run, places[2]]), self.moves, data)
