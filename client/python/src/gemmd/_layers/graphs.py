"""Calls that a captured graph has for itself: their plans read x and write the result where the graph
has them, and a replay copies neither.

That memory stays in its place as long as the graph does. The server looks at it between the ring and
the end alone: behind the call it is torch's, which gives it to other tensors of the graph. So nothing
of torch's is kept here, but the server's handles on it, until the graph is gone or the layer. They
go with the next capture: memory that torch has freed meanwhile is the GPU's again then.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from gemmd import errors
from gemmd._memory import cuda
from gemmd.buffer import Buffer
from gemmd.tensor import Tensor

if TYPE_CHECKING:
    from gemmd._layers.local import LocalCalls
    from gemmd._layers.places import GpuCall, Seat
    from gemmd.session import Session

MOST_OF_A_LAYER = 64  # captured calls
MOST_OF_A_SESSION = 2048  # of the 8192 that one arms
# A smaller x is copied by the kernel that rings (client/armed/copy_kernel.h), which costs nothing.
LEAST_LENT_BYTES = (512 << 10) + 1
_SEMAPHORE_BYTES = 32  # sizeof(sem_t) of glibc and musl, 64 bits


class TooLargeError(Exception):
    """A call of many rows, whose kernels are what it waits for."""


class _Own(threading.local):
    """Which graphs a thread captures: those that `compile` makes, which run one at a time."""

    seats: list[Seat] | None = None
    most_bytes = 0  # of a call's x


_own = _Own()


@contextmanager
def own(seats: list[Seat], most_bytes: int) -> Iterator[None]:
    """Seats that are captured within it are appended. A call with a larger x raises TooLargeError."""
    _own.seats, _own.most_bytes = seats, most_bytes
    try:
        yield
    finally:
        _own.seats = None


def note(seat: Seat, x_bytes: int) -> bool:
    """A seat that is captured: whether by one of `compile`'s own."""
    if _own.seats is None:
        return False
    if x_bytes > _own.most_bytes:
        raise TooLargeError
    _own.seats.append(seat)
    return True


class Graph:
    """One that a stream is being captured in. The driver tells of its end by a semaphore."""

    _watched: ClassVar[set[Graph]] = set()  # their memory is the driver's to write to, whoever ends

    def __init__(self, stream: int) -> None:
        self._semaphore = (ctypes.c_ubyte * _SEMAPHORE_BYTES)()
        self._is_over = False
        for one in list(self._watched):
            one.is_over()
        _libc().sem_init(self._semaphore, 0, 0)
        post = ctypes.cast(_libc().sem_post, ctypes.c_void_p).value or 0
        cuda.driver().at_end_of_graph(stream, post, ctypes.addressof(self._semaphore))
        self._watched.add(self)

    def is_over(self) -> bool:
        if not self._is_over and _libc().sem_trywait(self._semaphore) == 0:
            self._is_over = True
            self._watched.discard(self)
        return self._is_over


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def lend(session: Session, tensor: Any) -> Tensor:
    """The server's view of it, which does not keep it."""
    lent = session.from_dlpack(tensor, ready=False, label="graph")
    assert lent.owner is not None
    session._lent.pop(lent.owner.buffer_id, None)
    return lent


def seat_for(
    calls: LocalCalls, call: GpuCall, stream: int, x: Any, rows: int, result: Any
) -> tuple[Seat, bool] | None:
    """The seat of a captured call with that x [rows, k] and result [rows, n], both dense, and
    whether it reads x there; None if the call is to copy. The caller holds the calls' lock.
    """
    step = calls.step_of(rows, call.step.in_dtype)
    reads_x = False

    def seated(lent: list[Buffer]) -> Seat:
        nonlocal reads_x
        d = _lent(calls.session, result.view((rows, step.n)), lent)
        io = None
        if step.x_bytes >= LEAST_LENT_BYTES:
            given = _lent(calls.session, x.view((rows, step.columns)), lent)
            io = _owner(given) if given.offset_bytes == 0 else None
        reads_x = io is not None
        return calls.seat_of_graph(call.place, step, d, io, tuple(lent))

    seat = _made(calls, stream, seated)
    return None if seat is None else (seat, reads_x)


def seat_for_parts(
    calls: LocalCalls, call: GpuCall, stream: int, parts: Sequence[Any], rows: int, result: Any
) -> Seat | None:
    """Of a captured call whose x is several tensors [rows, ..] side by side, each read where it lies."""
    step = calls.step_of(rows, call.step.in_dtype)

    def seated(lent: list[Buffer]) -> Seat:
        d = _lent(calls.session, result.view((rows, step.n)), lent)
        given = tuple(_lent(calls.session, one, lent) for one in parts)
        return calls.seat_of_graph(call.place, step, d, given, tuple(lent))

    return _made(calls, stream, seated)


def rows_in_place(x: Any, m: int) -> Any:
    """x as [m, k] where it lies, if kernels read it well there; else a copy."""
    unit = max(1, 16 // x.element_size())
    try:
        flat = x.view(m, x.shape[-1])
    except RuntimeError:  # its rows lie in no single stride
        return x.reshape(m, x.shape[-1])
    fits = flat.stride(1) == 1 and flat.stride(0) % unit == 0 and flat.data_ptr() % 16 == 0
    return flat if fits else flat.contiguous()


def _made(
    calls: LocalCalls, stream: int, seated: Callable[[list[Buffer]], Seat]
) -> Seat | None:
    """A seat of the graph that the stream is captured in, with what it was lent."""
    calls.give_up_ended()
    if calls.of_graphs >= MOST_OF_A_LAYER or not calls.may_have_more_of_graphs(MOST_OF_A_SESSION):
        return None
    lent = list[Buffer]()
    with cuda.driver().relaxed_capture():
        try:
            graph = Graph(stream)
            seat = seated(lent)
        except errors.Error:  # no memory that has a handle, or no room for a plan
            for one in lent:
                with suppress(errors.Error):
                    one.delete()
            return None
    seat.captured, seat.graph = True, graph
    return seat


def _lent(session: Session, tensor: Any, lent: list[Buffer]) -> Tensor:
    view = lend(session, tensor)
    lent.append(_owner(view))
    return view


def _owner(tensor: Tensor) -> Buffer:
    owner = tensor.owner
    assert isinstance(owner, Buffer)
    return owner
