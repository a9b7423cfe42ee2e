"""When a call that failed may do better on another server, and which server gets a call: what
`Replicas` of both kinds have in common.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypedDict, TypeVar

from gemmd._connection.target import name_of
from gemmd.errors import (
    Cancelled,
    DeadlineExceeded,
    Error,
    NotFound,
    ResourceExhausted,
    Unavailable,
)
from gemmd.retry import Retry
from gemmd.tls import Path, Tls

State = TypeVar("State")

# The addresses behind a target.
Lookup = Callable[[str], Iterable[str]]


class ClientKeywords(TypedDict, total=False):
    """What `Client` takes beside its target, for type checkers."""

    timeout_s: float | None
    retry: Retry | None
    tls: Tls | None
    token_file: Path | None
    send_token_in_plaintext: bool


class SessionKeywords(TypedDict, total=False):
    """What `client.session` takes, for type checkers."""

    ttl_s: float | None
    label: str
    device: str
    grace_s: float | None
    hold: bool
    shared_memory: Literal["auto", "off", "require"]


def is_loss(error: Error) -> bool:
    """True if the connection went under the call, so that the call itself may be what brought the
    server down. A server that is killed in the middle of a drain cancels what it has left.
    """
    unsent = error.message.startswith("failed to connect to all addresses")
    return isinstance(error, (Unavailable, Cancelled)) and not error.reason and not unsent


def means_elsewhere(error: Error) -> bool:
    """True if the server leaves, is not there, was lost under the call, or has restarted and knows
    the session no more. What a lost server did with the call was done to memory that is gone.
    """
    gone = isinstance(error, NotFound) and error.reason == "SESSION_GONE"
    return isinstance(error, Unavailable) or gone or is_loss(error)


def is_final(error: BaseException | None) -> bool:
    """True if waiting does not make it go away."""
    if isinstance(error, Error):
        return not (
            means_elsewhere(error) or isinstance(error, (DeadlineExceeded, ResourceExhausted))
        )
    return error is not None and not isinstance(error, OSError)


def addresses(target: str) -> list[str]:
    """DNS, for what is a name; the others are what they are. OSError when it cannot be looked up.

    Of one family of addresses: a host with one of each is one host.
    """
    name = name_of(target)
    if name is None:
        return [target]
    found = socket.getaddrinfo(*name, type=socket.SOCK_STREAM)
    family = found[0][0]
    hosts = {str(one[4][0]) for one in found if one[0] == family}
    shown = "[{}]:{}" if family == socket.AF_INET6 else "{}:{}"
    return sorted(shown.format(host, name[1]) for host in hosts)


def client_options(options: ClientKeywords, target: str) -> ClientKeywords:
    """Of connections to the addresses behind a target: certificates have its name."""
    tls, name = options.get("tls"), name_of(target)
    if tls is None or tls.server_name or name is None:
        return options
    return {**options, "tls": Tls(tls.ca, tls.cert, tls.key, name[0])}


@dataclass(eq=False)
class Seat(Generic[State]):
    """A prepared session on one server."""

    client: Any
    session: Any
    state: State
    in_flight: int = 0
    gone: bool = False  # never taken again


@dataclass(eq=False)
class Member(Generic[State]):
    """One server."""

    target: str
    address: str
    seat: Seat[State] | None = None
    left: list[Seat[State]] = field(default_factory=list)  # seats whose last calls go on
    trouble: BaseException | None = None  # of the last attempt to prepare it
    stopped: bool = False

    def usable(self) -> Seat[State] | None:
        seat = self.seat  # once: another thread may take it away
        return seat if seat is not None and not seat.gone else None

    def wanting(self) -> bool:
        """True while a new seat is to be prepared."""
        seat = self.usable()
        return not self.stopped and (seat is None or seat.session.draining)

    def idle(self) -> list[Seat[State]]:
        """Takes the seats away that nobody uses any more."""
        if self.seat is not None and (self.seat.gone or self.stopped):
            self.left.append(self.seat)
            self.seat = None
        done = [seat for seat in self.left if seat.in_flight == 0]
        self.left = [seat for seat in self.left if seat.in_flight > 0]
        return done


def choose(members: list[Member[State]], turn: int) -> Seat[State] | None:
    """The least busy of the seats, one that drains only if there is no other; from another one on
    each turn, so that equals share.
    """
    at = turn % len(members) if members else 0
    seats = [seat for member in members[at:] + members[:at] if (seat := member.usable())]
    return min(seats, key=lambda seat: (seat.session.draining, seat.in_flight), default=None)


def why_none(members: Iterable[Member[Any]]) -> str:
    return "; ".join(f"{one.address}: {one.trouble or 'not there yet'}" for one in members)
