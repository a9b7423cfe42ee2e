"""Tensors of torch's that the server writes results to, and that callers get: what saves a copy.

A small one is of one layer's step. Large ones are of all layers of a session, since those of a model
of a hundred layers would fill the GPU: mostly a result is gone when the next layer but one is called.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gemmd.buffer import Buffer

if TYPE_CHECKING:
    from gemmd.session import Session

MAX_OWN_BYTES = 4 << 20  # larger ones are the session's
MAX_SHAPES = 16  # that one is handed out in; more are made anew
MAX_SHARED_BYTES = 1 << 30  # of a session's


class ResultMemory:
    """A tensor of torch's that the server knows. It is written to while nobody else has a tensor over
    it.
    """

    def __init__(
        self, torch: Any, session: Session, device: int, shape: tuple[int, int], dtype: Any
    ) -> None:
        with torch.inference_mode(False):  # others than this caller get it, too
            self._kept = torch.empty(shape, dtype=dtype, device=f"cuda:{device}")
        self.on_server = session.from_dlpack(self._kept, ready=False, label="result")
        owner = self.on_server.owner
        assert isinstance(owner, Buffer)
        self.buffer = owner
        self._handing = threading.Lock()  # from `take` until the caller has its tensor
        self._shaped: dict[Any, Any] = {}
        self._count = torch._C._storage_Use_Count
        self._storage = self._kept.untyped_storage()  # kept: its number is that of a live object
        self._number = self._storage._cdata
        self._own_uses = self._count(self._number)
        self._at = self._storage.data_ptr()

    @property
    def size_bytes(self) -> int:
        """Of the layer that has it."""
        return self.buffer.size_bytes

    def delete(self) -> None:
        """The seat that writes to it is given up."""
        self.buffer.delete()

    def may_take(self, stream: int) -> bool:
        """Whether calls of that stream may have it at all."""
        return True

    def take(self) -> bool:
        """Whether it is free: it is the caller's then until `handed_out` or `give_back`."""
        if not self._handing.acquire(blocking=False):
            return False
        if self._count(self._number) == self._own_uses:
            return True
        self._handing.release()
        return False

    def give_back(self) -> None:
        self._handing.release()

    def is_ours(self) -> bool:
        """Whether the memory is still the one that the server knows and nobody else's: a caller may
        have resized its tensor, or sent it to a process that reads it after the tensor is gone.
        """
        if self._storage.data_ptr() != self._at:
            return False
        sent = sys.modules.get("torch.multiprocessing.reductions")
        shared = None if sent is None else sent.shared_cache
        return not shared or all(one.cdata != self._number for one in shared.copy().values())

    def handed_out(self, shape: Any, rows: int) -> Any:
        """The result as the caller's tensor. No view of the kept one: what the caller's becomes a
        part of, as of a gradient's graph by `y += bias`, the kept one and the next result must not.
        """
        shaped = self._shaped.get(shape)
        if shaped is None:
            if len(self._shaped) >= MAX_SHAPES:
                self._shaped.clear()
            shaped = self._shaped[shape] = self._kept[:rows].view(shape).data
            self._own_uses = self._count(self._number)
        given = shaped.data
        self._handing.release()
        return given


Kind = tuple[int, tuple[int, int], Any]  # the GPU, shape and type of a result


class _Shared(ResultMemory):
    """One of a session's, written to by several seats: by calls of one stream alone, since another
    one's may still read a result that its caller has let go of.
    """

    def __init__(self, kind: Kind, stream: int, of: SharedResults, *made_of: Any) -> None:
        super().__init__(*made_of)
        self.kind = kind
        self.seats = 1
        self.stream = stream
        self._of = of

    @property
    def size_bytes(self) -> int:
        return 0

    def delete(self) -> None:
        if self._of.is_last(self):
            super().delete()

    def may_take(self, stream: int) -> bool:
        return stream == self.stream


class SharedResults:
    """The large ones of a session. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: list[_Shared] = []

    def obtain(
        self,
        torch: Any,
        session: Session,
        kind: Kind,
        nbytes: int,
        stream: int,
        but: Sequence[ResultMemory],
    ) -> ResultMemory | None:
        """One more for a call, none of `but`; None if the session has as many as it may. It is taken,
        and has one seat more until `delete`.
        """
        with self._lock:
            for one in self._kept:
                fits = one.kind == kind and one.may_take(stream)
                if fits and one not in but and one.take():
                    if one.is_ours():
                        one.seats += 1
                        return one
                    one.give_back()
            if sum(one.buffer.size_bytes for one in self._kept) + nbytes > MAX_SHARED_BYTES:
                return None
        made = _Shared(kind, stream, self, torch, session, *kind)
        made.take()
        with self._lock:
            self._kept.append(made)
        return made

    def is_last(self, memory: _Shared) -> bool:
        """Of the seats that have let go of it: it is no call's to obtain from now on."""
        with self._lock:
            memory.seats -= 1
            if memory.seats == 0:
                self._kept.remove(memory)
            return memory.seats == 0
