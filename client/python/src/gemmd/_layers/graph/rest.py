"""What compiles that which no block computes: a backend of torch's compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from gemmd import words

Backend = Callable[[Any, Any], Callable[..., Any]]

_MODAL = "inductor"  # the backend that has modes


def backend_of(rest: str, mode: str) -> Backend | None:
    """None leaves it to torch as it is."""
    if mode and rest != _MODAL:
        raise ValueError(
            f'mode is {mode!r} and rest is {rest!r}, which has no modes; give rest="{_MODAL}"'
        )
    if rest == "eager":
        return None
    if not mode:
        backend: Backend = torch._dynamo.lookup_backend(rest)
        return backend
    from torch._inductor import list_mode_options
    from torch._inductor.compile_fx import compile_fx

    words.check("mode", mode, tuple(list_mode_options()))
    settings = list_mode_options(mode)

    def compiled(graph_module: Any, inputs: Any) -> Callable[..., Any]:
        made: Callable[..., Any] = compile_fx(graph_module, inputs, config_patches=settings)
        return made

    return compiled
