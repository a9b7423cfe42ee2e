"""A region as a recipe: its products, as few as there can be, and where its results lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch.fx import Node

from gemmd import dtypes
from gemmd._layers.blocks.recipe import (
    Given,
    Logits,
    Mixed,
    Norm,
    Normed,
    Product,
    Recipe,
    Slice,
    Sum,
    Value,
)
from gemmd._layers.blocks.routed import Chosen, Router
from gemmd._layers.graph.found import Found
from gemmd._layers.graph.nodes import sample
from gemmd._layers.graph.regions import Region
from gemmd._layers.linear_step import Weights
from gemmd._memory.layout import padded
from gemmd.ops import Activation

if TYPE_CHECKING:
    from gemmd.moe import MoE

_NOT_YET = -1  # a slice that nobody took so far


@dataclass(frozen=True)
class Matrix:
    """Weights one below the other, of products that are made at once.

    Attributes
    ----------
    products : tuple of Found
    """

    products: tuple[Found, ...]

    @property
    def weights(self) -> list[Any]:
        return [one.weight for one in self.products]

    @property
    def biases(self) -> list[Any]:
        return [one.bias for one in self.products]

    @property
    def has_bias(self) -> bool:
        return any(one is not None for one in self.biases)

    @property
    def shape(self) -> tuple[int, int]:
        return sum(int(one.shape[0]) for one in self.weights), int(self.weights[0].shape[1])


class Written:
    """A region as a recipe, whose weights are still to be made.

    Attributes
    ----------
    matrices : list of Matrix
    constants : list of tensors
        The norms' vectors and what routers have, one behind the other in the block's own buffer: a
        router's weight in its type, all else float32.
    constants_bytes : int
        Of that buffer.
    experts : list of MoE
    columns : dict of Node to slice
        Of each output in the result.
    """

    def __init__(self, region: Region) -> None:
        self.region = region
        self.matrices = list[Matrix]()
        self.constants = list[Any]()
        self.constants_bytes = 0
        self.experts: list[MoE] = []
        self._values = list[Value]()
        self._of = dict[Node, int]()
        self._norms = list[Norm]()
        self._routers = list[Router]()
        self._chosen = list[Chosen]()
        self._whole = dict[Node, tuple[int, int]]()  # of products that are made at once
        self._takers = {
            product: one
            for one in region.found
            if one.kind in ("add", "gate")
            or (one.kind == "activation" and one.activation != "none")
            for product in (one.inputs[:1] if one.kind == "add" else one.inputs)
        }
        self._products = {one.root: one for one in region.found if one.kind == "linear"}
        first = 0
        for node in region.inputs:
            columns = int(sample(node).shape[-1])
            self._of[node] = self._add(Given(first, columns))
            first += columns
        write = {
            "linear": self._linear, "activation": self._activate, "gate": self._gate,
            "add": self._sum, "norm": self._norm, "view": self._alias, "router": self._router,
            "experts": self._mix,
        }  # fmt: skip
        for one in region.found:
            write[one.kind](one)
        self.columns = dict[Node, slice]()
        self._outputs = list[int]()
        self._place_outputs()

    def recipe(self, weights: list[Weights]) -> Recipe:
        return Recipe(
            tuple(self._values),
            tuple(weights),
            tuple(self._norms),
            tuple(self._outputs),
            tuple(self._routers),
            tuple(self._chosen),
        )

    def _add(self, value: Value) -> int:
        self._values.append(value)
        return len(self._values) - 1

    def _product(
        self,
        of: Node,
        products: tuple[Found, ...],
        activation: Activation = "none",
        alpha: float = 1.0,
        gated: bool = False,
    ) -> int:
        self.matrices.append(Matrix(products))
        made = Product(self._value(of), len(self.matrices) - 1, activation, alpha, gated)
        return self._add(made)

    def _linear(self, one: Found) -> None:
        if one.root in self._takers or one.root in self._of:
            return  # whose it is multiplies, or another of the same x has
        alike = tuple(
            other
            for other in self.region.found
            if other.kind == "linear"
            and other.inputs == one.inputs
            and other.root not in self._takers
        )
        made = self._product(one.inputs[0], alike)
        if len(alike) == 1:
            self._of[one.root] = made
            return
        first = 0
        for other in alike:
            n = int(other.weight.shape[0])
            self._whole[other.root] = made, first
            self._of[other.root] = _NOT_YET
            first += n

    def _value(self, node: Node) -> int:
        """What a node is within the block."""
        if self._of[node] == _NOT_YET:
            whole, first = self._whole[node]
            self._of[node] = self._add(Slice(whole, first, int(sample(node).shape[-1])))
        return self._of[node]

    def _alias(self, one: Found) -> None:
        """The same rows by another name."""
        self._of[one.root] = self._of[one.inputs[0]]
        if one.inputs[0] in self._whole:
            self._whole[one.root] = self._whole[one.inputs[0]]

    def _activate(self, one: Found) -> None:
        if one.activation == "none":
            self._alias(one)
            return
        product = self._products[one.inputs[0]]
        self._of[one.root] = self._product(product.inputs[0], (product,), one.activation, one.alpha)

    def _gate(self, one: Found) -> None:
        products = tuple(self._products[node] for node in one.inputs)
        of = products[0].inputs[0]
        self._of[one.root] = self._product(of, products, one.activation, one.alpha, gated=True)

    def _sum(self, one: Found) -> None:
        product = self._products.get(one.inputs[0])
        if product is None:  # a norm, or a sum
            made = self._value(one.inputs[0])
        else:
            made = self._product(product.inputs[0], (product,))
        self._of[one.root] = self._add(Sum(made, self._value(one.inputs[1])))

    def _norm(self, one: Found) -> None:
        columns = int(sample(one.root).shape[-1])
        places = self._kept(one.weight), self._kept(one.bias)
        self._norms.append(Norm(columns, one.centered, one.epsilon, *places))
        self._of[one.root] = self._add(Normed(self._value(one.inputs[0]), len(self._norms) - 1))

    def _kept(self, vector: Any) -> int | None:
        """Where it lies among the constants, in float32; None if there is none."""
        if vector is None:
            return None
        return self._placed(vector.detach().float())

    def _placed(self, constant: Any) -> int:
        at = self.constants_bytes
        self.constants.append(constant)
        self.constants_bytes += padded(constant.numel() * constant.element_size())
        return at

    def _router(self, one: Found) -> None:
        weight = one.weight.detach()
        dtype = dtypes.as_dtype(weight.dtype)
        at = self._placed(weight)
        experts, columns = map(int, weight.shape)
        self._routers.append(Router(experts, columns, dtype, at, self._kept(one.bias)))
        made = Logits(self._value(one.inputs[0]), len(self._routers) - 1)
        self._of[one.root] = self._add(made)

    def _mix(self, one: Found) -> None:
        assert one.layer is not None and one.choice is not None
        self.experts.append(one.layer)
        gate_up, down = one.layer.weights
        bias_at = self._kept(one.bias)
        self._chosen.append(Chosen(gate_up, down, one.layer._gate, one.choice, bias_at))
        x, logits = (self._value(node) for node in one.inputs)
        self._of[one.root] = self._add(Mixed(x, logits, len(self._chosen) - 1))

    def _place_outputs(self) -> None:
        """Each value once, however many nodes have it."""
        begins, first = dict[int, int](), 0
        for node in self.region.outputs:
            value, skipped = self._whole.get(node) or (self._of[node], 0)
            if value not in begins:
                begins[value] = first
                self._outputs.append(value)
                first += self._width(value)
            begin = begins[value] + skipped
            self.columns[node] = slice(begin, begin + int(sample(node).shape[-1]))

    def _width(self, value: int) -> int:
        made = self._values[value]
        if isinstance(made, Product):
            n = self.matrices[made.weights].shape[0]
            return n // 2 if made.gated else n
        if isinstance(made, Mixed):
            return self._chosen[made.experts].down.n
        if isinstance(made, Logits):
            return self._routers[made.router].experts
        return self._width(made.of) if isinstance(made, Sum | Normed) else made.columns
