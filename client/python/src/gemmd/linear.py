"""Linear: a layer whose weight stays on the server, shared by as many workers as call it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, get_args

import numpy as np

from gemmd import dtypes, ops, words
from gemmd._layers import linear_step
from gemmd._layers.forward import Way
from gemmd._layers.layer import Layer, check_result
from gemmd._layers.linear_step import Step
from gemmd._layers.split_step import Split
from gemmd.ops import Activation
from gemmd.resident import Quantize, Source, all_or_none, obtain

if TYPE_CHECKING:
    from gemmd.session import Session


class Linear(Layer):
    """y = activation(x @ weight.T + bias), the weight resident.

    With `quantize` (the default) the weight is turned into FP8 with scales of 128x128 once, on the
    server, and activations into FP8 with scales of 1x128 in the program of each call. A weight with
    one scale a row, as "FP8-dynamic" checkpoints have it, takes activations with one a row. A plan
    is kept for each row count, rounded up a little. With a server on this host it is armed: a call rings it in memory
    shared with the server, and `repr` says "armed"; otherwise why it goes by gRPC.

    With a `name` the weight is published: the first worker of the tenant to come makes it, all
    others find it, and there is one copy in device memory however many processes call. It outlives
    them until `unpublish`.

    Thread-safe: calls of several threads run side by side, each in memory of its own.

    Parameters
    ----------
    session : Session
    weight : array or torch tensor [n, k], or a function that returns one
        float32, bfloat16 or float16; or float8_e4m3fn with `scales`. A function is called only if
        `name` is not published yet. May be left out if it is.
    bias : array or torch tensor [n], optional
        Kept in float32.
    scales : array or torch tensor, optional
        Of a weight that is float8_e4m3fn already; value = stored * scale. [ceil(n/128),
        ceil(k/128)]: one a block of 128x128; [n] or [n, 1]: one a row; one element: for all.
    name : str
        1 to 128 of [A-Za-z0-9._/-].
    quantize : {"fp8-block", "fp8-row", None}
        None keeps the weight's own dtype. Of a weight that comes with scales these decide.
    activation : {"none", "relu", "silu", "gelu_tanh", "gelu_erf", "relu_squared"}
    out_dtype : DTypeLike, optional
        Of what `forward` returns: float32, bfloat16 or float16. Default: x's; with `quantize=None`
        the weight's, to which x is rounded.
    split : {"columns", "rows"}, optional
        Puts the weight in parts on several devices of the server, which work on each call at once:
        one program with one report, whose ops name their devices. "columns": each has rows of the
        weight, and makes columns of the result from all of x. "rows": each has columns of the
        weight and of x, and the devices add their sums up; no activation. Calls bring x from the
        host: "columns" is as quick or quicker for any weight, and "rows" slower than one device
        where n is above k. Parts are whole blocks of 128. Calls go through the host's memory,
        those with CUDA tensors too, and by gRPC.
    devices : sequence of str, optional
        For `split`: which ones. By default all that serve and are like the session's, which comes
        first. Of a published weight: where its parts are.

    Raises
    ------
    ValueError
        The weight has fewer blocks of 128 than there are devices, or an activation is to come
        before the sums of "rows".
    NotFound
        No weight is given and `name` is not published.
    FailedPrecondition
        `name` is something else's, or its weight was published without a bias and one is given.
    """

    _in_parts: ClassVar[type[Linear]]  # what `split` makes; gemmd.split is built on this module

    def __init_subclass__(cls, in_parts: bool = False, **options: Any) -> None:
        super().__init_subclass__(**options)
        if in_parts:
            Linear._in_parts = cls

    def __new__(cls, *_: Any, split: Split | None = None, **__: Any) -> Linear:
        if split is not None and cls is Linear:
            words.check("split", split, get_args(Split))
            return object.__new__(Linear._in_parts)
        return object.__new__(cls)

    def __init__(
        self,
        session: Session,
        weight: Source | Callable[[], Source] | None = None,
        *,
        bias: Source | None = None,
        scales: Source | None = None,
        name: str = "",
        quantize: Quantize | None = "fp8-block",
        activation: Activation = "none",
        out_dtype: dtypes.DTypeLike | None = None,
        split: Split | None = None,
        devices: Sequence[str] | None = None,
    ) -> None:
        if devices is not None:
            raise ValueError('devices are of a split layer; give split="columns" or "rows", too')
        words.check("activation", activation, ops.ACTIVATIONS)
        check_result(out_dtype)
        self.name = name
        self._activation = activation
        with all_or_none() as obtained:
            obtained.append(obtain(session, weight, bias, scales, name, quantize))
            self._held = self.buffer = obtained[0]
            self.weights = linear_step.Weights.of(self.buffer)
        features = (self.weights.k, self.weights.n)
        super().__init__(session, self.buffer.device, features, out_dtype)

    def dtype_for(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """As `Layer.dtype_for`."""
        return self.weights.dtype_for(dtype)

    def step(self, m: int, dtype: np.dtype[Any], way: Way) -> Step:
        """As `Layer.step`."""
        return Step(self.weights, m, dtype, self.result_dtype(dtype), self._activation, way)

    def unpublish(self) -> None:
        """Takes the name away: the weight goes when the last worker has let go of it."""
        self.session.unpublish(self.name)

    def _let_go(self) -> None:
        self.buffer.delete()

    def __repr__(self) -> str:
        named = f' "{self.name}"' if self.name else ""
        shape = f"{self.weights.k} -> {self.weights.n}"
        return f"Linear{named}({shape}, {self.weights.shown}, {self._way()})"
