"""Request messages that take more than a line; the sync and the asyncio API send the same ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

from google.protobuf.duration_pb2 import Duration

from gemmd import dtypes, words
from gemmd._ops.multiply import QUANTIZED
from gemmd.grouped import GroupLayout, group_layout_number
from gemmd.handle import MEMORY_KINDS
from gemmd.ops import Activation, Gate, Granularity, activation_number
from gemmd.share import SharedArray
from gemmd.v1 import buffer_service_pb2 as buffer_pb
from gemmd.v1 import compute_service_pb2 as compute_pb
from gemmd.v1 import session_service_pb2 as session_pb
from gemmd.v1 import types_pb2 as pb


class ExplainKeywords(TypedDict, total=False):
    """What `client.explain` takes beside the sizes, for type checkers."""

    out_dtype: dtypes.DTypeLike
    activation: Activation
    b_dtype: dtypes.DTypeLike
    b_is_kn: bool
    along_k: bool
    has_c: bool
    has_bias: bool
    groups: int
    layout: GroupLayout
    gate: Gate | None
    weights_apart: bool
    expected_rows: int


def _duration(seconds: float | None) -> Duration | None:
    if seconds is None:
        return None
    return Duration(seconds=int(seconds), nanos=int(seconds % 1 * 1e9))


def open_session(
    ttl_s: float | None, label: str, device: str, grace_s: float | None
) -> session_pb.OpenSessionRequest:
    return session_pb.OpenSessionRequest(
        ttl=_duration(ttl_s), label=label, device=device, grace=_duration(grace_s)
    )


def create_buffer(
    session_id: bytes,
    size_bytes: int,
    shape: Sequence[int],
    dtype: dtypes.DTypeLike | None,
    memory_kind: str,
    device: str,
    label: str,
) -> buffer_pb.CreateBufferRequest:
    return buffer_pb.CreateBufferRequest(
        session_id=session_id,
        size_bytes=size_bytes,
        device=device,
        memory_kind=words.chosen("memory_kind", memory_kind, MEMORY_KINDS),
        dtype=pb.DTYPE_UNSPECIFIED if dtype is None else dtypes.to_wire(dtype),  # type: ignore[arg-type]
        shape=shape,
        label=label,
    )


def publish(
    session_id: bytes, buffer_id: bytes, name: str, content_hash: bytes, ttl_s: float | None
) -> buffer_pb.PublishBufferRequest:
    return buffer_pb.PublishBufferRequest(
        session_id=session_id,
        buffer_id=buffer_id,
        name=name,
        content_hash=content_hash,
        ttl=_duration(ttl_s),
    )


def import_buffer(
    session_id: bytes, token: bytes, memory: SharedArray, label: str
) -> buffer_pb.ImportBufferRequest:
    return buffer_pb.ImportBufferRequest(
        session_id=session_id,
        token=token,
        size_bytes=memory.size_bytes,
        dtype=dtypes.to_wire(memory.dtype),  # type: ignore[arg-type]
        shape=memory.shape,
        label=label,
        memory_kind=buffer_pb.MEMORY_KIND_HOST_SHARED,
    )


def import_device(session_id: bytes, token: bytes, label: str) -> buffer_pb.ImportBufferRequest:
    """All of the memory that the token's record describes."""
    return buffer_pb.ImportBufferRequest(
        session_id=session_id,
        token=token,
        label=label,
        memory_kind=buffer_pb.MEMORY_KIND_DEVICE_IMPORTED,
    )


def explain(
    m: int, n: int, k: int, batch: int, dtype: dtypes.DTypeLike | None, quantize: str | None,
    device: str, options: dict[str, Any],
) -> compute_pb.ExplainRequest:  # fmt: skip
    """`options` are fields of MatmulProblem: b_is_kn, has_c, has_bias, gate; or, with `groups`, of
    GroupedMatmulProblem: weights_apart, has_bias, expected_rows, gate and layout; with `along_k`
    too, of KGroupedMatmulProblem: has_c and layout."""
    words.check_options("client.explain", options, ExplainKeywords.__annotations__)
    _belongs(options)
    stored, of_a, of_b = (
        words.chosen("quantize", quantize, QUANTIZED)
        if quantize
        else (dtypes.as_dtype(dtype or "f32"), Granularity.NONE, Granularity.NONE)
    )
    out_dtype = options.pop("out_dtype", "f32")
    activation = options.pop("activation", "none")
    if b_dtype := options.pop("b_dtype", None):
        options["b_dtype"] = dtypes.to_wire(b_dtype)
    if options.pop("along_k", False):
        layout = options.pop("layout", "ends")
        columns = compute_pb.KGroupedMatmulProblem(
            groups=options.pop("groups", 1), m=m, n=n, k=k,
            a_dtype=dtypes.to_wire(stored),  # type: ignore[arg-type]
            output_dtype=dtypes.to_wire(out_dtype),  # type: ignore[arg-type]
            a_granularity=int(of_a),  # type: ignore[arg-type]
            b_granularity=int(of_a),  # type: ignore[arg-type]
            layout=group_layout_number(layout),  # type: ignore[arg-type]
            **options,
        )  # fmt: skip
        return compute_pb.ExplainRequest(k_grouped=columns, device=device)
    gate = options.pop("gate", None)
    if groups := options.pop("groups", 0):
        layout = options.pop("layout", "offsets")
        grouped = compute_pb.GroupedMatmulProblem(
            groups=groups, m=m, n=n, k=k,
            operand_dtype=dtypes.to_wire(stored),  # type: ignore[arg-type]
            output_dtype=dtypes.to_wire(out_dtype),  # type: ignore[arg-type]
            a_granularity=int(of_a),  # type: ignore[arg-type]
            b_granularity=int(of_b),  # type: ignore[arg-type]
            layout=group_layout_number(layout),  # type: ignore[arg-type]
            gate=None if gate is None else gate.message,
            activation=activation_number(activation),  # type: ignore[arg-type]
            **options,
        )  # fmt: skip
        return compute_pb.ExplainRequest(grouped=grouped, device=device)
    problem = compute_pb.MatmulProblem(
        m=m, n=n, k=k, batch=batch,
        operand_dtype=dtypes.to_wire(stored),  # type: ignore[arg-type]
        output_dtype=dtypes.to_wire(out_dtype),  # type: ignore[arg-type]
        a_granularity=int(of_a),  # type: ignore[arg-type]
        b_granularity=int(of_b),  # type: ignore[arg-type]
        activation=activation_number(activation),  # type: ignore[arg-type]
        gate=None if gate is None else gate.message,
        **options,
    )  # fmt: skip
    return compute_pb.ExplainRequest(problem=problem, device=device)


def _belongs(options: dict[str, Any]) -> None:
    """Raises TypeError for an option of the other kind of matmul."""
    others: tuple[str, ...]
    if options.get("along_k"):
        others, kind = _NOT_ALONG_K, "no matmul that is grouped along k"
    elif options.get("groups"):
        others, kind = ("b_is_kn", "has_c", "b_dtype"), "no grouped matmul"
    else:
        others, kind = _OF_GROUPS, "a grouped matmul alone: give groups, too"
    for name in others:
        if name in options:
            raise TypeError(f"{name} is an option of {kind}")


_OF_GROUPS = ("layout", "weights_apart", "expected_rows")
_NOT_ALONG_K = ("b_is_kn", "gate", "weights_apart", "expected_rows", "has_bias")
