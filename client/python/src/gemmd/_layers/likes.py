"""Modules that compute what torch.nn.Linear does without being one: GPT-2's Conv1D, whose weight lies
transposed, a subclass with a forward of its own, or one whose weight is FP8 with scales.
"""

from __future__ import annotations

from contextlib import suppress
from types import TracebackType
from typing import Any

import torch
import torch.nn.functional as F

from gemmd._layers.agreement import bound_of_fp8, differs, exact
from gemmd._layers.chain import by_scale, random_rows, takes_x_alone
from gemmd._layers.scaled import is_fp8, with_scales
from gemmd._layers.tree import FLOATS, HOOKS


class LinearLikes:
    """While it is entered, Linears of the same weights stand in the place of such modules in a model.
    Those that nothing has replaced by then go back.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._replaced: list[tuple[Any, str, Any]] = []
        self._own: dict[Any, Any] = {}

    def own(self, module: Any) -> Any:
        """The model's module that a Linear stands for; another one itself."""
        return self._own.get(module, module)

    def __enter__(self) -> LinearLikes:
        made = dict[Any, Any]()
        for parent in list(self._model.modules()):
            for name, child in parent._modules.items():  # by each of its names
                if child is None:
                    continue
                if child not in made:
                    made[child] = linear_like(child)
                linear = made[child]
                if linear is not None:
                    self._own[linear] = child
                    setattr(parent, name, linear)
                    self._replaced.append((parent, name, child))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        for parent, name, own in self._replaced:
            if self._own.get(getattr(parent, name)) is own:
                setattr(parent, name, own)


def linear_like(module: Any) -> Any:
    """A Linear of a module's own weight and bias, which gives what the module does; None where there
    is none. It is told by the module's results.
    """
    if type(module) is torch.nn.Linear or not _is_leaf(module):
        return None
    if isinstance(module, torch.nn.Linear) and module.weight.dtype is torch.float8_e4m3fn:
        return _of_fp8(module)
    if not _holds_a_matrix(module):
        return None
    weight, bias = module.weight, module._parameters.get("bias")
    for turned in (weight, weight.t()):
        n, k = turned.shape
        if bias is not None and tuple(bias.shape) != (n,):
            continue
        if _is_linear(module, turned is not weight):
            return _made(module, weight if turned is weight else _parameter(turned, weight), bias)
    return None


def fp8_linears(model: Any) -> dict[Any, Any]:
    """What can stand for a model's Linears whose weights are FP8."""
    fp8 = (one for one in model.modules() if isinstance(one, torch.nn.Linear) and is_fp8(one))
    made = ((one, linear_like(one)) for one in fp8)
    return {module: linear for module, linear in made if linear is not None}


def _made(module: Any, weight: Any, bias: Any) -> Any:
    n, k = weight.shape
    made = torch.nn.utils.skip_init(torch.nn.Linear, k, n, bias is not None, device="meta")
    made.weight, made.bias = weight, bias
    return made.train(module.training)


def _of_fp8(module: Any) -> Any:
    """Told by results where the module's kernels are there; else its weight is what its scales say."""
    own = with_scales(module)
    if not own or not own.keys() <= {"weight", "bias"}:
        return None
    weight, bias = own["weight"], own.get("bias")
    if bias is not None and bias.dtype is not weight.dtype:
        bias = _parameter(bias.to(weight.dtype), bias)
    if not weight.is_meta:
        x = random_rows(weight.shape[1], weight.device, weight.dtype)
        wanted = F.linear(x, weight, bias)
        with suppress(Exception):  # no kernel for this device, or of another type
            off = differs(by_scale(wanted), by_scale(module(x)), bound_of_fp8(1))
            if off is not None:
                return None
    return _made(module, weight, bias)


def _is_leaf(module: Any) -> bool:
    """Whether nothing goes on but its forward, which is called with x alone."""
    if module._modules or "forward" in vars(module):
        return False
    if any(getattr(module, hooks, None) for hooks in HOOKS):
        return False
    return isinstance(module._parameters.get("weight"), torch.nn.Parameter) and (
        module.weight.dim() == 2 and takes_x_alone(module)
    )


def _holds_a_matrix(module: Any) -> bool:
    """Whether it has learnt a weight, maybe a bias, and nothing else."""
    own = {name: one for name, one in module._parameters.items() if one is not None}
    if module._buffers or not own.keys() <= {"weight", "bias"}:
        return False
    return all(
        type(one) is torch.nn.Parameter and one.dtype in FLOATS for one in own.values()
    )


def _is_linear(module: Any, transposed: bool) -> bool:
    """Whether its results are those of its weight as it lies, or transposed."""
    values = dict(module.named_parameters())
    if any(one.is_meta for one in values.values()):
        generator = torch.Generator("cpu").manual_seed(1)
        values = {
            name: torch.randn(one.shape, generator=generator, device="cpu")
            for name, one in values.items()
        }
    weight, bias = values["weight"], values.get("bias")
    weight = weight.t() if transposed else weight
    x = random_rows(weight.shape[1], weight.device, weight.dtype)
    try:
        own = torch.func.functional_call(module, values, (x.clone(),))
    except Exception:  # an embedding wants whole numbers, for instance
        return False
    wanted = F.linear(x, weight, bias)
    if not isinstance(own, torch.Tensor) or (own.shape, own.dtype) != (wanted.shape, wanted.dtype):
        return False
    if not own.isfinite().all():
        return False
    return differs(by_scale(wanted), by_scale(own), exact(x)) is None


def _parameter(values: Any, of: Any) -> Any:
    return torch.nn.Parameter(values, requires_grad=of.requires_grad)
