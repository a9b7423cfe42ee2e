"""MoE: a layer of experts as one program on the server."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, get_args, overload

import numpy as np
import numpy.typing as npt

from gemmd import dtypes, ops, resident, words
from gemmd._layers import linear_step
from gemmd._layers.forward import Way
from gemmd._layers.layer import check_result
from gemmd._layers.linear_step import Quantize
from gemmd._layers.moe_step import (
    ExpertWeights,
    MoeStep,
    are_by_row,
    check_experts,
    choices_at,
    packed_columns,
)
from gemmd._layers.pair import Pair, names_of
from gemmd._memory import interop
from gemmd.buffer import Buffer
from gemmd.ops import Gate
from gemmd.result import Array

if TYPE_CHECKING:
    from gemmd.session import Session

LARGEST_EXPERTS = 512


class MoE(Pair):
    """y[t] = sum over j of weights[t, j] * down[e] (act(gate[e] x[t]) * (up[e] x[t])), where e is
    experts[t, j]; with biases, of each product.

    One call of the server does all of it: rows are sorted by expert, gathered while they are
    quantised, multiplied in groups, gated, multiplied again and added up. Weights are FP8 with
    scales of 128x128, or one a row; `gemmd.Linear` says what else holds: names, armed plans.

    Parameters
    ----------
    session : Session
    gate_up : array or torch tensor [experts, 2i, k], or a function that returns one
        Each expert's gate above its up. May be left out if `name` is published.
    down : array or torch tensor [experts, n, i], or a function that returns one
    gate_up_scales, down_scales : array or torch tensor
        Of weights that are float8_e4m3fn already; others are quantised on the server. [experts,
        ceil(rows/128), ceil(columns/128)]: one a block of 128x128; [experts, rows] or [experts,
        rows, 1]: one a row. The two may differ in kind.
    gate_up_bias, down_bias : array or torch tensor [experts, 2i] and [experts, n], optional
    top_k : int, optional
        Experts of a token. None: as many as each call gives.
    name : str
        The weights are published as NAME.gate_up and NAME.down.
    quantize : {"fp8-block", "fp8-row"}
        Of weights that come without scales.
    gate : Gate
        The activation of the gate, a clamp and the like.
    out_dtype : DTypeLike, optional
        By default x's.

    Raises
    ------
    NotFound, FailedPrecondition
        As `gemmd.Linear`'s.
    ValueError
        The two weights do not fit each other.
    """

    def __init__(
        self,
        session: Session,
        gate_up: Any | Callable[[], Any] | None = None,
        down: Any | Callable[[], Any] | None = None,
        *,
        top_k: int | None = None,
        gate_up_scales: Any = None,
        down_scales: Any = None,
        gate_up_bias: Any = None,
        down_bias: Any = None,
        name: str = "",
        quantize: Quantize = "fp8-block",
        gate: Gate | None = None,
        out_dtype: dtypes.DTypeLike | None = None,
    ) -> None:
        check_result(out_dtype)
        if top_k is not None and words.whole("top_k", top_k) < 1:
            raise ValueError(f"top_k={top_k}; a token has one expert at least")
        words.check("quantize", quantize, get_args(Quantize))
        self._called = threading.local()  # what this thread's call sends
        self.name = name
        self.top_k = top_k
        self._gate = Gate() if gate is None else gate
        names = names_of(name)
        given = (
            (gate_up, gate_up_scales, gate_up_bias),
            (down, down_scales, down_bias),
        )
        with resident.all_or_none() as obtained:
            for weight, name_of_one in zip(given, names, strict=True):
                obtained.append(unpublished(session, *weight, name_of_one, quantize))
            self.weights = (ExpertWeights.of(obtained[0]), ExpertWeights.of(obtained[1]))
            check_experts(*self.weights)
            if top_k is not None:
                self._check_top_k(top_k)
            resident.publish_all(session, obtained, names)
            self.buffers = (obtained[0], obtained[1])
        self.hidden = self.weights[0].k
        features = (self.hidden, self.weights[1].n)
        super().__init__(session, self.buffers[0].device, features, out_dtype)

    def _check_top_k(self, top_k: int) -> None:
        if top_k > self.weights[0].experts:
            raise ValueError(f"top_k={top_k} of {self.weights[0].experts} experts; give fewer")

    @property
    def _columns_sent(self) -> int:
        """Of the rows that this thread sends, routing included."""
        return int(self._called.columns)

    @property
    def variant(self) -> int:
        """As `Layer.variant`: a token's experts."""
        return int(self._called.top_k)

    @overload  # type: ignore[override]
    def __call__(self, x: npt.NDArray[Any], experts: Any, weights: Any) -> Array: ...
    @overload
    def __call__(self, x: Any, experts: Any, weights: Any) -> Any: ...
    def __call__(self, x: Any, experts: Any, weights: Any) -> Any:
        """`route`."""
        return self.route(x, experts, weights)

    def forward(self, x: Any, experts: Any, weights: Any) -> Any:  # type: ignore[override]
        """`route`."""
        return self.route(x, experts, weights)

    def route(self, x: Any, experts: Any, weights: Any, *, copied: bool = False) -> Any:
        """x [tokens, k] to [tokens, n].

        Parameters
        ----------
        x : array or torch tensor [tokens, k]
        experts : array or torch tensor [tokens, top_k] of integers
            -1: none.
        weights : array or torch tensor [tokens, top_k]
            By which the experts' results are multiplied before they are added up.
        copied : bool
            As `Layer.run`'s.

        Returns
        -------
        gemmd.Array or torch tensor
            As `Layer.forward`.

        Raises
        ------
        InvalidArgument
            An expert that does not exist, of a torch tensor; an array raises ValueError.
        """
        torch = interop.torch_of(x)
        if torch is None:
            x, experts, weights = map(interop.as_numpy, (x, experts, weights))
        else:  # what is one already is no call more, in a graph of the compiler's
            x, experts, weights = (
                one if isinstance(one, torch.Tensor) else torch.as_tensor(one)
                for one in (x, experts, weights)
            )
        if len(x.shape) != 2 or x.shape[1] != self.hidden:
            raise ValueError(f"x has shape {tuple(x.shape)}, [tokens, {self.hidden}] is needed")
        top_k = self._top_k_of(experts)
        for what, given in (("experts", experts), ("weights", weights)):
            if tuple(given.shape) != (x.shape[0], top_k):
                raise ValueError(
                    f"{what} has shape {tuple(given.shape)}, {[x.shape[0], top_k]} is needed"
                )
        if not is_whole(experts):
            raise TypeError(
                f"experts has dtype {experts.dtype}; give whole numbers, as topk's indices"
            )
        traced = self._traced
        if traced is not None and (
            traced.is_compiling() or traced.sees(x) or traced.sees(experts) or traced.sees(weights)
        ):
            return traced.route(x, experts, weights)
        if torch is None:
            check_experts_of(interop.as_numpy(experts), self.weights[0].experts)
        dtype = self.dtype_for(linear_step.activations(x))
        columns = packed_columns(self.hidden, top_k, dtype)
        self._called.columns, self._called.top_k = columns, top_k
        if torch is None:
            return self.run(packed(x, experts, weights, dtype, columns), copied)
        from gemmd._layers import torch_ops

        parts = parts_by_torch(x, experts, weights, dtype)
        y = self.captured(parts)
        if y is None:
            y = self.run(packed_by_torch(*parts, columns), copied)
        return torch_ops.refusing(y, x, weights)

    def _top_k_of(self, experts: Any) -> int:
        if self.top_k is not None or len(experts.shape) != 2:
            return self.top_k or 1
        top_k = int(experts.shape[1])
        if top_k < 1:
            raise ValueError(f"experts has shape {tuple(experts.shape)}; a token has one at least")
        self._check_top_k(top_k)
        return top_k

    def from_logits(self, x: Any, logits: Any, *, renormalize: bool = True) -> Any:
        """`route` to the `top_k` experts of the largest of softmax(logits), [tokens, experts].

        Their shares are the weights, brought to a sum of 1 with `renormalize`. Chosen by this
        process, from an array or a torch tensor, where that lies.
        """
        if self.top_k is None:
            raise ValueError("the layer was made without top_k, by which logits choose experts")
        count = self.weights[0].experts
        torch = interop.torch_of(logits)
        shape = tuple(logits.shape) if torch else np.shape(logits)
        if len(shape) != 2 or shape[1] != count:
            raise ValueError(f"logits has shape {shape}, [tokens, {count}] is needed")
        if torch is None:
            experts, weights = top_of(interop.as_numpy(logits), self.top_k)
        else:
            weights, experts = logits.float().softmax(-1).topk(self.top_k)
        if renormalize:
            weights = weights / weights.sum(-1, keepdims=True)
        return self.route(x, experts, weights)

    def step(self, m: int, dtype: np.dtype[Any], way: Way) -> MoeStep:
        """As `Layer.step`."""
        top_k = self._called.top_k
        return MoeStep(*self.weights, top_k, m, dtype, self.result_dtype(dtype), self._gate, way)

    def __repr__(self) -> str:
        named = f' "{self.name}"' if self.name else ""
        gate_up, down = self.weights
        top = "" if self.top_k is None else f", top {self.top_k}"
        shape = f"{gate_up.k} -> {gate_up.experts} x {down.k} -> {down.n}{top}"
        kind = f"{gate_up.shown}, {self._gate.activation}"
        return f"MoE{named}({shape}, {kind}, {self._way()})"


