"""What the replicas of both faces share: their options, their servers, and a prepared session."""

from __future__ import annotations

import asyncio  # aio
import contextlib
from collections.abc import Awaitable, Callable, Iterable  # aio

# sync: from collections.abc import Callable, Iterable
from typing import Generic, Unpack

from gemmd import words
from gemmd._connection import elsewhere
from gemmd._connection.elsewhere import ClientKeywords, Lookup, Member, Seat, SessionKeywords, State
from gemmd._connection.here_only import Awaited, Unpickled  # aio
from gemmd.aio.client import Client
from gemmd.aio.session import Session
from gemmd.errors import Error, Unavailable

# sync: from gemmd._connection.here_only import Unpickled

_CONNECT_S = 1.0  # a thread that waits for a server can be told to stop between two of these


class ReplicaBase(Generic[State], Unpickled, Awaited):
    def __init__(
        self,
        targets: Iterable[str],
        prepare: Callable[[Session], Awaitable[State]],
        *,
        session: SessionKeywords | None = None,
        patience_s: float = 30.0,
        max_losses: int = 3,
        lookup: Lookup | None = None,
        lookup_period_s: float = 5.0,
        **client: Unpack[ClientKeywords],
    ) -> None:
        if isinstance(targets, str):
            raise TypeError(f"targets is {targets!r}; give a list of servers, [{targets!r}]")
        words.check_options("Replicas", client, ClientKeywords.__annotations__)
        words.check_options("Replicas' session", session or (), SessionKeywords.__annotations__)
        self._targets = list(targets)
        if not self._targets:
            raise ValueError("no targets: name a server at least")
        for target in self._targets:
            # The options alone: nobody is called.
            Client(target, **client)  # aio
            # sync: Client(target, **client).close()
        self._prepare = prepare
        self._session: SessionKeywords = session or {}
        self._client = client
        self._patience_s, self._max_losses = patience_s, max_losses
        self._lookup, self._lookup_period_s = lookup or elsewhere.addresses, lookup_period_s
        self._members: list[Member[State]] = []
        self._turn = 0
        self._trouble: OSError | None = None  # of the last look-up
        self._begin()

    _elsewhere = "make them in each process"

    def __repr__(self) -> str:
        return f"Replicas({self.serving} serving, of {', '.join(self._targets)})"

    @property
    def serving(self) -> int:
        """How many servers are prepared and take work now."""
        raise NotImplementedError  # each face's, behind its own lock

    def _begin(self) -> None:
        """What a face does once it knows its options."""

    async def _find(self) -> tuple[dict[str, str], set[str]]:
        """Which servers there are now, and the targets whose servers stay as they are."""
        wanted: dict[str, str] = {}
        unknown: set[str] = set()
        for target in self._targets:
            try:
                found = list(await asyncio.to_thread(self._lookup, target))
            except OSError as error:
                self._trouble, found = error, []
            if not found:
                unknown.add(target)
            wanted.update({address: target for address in found})
        return wanted, unknown

    def _take_over(self, wanted: dict[str, str], unknown: set[str]) -> list[Member[State]]:
        """Makes the members what was found; the new ones."""
        stay: list[Member[State]] = []
        for member in self._members:
            if wanted.pop(member.address, None) or member.target in unknown:
                stay.append(member)
            else:
                member.stopped = True
        new = [Member[State](target, address) for address, target in wanted.items()]
        self._members = stay + new
        return new

    async def _prepared(self, member: Member[State]) -> Seat[State]:
        client = Client(member.address, **elsewhere.client_options(self._client, member.target))
        try:
            await client.wait_ready(_CONNECT_S)
            # A server that is about to leave still takes sessions, but says here that it should
            # get none.
            if (health := await client.health()) != "serving":
                raise Unavailable(f"it is {health}")
            session = await client.session(**self._session)
            try:
                return Seat(client, session, await self._prepare(session))
            except BaseException:
                with contextlib.suppress(Error):
                    await session.close()
                raise
        except BaseException:
            await client.close()
            raise

    def _any_ready(self) -> bool:
        """Whether a server is prepared. Raises the trouble that all have, if it does not pass."""
        if any(member.usable() for member in self._members):
            return True
        troubles = [member.trouble for member in self._members]
        if troubles and all(map(elsewhere.is_final, troubles)):
            assert troubles[0] is not None
            raise troubles[0]
        return False

    def _no_server(self) -> Unavailable:
        why = elsewhere.why_none(self._members) or str(self._trouble)
        return Unavailable(f"no server takes work: {why}")

    @staticmethod
    async def _close(seat: Seat[State]) -> None:
        with contextlib.suppress(Error):  # its server may be gone, and the session with it
            await seat.session.close()
        await seat.client.close()
