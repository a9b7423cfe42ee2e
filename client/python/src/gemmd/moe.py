"""MoE: a layer of experts as one program on the server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, get_args, overload

import numpy as np
import numpy.typing as npt

from gemmd import dtypes, ops, resident, words
from gemmd._layers import linear_step
from gemmd._layers.choice import MOST_TOP, Choice
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
from gemmd.grouped import GroupScore, RouterScores
from gemmd.ops import Gate
from gemmd.result import Array

if TYPE_CHECKING:
    from gemmd.session import Session

LARGEST_EXPERTS = 512


class MoE(Pair):
    """y[t] = sum over j of weights[t, j] * down[e] (act(gate[e] x[t]) * (up[e] x[t])), where e is
    experts[t, j]; with biases, of each product. Experts without ups have a gate that is alone.

    One call of the server does all of it: rows are sorted by expert, gathered while they are
    quantised, multiplied in groups, gated, multiplied again and added up. Weights are FP8 with
    scales of 128x128, or one a row; `gemmd.Linear` says what else holds: names, armed plans.

    Parameters
    ----------
    session : Session
    gate_up : array or torch tensor [experts, 2i, k], or a function that returns one
        Each expert's gate above its up; [experts, i, k] if `gate` is alone. May be left out if `name`
        is published.
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
        The activation of the gate, a clamp and the like. `Gate("gelu_erf", alone=True)`: down[e]
        (act(gate[e] x[t])), of experts that have no ups.
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
        if self._gate.alone and self._gate != Gate(self._gate.activation, alone=True):
            raise ValueError(
                f"{self._gate}: a gate that is alone has an activation, and nothing else"
            )
        names = names_of(name)
        given = (
            (gate_up, gate_up_scales, gate_up_bias),
            (down, down_scales, down_bias),
        )
        with resident.all_or_none() as obtained:
            for weight, name_of_one in zip(given, names, strict=True):
                obtained.append(unpublished(session, *weight, name_of_one, quantize))
            self.weights = (ExpertWeights.of(obtained[0]), ExpertWeights.of(obtained[1]))
            check_experts(*self.weights, self._gate)
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
    def variant(self) -> Hashable:
        """As `Layer.variant`: a token's experts, and who chooses them."""
        return self._called.top_k, self._called.choice

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
        self._called.top_k, self._called.choice = top_k, None
        dtype = self.dtype_for(linear_step.activations(x))
        if torch is None:
            words_of = experts.astype("i4"), weights.astype("f4")
            return self._packed(dtype, 2 * top_k, copied, x, *words_of)
        return self._by_torch(dtype, 2 * top_k, copied, x, as_words(experts, x), weights.float())

    def _packed(
        self, dtype: np.dtype[Any], words: int, copied: bool, x: Any, *behind: npt.NDArray[Any]
    ) -> Any:
        """The result for arrays side by side: x, then so many words of 4 bytes for each token."""
        self._called.columns = packed_columns(self.hidden, words, dtype)
        return self.run(packed(x, behind, dtype, self._called.columns), copied)

    def _by_torch(
        self, dtype: np.dtype[Any], words: int, copied: bool, x: Any, *behind: Any
    ) -> Any:
        """The same for tensors, on x's device."""
        from gemmd._layers import torch_ops

        torch = interop.torch_module()
        columns = self._called.columns = packed_columns(self.hidden, words, dtype)
        values = x.detach().to(getattr(torch, dtype.name))
        parts = [values]
        for one in behind:
            kind = torch.float32 if one.is_floating_point() else torch.int32
            parts.append(one.detach().to(values.device, kind).contiguous())
        y = self.captured(parts)
        if y is None:
            y = self.run(packed_by_torch(parts, columns), copied)
        return torch_ops.refusing(y, x, *(one for one in behind if one.is_floating_point()))

    def _top_k_of(self, experts: Any) -> int:
        if self.top_k is not None or len(experts.shape) != 2:
            return self.top_k or 1
        top_k = int(experts.shape[1])
        if top_k < 1:
            raise ValueError(f"experts has shape {tuple(experts.shape)}; a token has one at least")
        self._check_top_k(top_k)
        return top_k

    def from_logits(
        self,
        x: Any,
        logits: Any,
        *,
        renormalize: bool = True,
        scores: RouterScores = "softmax",
        scale: float = 1.0,
        groups: int = 1,
        top_groups: int = 1,
        group_score: GroupScore = "max",
    ) -> Any:
        """`route` to the `top_k` experts of the largest scores of logits [tokens, experts], by these as
        weights. The server chooses, in the same call: `gemmd.choose` says what else may be given.

        Raises
        ------
        ValueError
            The layer was made without `top_k` or with more than 32, logits are not [tokens, experts],
            or a word does not exist.
        InvalidArgument
            Groups that do not fit the experts.
        """
        if self.top_k is None:
            raise ValueError("the layer was made without top_k, by which logits choose experts")
        if self.top_k > MOST_TOP:
            raise ValueError(
                f"top_k={self.top_k}; the server chooses {MOST_TOP} at most: choose them, and call route"
            )
        words.check("scores", scores, get_args(RouterScores))
        words.check("group_score", group_score, get_args(GroupScore))
        choice = Choice(
            self.top_k, scores, renormalize, words.number("scale", scale),
            words.whole("groups", groups), words.whole("top_groups", top_groups), group_score,
        )  # fmt: skip
        return self.by_choice(x, logits, choice)

    def by_choice(self, x: Any, logits: Any, choice: Choice) -> Any:
        """`from_logits`, where how is a `Choice`."""
        torch, count = interop.torch_of(x), self.weights[0].experts
        if torch is None:
            x, logits = interop.as_numpy(x), interop.as_numpy(logits)
        else:
            x, logits = (
                one if isinstance(one, torch.Tensor) else torch.as_tensor(one)
                for one in (x, logits)
            )
        if len(x.shape) != 2 or x.shape[1] != self.hidden:
            raise ValueError(f"x has shape {tuple(x.shape)}, [tokens, {self.hidden}] is needed")
        shape = tuple(logits.shape)
        if len(shape) != 2 or shape[1] != count:
            raise ValueError(f"logits has shape {shape}, [tokens, {count}] is needed")
        if shape[0] != x.shape[0]:
            raise ValueError(
                f"logits has shape {shape}, x {tuple(x.shape)}: one row a token is needed"
            )
        traced = self._traced
        if (
            torch is not None
            and traced is not None
            and (traced.is_compiling() or traced.sees(x) or traced.sees(logits))
        ):
            return self.route(x, *choice.of(logits))
        self._called.top_k, self._called.choice = choice.top_k, choice
        dtype = self.dtype_for(linear_step.activations(x))
        if torch is None:
            return self._packed(dtype, count, False, x, logits.astype("f4"))
        return self._by_torch(dtype, count, False, x, logits.float())

    def step(self, m: int, dtype: np.dtype[Any], way: Way) -> MoeStep:
        """As `Layer.step`."""
        top_k, choice = self._called.top_k, self._called.choice
        result = self.result_dtype(dtype)
        return MoeStep(*self.weights, top_k, m, dtype, result, self._gate, way, choice)

    def __repr__(self) -> str:
        named = f' "{self.name}"' if self.name else ""
        gate_up, down = self.weights
        top = "" if self.top_k is None else f", top {self.top_k}"
        shape = f"{gate_up.k} -> {gate_up.experts} x {down.k} -> {down.n}{top}"
        kind = f"{gate_up.shown}, {self._gate.activation}"
        return f"MoE{named}({shape}, {kind}, {self._way()})"


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
    x: Any, behind: Sequence[npt.NDArray[Any]], dtype: np.dtype[Any], columns: int
) -> npt.NDArray[Any]:
    """Rows as `MoeStep` reads them: x, and arrays of 4-byte words."""
    values = np.asarray(interop.as_numpy(x)).astype(dtype)
    rows = np.zeros((values.shape[0], columns), dtype)
    rows[:, : values.shape[1]] = values
    at = choices_at(values.shape[1], dtype) // 4
    for given in behind:
        kind = np.int32 if np.issubdtype(given.dtype, np.integer) else np.float32
        rows.view(kind)[:, at : at + given.shape[1]] = given
        at += given.shape[1]
    return rows


def as_words(experts: Any, x: Any) -> Any:
    """A tensor of experts on x's device, in int32."""
    torch, chosen = interop.torch_module(), experts.to(x.device)
    if chosen.dtype is torch.int64:  # what int32 lacks is no expert
        chosen = chosen.clamp(-2, 2**31 - 1)
    return chosen.to(torch.int32)


def packed_by_torch(parts: Sequence[Any], columns: int) -> Any:
    """The same of tensors: x, and words behind it."""
    x, *behind = parts
    gap = choices_at(x.shape[1], dtypes.as_dtype(x.dtype)) // x.element_size() - x.shape[1]
    rows = [
        x,
        *((x.new_zeros((len(x), gap)),) if gap else ()),
        *(one.view(x.dtype) for one in behind),
    ]
    padding = columns - sum(part.shape[1] for part in rows)
    if padding:
        rows.append(x.new_zeros((len(x), padding)))
    return interop.torch_module().cat(rows, 1)


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
