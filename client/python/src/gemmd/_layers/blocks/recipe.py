"""What a `Block` computes of its rows: a list of values, each made of those in front of it.

A recipe also says in which forms each value is read: those that FP8 matmuls alone take are written
quantised by who makes them. `BlockStep` decides where they lie.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from gemmd._layers.blocks.routed import Chosen, Router
from gemmd._layers.linear_step import Weights
from gemmd.handle import Handle
from gemmd.norms import normalize
from gemmd.ops import Activation, Granularity, Op, Operand
from gemmd.tensor import Tensor


@dataclass(frozen=True)
class Given:
    """Columns of x."""

    first: int
    columns: int


@dataclass(frozen=True)
class Slice:
    """Columns of another value."""

    of: int
    first: int
    columns: int


@dataclass(frozen=True)
class Product:
    """activation(value @ weight.T + bias); `gated`: activation(gate) * up of its two halves. `alpha` is
    SiLU's factor.
    """

    of: int
    weights: int
    activation: Activation = "none"
    alpha: float = 1.0
    gated: bool = False


@dataclass(frozen=True)
class Sum:
    """Of two values: by the first norm of it, or by one whose result is nobody's."""

    of: int
    plus: int


@dataclass(frozen=True)
class Normed:
    """A value, normalised by rows."""

    of: int
    norm: int


@dataclass(frozen=True)
class Norm:
    """A LayerNorm, if centred, or an RMSNorm. Its vectors lie in the block's own buffer, float32."""

    columns: int
    centered: bool
    epsilon: float
    weight_at: int | None
    bias_at: int | None

    def op(
        self,
        src: Tensor,
        dst: Tensor | Operand,
        vectors: Handle | None,
        addend: Tensor | None = None,
        total: Tensor | None = None,
    ) -> Op:
        def vector(at: int | None) -> Tensor | None:
            if at is None or vectors is None:
                return None
            return vectors.tensor((self.columns,), "f32", offset_bytes=at)

        return normalize(
            src,
            dst,
            weight=vector(self.weight_at),
            bias=vector(self.bias_at),
            epsilon=self.epsilon,
            centered=self.centered,
            addend=addend,
            sum=total,
        )


@dataclass(frozen=True)
class Logits:
    """What a router makes of a value, in float32. `Mixed` alone takes it."""

    of: int
    router: int


@dataclass(frozen=True)
class Mixed:
    """The sum of a token's experts' results for a value, by the weights that logits give them."""

    of: int
    logits: int
    experts: int


Value = Given | Slice | Product | Sum | Normed | Logits | Mixed
Form = Literal["plain"] | Granularity


@dataclass(frozen=True)
class Recipe:
    """Attributes
    ----------
    values : tuple
        Those given come first.
    weights : tuple of Weights
    norms : tuple of Norm
    outputs : tuple of int
        The values that the result's columns are, one behind the other.
    routers : tuple of Router
    experts : tuple of Chosen
    """

    values: tuple[Value, ...]
    weights: tuple[Weights, ...]
    norms: tuple[Norm, ...]
    outputs: tuple[int, ...]
    routers: tuple[Router, ...] = ()
    experts: tuple[Chosen, ...] = ()

    def width(self, value: int) -> int:
        made = self.values[value]
        if isinstance(made, Product):
            n = self.weights[made.weights].n
            return n // 2 if made.gated else n
        if isinstance(made, Logits):
            return self.routers[made.router].experts
        if isinstance(made, Mixed):
            return self.experts[made.experts].down.n
        return self.width(made.of) if isinstance(made, Sum | Normed) else made.columns

    @property
    def in_features(self) -> int:
        return sum(one.columns for one in self.values if isinstance(one, Given))

    @property
    def out_features(self) -> int:
        return sum(self.width(one) for one in self.outputs)

    def of_routed(self) -> Recipe:
        """One that ends with what experts are chosen for: its first outputs."""
        routed = dict.fromkeys(one.of for one in self.values if isinstance(one, Mixed))
        cut = replace(self, values=self.values[: max(routed) + 1], outputs=tuple(routed))
        loose = [value for value in range(len(cut.values)) if cut._is_loose(value)]
        return replace(cut, outputs=(*routed, *loose))

    def _is_loose(self, value: int) -> bool:
        """Whether it is made, and nobody reads it."""
        made = self.values[value]
        if isinstance(made, Given | Slice | Logits):
            return False
        made_by_norm = isinstance(made, Sum) and self.norm_of(value) is not None
        return not made_by_norm and not self.forms[value]

    def output_at(self, value: int) -> int:
        """The first of its columns in the result."""
        before = self.outputs[: self.outputs.index(value)]
        return sum(self.width(one) for one in before)

    def form_for(self, product: Product) -> Form:
        """What a product's matmul takes."""
        weights = self.weights[product.weights]
        return weights.of_activations if weights.quantized else "plain"

    @cached_property
    def forms(self) -> dict[int, set[Form]]:
        """Which of each value somebody reads."""
        found: dict[int, set[Form]] = {one: set() for one in range(len(self.values))}
        for one in self.outputs:
            found[one].add("plain")
        for value, made in enumerate(self.values):
            if isinstance(made, Product):
                found[made.of].add(self.form_for(made))
            elif isinstance(made, Sum):
                found[made.of].add("plain")
                found[made.plus].add("plain")
            elif isinstance(made, Slice | Logits | Mixed):
                found[made.of].add("plain")
            elif isinstance(made, Normed) and not self.sums_up(value):
                found[made.of].add("plain")
        return found

    def norm_of(self, total: int) -> int | None:
        """The first norm of a sum, if there is one."""
        norms = (
            at
            for at, made in enumerate(self.values)
            if isinstance(made, Normed) and made.of == total
        )
        return next(norms, None)

    def sums_up(self, normed: int) -> bool:
        """Whether a norm makes the sum that it is of, too."""
        made = self.values[normed]
        assert isinstance(made, Normed)
        return isinstance(self.values[made.of], Sum) and self.norm_of(made.of) == normed

    def is_written_quantized(self, value: int) -> bool:
        """Whether who makes it writes nothing else than what FP8 matmuls by blocks take."""
        made = self.values[value]
        if self.forms[value] != {Granularity.BLOCK_1X128}:
            return False
        if isinstance(made, Product):
            weights = self.weights[made.weights]
            return made.gated or (weights.quantized and not weights.by_row)
        return isinstance(made, Normed)

    def fuses(self, product: Product) -> bool:
        """Whether a gated product's kernel may apply the gate as it multiplies."""
        weights = self.weights[product.weights]
        blocks = weights.quantized and not weights.by_row
        return blocks and weights.n % 256 == 0 and not weights.has_bias

    def are_in_result(self, made: Value, result: int) -> bool:
        """Whether a value is made of one that lies in the result's memory, as it would itself."""
        if isinstance(made, Given):
            return False
        sources = [made.of, made.plus] if isinstance(made, Sum) else [made.of]
        return result in self.outputs and any(self._root(one) in self.outputs for one in sources)

    def _root(self, value: int) -> int:
        made = self.values[value]
        return self._root(made.of) if isinstance(made, Slice) else value
