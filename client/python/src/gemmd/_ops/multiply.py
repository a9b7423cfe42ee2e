"""How `session.matmul` turns arrays and tensors into a program: what to write, what to quantise,
where results go.

Pure: it lays out scratch memory and builds ops. The sessions, sync and asyncio, carry it out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

import numpy as np
import numpy.typing as npt

from gemmd import dtypes, ops, words
from gemmd._memory import interop
from gemmd._memory.layout import padded
from gemmd._ops import narrowing
from gemmd.ops import Activation, Granularity, Op, Operand
from gemmd.result import Array
from gemmd.tensor import HasTensor, Tensor, TensorLike, as_tensor

Quantized = Literal["fp8-block", "fp8-row", "fp8-tensor", "int8-block", "int8-row", "int8-tensor"]
MatmulInput = npt.NDArray[Any] | TensorLike | Operand

Preset = tuple[np.dtype[Any], Granularity, Granularity]  # stored dtype, scales of a, scales of b
QUANTIZED: dict[str, Preset] = {
    "fp8-block": (dtypes.float8_e4m3fn, Granularity.BLOCK_1X128, Granularity.BLOCK_128X128),
    "fp8-row": (dtypes.float8_e4m3fn, Granularity.PER_ROW, Granularity.PER_ROW),
    "fp8-tensor": (dtypes.float8_e4m3fn, Granularity.PER_TENSOR, Granularity.PER_TENSOR),
    "int8-block": (dtypes.int8, Granularity.BLOCK_1X128, Granularity.BLOCK_128X128),
    "int8-row": (dtypes.int8, Granularity.PER_ROW, Granularity.PER_ROW),
    "int8-tensor": (dtypes.int8, Granularity.PER_TENSOR, Granularity.PER_TENSOR),
}

_FP8 = (dtypes.float8_e4m3fn, dtypes.float8_e5m2)

# Arrays up to this many bytes in all, result included, travel with one Execute; larger ones by
# upload and download. The second is for sessions that share memory for them, and within what a
# message takes when there is no room in it.
INLINE_BYTES = 1 << 20
SHARED_INLINE_BYTES = 3 << 20


class MatmulKeywords(TypedDict, total=False):
    """What `session.matmul` takes beside its two factors and `out`, for type checkers."""

    quantize: Quantized | None
    bias: npt.NDArray[Any] | TensorLike | None
    alpha: float
    activation: Activation
    out_dtype: dtypes.DTypeLike
    kernel: str


@dataclass(frozen=True)
class MatmulOptions:
    """What `session.matmul` takes beside its two factors."""

    quantize: Quantized | None = None
    bias: npt.NDArray[Any] | TensorLike | None = None
    alpha: float = 1.0
    activation: Activation = "none"
    out: TensorLike | None = None
    out_dtype: dtypes.DTypeLike = "f32"
    kernel: str = ""

    @classmethod
    def of(cls, given: dict[str, Any]) -> MatmulOptions:
        """Of keywords.

        Raises
        ------
        TypeError, ValueError
            One of them, or its word, does not exist; names those that do.
        """
        words.check_options("session.matmul", given, cls.__dataclass_fields__)
        if "alpha" in given:
            given = {**given, "alpha": words.number("alpha", given["alpha"])}
        options = cls(**given)
        if options.quantize is not None:
            words.check("quantize", options.quantize, QUANTIZED)
        words.check("activation", options.activation, ops.ACTIVATIONS)
        return options


class Job:
    """One matmul, laid out: it needs `scratch_bytes` of device memory, and `place` says where they
    are.

    Attributes
    ----------
    scratch_bytes : int
    writes : list of (Tensor, array)
        What to bring in before `compute` runs.
    d : Tensor
        The result.
    """

    def __init__(self, a: MatmulInput, b: MatmulInput, options: MatmulOptions) -> None:
        self.options = options
        self._tensor: Any = a if interop.torch_of(a) is not None else b  # of torch's, or none
        self._given = (a, b, options.bias)
        if interop.torch_of(self._tensor) is not None:
            from gemmd._layers import transforms

            transforms.refuse_within(*self._given)
        a, b, bias = _as_array(a), _as_array(b), _as_array(options.bias)
        self._preset = _preset(a, b) if options.quantize is None else QUANTIZED[options.quantize]
        self.scratch_bytes = 0
        self.writes: list[tuple[Tensor, npt.NDArray[Any]]] = []
        self._pieces: list[Tensor] = []
        of_a, of_b = _sent_as(a, b, self._preset is not None)
        self._a, self._b = self._factor("a", a, of_a), self._factor("b", b, of_b)
        (*batch, m, k), (*_, k_of_b, n) = self._a.values.shape, self._b.values.shape
        if k != k_of_b:
            raise ValueError(f"a has shape [.., {m}, {k}], b [.., {k_of_b}, {n}]: k differs")
        narrowing.warn_of(a=a, b=b, bias=bias)
        if isinstance(bias, np.ndarray):
            narrowing.check("bias", bias, dtypes.float32)
            self._bias: Any = self._bring(bias, dtypes.float32)
        else:
            self._bias = bias
        self._quantized_a = self._quantized(self._a, self._a.values.shape, 1)
        self._quantized_b = self._quantized(self._b, self._b.values.T.shape, 2)
        if options.out is None:
            self.d = self._take((*batch, m, n), dtypes.as_dtype(options.out_dtype))
        else:
            self.d = as_tensor(options.out)

    @property
    def returns_array(self) -> bool:
        return self.options.out is None

    @property
    def inline_bytes(self) -> int:
        """Of an Execute that carries everything."""
        total = sum(array.nbytes for _, array in self.writes)
        return total + (self.d.nbytes if self.returns_array else 0)

    def shown(self, result: Array) -> Array:
        """The result as the caller has it: a torch tensor, beside his own, if he gave one."""
        if interop.torch_of(self._tensor) is None:
            return result
        from gemmd._layers import torch_ops

        made = interop.as_torch(result).to(self._tensor.device)
        tensor: Array = torch_ops.refusing(made, *self._given)  # to a type checker
        return tensor

    def place(self, scratch: HasTensor | None, buffer_id: bytes) -> None:
        """Tells where the scratch memory is. Before `compute`."""
        for piece in self._pieces:
            piece.buffer_id, piece.owner = buffer_id, scratch

    def compute(self) -> list[Op]:
        """Quantising and multiplying, without moving bytes."""
        program: list[Op] = []
        a, b = self._a, self._b.T
        if self._quantized_a is not None:
            program.append(ops.quantize(a.values, self._quantized_a))
            a = self._quantized_a
        if self._quantized_b is not None:
            program.append(ops.quantize(b.values, self._quantized_b))
            b = self._quantized_b
        chosen = self.options
        program.append(
            ops.matmul(
                a, b, self.d, bias=self._bias, alpha=chosen.alpha,
                activation=chosen.activation, kernel=chosen.kernel,
            )
        )  # fmt: skip
        return program

    def inline(self) -> list[Op]:
        """Everything in one program, to be run before the arrays change."""
        program = [ops.write_of(tensor, array) for tensor, array in self.writes] + self.compute()
        return [*program, ops.read(self.d)] if self.returns_array else program

    def _take(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Tensor:
        piece = Tensor(b"", dtype, shape, offset_bytes=self.scratch_bytes)
        self.scratch_bytes += padded(piece.nbytes)
        self._pieces.append(piece)
        return piece

    def _bring(self, array: npt.NDArray[Any], dtype: np.dtype[Any]) -> Tensor:
        piece = self._take(array.shape, dtype)
        self.writes.append((piece, np.asarray(array, dtype=dtype)))
        return piece

    def _factor(self, name: str, value: MatmulInput, dtype: np.dtype[Any]) -> Operand:
        if isinstance(value, Operand):
            return value
        if isinstance(value, np.ndarray):
            narrowing.check(name, value, dtype)
            tensor = self._bring(value, dtype)
        else:
            tensor = as_tensor(value)
        if tensor.ndim < 2:
            raise ValueError(
                f"{name} has shape {tensor.shape}; a matrix or a batch of them is needed"
            )
        return Operand(tensor)

    def _quantized(self, side: Operand, shape: tuple[int, ...], scales_at: int) -> Operand | None:
        """Room for the quantised form; None if it is not wanted or the operand is quantised
        already.
        """
        preset = self._preset
        if preset is None or side.granularity is not Granularity.NONE:
            return None
        granularity = preset[1] if scales_at == 1 else preset[2]
        values = self._take(shape, preset[0])
        room = self._take(granularity.scales_room(shape), dtypes.float32)
        scales = granularity.scales_in(room, shape)
        self._pieces.append(scales)
        return Operand(values, scales, granularity)


def _as_array(value: Any) -> Any:
    """A torch tensor as an array, an array in this machine's byte order; anything else as it is."""
    given = isinstance(value, np.ndarray) or interop.torch_of(value) is not None
    return interop.as_numpy(value) if given else value


