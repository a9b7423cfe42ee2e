"""A layer as a module of torch."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from gemmd._layers.told import Told

if TYPE_CHECKING:
    from gemmd._layers.layer import Layer
    from gemmd._layers.mixture import Mixture
    from gemmd.moe import MoE


_AUTOCAST = (torch.float32, torch.bfloat16, torch.float16)  # not float64, nor whole numbers


class LayerModule(torch.nn.Module):  # type: ignore[misc]
    """See `Layer.module`.

    Attributes
    ----------
    layer : Linear, MLP, MoE or Sequential
    names : tuple of str
        By which x, and what else a layer takes, may be given, too: a module in whose place this one
        stands called them so.
    told : Told, optional
        What `weight` is, in the place of a Linear.
    """

    told: Told | None = None

    def __init__(self, layer: Layer, *names: str) -> None:
        super().__init__()
        self.layer = layer
        self.names = names or ("x",)

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """As the layer's. To torch.fx it is one call of this module, within another."""
        if isinstance(inputs, torch.fx.Proxy):
            raise TypeError("torch.fx sees nothing in a layer; trace a module that holds this one")
        for one in (*inputs, *named.values()):
            if isinstance(one, torch.fx.Proxy):
                path = one.tracer.path_of_module(self)
                return one.tracer.create_proxy("call_module", path, inputs, named)
        for name in self.names[len(inputs) :]:
            if name in named:
                inputs = (*inputs, named.pop(name))
        return self.called(*inputs, **named)

    def called(self, *inputs: Any, **named: Any) -> Any:
        """`forward`, of tensors."""
        if len(inputs) == 1 and not named:
            return called_as_torch(self.layer, inputs[0])
        return self.layer(*inputs, **named)

    @property
    def weight(self) -> Told:
        """Type, device and shape of the Linear's weight."""
        if self.told is None:
            raise AttributeError("weight")
        return self.told

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


def called_as_torch(layer: Layer, x: Any) -> Any:
    """A layer's result, in the type that a module of torch would multiply x in."""
    dtype = autocast_dtype(x)
    if dtype is None:
        return layer(x)
    y = layer(x.to(dtype))
    return y if y.dtype is dtype else y.to(dtype)


def autocast_dtype(x: Any) -> Any:
    """What autocast would have a product of x cast to; None where it is off, or leaves x alone."""
    if not isinstance(x, torch.Tensor):
        return None
    device = x.device.type
    if not torch.is_autocast_enabled(device) or x.dtype not in _AUTOCAST:
        return None
    return torch.get_autocast_dtype(device)


class ExpertsModule(LayerModule):
    """A `MoE` in the place of a module of experts.

    Attributes
    ----------
    order : tuple of int
        Which arguments a token's experts and their weights are.
    """

    layer: MoE

    def __init__(self, layer: Layer, order: tuple[int, int], *names: str) -> None:
        super().__init__(layer, *names)
        self.order = order

    def called(self, *inputs: Any) -> Any:
        if len(inputs) != 3:
            raise TypeError(f"{len(inputs)} arguments; {', '.join(self.names)} are needed")
        given = inputs[0], inputs[self.order[0]], inputs[self.order[1]]
        x, experts, weights = (one.reshape(-1, one.shape[-1]) for one in given)
        y = self.layer.route(x, experts, weights)
        return y.reshape(*inputs[0].shape[:-1], self.layer.out_features)


class MixtureModule(LayerModule):
    """A `MoE` in the place of a module with a router and its experts, whose router goes on as it is."""

    layer: MoE

    def __init__(self, layer: Layer, mixture: Mixture, of: Any, *names: str) -> None:
        super().__init__(layer, *names)
        self.mixture = mixture
        for name in mixture.kept:
            setattr(self, name, getattr(of, name))

    def called(self, x: Any) -> Any:
        # The compiler sees how experts are chosen, and puts that into a block.
        by_choice = None if torch.compiler.is_compiling() else self.layer.by_choice
        return self.mixture.result(self, x, self.layer.route, by_choice)
