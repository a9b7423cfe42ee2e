"""Plan: a program that is kept and run again."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from gemmd import errors
from gemmd._connection.here_only import Awaited  # aio
from gemmd._memory.inline import Run
from gemmd._wire import methods, programs
from gemmd._wire.programs import Priority, Rebind, ReportLevel
from gemmd.ops import Op
from gemmd.plan_handle import PlanHandle
from gemmd.result import Result
from gemmd.v1 import compute_service_pb2 as pb

if TYPE_CHECKING:
    from gemmd.aio.armed import Armed
    from gemmd.aio.work import Work


class Plan(PlanHandle, Awaited):
    """Made by `await session.plan(ops)`. As a context manager it is deleted at the end of the
    block.
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

    async def run(
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
        KiB or more together.

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
        shared = await self._share(rebind, inputs, timeout_s)
        if shared is not None:
            done = await session._run_shared(
                methods.RUN_PLAN, shared, options, self.reads, timeout_s
            )
            if done is not None:
                return done
        body = self._body(rebind, inputs, options)
        result = await session._run(methods.RUN_PLAN, body, self.reads, timeout_s)
        if shared is not None:
            shared.fared_worse()
        return result

    async def _share(
        self, rebind: Rebind | None, inputs: Sequence[Any] | None, timeout_s: float | None
    ) -> Run | None:
        """A run with its data in shared memory; None if it goes by message."""
        session = self.session
        data = self._data_to_share(session.sharing, inputs)
        if data is None:
            return None
        block = await session._take_block(self.moved_bytes, timeout_s)
        if block is None:
            return None
        return self._run_at(session.sharing, block, rebind, data)

    async def arm(
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
        return await self.session.arming.arm(self, rebind, priority, by_stream)

    async def delete(self) -> None:
        """Ends the plan. What runs finishes."""
        await self.session.delete_plan(self)

    async def __aenter__(self) -> Plan:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with suppress(errors.beside(kind)):  # NotFound: deleted in the block, or with its session
            await self.delete()
