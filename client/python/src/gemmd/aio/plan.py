"""Plan, for asyncio."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gemmd import methods
from gemmd.ops import Op
from gemmd.plan import PlanHandle
from gemmd.programs import Priority, Rebind, ReportLevel
from gemmd.result import Result
from gemmd.v1 import compute_service_pb2 as pb

if TYPE_CHECKING:
    from gemmd.aio.work import Work


class Plan(PlanHandle):
    """As `gemmd.Plan`. Made by `await session.plan(ops)`; `async with` deletes it at the end."""

    def __init__(self, session: Work, message: pb.Plan, ops: Sequence[Op]) -> None:
        super().__init__(message, ops)
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
        """As `gemmd.Plan.run`."""
        body = self.body(rebind, inputs, priority, report)
        return await self.session.run(methods.RUN_PLAN, body, self.reads, timeout_s)

    async def delete(self) -> None:
        await self.session.delete_plan(self)

    async def __aenter__(self) -> Plan:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.delete()
