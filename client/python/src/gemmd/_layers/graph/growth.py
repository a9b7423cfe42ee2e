"""Caches that grow: the keys and values of a decoding token are written behind those before.

Torch joins both, which copies all that is cached with each token. A joined tensor that a model gives out,
to be given it with the next call, gets room here, and lies with what it grows along outermost: so it
grows where it is, and no stride depends on how far. Torch would compile anew for other strides.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from gemmd._layers.graph.layout import may_lie
from gemmd._layers.graph.nodes import arguments, sample
from gemmd._layers.graph.writes import Memory
from gemmd._layers.graph.writing import without_values

_JOINS = (torch.cat, torch.concat, torch.concatenate)
_SHARE = 16  # of the rows that are there, as room behind them
_LEAST = 64
_ROOM = "_gemmd_room"  # an attribute of a storage

_lock = threading.Lock()


def grow_in_place(graph: Graph) -> None:
    """For graphs that run as they are."""
    memory, users = Memory(graph), defaultdict[Node, set[Node]](set)
    for node in graph.nodes:
        users[memory.of(node)].update(node.users)
    for node in graph.nodes:
        joined = _joined(node)
        if joined is None or not _is_cache(joined[0]):
            continue
        if not memory.changed.isdisjoint(map(memory.of, (node, joined[0]))):
            continue  # a write to one would be to the other, too
        stays = any(one.op == "output" for one in users[memory.of(node)])
        if stays and may_lie(node, _grown_sample(node, joined[2]), given_out=True):
            node.target, node.args, node.kwargs = grown, joined, {}


def is_growth(node: Node) -> bool:
    """Whether it does something else with each call, as one that was put into a graph."""
    return node.target is grown


def _joined(node: Node) -> tuple[Node, Node, int] | None:
    """Two tensors of one type and one device, and the axis, which is not the last."""
    result = sample(node) if node.target in _JOINS else None
    if result is None:
        return None
    given = arguments(node, ("tensors", "dim", "axis"))
    axis = given["dim"] or given["axis"] or 0
    parts = given["tensors"]
    if len(parts) != 2 or not isinstance(axis, int) or (axis + 1) % result.dim() == 0:
        return None
    for one in map(sample, parts):
        if one is None or one.dtype is not result.dtype or one.device != result.device:
            return None
        if one.requires_grad or is_traceable_wrapper_subclass(one):
            return None
    return parts[0], parts[1], axis % result.dim()


def _is_cache(before: Node) -> bool:
    """Whether the caller gives it, or it is empty, as a cache begins."""
    is_given = before.op == "placeholder" and not isinstance(sample(before), torch.nn.Parameter)
    return is_given or tuple(sample(before).shape) == (0,)


def _grown_sample(node: Node, axis: int) -> Any:
    """One that lies as what grows does."""
    of = sample(node)
    with without_values([of]):
        order = [axis, *(at for at in range(of.dim()) if at != axis)]
        rows = of.new_empty([of.shape[at] for at in order])
        return rows.permute([order.index(at) for at in range(of.dim())])


class _Room:
    """What a storage has behind the rows that are filled.

    Attributes
    ----------
    strides : tuple of int
        Of all that lies in it.
    row : int
        Elements of one index along the axis that it grows along.
    rows, filled : int
    inference : bool
        Whether only inference mode may write to it.
    """

    __slots__ = ("filled", "inference", "row", "rows", "strides")

    def __init__(self, strides: tuple[int, ...], row: int, rows: int, filled: int) -> None:
        self.strides, self.row, self.rows, self.filled = strides, row, rows, filled
        self.inference = torch.is_inference_mode_enabled()

    def take(self, first: int, rows: int) -> bool:
        """Whether those are the next ones, and now the caller's."""
        end = first + rows
        with _lock:
            if first != self.filled or end > self.rows:
                return False
            self.filled = end
        return True


def grown(before: Any, behind: Any, axis: int) -> Any:
    """`torch.cat((before, behind), axis)`, which may lie where `before` does. Of extents and types a
    graph has the guards.
    """
    room = getattr(before.untyped_storage(), _ROOM, None)
    if room is None or not _may_write(behind, room) or before.stride() != room.strides:
        return _moved(before, behind, axis)
    whole, more = list(before.shape), behind.shape
    offset, first, rows = before.storage_offset(), whole[axis], more[axis]
    if not room.take(offset // room.row + first, rows):
        return _moved(before, behind, axis)
    whole[axis] += rows
    before.as_strided(more, room.strides, offset + first * room.row).copy_(behind)
    return before.as_strided(whole, room.strides, offset)


def _may_write(behind: Any, room: _Room) -> bool:
    if torch.is_grad_enabled() and behind.requires_grad:
        return False
    if room.inference and not torch.is_inference_mode_enabled():
        return False
    return not behind.is_cuda or not torch._C._cuda_isCurrentStreamCapturing()


def _moved(before: Any, behind: Any, axis: int) -> Any:
    """The same, in memory with room; without, if what is there does not lie as it does with room."""
    whole = list(behind.shape)
    first = before.shape[axis] if before.dim() > 1 else 0
    whole[axis] += first
    strides, row = _layout(behind.shape, axis)
    lies = not first or all(
        extent == 1 or is_ == wanted
        for extent, is_, wanted in zip(before.shape, before.stride(), strides, strict=True)
    )
    memory = _memory(behind, strides, row, whole[axis]) if lies else None
    if memory is None:
        return torch.cat((before, behind), axis)
    if first:
        memory.as_strided(before.shape, strides, 0).copy_(before)
    memory.as_strided(behind.shape, strides, first * row).copy_(behind)
    return memory.as_strided(whole, strides, 0)


def _layout(shape: Sequence[int], axis: int) -> tuple[tuple[int, ...], int]:
    """Strides of a tensor whose axis lies outermost, and the elements of one index along it."""
    strides, step = [0] * len(shape), 1
    for at in reversed(range(len(shape))):
        if at != axis:
            strides[at] = step
            step *= shape[at]
    strides[axis] = step
    return tuple(strides), step


def _memory(like: Any, strides: tuple[int, ...], row: int, filled: int) -> Any:
    """For so many rows and some more; None where there is none, or torch must join them."""
    rows = filled + max(_LEAST, filled // _SHARE)
    room = _Room(strides, row, rows, filled)
    if not _may_write(like, room):
        return None
    try:
        memory = like.new_empty(rows * row)
    except torch.OutOfMemoryError:
        return None
    setattr(memory.untyped_storage(), _ROOM, room)
    return memory
