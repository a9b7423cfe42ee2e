"""What compiles that which no block computes: a backend of torch's compiler."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from gemmd import words

Backend = Callable[[Any, Any], Callable[..., Any]]

_NO_OPTIONS: Mapping[str, Any] = {}
_MODAL = "inductor"  # the backend that has modes
_WITHOUT_GRAPHS = {"reduce-overhead": "default", "max-autotune": "max-autotune-no-cudagraphs"}


def without_graphs(mode: str) -> str:
    """What compiles as another mode does, and captures no CUDA graphs."""
    return _WITHOUT_GRAPHS.get(mode, mode)


def backend_of(
    rest: str, mode: str = "", options: Mapping[str, Any] = _NO_OPTIONS
) -> Backend | None:
    """None leaves it to torch as it is. `options` are inductor's."""
    if mode and rest != _MODAL:
        raise ValueError(
            f'mode is {mode!r} and rest is {rest!r}, which has no modes; give rest="{_MODAL}"'
        )
    if rest == "eager":
        return None
    if not mode and not options:
        backend: Backend = torch._dynamo.lookup_backend(rest)
        return backend
    from torch._inductor import list_mode_options
    from torch._inductor.compile_fx import compile_fx

    words.check("mode", mode or "default", tuple(list_mode_options()))
    settings = {**list_mode_options(mode or "default"), **options}

    def compiled(graph_module: Any, inputs: Any) -> Callable[..., Any]:
        made: Callable[..., Any] = compile_fx(graph_module, inputs, config_patches=settings)
        return made

    return compiled
