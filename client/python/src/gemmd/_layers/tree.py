"""The modules of a model of torch: where each stands, and why one is to stay there."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch

from gemmd._layers.reads import read_by, taken_by
from gemmd._layers.scaled import ScaledWeight, with_scales
from gemmd._layers.torch_module import LayerModule

HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
FLOATS = (torch.float32, torch.bfloat16, torch.float16)
_OF_INSTANCES = ("training", "layer")  # attributes that a LayerModule has, and not by its class
_OF_NOTHING = ("parameters", "named_parameters")  # those that it has, and that say nothing


class Tree:
    """The modules of a model, each once however often it occurs.

    Attributes
    ----------
    paths : dict
        The first path of each module.
    spots : dict
        The (parent, attribute) pairs that hold a module. The model itself has none.
    """

    def __init__(self, model: Any) -> None:
        self.paths: dict[Any, str] = {module: path for path, module in model.named_modules()}
        self.spots: dict[Any, list[tuple[Any, str]]] = defaultdict(list)
        for parent in self.paths:
            for child in parent.children():
                self.spots[child] += [
                    (parent, name) for name, one in parent._modules.items() if one is child
                ]
        self._lacking: dict[type, list[tuple[str, str]]] = {}
        self._taken: dict[type, set[str]] = {}

    def why_linear_stays(self, module: Any) -> str:
        """Why this Linear, or module of a subclass, cannot be replaced; "" if it can, as far as it
        is for the module itself to say.
        """
        if torch.nn.utils.parametrize.is_parametrized(module):
            return "its weight is parametrised"
        if type(module) is not torch.nn.Linear:
            return f"it is a {type(module).__name__}, a subclass of torch.nn.Linear"
        return _why_weight(module.weight) or self.why_stays(module)

    def why_experts_stay(self, module: Any) -> str:
        """The same of a module of experts."""
        why = "it occurs several times" if self.occurs_again(module) else self.why_stays(module)
        why = why or self.why_read(module, beyond=module)
        learnt = with_scales(module).values()
        return why or next(filter(None, map(_why_weight, learnt)), "")

    def why_stays(self, module: Any) -> str:
        """The same of any module."""
        if not self.spots[module]:
            return "it is the model itself, which has no parent to be replaced in"
        if any(getattr(module, hooks, None) for hooks in HOOKS):
            return "it has hooks"
        if "forward" in vars(module):
            return "its forward was set on the instance, as accelerate does"
        return ""

    def occurs_again(self, module: Any) -> bool:
        """Whether something that a module has learnt stands in several places."""
        return len(self.spots[module]) > 1 and next(module.parameters(), None) is not None

    def why_read(self, module: Any, beyond: Any) -> str:
        """What of this module, which a layer has not, is read by a module above `beyond`."""
        names = {name for _, name in self.spots[module]}
        is_container = hasattr(type(module), "__getitem__")
        for parent in self._above(beyond):
            for name, attribute in self._lacking_in(type(parent)):
                if name in names and hasattr(module, attribute):  # else it is of another module
                    return f"the forward of {type(parent).__name__} reads {name}.{attribute}"
            for name in names & self._taken_in(type(parent)) if is_container else ():
                return f"the forward of {type(parent).__name__} may take {name} apart"
        return self._why_asked(module)

    def _why_asked(self, module: Any) -> str:
        """Whether a forward asks a module above this one for its parameters, which go with it."""
        for one in self._above(module):
            names = {name for _, name in self.spots[one]}
            for parent in self._above(one):
                for name, attribute in self._lacking_in(type(parent)):
                    if name in names and attribute in _OF_NOTHING:
                        return f"the forward of {type(parent).__name__} reads {name}.{attribute}"
        return ""

    def _above(self, module: Any) -> list[Any]:
        found: dict[Any, None] = {}
        todo = [module]
        while todo:
            parents = [parent for parent, _ in self.spots[todo.pop()] if parent not in found]
            found.update(dict.fromkeys(parents))
            todo += parents
        return list(found)

    def _lacking_in(self, kind: type) -> list[tuple[str, str]]:
        """Names of children, each with an attribute of it that is read, and that a layer has not."""
        if kind not in self._lacking:
            self._lacking[kind] = [
                (name, attribute)
                for name, attribute in sorted(read_by(kind), reverse=True)
                if attribute not in _OF_INSTANCES
                and (attribute in (*_OF_NOTHING, "weight") or not hasattr(LayerModule, attribute))
            ]
        return self._lacking[kind]

    def _taken_in(self, kind: type) -> set[str]:
        if kind not in self._taken:
            self._taken[kind] = taken_by(kind)
        return self._taken[kind]


def _why_weight(weight: Any) -> str:
    kinds = (torch.nn.Parameter, torch.Tensor, ScaledWeight)
    if type(weight) not in kinds or weight.layout != torch.strided:
        return f"its weight is a {type(weight).__name__} that is no plain dense tensor"
    if weight.dtype not in FLOATS:
        return f"its weight has dtype {weight.dtype}; layers take float32, bfloat16 and float16"
    return ""
