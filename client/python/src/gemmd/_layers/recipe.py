"""What a `Block` computes of its rows, and how that lies in memory: pure, as a `linear_step.Step` is.

A recipe is a list of values, each made of those in front of it. `BlockStep` decides where each one
lies and in which form: those that FP8 matmuls alone take are written quantised by who makes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from gemmd import ops
from gemmd._layers.forward import Forward, Way
from gemmd._layers.linear_step import Weights, quantized_bytes, quantized_in
from gemmd._layers.moe_step import MoeStep
from gemmd._layers.routed import Behind, Chosen, Router
from gemmd._memory.layout import padded
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


@dataclass(frozen=True)
class BlockStep(Forward):
    """One forward pass over m rows. Scratch memory has a place for each form of each value."""

    recipe: Recipe
    m: int
    in_dtype: np.dtype[Any]
    out_dtype: np.dtype[Any]
    way: Way

    @property
    def n(self) -> int:
        return self.recipe.out_features

    @property
    def columns(self) -> int:
        return self.recipe.in_features

    @property
    def filler(self) -> int | None:  # type: ignore[override]
        """Rows that a call lacks are NaN where experts are chosen: NaN chooses none."""
        return 0xFF if self.recipe.experts else None

    def moe_step(self, made: Mixed) -> MoeStep:
        return self.recipe.experts[made.experts].step(self.m, self.in_dtype, self.way)

    def _plain_bytes(self, columns: int) -> int:
        return padded(self.m * columns * self.in_dtype.itemsize)

    def _is_in_result(self, value: int) -> bool:
        """Whether it is made where the caller finds it. The host's memory is far for who reads it
        again, and no op may read and write the same range.
        """
        if value not in self.recipe.outputs or self.way == "host_shared":
            return False
        return not self.recipe.are_in_result(self.recipe.values[value], value)

    def _rooms(self) -> Iterator[tuple[tuple[Any, ...], int]]:
        """What lies in scratch memory, and how many bytes each takes."""
        recipe = self.recipe
        if self.way == "host_shared":  # kernels read A more than once, over PCIe perhaps
            yield ("x",), self._plain_bytes(self.columns)
        for value, made in enumerate(recipe.values):
            width = recipe.width(value)
            own = not isinstance(made, Given | Slice | Logits) and not self._is_in_result(value)
            if own and recipe.forms[value] and not recipe.is_written_quantized(value):
                yield (value, "plain"), self._plain_bytes(width)
            if isinstance(made, Sum) and recipe.norm_of(value) is None:
                yield (value, "unused"), self._plain_bytes(width)
            if isinstance(made, Product) and made.gated and not recipe.fuses(made):
                yield (value, "product"), self._plain_bytes(2 * width)
            if isinstance(made, Logits):
                yield (value, "logits"), padded(4 * self.m * width)
                router = recipe.routers[made.router]
                if router.dtype != self.in_dtype:
                    yield (value, "x"), padded(self.m * router.columns * router.dtype.itemsize)
            if isinstance(made, Mixed):
                yield (value, "experts"), self.moe_step(made).scratch_bytes
            for form in recipe.forms[value] - {"plain"}:
                assert isinstance(form, Granularity)
                yield (value, form), quantized_bytes((self.m, width), form)

    @cached_property
    def _places(self) -> tuple[dict[tuple[Any, ...], int], int]:
        """Where each begins, and the end."""
        found, end = dict[tuple[Any, ...], int](), 0
        for key, nbytes in self._rooms():
            found[key] = end
            end += nbytes
        return found, end

    @property
    def scratch_bytes(self) -> int:
        return self._places[1]

    def _compute(
        self, weights: Any, x: Tensor | tuple[Tensor, ...], scratch: Handle, d: Tensor
    ) -> list[Op]:
        return _Writing(self, weights, x, scratch, d).program()


class _Writing:
    """One program, as it is written.

    Attributes
    ----------
    weights : tuple of Handle
        The matrices', those of each layer of experts, and behind them that of what a block keeps
        beside, if there is any.
    """

    def __init__(
        self,
        step: BlockStep,
        weights: Any,
        x: Tensor | tuple[Tensor, ...],
        scratch: Handle,
        d: Tensor,
    ) -> None:
        self.step, self.recipe = step, step.recipe
        count = len(self.recipe.weights)
        of_experts = weights[count : count + 2 * len(self.recipe.experts)]
        self.weights = weights[:count]
        self.experts = list(zip(of_experts[::2], of_experts[1::2], strict=True))
        self.constants = next(iter(weights[count + len(of_experts) :]), None)
        self.scratch, self.d = scratch, d
        self.ops = list[Op]()
        if isinstance(x, tuple):
            self.given = x
            return
        if step.way == "host_shared":
            near = self._plain_at(("x",), step.columns)
            self.ops.append(ops.copy(x, near))
            x = near
        parts = (one for one in self.recipe.values if isinstance(one, Given))
        self.given = tuple(x[:, one.first : one.first + one.columns] for one in parts)

    def program(self) -> list[Op]:
        recipe = self.recipe
        for value, made in enumerate(recipe.values):
            if isinstance(made, Product):
                self._multiply(value, made)
            elif isinstance(made, Sum):
                self._sum(value, made)
            elif isinstance(made, Normed) and not recipe.sums_up(value):
                self.ops.append(self._norm(value, self._plain(made.of)))
            elif isinstance(made, Logits):
                self._choose_by(value, made)
            elif isinstance(made, Mixed):
                self._mix(value, made)
            for form in recipe.forms[value] - {"plain"}:
                if not recipe.is_written_quantized(value):
                    self.ops.append(ops.quantize(self._plain(value), self._room(value, form)))
        for value in recipe.outputs:
            if isinstance(recipe.values[value], Given) or not self.step._is_in_result(value):
                self.ops.append(ops.copy(self._plain(value), self._column_of_d(value)))
        return self.ops

    def _multiply(self, value: int, made: Product) -> None:
        weights, held = self.recipe.weights[made.weights], self.weights[made.weights]
        form = self.recipe.form_for(made)
        a = Operand(self._plain(made.of)) if form == "plain" else self._room(made.of, form)
        b, bias = weights.operand(held), weights.bias(held)
        target = self._target(value)
        if made.gated and self.recipe.fuses(made):
            gate = ops.Gate(made.activation, alpha=made.alpha)
            self.ops.append(ops.matmul(a, b, target, gate=gate))
        elif made.gated:
            product = self._plain_at((value, "product"), 2 * self.recipe.width(value))
            self.ops.append(ops.matmul(a, b, product, bias=bias))
            gated = ops.gated(product, target, activation=made.activation, alpha=made.alpha)
            self.ops.append(gated)
        elif isinstance(target, Operand) or made.alpha != 1:
            # Activated and quantised as it is multiplied.
            alone = ops.Gate(made.activation, alpha=made.alpha, alone=True)
            self.ops.append(ops.matmul(a, b, target, bias=bias, gate=alone))
        else:
            self.ops.append(ops.matmul(a, b, target, bias=bias, activation=made.activation))

    def _norm(self, value: int, src: Tensor, *summed: Tensor | None) -> Op:
        made = self.recipe.values[value]
        assert isinstance(made, Normed)
        norm = self.recipe.norms[made.norm]
        return norm.op(src, self._target(value), self.constants, *summed)

    def _choose_by(self, value: int, made: Logits) -> None:
        assert self.constants is not None
        router, x = self.recipe.routers[made.router], self._plain(made.of)
        at, widened = self.step._places[0].get((value, "x")), None
        if at is not None:
            widened = self.scratch.tensor(
                (self.step.m, router.columns), router.dtype, offset_bytes=at
            )
        self.ops += router.program(x, widened, self._logits(value), self.constants)

    def _mix(self, value: int, made: Mixed) -> None:
        scratch: Any = Behind(self.scratch, self.step._places[0][value, "experts"])
        self.ops += self.step.moe_step(made)._compute(
            self.experts[made.experts],
            (self._plain(made.of), self._logits(made.logits)),
            scratch,
            self._plain(value),
            self.recipe.experts[made.experts].bias(self.constants),
        )

    def _logits(self, value: int) -> Tensor:
        shape = self.step.m, self.recipe.width(value)
        at = self.step._places[0][value, "logits"]
        return self.scratch.tensor(shape, "f32", offset_bytes=at)

    def _sum(self, value: int, made: Sum) -> None:
        """Kept where somebody else than its norm reads it."""
        src, addend = self._plain(made.of), self._plain(made.plus)
        total = self._plain(value) if self.recipe.forms[value] else None
        norm = self.recipe.norm_of(value)
        if norm is not None:
            self.ops.append(self._norm(norm, src, addend, total))
            return
        unused = self._plain_at((value, "unused"), self.recipe.width(value))
        self.ops.append(normalize(src, unused, addend=addend, sum=total))

    def _target(self, value: int) -> Tensor | Operand:
        if self.recipe.is_written_quantized(value):
            return self._room(value, Granularity.BLOCK_1X128)
        return self._plain(value)

    def _plain(self, value: int) -> Tensor:
        made = self.recipe.values[value]
        if isinstance(made, Given):  # they come first
            return self.given[value]
        if isinstance(made, Slice):
            return self._plain(made.of)[:, made.first : made.first + made.columns]
        if self.step._is_in_result(value):
            return self._column_of_d(value)
        return self._plain_at((value, "plain"), self.recipe.width(value))

    def _column_of_d(self, value: int) -> Tensor:
        first = self.recipe.output_at(value)
        return self.d[:, first : first + self.recipe.width(value)]

    def _plain_at(self, key: tuple[Any, ...], columns: int) -> Tensor:
        at = self.step._places[0][key]
        return self.scratch.tensor((self.step.m, columns), self.step.in_dtype, offset_bytes=at)

    def _room(self, value: int, form: Form) -> Operand:
        assert isinstance(form, Granularity)
        shape = self.step.m, self.recipe.width(value)
        return quantized_in(self.scratch, shape, self.step._places[0][value, form], form)
