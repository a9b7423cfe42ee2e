"""Replicas: several servers that can do the same work, as one that does not go away."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from gemmd._connection import elsewhere
from gemmd._connection.elsewhere import Member, Seat, State
from gemmd.errors import Error
from gemmd.replica_base import ReplicaBase
from gemmd.session import Session

T = TypeVar("T")

_LONGEST_PAUSE_S = 1.0
_LOOK_S = 0.25  # how late it is seen that a held session's server drains


class Replicas(ReplicaBase[State]):
    """Each server gets a session that `prepare` makes ready, calls go to one that is up, and a call
    whose server leaves is made again on another. Thread-safe; a context manager.

    >>> layers = gemmd.Replicas(["gemm-0:8470", "gemm-1:8470"], lambda s: gemmd.Linear(s, w))
    >>> y = layers.run(lambda session, layer: layer(x))

    What this asks for: the work must do the same on every server, so it brings what it needs or
    finds it prepared; what earlier calls left in a server's buffers goes with that server.

    Parameters
    ----------
    targets : iterable of str
        As Client's. A name of DNS with several addresses is as many servers, and is looked up
        again every `lookup_period_s`.
    prepare : function of a Session
        Makes what the work needs: buffers, uploads, plans, layers. Called on a thread of each
        server's own whenever that is there anew, so possibly for two at once.
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

    def _begin(self) -> None:
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._stopped = False
        self._start(self._follow)
        try:
            self._await_first()
        except BaseException:
            self.close()
            raise

    def run(self, work: Callable[[Session, State], T], timeout_s: float | None = None) -> T:
        """`work(session, state)` on the least busy server; again on another one, or on the same one
        restarted, for as long as the error means that its server is not there. Several threads may
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
            seat, deadline = self._take(deadline, last)
            try:
                return work(seat.session, seat.state)
            except Error as error:
                last = error
                losses += elsewhere.is_loss(error)
                if not elsewhere.means_elsewhere(error) or losses >= self._max_losses:
                    raise
                seat.gone = True
            finally:
                with self._changed:
                    seat.in_flight -= 1
                    self._changed.notify_all()
            deadline = min(deadline, time.monotonic() + self._patience_s)

    @property
    def serving(self) -> int:
        """How many servers are prepared and take work now."""
        with self._changed:
            seats = [member.usable() for member in self._members]
        return sum(seat is not None and not seat.session.draining for seat in seats)

    def close(self) -> None:
        """Closes the sessions. `run` must have returned everywhere."""
        with self._changed:
            self._stopped = True
            for member in self._members:
                member.stopped = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> Replicas[State]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, target: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=target, args=args, name="gemmd-replicas", daemon=True)
        self._threads = [one for one in self._threads if one.is_alive()] + [thread]
        thread.start()

    def _take(self, deadline: float, last: Error | None) -> tuple[Seat[State], float]:
        """A seat for one call, and by when the call gives up."""
        with self._changed:
            while True:
                self._turn += 1
                seat = elsewhere.choose(self._members, self._turn)
                if seat is not None:
                    seat.in_flight += 1
                    return seat, deadline
                deadline = min(deadline, time.monotonic() + self._patience_s)
                left = deadline - time.monotonic()
                if left <= 0:
                    raise self._no_server() from last
                self._changed.wait(left)

    def _await_first(self) -> None:
        deadline = time.monotonic() + self._patience_s
        with self._changed:
            while not self._any_ready():
                left = deadline - time.monotonic()
                if left <= 0:
                    raise self._no_server()
                self._changed.wait(left)

    def _follow(self) -> None:
        """A thread's: keeps the members what the targets' names say."""
        while True:
            self._look_up()
            pause = self._lookup_period_s if self._members else 0.2
            with self._changed:
                if self._changed.wait_for(lambda: self._stopped, pause):
                    return

    def _look_up(self) -> None:
        wanted, unknown = self._find()
        with self._changed:
            if self._stopped:
                return
            for member in self._take_over(wanted, unknown):
                self._start(self._keep, member)
            self._changed.notify_all()

    def _keep(self, member: Member[State]) -> None:
        """A thread's: a prepared session on one server, until that is wanted no more."""
        pause = 0.02
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: member.stopped or member.wanting() or member.left, _LOOK_S
                )
                idle, wanting = member.idle(), member.wanting()
                if member.stopped and not (member.left or idle):
                    return
            for seat in idle:
                self._close(seat)
            if not wanting:
                pause = 0.02
                if member.left:
                    time.sleep(pause)
                continue
            try:
                seat = self._prepared(member)
            except Exception as error:
                member.trouble = error
                with self._changed:
                    self._changed.notify_all()
                    # Clients cut together do not come back together.
                    self._changed.wait_for(lambda: member.stopped, pause * random.uniform(0.5, 1.0))
                pause = min(pause * 2, _LONGEST_PAUSE_S)
                continue
            with self._changed:
                if member.seat is not None:
                    member.left.append(member.seat)
                member.seat, member.trouble = seat, None
                self._changed.notify_all()
