"""Armed plans, for asyncio."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from gemmd import errors
from gemmd.armed import ArmedHandle, ArmedReport
from gemmd.v1 import armed_service_pb2 as pb

if TYPE_CHECKING:
    from gemmd.aio.plan import Plan
    from gemmd.aio.session import Session

_EAGER_S = 0.0003  # the loop's other tasks run between looks; beyond it they may sleep, too
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 0.001, 0.02


def pause_s(waited_s: float) -> float:
    """Until the next look: a twentieth of what was waited. So the end of a long run is noticed at
    most 5 % late, and many waits for long runs leave the loop alone.
    """
    if waited_s < _EAGER_S:
        return 0
    return min(max(waited_s / 20, _SHORTEST_PAUSE_S), _LONGEST_PAUSE_S)


async def until_done(armed: ArmedHandle, timeout_s: float | None = None) -> None:
    """Until the run that was rung last is done, or for so long; the loop's other tasks run."""
    began = time.monotonic()
    until = None if timeout_s is None else began + timeout_s
    while not armed.done():
        now = time.monotonic()
        if until is not None and now >= until:
            return
        pause = pause_s(now - began)
        await asyncio.sleep(pause if until is None else min(pause, until - now))


class Armed(ArmedHandle):
    """As `gemmd.Armed`; made by `await plan.arm()`. Its wait lets the loop run. Rings do not wait,
    so they are not awaited.
    """

    def __init__(
        self, session: Session, plan: Plan, message: pb.ArmedPlan, slot: Any, by_stream: bool
    ) -> None:
        super().__init__(plan, message, slot, by_stream)
        self.session = session

    async def wait(self, timeout_s: float | None = None) -> None:
        """As `gemmd.Armed.wait`. Cancelled, it leaves the run under way, to be waited for again."""
        await until_done(self, timeout_s)
        try:
            self.slot.wait(0.0)
        except errors.Error as error:
            raise await self.session.arming.whole(error, self.slot_index) from None

    async def run(self, timeout_s: float | None = None) -> ArmedReport:
        """`ring` and `wait`."""
        self.ring()
        await self.wait(timeout_s)
        return self.report

    async def disarm(self) -> None:
        """As `gemmd.Armed.disarm`."""
        if self._give_up():
            await self.session.arming.disarm(self.slot_index)

    async def __aenter__(self) -> Armed:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with suppress(errors.beside(kind)):
            await self.disarm()
