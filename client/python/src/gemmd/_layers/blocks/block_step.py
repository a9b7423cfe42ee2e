"""How a `Block`'s call lies in memory and which ops it is: pure, as a `linear_step.Step` is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gemmd import ops
from gemmd._layers.blocks.recipe import (
    Form,
    Given,
    Logits,
    Mixed,
    Normed,
    Product,
    Recipe,
    Slice,
    Sum,
)
from gemmd._layers.blocks.routed import Behind
from gemmd._layers.forward import Forward, Way
from gemmd._layers.linear_step import quantized_bytes, quantized_in
from gemmd._layers.moe_step import MoeStep
from gemmd._memory.layout import padded
from gemmd.handle import Handle
from gemmd.norms import normalize
from gemmd.ops import Granularity, Op, Operand
from gemmd.tensor import Tensor


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
