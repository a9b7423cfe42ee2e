"""Plan: a program that is kept and run again."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gemmd import errors, inline, methods, programs
from gemmd.inline import Block, Sharing
from gemmd.ops import Op
from gemmd.programs import Priority, Rebind, ReportLevel
from gemmd.result import Result
from gemmd.twins import TwinRun
from gemmd.v1 import compute_service_pb2 as pb
from gemmd.wire import BytesLike

if TYPE_CHECKING:
    from gemmd.armed import Armed
    from gemmd.work import Work


class PlanHandle:
    """What both faces' plans know without asking.

    Attributes
    ----------
    plan_id : bytes
    device : str
    estimated_seconds : float
        Of device time, by the server's model.
    kernels : tuple of str
        One an op.
    deterministic : bool
        Whether its kernels are those that came with the server, whatever was tuned.
    why_no_twins : str
        Why its runs send their data in messages; "" if much data may go through shared memory.
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
        self.why_no_twins = ""
        self.ops = tuple(ops)
        self.moves = tuple(op for op in ops if op.moved is not None)
        self.moved_bytes = Sharing.bytes_of(self.moves)  # of shared memory, if they go there
        self.reads = programs.reads_of(ops)
        self.writes = programs.writes_of(ops)
        self._plain = self._encode(None, None)

    def _encode(self, rebind: Rebind | None, inputs: Sequence[Any] | None) -> list[BytesLike]:
        return programs.run_field(programs.plan_run(self.plan_id, self.writes, rebind, inputs))

    def body(
        self, rebind: Rebind | None, inputs: Sequence[Any] | None, options: bytes
    ) -> list[BytesLike]:
        """RunPlanRequest without session and op_id, in pieces."""
        plain = rebind is None and inputs is None
        return [*(self._plain if plain else self._encode(rebind, inputs)), options]

    def data_to_share(
        self, sharing: Sharing, inputs: Sequence[Any] | None
    ) -> Sequence[BytesLike] | None:
        """What the writes of a run through shared memory write; None if the run goes by message.
        The data that the ops were made with is on the server already.
        """
        if self.why_no_twins or not sharing.wants(self.moves):
            return None
        if inputs is None:
            return None if self.writes else ()
        return programs.payloads(self.writes, inputs)

    def twin_run(
        self,
        sharing: Sharing,
        block: Block,
        twin_id: bytes,
        rebind: Rebind | None,
        data: Sequence[BytesLike],
    ) -> TwinRun:
        run = programs.plan_run(twin_id, (), rebind, None)
        return TwinRun(self, sharing, block, programs.run_field(run), data)

    def twin_failed(self, error: errors.Error, arena_is_gone: bool) -> None:
        """After a twin could not be made. A server that is busy or gone may have it later, and so
        may other memory.
        """
        if isinstance(error, errors.DeadlineExceeded):
            raise error  # so has the caller's time
        if isinstance(error, errors.Unavailable) or arena_is_gone:
            return
        self.why_no_twins = str(error)


class Plan(PlanHandle):
    """Made by `session.plan(ops)`. As a context manager it is deleted at the end of the block.
    Thread-safe.
    """

    def __init__(
        self,
        session: Work,
        message: pb.Plan,
        ops: Sequence[Op],
        label: str,
        deterministic: bool = False,
    ) -> None:
        super().__init__(message, ops, label, deterministic)
        self.session = session
        self._making_twin = threading.Lock()

    def run(
        self,
        rebind: Rebind | None = None,
        inputs: Sequence[Any] | None = None,
        *,
        priority: Priority = "normal",
        report: ReportLevel = "full",
        timeout_s: float | None = None,
    ) -> Result:
        """Runs the plan once.

        Inputs and outputs go through shared memory if the server is on this host and they are 64
        KiB or more together. For that the session keeps up to four other plans beside this one,
        which the report is of: it has copies for writes and reads.

        Parameters
        ----------
        rebind : mapping of Buffer to Buffer, optional
            Puts the values in the place of the keys, for this run.
        inputs : sequence of array, optional
            One for each write op, of its shape; by default what the ops were made with.

        Raises
        ------
        InvalidArgument
            A buffer put in another's place is smaller than the plan's views reach, or on another
            device.
        """
        session, options = self.session, programs.options(priority, report)
        shared = self._share(rebind, inputs, timeout_s)
        if shared is not None:
            done = session.run_shared(methods.RUN_PLAN, shared, options, self.reads, timeout_s)
            if done is not None:
                return done
        body = self.body(rebind, inputs, options)
        result = session.run(methods.RUN_PLAN, body, self.reads, timeout_s)
        if shared is not None:
            shared.fared_worse()
        return result

    def _share(
        self, rebind: Rebind | None, inputs: Sequence[Any] | None, timeout_s: float | None
    ) -> TwinRun | None:
        """A run with its data in shared memory; None if it goes by message."""
        session = self.session
        data = self.data_to_share(session.sharing, inputs)
        if data is None:
            return None
        arena = session.sharing.arena
        found = session.twins.take_block(self.plan_id, arena, self.moved_bytes)
        if found is None and session.twins.has_room(self.plan_id, arena):
            found = self._add_twin(timeout_s)
        return None if found is None else self.twin_run(session.sharing, *found, rebind, data)

    def _add_twin(self, timeout_s: float | None) -> tuple[Block, bytes] | None:
        """A twin for a new place. None if there are enough, no room, or to be none."""
        session, twins = self.session, self.session.twins
        block = session.take_block(self.moved_bytes, timeout_s)
        if block is None:
            return None
        with self._making_twin:
            twin_id = twins.find(self.plan_id, block)  # the place may have become free just now
            if twin_id is not None:
                return block, twin_id
            if self.why_no_twins or not twins.has_room(self.plan_id, block.arena):
                return None
            session.delete_twins(twins.take_stale(self.plan_id, session.sharing.arena))
            try:
                ops = inline.through(self.ops, block)
                twin = session.create_plan(
                    ops, self.label, timeout_s, deterministic=self.deterministic
                )
            except errors.Error as error:
                self.twin_failed(error, session.sharing.arena is not block.arena)
                return None
            twins.add(self.plan_id, block, twin.plan_id)
            return block, twin.plan_id

    def arm(
        self,
        rebind: Rebind | None = None,
        *,
        priority: Priority = "normal",
        by_stream: bool = False,
    ) -> Armed:
        """Puts the plan and its buffers into a slot of memory shared with the server: from then on
        a word that is set there runs it, without a call. The plan must have no reads, and its
        writes write what they were made with: activations go through shared buffers.

        Parameters
        ----------
        rebind : mapping of Buffer to Buffer, optional
            As `run`'s, for all runs.
        by_stream : bool
            CUDA streams ring: keeps the server ready for rings that cannot wake it.

        Raises
        ------
        FailedPrecondition
            The server is on another host, or the package has no native module.
        ResourceExhausted
            All slots of the session or of the tenant are taken.
        """
        return self.session.arm(self, rebind, priority, by_stream)

    def delete(self) -> None:
        self.session.delete_plan(self)

    def delete_twins(self) -> None:
        """Of a plan that is about to go: there will be no others."""
        with self._making_twin:
            self.why_no_twins = "the plan was deleted"
            self.session.delete_twins(self.session.twins.take(self.plan_id))

    def __enter__(self) -> Plan:
        return self

    def __exit__(self, *_: object) -> None:
        self.delete()
