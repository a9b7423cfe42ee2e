"""Sequential: layers one behind the other as one program on the server."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from gemmd import errors
from gemmd._layers.forward import Way
from gemmd._layers.layer import Layer
from gemmd._layers.linear_step import Step
from gemmd._layers.mlp_step import MlpStep
from gemmd._layers.sequential_step import SequentialStep
from gemmd.linear import Linear
from gemmd.mlp import MLP


class Sequential(Layer):
    """y = last(..(first(x))), one call of the server for all of them.

    An MLP without a gate, as BERT, GPT-2, ViT and Whisper have it, is two `Linear`, the first with
    an activation. What lies between two layers stays on the device; where both multiply in FP8 by
    blocks, the first one's matmul adds its bias, activates and quantises.

    >>> fc1 = gemmd.Linear(session, w1, bias=b1, activation="gelu_erf")
    >>> mlp = gemmd.Sequential(fc1, gemmd.Linear(session, w2, bias=b2))
    >>> y = mlp(x)

    Parameters
    ----------
    *layers : Linear, MLP or Sequential
        Of one session and on one device, not split. They may be called by themselves, too. A result
        is in its layer's `out_dtype`, unless the next layer takes only another.

    Attributes
    ----------
    layers : tuple of Linear and MLP

    Raises
    ------
    ValueError
        There is no layer, one takes as many columns as the one in front of it does not have, or
        they are on several devices.
    TypeError
        Something else than such a layer.
    """

    def __init__(self, *layers: Linear | MLP | Sequential) -> None:
        self.layers = checked(layers)
        named = all(layer.name for layer in self.layers)
        self.name = "+".join(layer.name for layer in self.layers) if named else ""
        self._activation = tuple(what_it_does(layer) for layer in self.layers)
        first, last = self.layers[0], self.layers[-1]
        features = (first.in_features, last.out_features)
        super().__init__(first.session, first.device, features, None)

    @property
    def _held(self) -> Any:
        return tuple(layer._held for layer in self.layers)

    @property
    def held(self) -> Any:
        """As `Layer.held`."""
        return tuple(buffer for layer in self.layers for buffer in layer.held)

    def dtype_for(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """As `Layer.dtype_for`."""
        return self.layers[0].dtype_for(dtype)

    def result_dtype(self, sent: np.dtype[Any]) -> np.dtype[Any]:
        """As `Layer.result_dtype`."""
        for layer in self.layers:
            sent = layer.result_dtype(layer.dtype_for(sent))
        return sent

    def step(self, m: int, dtype: np.dtype[Any], way: Way) -> SequentialStep:
        """As `Layer.step`."""
        steps = list[Step | MlpStep]()
        for layer, after in zip(self.layers, (*self.layers[1:], None), strict=True):
            # Behind the first one x is in the device's memory, whatever way it came.
            step = layer.step(m, dtype, "device_shared" if steps else way)
            dtype = step.out_dtype if after is None else after.dtype_for(step.out_dtype)
            steps.append(replace(step, out_dtype=dtype))
        return SequentialStep(tuple(steps), way)

    def _check_open(self) -> None:
        super()._check_open()
        for layer in self.layers:
            layer._check_open()

    def unpublish(self) -> None:
        """Takes the layers' names away: the weights go when the last worker has let go of them."""
        for layer in self.layers:
            layer.unpublish()

    def _let_go(self) -> None:
        """Closes the layers: what is made of them is theirs alone in most programs."""
        for layer in self.layers:
            with suppress(errors.NotFound):
                layer.close()

    def __repr__(self) -> str:
        return f"Sequential({', '.join(repr(layer) for layer in self.layers)})"


def checked(layers: tuple[Any, ...]) -> tuple[Linear | MLP, ...]:
    """Those of a `Sequential`, with the layers of others in their place."""
    if not layers:
        raise ValueError("no layer is given; one or more are needed")
    flat = list[Linear | MLP]()
    for one in layers:
        if isinstance(one, Sequential):
            flat += one.layers
        elif type(one) in (Linear, MLP):
            flat.append(one)
        else:
            raise TypeError(
                f"{one!r} is no layer of a Sequential; give gemmd.Linear (not split), gemmd.MLP or"
                " gemmd.Sequential"
            )
    for before, after in pairwise(flat):
        if after.session is not before.session:
            raise ValueError(f"{before!r} and {after!r} are of two sessions; make them in one")
        if after.device != before.device:
            raise ValueError(
                f"{before!r} is on {before.device}, {after!r} on {after.device}; one program works"
                " on one device"
            )
        if after.in_features != before.out_features:
            raise ValueError(
                f"{before!r} gives {before.out_features} columns, {after!r} takes"
                f" {after.in_features}"
            )
    return tuple(flat)


def what_it_does(layer: Linear | MLP) -> tuple[Any, ...]:
    """Beside its weights."""
    does = layer._gate if isinstance(layer, MLP) else layer._activation
    return type(layer).__name__, does, layer._out_dtype
