"""MLP: gate_up, activation and down as one program on the server."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from gemmd import dtypes
from gemmd._layers.forward import Way
from gemmd._layers.layer import check_result
from gemmd._layers.linear_step import Weights
from gemmd._layers.mlp_step import Gate, Layout, MlpStep, check_pair
from gemmd._layers.pair import Pair, names_of
from gemmd._memory import interop
from gemmd.ops import Activation
from gemmd.resident import Quantize, Source, all_or_none, publish_all, unpublished

if TYPE_CHECKING:
    from gemmd.session import Session


class MLP(Pair):
    """y = (activation(x @ gate.T) * (x @ up.T)) @ down.T, the weights resident.

    One call of the server does all of it; `gemmd.Linear` says what else holds: FP8, names, armed
    plans. Weights are as transformers keeps them.

    Parameters
    ----------
    session : Session
    gate_up : array or torch tensor [2i, k], a pair of [i, k], or a function that returns either
        Gate and up, one above the other, or as `layout` says. May be left out if `name` is
        published.
    down : array or torch tensor [n, i], or a function that returns one
    gate_up_scales, down_scales : array or torch tensor
        Of weights that are float8_e4m3fn already (`weight_scale_inv`, `weight_scale`), as
        `gemmd.Linear` takes them; the two may differ in kind.
    gate_up_bias, down_bias : array or torch tensor, optional
    name : str
        The weights are published as NAME.gate_up and NAME.down.
    quantize : {"fp8-block", "fp8-row", None}
    activation : {"silu", "gelu_tanh", "gelu_erf", "relu", "relu_squared", "none"}
    layout : {"halves", "interleaved"}
        The rows of gate_up: all gates before all ups, or a gate before each up.
    out_dtype : DTypeLike, optional

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
        gate_up: Source | Callable[[], Any] | None = None,
        down: Source | Callable[[], Source] | None = None,
        *,
        gate_up_scales: Source | None = None,
        down_scales: Source | None = None,
        gate_up_bias: Source | None = None,
        down_bias: Source | None = None,
        name: str = "",
        quantize: Quantize | None = "fp8-block",
        activation: Activation = "silu",
        layout: Layout = "halves",
        out_dtype: dtypes.DTypeLike | None = None,
    ) -> None:
        check_result(out_dtype)
        self.name = name
        self._gate = Gate(activation, layout)
        names = names_of(name)
        given = (
            (joined(gate_up), gate_up_bias, gate_up_scales),
            (down, down_bias, down_scales),
        )
        with all_or_none() as obtained:
            for weight, name_of_one in zip(given, names, strict=True):
                obtained.append(unpublished(session, *weight, name_of_one, quantize))
            self.weights = (Weights.of(obtained[0]), Weights.of(obtained[1]))
            check_pair(*self.weights)
            publish_all(session, obtained, names)
            self.buffers = (obtained[0], obtained[1])
        features = (self.weights[0].k, self.weights[1].n)
        super().__init__(session, self.buffers[0].device, features, out_dtype)

    def step(self, m: int, dtype: np.dtype[Any], way: Way) -> MlpStep:
        """As `Layer.step`."""
        return MlpStep(*self.weights, m, dtype, self.result_dtype(dtype), self._gate, way)

    def __repr__(self) -> str:
        named = f' "{self.name}"' if self.name else ""
        gate_up, down = self.weights
        shape = f"{gate_up.k} -> {down.k} -> {down.n}"
        kind = f"{gate_up.shown}, {self._gate.activation}"
        return f"MLP{named}({shape}, {kind}, {self._way()})"


def joined(gate_up: Any) -> Any:
    """One weight of a pair of gate and up, or of a function that returns one."""
    interop.refuse_module("gate_up", gate_up)
    if callable(gate_up) and interop.torch_of(gate_up) is None:
        return lambda: joined(gate_up())
    if not isinstance(gate_up, tuple | list):
        return gate_up
    shapes = [tuple(getattr(one, "shape", ())) for one in gate_up]
    if len(shapes) != 2 or shapes[0] != shapes[1]:
        raise ValueError(f"gate_up is a pair of shapes {shapes}; two of the same [i, k] are needed")
    torch = interop.torch_of(gate_up[0])
    if torch is None:
        return np.concatenate([interop.as_numpy(one) for one in gate_up])
    return torch.cat([torch.as_tensor(one) for one in gate_up])
