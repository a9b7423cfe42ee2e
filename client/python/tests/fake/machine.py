"""The fake's device: buffers as numpy bytes, ops as numpy expressions in float64."""

from __future__ import annotations

import math

import numpy as np

from gemmd import dtypes
from gemmd.ops import Granularity
from gemmd.tensor import row_major
from gemmd.v1 import types_pb2 as pb

from . import grouped

LARGEST = {dtypes.float8_e4m3fn: 448.0, dtypes.float8_e5m2: 57344.0, dtypes.int8: 127.0}


_erf = np.vectorize(math.erf, otypes=[float])  # of nothing, too


def activated(activation: int, x: np.ndarray) -> np.ndarray:
    if activation == pb.ACTIVATION_RELU:
        return np.maximum(x, 0)
    if activation == pb.ACTIVATION_SILU:
        return x / (1 + np.exp(-x))
    if activation == pb.ACTIVATION_GELU_TANH:
        return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    if activation == pb.ACTIVATION_GELU_ERF:
        return x / 2 * (1 + _erf(x / np.sqrt(2)))
    if activation == pb.ACTIVATION_RELU_SQUARED:
        return np.maximum(x, 0) ** 2
    return x


def gated(src: np.ndarray, op: pb.Gated | pb.Gate) -> np.ndarray:
    """act(gate) * up of rows of both, or act(gate) of gates alone."""
    alpha = op.alpha if op.HasField("alpha") else 1.0
    if op.alone:
        gate = np.minimum(src, op.limit) if op.limit else src
        return activated(op.activation, alpha * gate) / alpha
    n = src.shape[-1] // 2
    period = op.period or n
    pairs = src.reshape(*src.shape[:-1], n // period, 2, period)
    gate, up = (pairs[..., i, :].reshape(*src.shape[:-1], n) for i in (0, 1))
    if op.limit:
        gate, up = np.minimum(gate, op.limit), np.clip(up, -op.limit, op.limit)
    return activated(op.activation, alpha * gate) / alpha * (up + op.up_offset)


class Refused(Exception):
    """A call answered with a status: code name, message, reason."""

    def __init__(self, code: str, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.code, self.message, self.reason = code, message, reason


class Machine:
    """Memory: buffer_id to bytes, with the Buffer message that describes each."""

    def __init__(self) -> None:
        self.memory: dict[bytes, np.ndarray] = {}
        self.described: dict[bytes, object] = {}

    def view(self, tensor: pb.Tensor) -> np.ndarray:
        """The tensor's elements in place."""
        if tensor.buffer_id not in self.memory:
            raise Refused("NOT_FOUND", f"buffer {tensor.buffer_id.hex()} does not exist", "BUFFER")
        raw, known = self.memory[tensor.buffer_id], self.described[tensor.buffer_id]
        dtype = dtypes.from_wire(tensor.dtype or known.dtype)
        shape = tuple(tensor.shape) or tuple(known.shape)
        strides = tuple(tensor.strides) or row_major(shape)
        reach = sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + 1
        if tensor.offset_bytes + reach * dtype.itemsize > raw.size:
            raise Refused("INVALID_ARGUMENT", f"tensor reaches past {raw.size} bytes", "BOUNDS")
        return np.ndarray(
            shape, dtype, raw.data, tensor.offset_bytes, [s * dtype.itemsize for s in strides]
        )

    def named(self, place: pb.SharedBytes, like: np.ndarray) -> np.ndarray:
        """The dense elements there, as many and of the same dtype as `like`."""
        return self.view(
            pb.Tensor(
                buffer_id=place.buffer_id, offset_bytes=place.offset_bytes,
                dtype=dtypes.to_wire(like.dtype), shape=like.shape,
            )
        )  # fmt: skip

    def run(self, ops: list[pb.Op], inputs: list[bytes] = ()) -> list[bytes]:
        """Runs a program; returns what its reads read. `inputs` replace the data of its writes."""
        outputs, left = [], list(inputs)
        for op in ops:
            kind = op.WhichOneof("kind")
            if kind == "write":
                dst = self.view(op.write.dst)
                if op.write.HasField("from"):
                    dst[...] = self.named(getattr(op.write, "from"), dst)
                    continue
                data = left.pop(0) if left else op.write.data
                dst[...] = np.frombuffer(data, dst.dtype).reshape(dst.shape)
            elif kind == "read":
                src = self.view(op.read.src)
                if op.read.HasField("to"):
                    self.named(op.read.to, src)[...] = src
                else:
                    outputs.append(src.tobytes())
            elif kind == "fill":
                self.view(op.fill.dst)[...] = op.fill.value
            elif kind in ("copy", "convert"):
                work = getattr(op, kind)
                dst = self.view(work.dst)
                dst[...] = self.view(work.src).astype(dst.dtype)
            elif kind == "quantize":
                self._quantize(op.quantize)
            elif kind == "gated":
                self._gated(op.gated)
            elif kind == "normalize":
                self._normalize(op.normalize)
            elif hasattr(grouped, kind):
                getattr(grouped, kind)(self, getattr(op, kind))
            else:
                self._matmul(op.matmul)
        return outputs

    def _spread(self, scales: pb.Tensor, granularity: int, shape: tuple[int, ...]) -> np.ndarray:
        """Scales repeated to one an element."""
        values = self.view(scales).astype(np.float64)
        rows, k = shape[-2:]
        kind = Granularity(granularity)
        if kind is Granularity.PER_TENSOR:
            return np.broadcast_to(values[..., None], shape)
        if kind is Granularity.PER_ROW:
            return np.broadcast_to(values[..., None], shape)
        high = 1 if kind is Granularity.BLOCK_1X128 else 128
        return values.repeat(high, -2)[..., :rows, :].repeat(128, -1)[..., :k]

    def _quantize(self, op: pb.Quantize) -> None:
        src = self.view(op.src).astype(np.float64)
        if op.HasField("rows"):
            src = src[np.maximum(self.view(op.rows), 0)]  # a row of none: any will do
        self.store_quantized(src, op.dst, op.scales, op.granularity)

    def store_quantized(
        self, src: np.ndarray, to: pb.Tensor, scales_at: pb.Tensor, granularity: int
    ) -> None:
        dst = self.view(to)
        rows, k = src.shape[-2:]
        high, wide = {1: (rows, k), 2: (1, k), 3: (1, 128), 4: (128, 128)}[granularity]
        scales = self.view(scales_at)
        if src.size == 0:
            scales[...] = 1.0
            return
        flat = scales.reshape(*src.shape[:-2], -(-rows // high), -(-k // wide))
        for i in range(flat.shape[-2]):
            for j in range(flat.shape[-1]):
                block = src[..., i * high : (i + 1) * high, j * wide : (j + 1) * wide]
                amax = np.abs(block).max(axis=(-1, -2))
                flat[..., i, j] = np.where(amax > 0, amax / LARGEST[dst.dtype], 1.0)
        scales[...] = flat.reshape(scales.shape)
        stored = src / self._spread(scales_at, granularity, src.shape)
        dst[...] = (np.rint(stored) if dst.dtype == np.int8 else stored).astype(dst.dtype)

    def _gated(self, op: pb.Gated) -> None:
        src = self.view(op.src).astype(np.float64)
        out = gated(src, op)
        if op.HasField("scales"):
            return self.store_quantized(out, op.dst, op.scales, pb.SCALE_GRANULARITY_BLOCK_1X128)
        dst = self.view(op.dst)
        dst[...] = out.astype(dst.dtype)

    def _normalize(self, op: pb.Normalize) -> None:
        x = self.view(op.src)
        if op.HasField("addend"):
            x = (x.astype(np.float64) + self.view(op.addend)).astype(x.dtype)
        if op.HasField("sum"):
            self.view(op.sum)[...] = x
        x = x.astype(np.float64)
        if op.centered:
            x = x - x.mean(-1, keepdims=True)
        epsilon = op.epsilon if op.HasField("epsilon") else 1e-5
        out = x / np.sqrt((x**2).mean(-1, keepdims=True) + epsilon)
        if op.HasField("weight"):
            out = out * self.view(op.weight)
        if op.HasField("bias"):
            out = out + self.view(op.bias)
        if op.HasField("scales"):
            return self.store_quantized(out, op.dst, op.scales, pb.SCALE_GRANULARITY_BLOCK_1X128)
        dst = self.view(op.dst)
        dst[...] = out.astype(dst.dtype)

    def operand(self, operand: pb.Operand) -> np.ndarray:
        values = self.view(operand.values).astype(np.float64)
        if operand.granularity == 0:
            return values
        return values * self._spread(operand.scales, operand.granularity, values.shape)

    def _matmul(self, op: pb.Matmul) -> None:
        d = self.view(op.d)
        alpha = op.alpha if op.HasField("alpha") else 1.0
        out = alpha * (self.operand(op.a) @ np.swapaxes(self.operand(op.b), -1, -2))
        if op.beta:
            out = out + op.beta * self.view(op.c).astype(np.float64)
        if op.HasField("bias"):
            out = out + self.view(op.bias).astype(np.float64)
        out = gated(out, op.gate) if op.HasField("gate") else activated(op.activation, out)
        if op.HasField("d_scales"):
            one_row = pb.SCALE_GRANULARITY_BLOCK_1X128
            return self.store_quantized(out, op.d, op.d_scales, one_row)
        d[...] = out.astype(d.dtype)
