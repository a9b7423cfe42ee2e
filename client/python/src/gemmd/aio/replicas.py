"""Replicas, for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from gemmd._connection import elsewhere
from gemmd._connection.elsewhere import Member, State
from gemmd.aio.replica_base import ReplicaBase
from gemmd.aio.session import Session
from gemmd.errors import Error

T = TypeVar("T")

_LONGEST_PAUSE_S = 1.0
_LOOK_S = 0.25  # how late it is seen that a server drains, or that a seat's last call has ended


class Replicas(ReplicaBase[State]):
    """As `gemmd.Replicas`, for one event loop; `prepare` and `work` are awaited.

    >>> async with gemmd.aio.Replicas(["gemm-0:8470", "gemm-1:8470"], make_layer) as layers:
    ...     y = await layers.run(lambda session, layer: layer(x))
    """

    def _begin(self) -> None:
        self._changed = asyncio.Event()
        self._keepers: dict[Member[State], asyncio.Task[None]] = {}
        self._follower: asyncio.Task[None] | None = None

    async def open(self) -> Replicas[State]:
        """Returns when the first server is prepared. Errors as `gemmd.Replicas`'s."""
        self._follower = asyncio.create_task(self._follow())
        deadline = time.monotonic() + self._patience_s
        try:
            while not self._any_ready():
                await self._wait(deadline, None)
        except BaseException:
            await self.close()
            raise
        return self

    async def run(
        self, work: Callable[[Session, State], Awaitable[T]], timeout_s: float | None = None
    ) -> T:
        """As `gemmd.Replicas.run`."""
        deadline = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        losses, last = 0, None
        while True:
            self._turn += 1
            seat = elsewhere.choose(self._members, self._turn)
            if seat is None:
                deadline = min(deadline, time.monotonic() + self._patience_s)
                await self._wait(deadline, last)
                continue
            seat.in_flight += 1
            try:
                return await work(seat.session, seat.state)
            except Error as error:
                last = error
                losses += elsewhere.is_loss(error)
                if not elsewhere.means_elsewhere(error) or losses >= self._max_losses:
                    raise
                seat.gone = True
            finally:
                seat.in_flight -= 1
                self._changed.set()
            deadline = min(deadline, time.monotonic() + self._patience_s)

    @property
    def serving(self) -> int:
        """How many servers are prepared and take work now."""
        seats = [member.usable() for member in self._members]
        return sum(seat is not None and not seat.session.draining for seat in seats)

    async def close(self) -> None:
        """Closes the sessions. `run` must have returned everywhere."""
        if self._follower is not None:
            self._follower.cancel()
            await asyncio.gather(self._follower, return_exceptions=True)
        for member in self._keepers:
            member.stopped = True
        self._changed.set()
        await asyncio.gather(*self._keepers.values(), return_exceptions=True)

    async def __aenter__(self) -> Replicas[State]:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _wait(self, deadline: float, last: Error | None) -> None:
        """For something to change; Unavailable once the deadline has passed."""
        left = deadline - time.monotonic()
        if left <= 0:
            raise self._no_server() from last
        await self._sleep(min(left, _LONGEST_PAUSE_S))

    async def _sleep(self, seconds: float) -> None:
        """Or shorter, when something changes."""
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), seconds)

    async def _follow(self) -> None:
        while True:
            await self._look_up()
            await asyncio.sleep(self._lookup_period_s if self._members else 0.2)

    async def _look_up(self) -> None:
        new = self._take_over(*await self._find())
        self._keepers = {one: task for one, task in self._keepers.items() if not task.done()}
        for member in new:
            self._keepers[member] = asyncio.create_task(self._keep(member))
        self._changed.set()

    async def _keep(self, member: Member[State]) -> None:
        """A prepared session on one server, until that is wanted no more."""
        pause = 0.02
        while True:
            for seat in member.idle():
                await self._close(seat)
            if member.stopped and member.seat is None and not member.left:
                return
            if not member.wanting():
                pause = 0.02
                await self._sleep(_LOOK_S)
                continue
            try:
                seat = await self._prepared(member)
            except Exception as error:
                member.trouble = error
                self._changed.set()
                # Clients cut together do not come back together.
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(pause * 2, _LONGEST_PAUSE_S)
                continue
            if member.seat is not None:
                member.left.append(member.seat)
            member.seat, member.trouble = seat, None
            self._changed.set()
