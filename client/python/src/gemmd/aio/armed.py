"""Armed plans, for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any

from gemmd import errors, methods, native
from gemmd.armed import (
    ArmedHandle,
    ArmedReport,
    arm_request,
    disarm_request,
    open_region,
    region_request,
)
from gemmd.programs import Priority, Rebind
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
        began = time.monotonic()
        until = None if timeout_s is None else began + timeout_s
        while not self.done():
            now = time.monotonic()
            if until is not None and now >= until:
                break
            pause = pause_s(now - began)
            await asyncio.sleep(pause if until is None else min(pause, until - now))
        self.slot.wait(0.0)

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

    async def __aexit__(self, *_: object) -> None:
        await self.disarm()


class Arming:
    """How a session arms plans: its region, made by the first."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._opening = asyncio.Lock()
        self._region: Any = None

    async def region(self) -> Any:
        native.module()
        async with self._opening:
            if self._region is None:
                session = self._session
                await session.client.share_socket()
                request = region_request(session.session_id)
                answer = await session.transport.call(methods.GET_REGION, request)
                self._region = await asyncio.to_thread(open_region, answer)
            return self._region

    async def arm(
        self, plan: Plan, rebind: Rebind | None, priority: Priority, by_stream: bool
    ) -> Armed:
        region, session = await self.region(), self._session
        gpu = ""
        if by_stream:
            devices = await session.client.devices()
            gpu = next((one.gpu_uuid for one in devices if one.name == plan.device), "")
            if gpu:
                region.prepare(gpu)
        request = arm_request(session.session_id, plan.plan_id, rebind, priority, by_stream)
        message = pb.ArmedPlan.FromString(await session.transport.call(methods.ARM, request))
        slot = native.module().Slot(region, message.slot, by_stream, gpu)
        return Armed(session, plan, message, slot, by_stream)

    async def disarm(self, slot: int) -> None:
        request = disarm_request(self._session.session_id, slot)
        with contextlib.suppress(errors.NotFound, errors.Unavailable):  # gone with its session
            await self._session.transport.call(methods.DISARM, request)
