"""Replicas: several servers that can do the same work, as one that does not go away."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable, Iterable  # aio

# sync: from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar, Unpack

from gemmd import words
from gemmd._connection import elsewhere
from gemmd._connection.elsewhere import ClientKeywords, Lookup, Member, Seat, SessionKeywords, State
from gemmd._connection.here_only import Awaited, Unpickled  # aio
from gemmd.aio.client import Client
from gemmd.aio.session import Session
from gemmd.errors import Error, Unavailable

# sync: from gemmd._connection.here_only import Unpickled

T = TypeVar("T")

_CONNECT_S = 1.0  # a thread that waits for a server can be told to stop between two of these
_LONGEST_PAUSE_S = 1.0
_LOOK_S = 0.25  # how late it is seen that a server drains, or that a seat's last call has ended


# aio {
class _Condition:
    """What is needed of threading.Condition, for one event loop: it takes no lock."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    async def __aenter__(self) -> None:
        """Nothing to take."""

    async def __aexit__(self, *_: object) -> None:
        """Nothing to give back."""

    def notify_all(self) -> None:
        self._event.set()

    async def wait_for(self, predicate: Callable[[], T], timeout: float) -> T:
        until = time.monotonic() + timeout
        while not (found := predicate()) and (left := until - time.monotonic()) > 0:
            self._event.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._event.wait(), left)
        return found


