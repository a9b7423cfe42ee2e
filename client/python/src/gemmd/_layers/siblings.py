"""Linears that get the same x, as an attention's query, key and value do, as one layer. The first of
them that is called multiplies for all; the others have their columns of that result.
"""

from __future__ import annotations

import threading
import warnings
import weakref
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import torch

from gemmd._layers.torch_module import LayerModule, autocast_dtype, called_as_torch
from gemmd._memory import interop

if TYPE_CHECKING:
    from gemmd._layers.layer import Layer

MOST_UNSHARED = 64  # calls in a row, before somebody is told


class _Last:
    """A result in parts, and what it was made of."""

    def __init__(self, x: Any, parts: Sequence[Any]) -> None:
        self.parts = parts
        self.had = set[int]()
        self._x = weakref.ref(x)
        self._state = _state_of(x)

    def is_of(self, x: Any) -> bool:
        return self._x() is x and self._state == _state_of(x)


def _state_of(x: Any) -> tuple[Any, ...]:
    """What a result depends on besides x: whether x was written since, as far as torch counts it,
    what autocast makes of it, the stream, and whether a graph captures it.
    """
    with interop.past_torch_functions(torch):
        version = None if x.is_inference() else x._version
        dtype = autocast_dtype(x)
        if not x.is_cuda:
            return version, dtype
        stream = torch._C._cuda_getCurrentRawStream(x.get_device())
        return version, dtype, stream, torch._C._cuda_isCurrentStreamCapturing()


class Siblings:
    """The layer of several modules. Each thread has results of its own.

    Attributes
    ----------
    columns : list of slice
        Each module's of the layer's result.
    """

    def __init__(self, layer: Layer, counts: Sequence[int]) -> None:
        self.layer = layer
        ends = list(accumulate(counts))
        self.columns = [slice(end - n, end) for end, n in zip(ends, counts, strict=True)]
        self._counts = list(counts)
        self._of_thread = threading.local()
        self._unshared = 0
        self._traced_x: Any = None  # while torch's compiler traces, and until all have theirs
        self._traced: Any = None
        self._traced_had: tuple[int, ...] = ()

    def part(self, which: int, x: Any) -> Any:
        """The result of one of them."""
        if torch.compiler.is_compiling():
            return self._traced_part(which, x)
        if type(x) is not torch.Tensor:
            return called_as_torch(self.layer, x)[..., self.columns[which]].contiguous()
        last: _Last | None = getattr(self._of_thread, "last", None)
        if last is None or which in last.had or not last.is_of(x):
            self._count(last)
            last = self._of_thread.last = _Last(x, self._parted(called_as_torch(self.layer, x)))
        last.had.add(which)
        if len(last.had) == len(self.columns):
            self._of_thread.last = None
        return last.parts[which]

    def _parted(self, result: Any) -> Sequence[Any]:
        """Each module's, which lies as a Linear's: a `view` of rows and columns together is one."""
        return [one.contiguous() for one in result.split(self._counts, -1)]

    def _traced_part(self, which: int, x: Any) -> Any:
        """The same in terms that torch's compiler follows: in the end it has nothing to keep."""
        if self._traced_x is not x or which in self._traced_had:
            self._traced_x, self._traced_had = x, ()
            self._traced = called_as_torch(self.layer, x)
        result = self._traced
        self._traced_had = (*self._traced_had, which)
        if len(self._traced_had) == len(self.columns):
            self._traced_x, self._traced, self._traced_had = None, None, ()
        return result[..., self.columns[which]].contiguous()

    def _count(self, last: _Last | None) -> None:
        alone = last is not None and len(last.had) == 1
        self._unshared = self._unshared + 1 if alone else 0
        if self._unshared == MOST_UNSHARED:
            warnings.warn(
                f"{self.layer!r} multiplies for {len(self.columns)} modules, but each is called with"
                " an x of its own: leave them out by where=, and adopt them in a second call",
                RuntimeWarning,
                stacklevel=2,
            )


class SiblingModule(LayerModule):
    """One of several modules that have a layer in common."""

    def __init__(self, siblings: Siblings, which: int, x_name: str) -> None:
        super().__init__(siblings.layer, x_name)
        self.siblings = siblings
        self.which = which

    def called(self, x: Any) -> Any:
        return self.siblings.part(self.which, x)

    @property
    def out_features(self) -> int:
        """The last extent of the result."""
        columns = self.siblings.columns[self.which]
        return int(columns.stop - columns.start)

    def extra_repr(self) -> str:
        """What stands between the brackets of `repr`."""
        columns = self.siblings.columns[self.which]
        return f"columns {columns.start} to {columns.stop} of {super().extra_repr()}"

    def __deepcopy__(self, memo: dict[int, Any]) -> LayerModule:
        memo[id(self.siblings)] = self.siblings
        return super().__deepcopy__(memo)
