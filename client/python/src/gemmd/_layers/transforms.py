"""What layers and matmuls say to torch's derivatives, of which they have none, and to what of its
transforms they do not know.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import forward_ad

NO_GRADIENT = (
    "layers and matmuls of gemmd have no gradients: call them under torch.no_grad(), or with"
    " x.detach() if no gradient is to pass through them"
)
NO_TANGENT = (
    "layers and matmuls of gemmd have no derivatives, neither forward (jvp, jacfwd, linearize, dual"
    " numbers) nor backward: call them with x.detach() if none is to pass through them"
)
NOT_WITHIN = (
    "session.matmul cannot be called within a transform of torch.func, which shows it no data:"
    " call it outside, on all of the batch, or call a gemmd.Linear, which vmap knows"
)


def within() -> bool:
    """Whether a transform of torch.func is under way."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def carries_tangents() -> bool:
    """Whether a tensor may be more than its numbers: a derivative is carried forward beside it."""
    return bool(forward_ad._current_level >= 0)


def has_tangent(x: Any) -> bool:
    """Whether a derivative of x is carried forward: torch drops it in ops that say nothing."""
    if not carries_tangents() or not isinstance(x, torch.Tensor):
        return False
    while not torch.compiler.is_compiling() and torch._C._functorch.is_batchedtensor(x):
        x = torch._C._functorch.get_unwrapped(x)  # vmap cannot unpack
    return forward_ad.unpack_dual(x).tangent is not None


def refuse_derivatives(*inputs: Any) -> None:
    """Raises RuntimeError if a derivative by one of the inputs is wanted that no backward will
    refuse: a forward one, or torch.func's grad, which would fail on what ops are made of.
    """
    if any(has_tangent(one) for one in inputs):
        raise RuntimeError(NO_TANGENT)
    if not torch.compiler.is_compiling() and within() and torch.is_grad_enabled():
        if any(isinstance(one, torch.Tensor) and one.requires_grad for one in inputs):
            raise RuntimeError(NO_GRADIENT)


def refuse_within(*inputs: Any) -> None:
    """`refuse_derivatives`, and raises TypeError within a transform."""
    refuse_derivatives(*inputs)
    if within():
        raise TypeError(NOT_WITHIN)