def top_of(logits: npt.NDArray[Any], top_k: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Experts and their shares of softmax(logits), the largest first."""
    shifted = logits.astype(np.float32) - logits.max(-1, keepdims=True)
    shares = np.exp(shifted)
    shares /= shares.sum(-1, keepdims=True)
    experts = np.argsort(-shares, axis=-1, kind="stable")[:, :top_k]
    return experts, np.take_along_axis(shares, experts, -1)


def is_whole(array: Any) -> bool:
    """Whether an array or a torch tensor is of integers."""
    if interop.torch_of(array) is not None:
        return not (array.is_floating_point() or array.is_complex())
    return bool(np.issubdtype(array.dtype, np.integer))


def check_experts_of(experts: npt.NDArray[Any], count: int) -> None:
    """Raises ValueError for one that is none of `count` experts and not -1."""
    if experts.size == 0:
        return
    least, most = int(experts.min()), int(experts.max())
    if least < -1 or most >= count:
        bad = least if least < -1 else most
        raise ValueError(f"experts has {bad}; they are 0 to {count - 1}, or -1 for none")


def packed(
    x: Any, experts: Any, weights: Any, dtype: np.dtype[Any], columns: int
) -> npt.NDArray[Any]:
    """Rows as `MoeStep` reads them."""
    values = np.asarray(interop.as_numpy(x)).astype(dtype)
    rows = np.zeros((values.shape[0], columns), dtype)
    rows[:, : values.shape[1]] = values
    at = choices_at(values.shape[1], dtype) // 4
    for given, kind in ((experts, np.int32), (weights, np.float32)):
        part = np.asarray(interop.as_numpy(given))
        rows.view(kind)[:, at : at + part.shape[1]] = part
        at += part.shape[1]
    return rows


def parts_by_torch(
    x: Any, experts: Any, weights: Any, dtype: np.dtype[Any]
) -> tuple[Any, Any, Any]:
    """x, experts and weights as `MoeStep` reads them, on x's device."""
    torch = interop.torch_module()
    values = x.detach().to(getattr(torch, dtype.name))
    chosen = experts.to(values.device)
    if chosen.dtype is torch.int64:  # what int32 lacks is no expert
        chosen = chosen.clamp(-2, 2**31 - 1)
    shares = weights.detach().to(values.device, torch.float32)
    return values, chosen.to(torch.int32).contiguous(), shares.contiguous()


def packed_by_torch(x: Any, experts: Any, weights: Any, columns: int) -> Any:
    """The same side by side, as rows."""
    gap = choices_at(x.shape[1], dtypes.as_dtype(x.dtype)) // x.element_size() - x.shape[1]
    parts = [x, x.new_zeros((len(x), gap)), experts.view(x.dtype), weights.view(x.dtype)]
    padding = columns - sum(part.shape[1] for part in parts)
    if padding:
        parts.append(x.new_zeros((len(x), padding)))
    return interop.torch_module().cat(parts, 1)


def unpublished(
    session: Session, weight: Any, scales: Any, bias: Any, name: str, quantize: Quantize
) -> Buffer:
    """The published buffer of that name, or a new one, laid out as `ExpertWeights` says, that is
    still to be published.
    """
    found = resident.find(session, weight, name)
    if found is not None:
        resident.check_bias(found, bias, name, ExpertWeights.of)
        return found
    given = weight() if callable(weight) and interop.torch_of(weight) is None else weight
    given, scales = interop.apart(given, scales)
    taken = linear_step.taken(given, bias=bias, scales=scales)
    return _make(session, taken, scales, bias, quantize)


def _make(session: Session, weight: Any, scales: Any, bias: Any, quantize: Quantize) -> Buffer:
    shape = tuple(int(extent) for extent in weight.shape)
    if len(shape) != 3 or 0 in shape or shape[0] > LARGEST_EXPERTS:
        raise ValueError(
            f"weight has shape {shape}; [experts, n, k] is needed, of 1 to {LARGEST_EXPERTS}"
        )
    if bias is not None and tuple(np.shape(bias)) != shape[:2]:
        raise ValueError(
            f"bias has shape {tuple(np.shape(bias))}; weights of {shape} take {shape[:2]}"
        )
    linear_step.check_has_scales(interop.element_type(weight), scales)
    by_row = quantize == "fp8-row" if scales is None else are_by_row(np.shape(scales), shape)
    layout = ExpertWeights(*shape, by_row, bias is not None)
    buffer = session.create_buffer(
        layout.size_bytes, shape=shape, dtype=dtypes.float8_e4m3fn, label=layout.label
    )
    try:
        if scales is None:
            _quantize(session, weight, layout, buffer)
        else:
            buffer.upload(interop.as_numpy(weight))
        for array, at in ((scales, layout.scales_at), (bias, layout.bias_at)):
            if array is not None:
                session._mover.upload(buffer, linear_step.float_bytes(array), at)
    except BaseException:
        buffer.delete()
        raise
    return buffer


def _quantize(session: Session, weight: Any, layout: ExpertWeights, buffer: Buffer) -> None:
    """On the server, an expert at a time: the unquantised weights never lie there together."""
    target = layout.operand(buffer)
    assert target.scales is not None
    first = interop.as_numpy(weight[0])
    with session.create_buffer(
        shape=first.shape, dtype=first.dtype, device=buffer.device, label="weight"
    ) as staged:
        for expert in range(layout.experts):
            staged.upload(np.ascontiguousarray(interop.as_numpy(weight[expert])))
            one = ops.Operand(target.values[expert], target.scales[expert], target.granularity)
            session.execute([ops.quantize(staged.tensor(), one)])