# }
class Replicas(Generic[State], Unpickled, Awaited):
    """Each server gets a session that `prepare` makes ready, calls go to one that is up, and a call
    whose server leaves is made again on another. Thread-safe; a context manager.

    `layers = Replicas(["gemm-0:8470", "gemm-1:8470"], make_layer)`, then
    `y = await layers.run(lambda session, layer: layer(x))`.

    What this asks for: the work must do the same on every server, so it brings what it needs or
    finds it prepared; what earlier calls left in a server's buffers goes with that server.

    Parameters
    ----------
    targets : iterable of str
        As Client's. A name of DNS with several addresses is as many servers, and is looked up
        again every `lookup_period_s`.
    prepare : function of a Session
        Makes what the work needs: buffers, uploads, plans, layers. Called whenever a server is
        there anew, so possibly for two at once; where it is not awaited, on a thread of its own.
    session : mapping, optional
        Arguments of `client.session`.
    patience_s : float
        How long a call is tried again after it first found no server or had to leave one.
    max_losses : int
        In how many servers a call may lose its connection before it fails: work that brings
        servers down must not go round them all.
    lookup : function of a target, optional
        The addresses behind it. Default: DNS, for what is a name.
    **client
        Arguments of `Client`: tls, token_file, timeout_s, ...

    Raises
    ------
    Unavailable
        No server could be prepared within `patience_s`.
    Exception
        What `prepare` raised on all of them, if waiting does not make it go away; what `Client`
        raises.
    """

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
        self._stopped = False
        self._lock = self._changed = _Condition()  # aio
        self._running: set[asyncio.Task[None]] = set()  # aio
        # sync: # An interrupt within Condition.__enter__ would leave it locked: enter by the lock.
        # sync: self._lock = threading.RLock()
        # sync: self._changed = threading.Condition(self._lock)
        # sync: self._running: list[threading.Thread] = []
        # sync: self._open()

    _elsewhere = "make them in each process"

    def __repr__(self) -> str:
        return f"Replicas({self.serving} serving, of {', '.join(self._targets)})"

    async def open(self) -> Replicas[State]:  # aio
    # sync: def _open(self) -> None:
        """Returns when the first server is prepared."""
        self._follower = self._start(self._follow)
        try:
            async with self._lock:
                if not await self._changed.wait_for(self._any_ready, self._patience_s):
                    raise self._no_server()
        except BaseException:
            await self.close()
            raise
        return self  # aio

    async def run(
        self, work: Callable[[Session, State], Awaitable[T]], timeout_s: float | None = None
    ) -> T:
        """`work(session, state)` on the least busy server; again on another one, or on the same one
        restarted, for as long as the error means that its server is not there. Several calls may
        work on one state at once.

        Parameters
        ----------
        timeout_s : float, optional
            How long a server is looked for; the calls that the work makes have their own.

        Raises
        ------
        Unavailable
            No server takes it within `patience_s` or `timeout_s`.
        """
        deadline = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        losses, last = 0, None
        while True:
            seat, deadline = await self._take(deadline, last)
            try:
                return await work(seat.session, seat.state)
            except Error as error:
                last = error
                losses += elsewhere.is_loss(error)
                if not elsewhere.means_elsewhere(error) or losses >= self._max_losses:
                    raise
                seat.gone = True
            finally:
                async with self._lock:
                    seat.in_flight -= 1
                    self._changed.notify_all()
            deadline = min(deadline, time.monotonic() + self._patience_s)

    @property
    def serving(self) -> int:
        """How many servers are prepared and take work now."""
        seats = [member.usable() for member in self._members]
        return sum(seat is not None and not seat.session.draining for seat in seats)

    async def close(self) -> None:
        """Closes the sessions. `run` must have returned everywhere."""
        async with self._lock:
            self._stopped = True
            for member in self._members:
                member.stopped = True
            self._changed.notify_all()
        # sync: for thread in self._running:
        # sync:     thread.join()
        # aio {
        self._follower.cancel()  # it may be looking a name up
        await asyncio.gather(*self._running, return_exceptions=True)
        # }

    async def __aenter__(self) -> Replicas[State]:
        return await self.open()  # aio
        # sync: return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # aio {
    def _start(self, work: Callable[..., Any], *args: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.create_task(work(*args))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    # }
    # sync: def _start(self, work: Callable[..., None], *args: Any) -> threading.Thread:
    # sync:     thread = threading.Thread(
    # sync:         target=work, args=args, name="gemmd-replicas", daemon=True)
    # sync:     self._running = [one for one in self._running if one.is_alive()] + [thread]
    # sync:     thread.start()
    # sync:     return thread

    async def _take(self, deadline: float, last: Error | None) -> tuple[Seat[State], float]:
        """A seat for one call, and by when the call gives up."""
        async with self._lock:
            seat = self._choose()
            if seat is None:
                deadline = min(deadline, time.monotonic() + self._patience_s)
                left = deadline - time.monotonic()
                seat = await self._changed.wait_for(self._choose, left)
            if seat is None:
                raise self._no_server() from last
            seat.in_flight += 1
            return seat, deadline

    def _choose(self) -> Seat[State] | None:
        self._turn += 1
        return elsewhere.choose(self._members, self._turn)

    async def _follow(self) -> None:
        """Keeps the members what the targets' names say."""
        while True:
            wanted, unknown = await self._find()
            async with self._lock:
                if self._stopped:
                    return
                for member in self._take_over(wanted, unknown):
                    self._start(self._keep, member)
                self._changed.notify_all()
                pause = self._lookup_period_s if self._members else 0.2
                if await self._changed.wait_for(lambda: self._stopped, pause):
                    return

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

    async def _keep(self, member: Member[State]) -> None:
        """A prepared session on one server, until that is wanted no more."""
        pause = 0.02
        while True:
            async with self._lock:
                await self._changed.wait_for(
                    lambda: member.stopped or member.wanting() or member.left, _LOOK_S
                )
                idle, wanting = member.idle(), member.wanting()
                if member.stopped and not (member.left or idle):
                    return
            for seat in idle:
                await self._close(seat)
            if not wanting:
                pause = 0.02
                if member.left:
                    await asyncio.sleep(pause)  # aio
                    # sync: time.sleep(pause)
                continue
            try:
                seat = await self._prepared(member)
            except Exception as error:
                member.trouble = error
                async with self._lock:
                    self._changed.notify_all()
                    # Clients cut together do not come back together.
                    await self._changed.wait_for(
                        lambda: member.stopped, pause * random.uniform(0.5, 1.0)
                    )
                pause = min(pause * 2, _LONGEST_PAUSE_S)
                continue
            async with self._lock:
                if member.seat is not None:
                    member.left.append(member.seat)
                member.seat, member.trouble = seat, None
                self._changed.notify_all()

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
