"""Attentions of lengths that come once.

On Hopper torch prefers cuDNN's attention, which plans for each shape: some 33 ms on an H200, and a cache
that grows has another one with every token. So a shape is left to torch's other kernels until cuDNN's,
which are up to twice as fast, would have won that back, or until it comes again at once, as where all
shapes are fixed.
"""

from __future__ import annotations

import math
import threading
from typing import Any

import torch
import torch.nn.functional as F
from torch.fx import Graph, Node

from gemmd._layers.graph.nodes import arguments

# What torch's attention is given: tensors, of which the mask may be missing, and options.
NAMES = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
_TENSORS = 3

_PLANNED_US = 33e3
_AT_ONCE = 3  # calls of one attention, one behind the other
_MOST_SHAPES = 1 << 14

# By shape: what a plan has not yet won back, and 0 once it is made.
_owed = dict[tuple[Any, ...], float]()
_lock = threading.Lock()  # what chooses kernels is one for the process


def of_any_length(graph: Graph) -> None:
    """For graphs that run as they are."""
    for node in graph.nodes:
        if node.target is F.scaled_dot_product_attention:
            give(node, arguments(node, NAMES))
            node.target = Attention().attend


def give(node: Node, given: dict[str, Any]) -> None:
    """These to an attention: query, key and value by place, all else by name."""
    node.args = tuple(given[name] for name in NAMES[:_TENSORS])
    node.kwargs = {name: given[name] for name in NAMES[_TENSORS:] if given[name] is not None}


class Attention:
    """One of a model's."""

    def __init__(self) -> None:
        self._shape: tuple[Any, ...] = ()
        self._times = 0

    def attend(self, query: Any, key: Any, value: Any, **options: Any) -> Any:
        """`F.scaled_dot_product_attention`."""
        if self._has_plan(query, key, value, options):
            return F.scaled_dot_product_attention(query, key, value, **options)
        backends = torch.backends.cuda
        with _lock:
            enabled = backends.cudnn_sdp_enabled()
            backends.enable_cudnn_sdp(False)
            try:
                return F.scaled_dot_product_attention(query, key, value, **options)
            finally:
                backends.enable_cudnn_sdp(enabled)

    def _has_plan(self, query: Any, key: Any, value: Any, options: dict[str, Any]) -> bool:
        """Or needs none, or is to have one now."""
        mask = options.get("attn_mask")
        shape = (query.shape, key.shape, query.dtype, mask is None, options.get("is_causal"))
        self._times = self._times + 1 if shape == self._shape else 1
        self._shape = shape
        owed = _owed.get(shape)
        if owed is None:
            with _lock:  # or another thread may have switched cuDNN's off, for its own call
                owed = _PLANNED_US if _is_cudnns(query, key, value, mask, options) else 0.0
            if len(_owed) >= _MOST_SHAPES:
                _owed.clear()
        capturing = query.is_cuda and torch._C._cuda_isCurrentStreamCapturing()
        if owed > 0 and not capturing:  # which is no time to plan
            owed = 0.0 if self._times >= _AT_ONCE else owed - _saving_us(query, key, mask)
        _owed[shape] = max(owed, 0.0)
        return owed <= 0


def _is_cudnns(query: Any, key: Any, value: Any, mask: Any, options: dict[str, Any]) -> bool:
    """Whether torch would take cuDNN's, and has others."""
    enabled = getattr(torch.backends.cuda, "cudnn_sdp_enabled", None)
    if not query.is_cuda or enabled is None or not enabled():
        return False
    if not torch.backends.cuda.mem_efficient_sdp_enabled():
        return False
    named = {name: options[name] for name in ("scale", "enable_gqa") if options.get(name)}
    chosen = torch._fused_sdp_choice(
        query, key, value, mask, 0.0, bool(options.get("is_causal")), **named
    )
    return bool(chosen == torch.nn.attention.SDPBackend.CUDNN_ATTENTION.value)


def _saving_us(query: Any, key: Any, mask: Any) -> float:
    """About what a plan saves one call, as measured on an H200."""
    queries, keys = int(query.shape[-2]), int(key.shape[-2])
    elements = math.prod(query.shape[:-2]) * keys * int(query.shape[-1])
    saving: float = 3 + 0.4e-6 * elements + 3e-9 * elements * queries
    return saving if mask is None else 3 * saving
