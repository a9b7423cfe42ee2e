"""compile: a model of torch whose stretches between attentions are one call each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, get_args

from gemmd import errors, words
from gemmd._connection.here_only import Unpickled
from gemmd._layers.left import by_reason
from gemmd._memory import interop
from gemmd.resident import Quantize
from gemmd.session import Session

if TYPE_CHECKING:
    from gemmd._layers.blocks.block import Block
    from gemmd._layers.graph.compiling import Compiling
    from gemmd._layers.layer import Layer


class Compiled(Unpickled):
    """What `gemmd.compile` returns: called as the model is. `print` shows what became of it.

    `len` counts the blocks that were made so far, and iterating yields them: the first call makes
    them, and one with inputs that torch compiles anew may make more. They live until `close`, the
    end of a `with` over this, or the end of their session.

    Attributes
    ----------
    module : torch.nn.Module
        The model as torch has compiled it, for a place among other modules.
    left : list of str
        Which products stayed torch's, and why.
    """

    _elsewhere = "compile the model in each process, by one name"

    def __init__(self, module: Any, compiling: Compiling, in_place: bool = False) -> None:
        self.module = module
        self._compiling = compiling
        self._in_place = in_place

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """As the model."""
        try:
            return self.module(*inputs, **named)
        except interop.torch_module()._dynamo.exc.BackendCompilerFailed as error:
            if isinstance(error.inner_exception, errors.Error):
                raise error.inner_exception from None
            raise

    @property
    def left(self) -> list[str]:
        """Which products stayed torch's, and why."""
        return list(self._compiling.left)

    @property
    def experts(self) -> dict[str, Layer]:
        """Layers of experts, by the path of the module whose place each takes."""
        return dict(self._compiling.experts)

    def __len__(self) -> int:
        return len(self._compiling.blocks)

    def __iter__(self) -> Iterator[Block]:
        return iter(list(self._compiling.blocks))

    def close(self) -> None:
        """Closes all blocks: the model cannot be called by this any more. One compiled in place is as
        it was. Published weights stay. Again: does nothing.
        """
        if self._in_place:
            from gemmd._layers import in_place

            self._in_place = False
            in_place.take_out(self.module, self._compiling)
        self._compiling.forget_graphs()
        for layer in (*self, *self.experts.values()):
            layer.close()

    def unpublish(self) -> None:
        """Takes all names away: the weights go when the last worker has let go of them."""
        for block in self:
            block.unpublish()
        for layer in self.experts.values():
            if layer.name:
                layer.unpublish()

    def __enter__(self) -> Compiled:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with suppress(errors.beside(kind)):
            self.close()

    def __repr__(self) -> str:
        if not self._compiling.graphs:
            return "compiled, not called yet"
        products = sum(len(block.weights) for block in self)
        norms = sum(len(block.recipe.norms) for block in self)
        counted = f"{len(self)} blocks of {products} products and {norms} norms"
        if self.experts:
            counted += f", {len(self.experts)} layers of experts"
        if not self.left:
            return f"compiled as {counted}, none left"
        told = (one.partition(": ") for one in self.left)
        reasons = by_reason((name, why) for name, _, why in told)
        return f"compiled as {counted}, {len(self.left)} left: {reasons}"


