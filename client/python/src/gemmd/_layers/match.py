"""What may take a module's place: the parts of a `Match`, and what its layer is made of."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from gemmd._layers.chain import random_rows, x_name_of
from gemmd._layers.experts import Experts, trial_inputs
from gemmd._layers.layer import Layer
from gemmd._layers.mixture import Mixture
from gemmd._layers.scaled import is_fp8, with_scales
from gemmd._layers.torch_module import ExpertsModule, LayerModule, MixtureModule
from gemmd.ops import Activation
from gemmd.resident import Quantize

if TYPE_CHECKING:
    from gemmd.session import Session


class Values:
    """A weight as layers take it: a function that is called unless the weight is published."""

    def __init__(self, *tensors: Any) -> None:
        self._tensors = tensors
        self.used = False

    def __call__(self) -> Any:
        self.used = True
        return self._tensors[0] if len(self._tensors) == 1 else self._tensors


class Made(Values):
    """What a function makes."""

    def __init__(self, make: Callable[[], Any]) -> None:
        super().__init__()
        self._made_by = make

    def __call__(self) -> Any:
        self.used = True
        return self._made_by()


class Joined(Values):
    """Weights one below the other, as one."""

    def __call__(self) -> Any:
        self.used = True
        return torch.cat(self._tensors)


@dataclass(frozen=True)
class Part:
    """A Linear or an MLP that is to be made.

    Attributes
    ----------
    module : torch.nn.Module
        By whose path the weights are published.
    holders : tuple of torch.nn.Module
        All that hold the weights: Linears, or a module of experts.
    endings : tuple of str
        Of the names that the weights are published by.
    shapes : list of tuple
        Of the weights, [n, k] or [experts, n, k], and behind the extents whether there is a bias.
    """

    module: Any
    holders: tuple[Any, ...]
    endings: tuple[str, ...]
    shapes: list[tuple[int, ...]]
    values: tuple[Values, ...]
    _make: Callable[..., Layer]

    @property
    def on_meta(self) -> bool:
        """Whether a weight or bias has no values."""
        return any(one.is_meta for held in self.holders for one in held.parameters())

    @property
    def sent(self) -> bool:
        """Whether the layer was made of the module's weights: no published ones were found."""
        return all(one.used for one in self.values)

    def make(self, session: Session, name: str, quantize: Quantize | None) -> Layer:
        """The layer, of published weights alone if the module's have no values."""
        given = [None] * len(self.values) if self.on_meta else self.values
        return self._make(session, *given, name=name, quantize=quantize)


@dataclass(frozen=True)
class Match:
    """A layer that can take a module's place.

    Attributes
    ----------
    parts : tuple of Part
        It is a Sequential of these, where there are several.
    compute : callable or None
        What the layer computes, by torch and the module's own weights. None: that is known.
    columns : tuple of int
        Of siblings, each of which takes that many columns of the result; else empty.
    experts : Experts, optional
        Of a module of experts.
    mixture : Mixture, optional
        Of a module with a router and a list of experts.
    activation : Activation
        Of an MLP's gate.
    """

    parts: tuple[Part, ...]
    compute: Callable[..., Any] | None
    columns: tuple[int, ...] = ()
    experts: Experts | None = None
    mixture: Mixture | None = None
    activation: Activation = "none"

    @property
    def holders(self) -> list[Any]:
        """All that hold the layer's weights."""
        return [one for part in self.parts for one in part.holders]

    @property
    def elements(self) -> int:
        """Of the weights."""
        return sum(math.prod(shape[:-1]) for part in self.parts for shape in part.shapes)

    @property
    def experts_count(self) -> int:
        """Of a layer of experts."""
        return self.parts[0].shapes[0][0]

    def inputs(self) -> tuple[Any, ...]:
        """Random ones for a trial, where the weights lie."""
        *_, columns, _ = self.parts[0].shapes[0]
        own = next(iter(with_scales(self.holders[0]).values()))
        if self.experts is None:
            return (random_rows(columns, own.device, own.dtype),)
        return trial_inputs(own.shape[0], columns, own.device, own.dtype)

    def own(self, module: Any) -> Callable[..., Any]:
        """The module as it is called with those."""
        if self.columns:
            assert self.compute is not None
            return self.compute
        if self.mixture is not None:
            return partial(_result_of, module)
        if self.experts is None:
            called: Callable[..., Any] = module
            return called
        called = partial(self.experts.called, module)
        return self._or_computed(called) if self.of_fp8 else called

    @property
    def of_fp8(self) -> bool:
        """Whether a module of experts has FP8 weights."""
        return self.experts is not None and is_fp8(self.holders[0])

    def _or_computed(self, called: Callable[..., Any]) -> Callable[..., Any]:
        """Where the module has no kernels, what its weights stand for."""
        compute = self.compute
        assert compute is not None

        def own(*inputs: Any) -> Any:
            try:
                return called(*inputs)
            except Exception:  # none for this device, or of another type
                return compute(*inputs)

        return own

    def made(self, module: Any, layer: Layer) -> Any:
        """What a layer is called by in a module's place."""
        if self.mixture is not None:
            return MixtureModule(layer, self.mixture, module, x_name_of(module))
        if self.experts is not None:
            return ExpertsModule(layer, self.experts.order, *self.experts.names)
        return LayerModule(layer, x_name_of(module))

    def called(self, module: Any, layer: Layer) -> Callable[..., Any]:
        """That, with the inputs of `own`."""
        if self.mixture is None:
            return layer
        return partial(_result_of, self.made(module, layer))

    @property
    def on_meta(self) -> bool:
        """Whether a weight or bias has no values."""
        return any(part.on_meta for part in self.parts)

    @property
    def sent(self) -> bool:
        """Whether no published weights were found."""
        return all(part.sent for part in self.parts)


def _result_of(module: Any, x: Any) -> Any:
    """Without what a module tells besides."""
    y = module(x)
    return y[0] if isinstance(y, tuple) else y
