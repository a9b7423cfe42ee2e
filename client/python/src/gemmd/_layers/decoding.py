"""What transformers' `generate` decodes with, where its cache has one size: it asks the model for a
compiled call, which its own method makes by torch alone. Here the same is made with blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from types import MethodType
from typing import Any
from weakref import WeakSet

import torch

from gemmd._layers.frames import frame_of
from gemmd._layers.graph.compiling import Compiling
from gemmd._layers.graph.rest import backend_of

_METHOD = "get_compiled_call"
_BACKEND, _MODE = "inductor", "reduce-overhead"  # what transformers takes where nobody says
_KEPT = "_gemmd_decoding"  # a model's attribute, a `Decoding` while it is compiled in place
_DEPTH = 5  # of a cache: its layers, their tensors, those in lists


def decodes(model: Any) -> bool:
    """Whether it is one that `generate` would compile."""
    can_generate = getattr(model, "can_generate", None)
    return hasattr(model, _METHOD) and can_generate is not None and bool(can_generate())


class Decoding:
    """The compiled calls of a model, by what `generate` was told of compiling. A copy of the model has
    None instead.
    """

    def __init__(self, compiling: Compiling, model: Any) -> None:
        self._compiling = compiling
        self._call = model._call_impl  # not what the model's calls became
        self._made = dict[tuple[Any, ...], Callable[..., Any]]()
        self._marked = WeakSet[Any]()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()

    def compiled(self, told: Any) -> Callable[..., Any]:
        """By transformers' `CompileConfig`, or None."""
        backend, mode = getattr(told, "backend", _BACKEND), getattr(told, "mode", _MODE)
        options = getattr(told, "options", None) or {}
        flags = {name: getattr(told, name, None) for name in ("fullgraph", "dynamic")}
        key = (backend, mode, *flags.values(), repr(sorted(options.items())))
        if key not in self._made:
            if isinstance(backend, str):
                backend = backend_of(backend, mode if backend == _BACKEND else "", options)
            self._made[key] = torch.compile(
                frame_of(self._call),
                backend=self._compiling.leaving_to(backend),
                fullgraph=bool(flags["fullgraph"]),
                dynamic=flags["dynamic"],
            )
        return partial(self._decode, self._made[key])

    def _decode(self, compiled: Callable[..., Any], *given: Any, **named: Any) -> Any:
        """A cache that a compiled prompt has made says of no tensor that it stays where it is, without
        which a call that writes to it is no CUDA graph.
        """
        for one in (*given, *named.values()):
            if "Cache" in type(one).__name__ and one not in self._marked:
                for held in _tensors_of(one, _DEPTH, set()):
                    torch._dynamo.mark_static_address(held)
                self._marked.add(one)
        return compiled(*given, **named)


def _tensors_of(held: Any, depth: int, seen: set[int]) -> Iterator[Any]:
    if isinstance(held, torch.Tensor):
        yield held
    elif depth and id(held) not in seen and not isinstance(held, (type, torch.nn.Module)):
        seen.add(id(held))
        within: Any = held
        if not isinstance(held, (list, tuple)):
            within = (held if isinstance(held, dict) else getattr(held, "__dict__", {})).values()
        for one in within:
            yield from _tensors_of(one, depth - 1, seen)


def put_in(model: Any, compiling: Compiling) -> None:
    """Until `take_out`, `generate` decodes by blocks."""
    setattr(model, _KEPT, Decoding(compiling, model))
    setattr(model, _METHOD, MethodType(_compiled_call, model))  # a copy's has the copy


def take_out(model: Any) -> None:
    vars(model).pop(_METHOD, None)
    vars(model).pop(_KEPT, None)


def _compiled_call(model: Any, compile_config: Any = None) -> Any:
    own, kept = getattr(type(model), _METHOD)(model, compile_config), getattr(model, _KEPT, None)
    if kept is None or own == model.__call__:  # a copy; or one that transformers would not compile
        return own
    return kept.compiled(compile_config)
