"""How a session arms plans."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from typing import TYPE_CHECKING, Any

from gemmd import errors, native, words
from gemmd._wire.programs import Priority, Rebind, rebindings
from gemmd.aio.armed import Armed
from gemmd.armed import OLDER_SLOTS, REGION_TEXT, SLOTS, open_region
from gemmd.report import PRIORITIES
from gemmd.v1 import armed_service_pb2 as pb

if TYPE_CHECKING:
    from gemmd.aio.plan import Plan
    from gemmd.aio.session import Session


class Arming:
    """A session's region, made by the first plan that is armed."""

    def __init__(self, session: Session) -> None:
        self._of = weakref.ref(session)  # a cycle would keep one that is dropped
        self._lock = asyncio.Lock()
        self._region: Any = None
        self._why: str | None = None
        self._gpus: dict[str, str] = {}  # UUIDs, by the server's devices that plans were armed on

    @property
    def _session(self) -> Session:
        session = self._of()
        assert session is not None  # it calls this
        return session

    async def why_not(self) -> str:
        """Why this session's plans cannot be armed; "" if they can. Asked once."""
        if self._why is None:
            self._why = await self._find_why()
        return self._why

    def known_why_not(self) -> str | None:
        """The same if it has been asked for; else None."""
        return self._why

    async def _find_why(self) -> str:
        why = native.why_not() or await self._session.why_not_shared()
        if why:
            return why
        try:
            await self.region()
        except (errors.Error, OSError) as error:
            return str(error)
        return ""

    async def region(self) -> Any:
        native.module()
        async with self._lock:
            if self._region is None:
                session = self._session
                await session.client.share_socket()  # its error says what to do on another host
                request = pb.GetArmedRegionRequest(session_id=session.session_id, slots=SLOTS)
                try:
                    answer = await session.transport.ask(request, pb.ArmedRegion)
                except errors.InvalidArgument:
                    request.slots = OLDER_SLOTS
                    answer = await session.transport.ask(request, pb.ArmedRegion)
                self._region = await asyncio.to_thread(open_region, answer)
            return self._region

    async def arm(
        self, plan: Plan, rebind: Rebind | None, priority: Priority, by_stream: bool
    ) -> Armed:
        region, session = await self.region(), self._session
        gpu = ""
        if by_stream:
            gpu = await self._gpu_of(plan.device, region)
        request = pb.ArmPlanRequest(
            session_id=session.session_id,
            plan_id=plan.plan_id,
            rebind=rebindings(rebind),
            priority=words.chosen("priority", priority, PRIORITIES),
            rung_by_stream=by_stream,
        )
        message = await session.transport.ask(request, pb.ArmedPlan)
        slot = native.module().Slot(region, message.slot, by_stream, gpu)
        return Armed(session, plan, message, slot, by_stream)

    async def _gpu_of(self, device: str, region: Any) -> str:
        """The UUID of the GPU that a server's device is, prepared; "" of none. Asked for once."""
        if device not in self._gpus:
            found = await self._session.client.devices()
            uuid = next((one.gpu_uuid for one in found if one.name == device), "")
            if uuid:
                region.prepare(uuid)
            self._gpus[device] = uuid
        return self._gpus[device]

    async def whole(self, error: errors.Error, slot: int) -> errors.Error:
        """A run's error with all of its message, of which the region holds the beginning."""
        beginning = error.message
        if not error.reason or len(beginning.encode()) < REGION_TEXT:
            return error
        request = pb.ListArmedRequest(session_id=self._session.session_id)
        with contextlib.suppress(errors.Error):  # the beginning is better than another error
            answer = await self._session.transport.ask(request, pb.ListArmedResponse)
            for one in answer.slots:
                if one.slot == slot and one.message.startswith(beginning):
                    error.message = one.message
                    error.args = (error.message,)
        return error

    async def disarm(self, slot: int) -> None:
        request = pb.DisarmPlanRequest(session_id=self._session.session_id, slots=[slot])
        with contextlib.suppress(errors.NotFound, errors.Unavailable):  # gone with its session
            await self._session.transport.ask(request, pb.DisarmPlanResponse)
