"""Plan, for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gemmd import errors, inline, methods, programs
from gemmd.inline import Block
from gemmd.ops import Op
from gemmd.plan import PlanHandle
from gemmd.programs import Priority, Rebind, ReportLevel
from gemmd.result import Result
from gemmd.twins import TwinRun
from gemmd.v1 import compute_service_pb2 as pb

if TYPE_CHECKING:
    from gemmd.aio.armed import Armed
    from gemmd.aio.work import Work


class Plan(PlanHandle):
    """As `gemmd.Plan`. Made by `await session.plan(ops)`; `async with` deletes it at the end."""

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
        self._making_twin = asyncio.Lock()

    async def run(
        self,
        rebind: Rebind | None = None,
        inputs: Sequence[Any] | None = None,
        *,
        priority: Priority = "normal",
        report: ReportLevel = "full",
        timeout_s: float | None = None,
    ) -> Result:
        """As `gemmd.Plan.run`."""
        session, options = self.session, programs.options(priority, report)
        shared = await self._share(rebind, inputs, timeout_s)
        if shared is not None:
            done = await session.run_shared(
                methods.RUN_PLAN, shared, options, self.reads, timeout_s
            )
            if done is not None:
                return done
        body = self.body(rebind, inputs, options)
        result = await session.run(methods.RUN_PLAN, body, self.reads, timeout_s)
        if shared is not None:
            shared.fared_worse()
        return result

    async def _share(
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
            found = await self._add_twin(timeout_s)
        return None if found is None else self.twin_run(session.sharing, *found, rebind, data)

    async def _add_twin(self, timeout_s: float | None) -> tuple[Block, bytes] | None:
        """A twin for a new place. None if there are enough, no room, or to be none."""
        session, twins = self.session, self.session.twins
        block = await session.take_block(self.moved_bytes, timeout_s)
        if block is None:
            return None
        async with self._making_twin:
            twin_id = twins.find(self.plan_id, block)  # the place may have become free just now
            if twin_id is not None:
                return block, twin_id
            if self.why_no_twins or not twins.has_room(self.plan_id, block.arena):
                return None
            await session.delete_twins(twins.take_stale(self.plan_id, session.sharing.arena))
            try:
                ops = inline.through(self.ops, block)
                twin = await session.create_plan(
                    ops, self.label, timeout_s, deterministic=self.deterministic
                )
            except errors.Error as error:
                self.twin_failed(error, session.sharing.arena is not block.arena)
                return None
            twins.add(self.plan_id, block, twin.plan_id)
            return block, twin.plan_id

    async def arm(
        self,
        rebind: Rebind | None = None,
        *,
        priority: Priority = "normal",
        by_stream: bool = False,
    ) -> Armed:
        """As `gemmd.Plan.arm`."""
        return await self.session.arming.arm(self, rebind, priority, by_stream)

    async def delete(self) -> None:
        await self.session.delete_plan(self)

    async def delete_twins(self) -> None:
        """Of a plan that is about to go: there will be no others."""
        async with self._making_twin:
            self.why_no_twins = "the plan was deleted"
            await self.session.delete_twins(self.session.twins.take(self.plan_id))

    async def __aenter__(self) -> Plan:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.delete()
