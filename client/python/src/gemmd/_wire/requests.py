"""Request messages that take more than a line; the sync and the asyncio API send the same ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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


_LONGEST_S = 1e9  # thirty years: more than any server's bounds, and less than the wire's


def _duration(what: str, seconds: float | None) -> Duration | None:
    if seconds is None:
        return None
    given = words.number(what, seconds)
    if not 0 <= given <= _LONGEST_S:
        raise ValueError(f"{what}={seconds} is not within 0 to {_LONGEST_S:.0e} seconds")
    return Duration(seconds=int(given), nanos=int(given % 1 * 1e9))


def open_session(
    ttl_s: float | None, label: str, device: str, grace_s: float | None
) -> session_pb.OpenSessionRequest:
    return session_pb.OpenSessionRequest(
        ttl=_duration("ttl_s", ttl_s),
        label=words.text("label", label),
        device=words.text("device", device),
        grace=_duration("grace_s", grace_s),
    )


def create_buffer(
    session_id: bytes,
    size_bytes: int,
    shape: int | Sequence[int],
    dtype: dtypes.DTypeLike | None,
    memory_kind: str,
    device: str,
    label: str,
) -> buffer_pb.CreateBufferRequest:
    extents = shape if isinstance(shape, Iterable) else (shape,)
    return buffer_pb.CreateBufferRequest(
        session_id=session_id,
        size_bytes=words.whole("size_bytes", size_bytes),
        device=words.text("device", device),
        memory_kind=words.chosen("memory_kind", memory_kind, MEMORY_KINDS),
        dtype=pb.DTYPE_UNSPECIFIED if dtype is None else dtypes.to_wire(dtype),  # type: ignore[arg-type]
        shape=[words.whole("an extent of shape", extent) for extent in extents],
        label=words.text("label", label),
    )


def publish(
    session_id: bytes, buffer_id: bytes, name: str, content_hash: bytes, ttl_s: float | None
) -> buffer_pb.PublishBufferRequest:
    return buffer_pb.PublishBufferRequest(
        session_id=session_id,
        buffer_id=buffer_id,
        name=words.text("name", name),
        content_hash=content_hash,
        ttl=_duration("ttl_s", ttl_s),
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
    fields: dict[str, Any] = {
        "m": m,
        "n": n,
        "k": k,
        "output_dtype": dtypes.to_wire(options.pop("out_dtype", "f32")),
        "a_granularity": int(of_a),
        "b_granularity": int(of_b),
    }
    activation = activation_number(options.pop("activation", "none"))
    if b_dtype := options.pop("b_dtype", None):
        fields["b_dtype"] = dtypes.to_wire(b_dtype)
    if options.pop("along_k", False):
        fields.update(
            a_dtype=dtypes.to_wire(stored),
            b_granularity=int(of_a),
            groups=options.pop("groups", 1),
            layout=group_layout_number(options.pop("layout", "ends")),
        )
        columns = compute_pb.KGroupedMatmulProblem(**fields, **options)
        return compute_pb.ExplainRequest(k_grouped=columns, device=device)
    gate: Gate | None = options.pop("gate", None)
    fields.update(
        operand_dtype=dtypes.to_wire(stored),
        gate=None if gate is None else gate.message,
        activation=activation,
    )
    if groups := options.pop("groups", 0):
        fields["layout"] = group_layout_number(options.pop("layout", "offsets"))
        rows = compute_pb.GroupedMatmulProblem(groups=groups, **fields, **options)
        return compute_pb.ExplainRequest(grouped=rows, device=device)
    problem = compute_pb.MatmulProblem(batch=batch, **fields, **options)
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
