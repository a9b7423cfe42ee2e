"""Calls that a captured graph has for itself: their plans read x and write the result where the graph
has them, and a replay copies neither.

That memory stays in its place as long as the graph does. The server looks at it between the ring and
the end alone: behind the call it is torch's, which gives it to other tensors of the graph. So nothing
of torch's is kept here, but the server's handles on it, until the layer ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gemmd import errors
from gemmd._memory import cuda
from gemmd.buffer import Buffer
from gemmd.tensor import Tensor

if TYPE_CHECKING:
    from gemmd._layers.local import LocalCalls
    from gemmd._layers.places import GpuCall, Seat
    from gemmd.session import Session

MOST_OF_A_LAYER = 64
MOST_OF_A_SESSION = 2048  # of the 8192 that one arms
# A smaller x is copied by the kernel that rings (client/armed/copy_kernel.h), which costs nothing.
LEAST_LENT_BYTES = (512 << 10) + 1


def lend(session: Session, tensor: Any) -> Tensor:
    """The server's view of it, which does not keep it."""
    lent = session.from_dlpack(tensor, ready=False, label="graph")
    assert lent.owner is not None
    session._lent.pop(lent.owner.buffer_id, None)
    return lent


def seat_for(
    calls: LocalCalls, call: GpuCall, x: Any, rows: int, result: Any
) -> tuple[Seat, bool] | None:
    """The seat of a captured call with that x [rows, k] and result [rows, n], both dense, and
    whether it reads x there; None if the call is to copy. The caller holds the calls' lock.
    """
    if calls.of_graphs >= MOST_OF_A_LAYER or not calls.may_have_more_of_graphs(MOST_OF_A_SESSION):
        return None
    step = calls.step_of(rows, call.step.in_dtype)
    lent = list[Buffer]()
    with cuda.driver().relaxed_capture():
        try:
            d = lend(calls.session, result.view((rows, step.n)))
            lent.append(_owner(d))
            io = None
            if step.x_bytes >= LEAST_LENT_BYTES:
                given = lend(calls.session, x.view((rows, step.columns)))
                lent.append(_owner(given))
                io = _owner(given) if given.offset_bytes == 0 else None
            seat = calls.seat_of_graph(call.place, step, d, io, tuple(lent))
        except errors.Error:  # no memory that has a handle, or no room for a plan
            for one in lent:
                one.delete()
            return None
    seat.captured = True
    return seat, io is not None


def _owner(tensor: Tensor) -> Buffer:
    owner = tensor.owner
    assert isinstance(owner, Buffer)
    return owner
