"""Weights on the server: made once, quantised there, found by name by whoever comes later."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from gemmd import errors, ops
from gemmd._layers import linear_step
from gemmd._layers.linear_step import Quantize as Quantize
from gemmd._layers.linear_step import Weights
from gemmd._memory import cuda, interop
from gemmd.buffer import Buffer
from gemmd.tensor import Tensor

if TYPE_CHECKING:
    from gemmd.session import Session

Source = npt.NDArray[Any] | Any  # an array or a torch tensor


def why_not_on_gpu(session: Session, device: int, home: str) -> str:
    """Why memory of this process's GPU `device` is not shared with the server's device `home`; ""
    if it is.
    """
    why = cuda.why_not() or session.why_not_shared()
    if why:
        return why
    return linear_step.other_gpu(cuda.driver().uuid(device), home, session.client.devices())


def find(session: Session, weight: Any, name: str) -> Buffer | None:
    """The published buffer of that name. None: there is none, and `weight` is there to make it of.

    Raises
    ------
    ValueError
        Neither a weight nor a name.
    NotFound
        Nothing is published under the name, and there is no weight.
    FailedPrecondition
        What is published has another shape than a weight that is given as an array.
    """
    if not hasattr(session, "create_buffer"):
        raise TypeError(
            f"session has type {type(session).__name__}; weights lie in a session:"
            " client.session() makes one"
        )
    interop.refuse_module("weight", weight)
    if name:
        try:
            found = session.find(name)
        except errors.NotFound:
            if weight is None:
                raise
            return None
        shape = tuple(getattr(weight, "shape", found.shape))
        if shape != found.shape:
            there = list(found.shape)
            found.delete()
            raise errors.FailedPrecondition(
                f"{name} is published with shape {there}, the weight given has {list(shape)}; give"
                " each weight a name of its own, or unpublish that one",
                reason="OTHER_WEIGHT",
            )
        return found
    elif weight is None:
        raise ValueError("a weight, or the name of a published one, is needed")
    return None


def publish(session: Session, buffer: Buffer, name: str) -> Buffer:
    """The buffer under that name, if it is to have one; another worker's that was quicker. One that
    was found is published already.
    """
    if not name or buffer.published_name:
        return buffer
    try:
        return buffer.publish(name)
    except errors.AlreadyExists:
        buffer.delete()
        return session.find(name)
    except BaseException:
        buffer.delete()
        raise


@contextmanager
def all_or_none() -> Iterator[list[Buffer]]:
    """A list for what the block obtains; deleted if the block fails."""
    obtained = list[Buffer]()
    try:
        yield obtained
    except BaseException:
        for buffer in obtained:
            with suppress(errors.Error):  # it would hide the failure
                buffer.delete()
        raise


def obtain(
    session: Session,
    weight: Source | Callable[[], Source] | None,
    bias: Any,
    scales: Any,
    name: str,
    quantize: Quantize | None,
    device: str = "",
) -> Buffer:
    """The published buffer of that name, or a new one on the device, by default the session's.
    `Weights.of` says how it is laid out.
    """
    return publish(
        session, unpublished(session, weight, bias, scales, name, quantize, device), name
    )


def unpublished(
    session: Session,
    weight: Source | Callable[[], Source] | None,
    bias: Any,
    scales: Any,
    name: str,
    quantize: Quantize | None,
    device: str = "",
) -> Buffer:
    """`obtain`, with a new one still to be published: by who makes several that are to fit each
    other, once they do.
    """
    found = find(session, weight, name)
    if found is not None:
        check_bias(found, bias, name, Weights.of)
        return found
    given, scales = interop.apart(weight() if callable(weight) else weight, scales)
    taken = linear_step.taken(given, bias=bias, scales=scales)
    return _make(session, taken, bias, scales, quantize, device)


def check_bias(found: Buffer, bias: Any, name: str, of: Callable[[Buffer], Any]) -> None:
    """What is published keeps the bias that it was made with: none can be added by who finds it.
    `of` says how it is laid out.
    """
    try:
        if bias is None or of(found).has_bias:
            return
        raise errors.FailedPrecondition(
            f"{name} is published without a bias, and one is given; add it to the result, publish"
            " weight and bias under another name, or unpublish that one",
            reason="OTHER_WEIGHT",
        )
    except BaseException:
        found.delete()
        raise


def publish_all(session: Session, buffers: list[Buffer], names: Iterable[str]) -> None:
    """`publish` of each, in its place."""
    for at, name in enumerate(names):
        buffers[at] = publish(session, buffers[at], name)


def _make(
    session: Session,
    weight: Any,
    bias: Any,
    scales: Any,
    quantize: Quantize | None,
    device: str,
) -> Buffer:
    layout = linear_step.layout_of(weight, bias, scales, quantize)
    buffer = session.create_buffer(
        layout.size_bytes,
        shape=(layout.n, layout.k),
        dtype=layout.dtype,
        device=device,
        label=layout.label,
    )
    try:
        if layout.quantized and scales is None:
            _quantize(session, weight, layout, buffer)
        else:
            buffer.upload(interop.as_numpy(weight))
        kept = None if scales is None else layout.scales_of(scales)
        for array, at in ((kept, layout.scales_at), (bias, layout.bias_at)):
            if array is not None:
                session._mover.upload(buffer, linear_step.float_bytes(array), at)
    except BaseException:
        buffer.delete()
        raise
    return buffer


def _quantize(session: Session, weight: Any, layout: Weights, buffer: Buffer) -> None:
    source = _where_it_lies(session, weight, buffer.device)
    if source is None:
        array = interop.as_numpy(weight)
        staged = session.create_buffer(
            shape=array.shape, dtype=array.dtype, device=buffer.device, label="weight"
        )
        staged.upload(array)
        source = staged.tensor()
    try:
        session.execute([ops.quantize(source, layout.operand(buffer))])
    finally:
        source.owner.delete()


def _where_it_lies(session: Session, weight: Any, home: str) -> Tensor | None:
    if interop.torch_of(weight) is None or not weight.is_cuda:
        return None
    if why_not_on_gpu(session, weight.device.index, home):
        return None
    try:
        return session.from_dlpack(weight.detach().resolve_neg())
    except errors.FailedPrecondition:  # expandable segments: the way through the host is left
        return None
