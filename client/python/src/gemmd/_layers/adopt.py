"""adopt: the Linears and the MLPs of a model of torch become layers of gemmd, by one call."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, get_args

from gemmd import errors, words
from gemmd._connection.here_only import Unpickled
from gemmd._layers.layer import Layer
from gemmd._layers.left import by_reason
from gemmd._memory import interop
from gemmd.resident import Quantize
from gemmd.session import Session


class Adopted(Unpickled):
    """The layers that `gemmd.adopt` has put into a model. `print` shows how many, and what is left.

    `len` counts the layers, and iterating yields them. The layers live until `close`, the end of a
    `with` over this, or the end of their session. The model cannot be called after that.

    Attributes
    ----------
    layers : dict of str to Linear, MLP, MoE or Sequential
        By the path of the module that each has replaced: the first of several that share it. A
        module that occurs several times is named by its first path.
    left : dict of str to str
        The Linears and the modules of experts that were left alone, by path: why.
    """

    _elsewhere = "adopt the model in each process, by one name"

    def __init__(self, layers: dict[str, Layer], left: dict[str, str]) -> None:
        self.layers = layers
        self.left = left

    def __len__(self) -> int:
        return len(self.layers)

    def __iter__(self) -> Iterator[Layer]:
        return iter(self.layers.values())

    def close(self) -> None:
        """Closes all layers. Published weights stay. Again: does nothing."""
        for layer in self:
            layer.close()

    def unpublish(self) -> None:
        """Takes all names away: the weights go when the last worker has let go of them."""
        for layer in self:
            if layer.name:
                with suppress(errors.NotFound):  # another worker was quicker
                    layer.unpublish()

    def __enter__(self) -> Adopted:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with suppress(errors.beside(kind)):
            self.close()

    def __repr__(self) -> str:
        kinds = Counter(type(layer).__name__ for layer in self)
        made = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items(), reverse=True))
        layers = "1 layer" if len(self) == 1 else f"{len(self)} layers"
        return f"adopted {layers} ({made}), {_shown(self.left)}"


def _shown(left: dict[str, str]) -> str:
    if not left:
        return "none left"
    reasons = by_reason((path or "the model", why) for path, why in left.items())
    return f"{len(left)} left: {reasons}"


def adopt(
    model: Any,
    session: Session,
    *,
    name: str = "",
    quantize: Quantize | None = "fp8-block",
    where: Callable[[str, Any], bool] | None = None,
    min_elements: int = 1 << 24,
) -> Adopted:
    """Replaces the Linears and MLPs of a model of torch by layers of gemmd, in place.

    Each `torch.nn.Linear` becomes a `gemmd.Linear`, and so does a module that gives what a Linear of
    its weight and bias would, such as GPT-2's Conv1D or Falcon's Linear. Weights that are FP8 with
    scales of 128x128, one a row or one for all are taken as they are. A module that computes
    `down_proj(act(gate_proj(x)) * up_proj(x))`, as Llama's MLP does, becomes one `gemmd.MLP`; so
    does one whose Linears are called w1, w3, w2 or wi_0, wi_1, wo. A module that computes
    `fc2(act(fc1(x)))`, whatever these are called, becomes one `gemmd.Sequential`, with as many
    Linears as it has. Its forward is called to find out, with random numbers in place of what its
    Linears give. The activations are ReLU, SiLU, either GELU or none, and dropout must be off. Gate
    and up may be the halves of one Linear's result, as Phi's are.

    A module of stacked experts becomes one `gemmd.MoE`. It is called with tokens, each token's
    experts and their weights, and holds [experts, 2i, k] and [experts, n, i], as transformers has
    them; gate and up may be apart or take turns, with biases, a clamp, a factor and an offset, and
    the weights may lie transposed. Experts may have no ups. Its forward is tried on small random
    weights to find out. So does a module with a router and a list of MLPs, gated or not, or stacked
    experts that get rows for each, as Llama 4 has them; and with an expert of all tokens, if it is called with x alone. How it routes
    is told by its results. The router stays a module of torch.

    An attention's query, key and value (q_proj, k_proj, v_proj; query, key, value; to_q and so on)
    share one `gemmd.Linear`. Who is called first with an x multiplies for all three, so nobody may
    write to that x in between. Where the path or the class tells of attention to another x ("cross",
    "encoder_attn", "EncDec", "attn2") they stay apart.

    The module's own result for eight random rows must be what was found. Each layer is called with
    these rows, too. It takes the module's place if the results differ by less than 15 % of their
    norm (more behind three Linears and up), or 0.5 % to 1.6 % with `quantize=None`.

    All or nothing: after an error the model is as it was. So torch's weights stay until all layers
    are made, and the server's copy is beside them: half as much again for FP8 of a bfloat16 model.
    Where that does not fit, adopt the model's blocks one by one. On a GPU torch's cache is emptied
    in the end, so that others get the memory.

    These are left alone:

    - subclasses of Linear that compute or hold something else, and parametrised ones
    - modules with hooks, or with a forward of the instance's own
    - Linears whose `.weight` or `.bias` the forward of a module above them reads, as that of
      `torch.nn.TransformerEncoderLayer` does. A weight's type, device and shape may be read; reads by
      way of a variable are not seen, and raise
    - weights of other types than float32, bfloat16 and float16, or float8_e4m3fn with scales
    - Linears beside as many experts as they have columns: rounded weights would choose others

    The Linears of an MLP are taken one by one where it has learnt something else, such as a norm,
    where it can be called with more than x, and where a forward above reads its parts; without a
    gate also where it has a buffer, or is a `torch.nn.Sequential` that a forward above does not
    just call. x may still be given by the name that the module has for it.

    A module that occurs several times is one layer. Where an embedding shares the weight of a
    replaced Linear, the embedding keeps its tensor. Results have x's dtype, under autocast its
    type; with `quantize=None` the weight's.

    Parameters
    ----------
    model : torch.nn.Module
        In eval mode, on the CPU or a GPU. Its weights may be on the meta device where `name` is
        published: they are never loaded in this process then.
    session : Session
    name : str
        Publishes the weights as NAME/PATH, with "-" for characters that names lack. Other workers
        find them by it. NAME is of [A-Za-z0-9._/@-], and NAME/PATH of at most 128 bytes.
    quantize : {"fp8-block", "fp8-row", None}
        As `gemmd.Linear`'s.
    where : function of a path and a module that returns a bool, optional
        Which Linears and modules of experts to take, of those that can be. Several Linears become
        one layer if all are taken.
    min_elements : int
        The smallest weight to take; those that become one layer count together. On an H200 blocks
        with weights of up to 9 million elements took longer by gemmd; those with 17 million and
        more took less, but for decoding by captured graphs (docs/benchmarks/h200-worker.md). Give 0
        where workers are to share all weights.

    Returns
    -------
    Adopted

    Raises
    ------
    ValueError
        Nothing can be adopted, with the reasons; the model is in training mode; a name is too long.
    NotFound
        A weight is on the meta device and not published.
    FailedPrecondition
        A weight is published with another shape or with other values than the model's.
    ResourceExhausted
        The server's memory or a quota is used up.
    """
    torch = interop.torch_module()
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model has type {type(model).__name__}; give a torch.nn.Module")
    if not isinstance(session, Session):
        kind = f"{type(session).__module__.rpartition('.')[0]}.{type(session).__name__}"
        raise TypeError(
            f"session has type {kind}; give a gemmd.Session, which client.session() makes; torch's"
            " modules cannot be awaited, so gemmd.aio has no adopt"
        )
    unnamed = re.sub(r"[A-Za-z0-9._/@-]", "", words.text("name", name))
    if unnamed:
        raise ValueError(f"name={name!r} has {unnamed[0]!r}; use characters of [A-Za-z0-9._/@-]")
    if quantize is not None:
        words.check("quantize", quantize, get_args(Quantize))
    least = words.whole("min_elements", min_elements)
    if where is not None and not callable(where):
        raise TypeError(f"where has type {type(where).__name__}; give a function (path, module)")
    adopted = _adopted(model, session, name, quantize, where, least)
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    return adopted


def _adopted(
    model: Any,
    session: Session,
    name: str,
    quantize: Quantize | None,
    where: Callable[[str, Any], bool] | None,
    least: int,
) -> Adopted:
    """With nothing left over that holds torch's weights."""
    from gemmd._layers.adopting import Adoption
    from gemmd._layers.likes import LinearLikes

    with interop.torch_module().no_grad(), LinearLikes(model) as likes:
        adoption = Adoption(model, session, name, quantize, least)
        adoption.choose(where and (lambda path, module: where(path, likes.own(module))))
        adoption.run()
    if not adoption.layers:
        why = _shown(adoption.left) if adoption.left else "it has no torch.nn.Linear"
        raise ValueError(
            f"nothing of {type(model).__name__} can be adopted: {why}; gemmd.compile, which sees what"
            " a forward computes, may take more"
        )
    return Adopted(adoption.layers, adoption.left)