def _preset(a: MatmulInput, b: MatmulInput) -> Preset | None:
    """How the other side of a quantised operand is quantised to suit it; None if neither or both
    are.
    """
    of_a, of_b = (
        (side.values.dtype, side.granularity)
        if isinstance(side, Operand) and side.granularity is not Granularity.NONE
        else None
        for side in (a, b)
    )
    if (of_a is None) == (of_b is None):
        return None
    for preset in QUANTIZED.values():
        if of_a == (preset[0], preset[1]) or of_b == (preset[0], preset[2]):
            return preset
    name, side = ("b", b) if of_a is None else ("a", a)
    raise ValueError(
        f"{name} is {side!r}, which no way of quantising the other side suits: BLOCK_1X128 is for"
        " a, BLOCK_128X128 for b; quantise both by gemmd.quantize"
    )


def _sent_as(a: MatmulInput, b: MatmulInput, quantized: bool) -> tuple[Any, Any]:
    """The element types in which factors are sent, if they are arrays. Beside a resident one its
    own; of two arrays their own where a kernel takes both or they are `quantized` first, else one
    that has the numbers of both.
    """
    arrays = [isinstance(value, np.ndarray) for value in (a, b)]
    own: list[Any] = [
        narrowing.multiplied_as(name, value) if isinstance(value, np.ndarray)
        else None if isinstance(value, Operand) else as_tensor(value).dtype
        for name, value in (("a", a), ("b", b))
    ]  # fmt: skip
    kept = quantized or None in own or own[0] == own[1] or set(own) <= set(_FP8)
    if kept or not any(arrays):
        return own[0], own[1]
    there = own[0] if all(arrays) else own[arrays.index(False)]
    if dtypes.int8 in own:
        pass  # `narrowing.check` refuses the array
    elif all(arrays):
        same_size = own[0].itemsize == own[1].itemsize
        there = dtypes.float32 if same_size else max(own, key=lambda one: one.itemsize)
    elif there in _FP8:
        name, given = ("a", own[0]) if arrays[0] else ("b", own[1])
        raise TypeError(
            f"{name} has dtype {given}, and would be rounded to the other side's {there}, without"
            " scales. If that one has scales, give it as a gemmd.Operand with them, or as"
            f" gemmd.Linear(session, name=..); else convert {name} first"
        )
    return there, there


def scratch_size(nbytes: int) -> int:
    """What to create for a need: powers of two from 1 MiB, so that a buffer serves many shapes."""
    return 1 << max(20, math.ceil(math.log2(max(nbytes, 1))))