def compile(
    model: Any,
    session: Session,
    *,
    name: str = "",
    quantize: Quantize | None = "fp8-block",
    min_elements: int = 1 << 22,
    rest: str = "eager",
    mode: str = "",
    in_place: bool = False,
    experts: bool = True,
    **options: Any,
) -> Compiled:
    """A model of torch by torch's compiler, with all that gemmd does between two things that it does
    not do as one call: of a transformer what lies between two attentions.

    A block is made of Linears, LayerNorms and RMSNorms, activations, gates and what is added to a
    Linear's result, whatever the modules are called. `gemmd.adopt` makes two or three calls of a
    layer; here norms and sums go along, and Linears of the same x are one.

    The first call with inputs of a kind compiles, and makes the blocks. Each is tried with random
    rows first, against torch's own results: it stays torch's if they differ by more than FP8
    explains. The model itself is left as it is, and keeps its weights; they are read once, so what
    becomes of them later is not seen.

    torch compiles up to 64 kinds of calls of a model then, and not 8 of all models together: its
    `recompile_limit` is raised, for the process.

    Call it under `torch.no_grad()` or `torch.inference_mode()`: blocks have no gradients. Calls may be
    captured in a CUDA graph, once they were made with as many rows.

    Attentions of torch.nn and layers of its encoder are written out, and einsums of x and a weight are
    products. Under autocast blocks multiply in its type; norms and sums, which are float32's then, stay
    torch's.

    Modules of experts, as `gemmd.adopt` finds them, are layers of experts, made at once. Where they
    are chosen from a router's logits as `gemmd.choose` does it, router and experts are parts of a block;
    the router is not rounded. What chooses in another way stays torch's.

    Parameters
    ----------
    model : torch.nn.Module
        In eval mode.
    session : Session
    name : str
        Publishes the weights as NAME/PATH, as `gemmd.adopt` does: other workers find them by it.
    quantize : {"fp8-block", "fp8-row", None}
        As `gemmd.Linear`'s.
    min_elements : int
        The fewest elements that the weights of a block have together. What counts is a layer's
        time: on an H200 a captured graph gains where torch takes some 80 us for a layer. Calls as
        torch makes them gained with all blocks that were tried (docs/benchmarks/h200-worker.md).
    rest : str
        The backend of torch's compiler for what is left: "eager" runs it as it is, and replays it as
        CUDA graphs where calls of few rows come again; "inductor" fuses it.
    mode : str
        Of `rest="inductor"`, as `torch.compile` has it: "reduce-overhead" makes calls CUDA graphs, one
        for each shape. In place, a model of transformers that generates makes none of its own calls.
    in_place : bool
        The model's own calls go this way until `close`, so that methods of it do, too, such as
        `generate` of Hugging Face's models. So do models within it that are called alone, as
        `generate` calls an encoder. What that compiles to decode with a static cache goes by
        blocks, too, as its `compile_config` says; by CUDA graphs if nothing is said.
    experts : bool
        Modules of experts become layers. False: they stay torch's, where memory lacks room for both.
    **options
        Of `torch.compile`, such as `dynamic` and `fullgraph`.

    Returns
    -------
    Compiled

    Raises
    ------
    ValueError
        The model is in training mode, or has no module that is none.
    FailedPrecondition
        A weight is published with another shape than the model's; raised by the first call.
    """
    torch = interop.torch_module()
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model has type {type(model).__name__}; give a torch.nn.Module")
    if not isinstance(session, Session):
        raise TypeError(
            f"session has type {type(session).__name__}; give a gemmd.Session, which"
            " client.session() makes"
        )
    if model.training:
        raise ValueError(
            "the model is in training mode; blocks have no gradients: call model.eval()"
        )
    if quantize is not None:
        words.check("quantize", quantize, get_args(Quantize))
    from gemmd._layers import in_place as places
    from gemmd._layers.frames import allow_kinds, frame_of
    from gemmd._layers.graph.compiling import Compiling
    from gemmd._layers.graph.rest import backend_of

    least = words.whole("min_elements", min_elements)
    backends = ("eager", *torch._dynamo.list_backends())
    words.check("rest", rest, backends)
    left_to = backend_of(rest, mode)
    name = words.text("name", name)
    compiling = Compiling(model, session, name, quantize, least, left_to, experts)
    allow_kinds()
    if in_place:
        places.put_in(model, compiling, rest, mode, options)
        return Compiled(model, compiling, in_place)
    own = compiling.shadow_of(model)
    module = torch.compile(own, backend=compiling, **options)  # a module, for a place among others
    module.forward = torch.compile(frame_of(own.__call__), backend=compiling, **options)
    return Compiled(module, compiling)
