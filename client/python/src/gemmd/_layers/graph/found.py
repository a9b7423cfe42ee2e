"""A step of a block, found in a graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from torch.fx import Node

from gemmd._layers.choice import Choice
from gemmd.ops import Activation

if TYPE_CHECKING:
    from gemmd.moe import MoE

Kind = Literal["linear", "norm", "activation", "gate", "add", "view", "router", "experts"]


@dataclass(frozen=True)
class Found:
    """Attributes
    ----------
    kind : Kind
    root : Node
        Whose result it is.
    inputs : tuple of Node
        The tensors that it is made of: x; of a gate gate and up, or the product that has both; of "add"
        what a block makes, and the other; of "experts" x and the router's logits.
    nodes : frozenset of Node
        All that it stands for.
    """

    kind: Kind
    root: Node
    inputs: tuple[Node, ...]
    nodes: frozenset[Node]
    activation: Activation = "none"
    weight: Any = None
    bias: Any = None
    centered: bool = False
    epsilon: float = 0.0
    alpha: float = 1.0  # SiLU's factor
    layer: MoE | None = None  # of experts
    choice: Choice | None = None
