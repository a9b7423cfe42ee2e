"""A layer as a module of torch."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

if TYPE_CHECKING:
    from gemmd._layers.layer import Layer


class LayerModule(torch.nn.Module):  # type: ignore[misc]
    """See `Layer.module`.

    Attributes
    ----------
    layer : Linear, MLP, MoE or Sequential
    x_name : str
        By which x may be given, too: a module in whose place this one stands called it so.
    """

    def __init__(self, layer: Layer, x_name: str = "x") -> None:
        super().__init__()
        self.layer = layer
        self.x_name = x_name

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """As the layer's. To torch.fx it is one call of this module, within another."""
        if isinstance(inputs, torch.fx.Proxy):
            raise TypeError("torch.fx sees nothing in a layer; trace a module that holds this one")
        for one in (*inputs, *named.values()):
            if isinstance(one, torch.fx.Proxy):
                path = one.tracer.path_of_module(self)
                return one.tracer.create_proxy("call_module", path, inputs, named)
        if not inputs and self.x_name in named:
            inputs = (named.pop(self.x_name),)
        return self.called(*inputs, **named)

    def called(self, *inputs: Any, **named: Any) -> Any:
        """`forward`, of tensors."""
        return self.layer(*inputs, **named)

    @property
    def in_features(self) -> int:
        """The last extent of x."""
        return self.layer.in_features

    @property
    def out_features(self) -> int:
        """The last extent of the result."""
        return self.layer.out_features

    def extra_repr(self) -> str:
        """What stands between the brackets of `repr`."""
        return repr(self.layer)

    def __deepcopy__(self, memo: dict[int, Any]) -> LayerModule:
        memo[id(self.layer)] = self.layer  # its weights are never written
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        made.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return made
