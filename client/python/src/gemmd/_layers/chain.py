"""Which Linears a module applies one behind the other, with which activations: told by its forward
itself, whatever its parts are called.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from gemmd.ops import Activation

ACTIVATIONS: dict[Activation, Callable[[Any], Any]] = {
    "none": lambda x: x,
    "silu": F.silu,
    "gelu_erf": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
    "relu_squared": lambda x: F.relu(x).square(),
}
_OFF = 5e-5  # of an activation's values, however they are computed; erf's and tanh's differ by 5e-4
_SCALES = (1, 8)  # of rows that are tried: limits on values show with large ones


def chain_of(module: Any, linears: Sequence[Any]) -> list[tuple[Any, Activation]] | None:
    """These Linears in the order in which the module applies them, each with what activates its
    result. None: it computes something else. Weights need no values.
    """
    if next(module.buffers(), None) is not None or not takes_x_alone(module):
        return None  # a buffer may keep something from call to call, and this call is none of them
    weight = linears[0].weight
    device = "cpu" if weight.is_meta else weight.device
    x = random_rows(linears[0].in_features, device)
    record = _Record(linears, x)
    try:
        # Dropout that is on draws random numbers.
        with torch.random.fork_rng([x.device] if x.is_cuda else []), record:
            y = module(x.clone())
        record.given(y)
    except Exception:  # it wants something else than x, or does something else with it
        return None
    first, *after = record.activations
    if len(record.linears) < len(linears) or first != "none":
        return None
    if y.shape != (*x.shape[:-1], record.linears[-1].out_features):
        return None
    return list(zip(record.linears, after, strict=True))


def activation_between(before: Any, after: Any) -> Activation | None:
    """The one that makes the second tensor of the first, which is float32."""
    got = after.detach().to(before.device, torch.float32).reshape(before.shape)
    rounded = torch.finfo(after.dtype).eps
    for name, exact in ACTIVATIONS.items():
        if torch.allclose(got, exact(before), rtol=rounded, atol=_OFF):
            return name
    return None


def random_rows(columns: int, device: Any, dtype: Any = torch.float32, seed: int = 1) -> Any:
    """[2, 4, columns]; the same each time, and torch's own generators are not drawn from."""
    generator = torch.Generator("cpu").manual_seed(seed)
    x = torch.randn(len(_SCALES), 4, columns, generator=generator, device="cpu")
    scales = torch.tensor(_SCALES, device="cpu").reshape(-1, 1, 1)
    return (x * scales).to(device, dtype)


def by_scale(rows: Any) -> Any:
    """What was made of them: a row for each scale."""
    return rows.reshape(len(_SCALES), -1)


class _NoChain(Exception):
    pass


class _Record(TorchFunctionMode):  # type: ignore[misc]
    """While it is entered, Linears multiply nothing: each gives random rows. So what the next one
    is given shows what lies between the two.

    Attributes
    ----------
    linears : list
        Those that were called.
    activations : list
        In front of each, and behind the last one once `given` has got the module's result.
    """

    def __init__(self, linears: Sequence[Any], x: Any) -> None:
        super().__init__()
        self._waiting = {id(one.weight): one for one in linears}
        self._result = x
        self.linears: list[Any] = []
        self.activations: list[Activation] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        call = self._linear if func is F.linear else func
        return call(*args, **(kwargs or {}))

    def _linear(self, input: Any, weight: Any, bias: Any = None) -> Any:
        linear = self._waiting.pop(id(weight), None)
        if linear is None or bias is not linear.bias:
            raise _NoChain  # it is another one, or called again, or in part
        self.given(input)
        self.linears.append(linear)
        rows = random_rows(linear.out_features, input.device, seed=len(self.linears) + 1)
        self._result = rows.reshape(*input.shape[:-1], -1)
        return self._result.clone()  # it may be written in place

    def given(self, x: Any) -> None:
        """What comes of the last result."""
        activation = activation_between(self._result, x)
        if activation is None:
            raise _NoChain
        self.activations.append(activation)


def takes_x_alone(module: Any) -> bool:
    """Whether no caller can give it more, which a layer would not take."""
    more = list(inspect.signature(module.forward).parameters.values())[1:]
    return all(one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD) for one in more)


def x_name_of(module: Any) -> str:
    """What a module's forward calls its x."""
    return next(iter(inspect.signature(module.forward).parameters), "x")
