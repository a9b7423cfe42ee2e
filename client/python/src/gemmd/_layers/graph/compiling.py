"""How `gemmd.compile` goes: torch's compiler hands over graphs, and each region of one becomes a call
of a `Block`. What is left runs as torch runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import numpy as np
import torch
from torch.fx import GraphModule, Node

from gemmd import errors
from gemmd._layers.adopting import Adoption, put
from gemmd._layers.agreement import bound, differs
from gemmd._layers.blocks.block import Block
from gemmd._layers.chain import by_scale, random_rows
from gemmd._layers.graph.attention import of_any_length
from gemmd._layers.graph.by_parameters import ByParameters
from gemmd._layers.graph.einsums import spell_einsums
from gemmd._layers.graph.found import Found
from gemmd._layers.graph.fused_norms import fuse_norms
from gemmd._layers.graph.growth import grow_in_place
from gemmd._layers.graph.layout import lie_as_traced
from gemmd._layers.graph.masks import say_masks
from gemmd._layers.graph.naming import Naming
from gemmd._layers.graph.nodes import evaluate, is_product_call, sample
from gemmd._layers.graph.padding import by_padding
from gemmd._layers.graph.reading import Reading, parameters_of
from gemmd._layers.graph.regions import Region, regions_of
from gemmd._layers.graph.replays import Replays, replayed
from gemmd._layers.graph.rest import Backend
from gemmd._layers.graph.rewriting import call_directly, can_regroup, rewrite
from gemmd._layers.graph.spelling import spell
from gemmd._layers.graph.turn import Turn
from gemmd._layers.graph.writes import Writes
from gemmd._layers.graph.written import Matrix, Written
from gemmd._layers.layer import Layer
from gemmd._layers.likes import fp8_linears
from gemmd._layers.linear_step import Weights
from gemmd._layers.shadow import shadow
from gemmd._memory import interop
from gemmd._memory.layout import padded
from gemmd.buffer import Buffer
from gemmd.resident import Quantize, all_or_none, obtain

if TYPE_CHECKING:
    from gemmd.session import Session


class Compiling:
    """A backend of torch's compiler.

    Attributes
    ----------
    blocks : list of Block
        Those made, of all graphs.
    left : list of str
        Why some of the products stayed torch's.
    graphs : int
        How many torch has handed over.
    """

    def __init__(
        self,
        model: Any,
        session: Session,
        name: str,
        quantize: Quantize | None,
        least: int,
        rest: Backend | None,
        experts: bool,
    ) -> None:
        self._session = session
        self._quantize = quantize
        self._least = least
        self._rest = rest
        self._kept = dict[tuple[Any, ...], Block]()  # by what they are made of: graphs come again
        self._refused = dict[tuple[Any, ...], str]()
        self._experts = Adoption(model, session, name, quantize, least)
        with torch.no_grad():
            if experts:
                self._experts.choose_experts()
            self._stand_ins = {**fp8_linears(model), **self._experts.make()}
        read = self.shadow_of(model)
        self._naming = Naming(read, name)
        self._parameters = {id(one): one for one in read.parameters()}  # alive, or ids come again
        self._buffers = {id(one): one for one in read.buffers()}
        self.blocks = list[Block]()
        self.left = [f"{path}: {why}" for path, why in self._experts.left.items()]
        self.graphs = 0
        self._turn = Turn()
        self._replays = WeakSet[Replays]()

    def __call__(self, graph_module: GraphModule, inputs: Any) -> Callable[..., Any]:
        """What runs in a graph's place."""
        return self._by_parameters(self._rest, graph_module, inputs)

    def leaving_to(self, rest: Backend | None) -> Backend:
        """This, with another backend for what no block computes."""
        return partial(self._by_parameters, rest)

    def _by_parameters(
        self, rest: Backend | None, graph_module: GraphModule, inputs: Any
    ) -> Callable[..., Any]:
        self.graphs += 1
        make = partial(self._rewritten, rest)
        if rest is not None:  # whose attentions need no asking
            return ByParameters(graph_module, inputs, make)
        return by_padding(graph_module, inputs, partial(ByParameters, make=make))

    @property
    def experts(self) -> dict[str, Layer]:
        """Layers of experts, by the path of the module that each stands for."""
        return self._experts.layers

    def shadow_of(self, model: Any) -> Any:
        """The model to compile, whose experts are those; the model itself if it has none."""
        return shadow(model, self._stand_ins)

    def forget_graphs(self) -> None:
        """CUDA's, whose memory is free then. No call may be under way."""
        for one in self._replays:
            one.forget()

    def put_in(self) -> None:
        """Those, into the model itself."""
        put(self._experts.spots, self._stand_ins)

    def take_out(self) -> None:
        """The model's own again."""
        for module in self._stand_ins:
            put(self._experts.spots, {module: module})

    def _rewritten(
        self, rest: Backend | None, graph_module: GraphModule, inputs: Any
    ) -> tuple[Callable[..., Any], list[int]]:
        """With calls of blocks in it, for the parameters among those inputs, and which others."""
        with torch.no_grad():
            graph = graph_module.graph
            unspelt = spell(graph, self._least)
            spell_einsums(graph, parameters_of(graph_module, inputs), self._least)
            say_masks(graph, as_op=rest is not None)
            reading = Reading(graph_module, inputs, self._buffers)
            self._parameters.update((id(one), one) for one in reading.parameters)
            for weight, why in unspelt:
                self._leave(reading, (reading.constant(weight),), why)
            regions = regions_of(reading)
            writes = Writes(
                reading.graph, reading.order, {x for one in regions for x in one.nodes()}
            )
            made = [(one, self._made(reading, writes, one)) for one in map(Written, regions)]
            taken = {
                node for one, block in made if block is not None for node in one.region.nodes()
            }
            self._leave_choosers(reading, taken)
            now = dict[Node, Node]()  # what stands where an output did
            parts = list[tuple[Node, Any]]()
            for written, block in made:
                if block is not None:
                    parts += rewrite(reading, written, block, now, as_op=rest is not None)
            for part, really in parts:
                lie_as_traced(part, really)
            if rest is None:
                fuse_norms(reading, writes, taken, now)
                grow_in_place(graph)
                of_any_length(graph)
                call_directly(graph)
        graph.lint()
        graph_module.recompile()
        if rest is None:
            run = replayed(graph_module, inputs, self._buffers, self._turn)
            if isinstance(run, Replays):
                self._replays.add(run)
            return run, reading.read_of
        return rest(graph_module, inputs), reading.read_of

    def _made(self, reading: Reading, writes: Writes, written: Written) -> Block | None:
        """A region's block; None if the region is left alone."""
        why, block = self._tried(reading, writes, written)
        if why:
            self._leave(reading, written.region.weights, why)
        return block

    def _leave_choosers(self, reading: Reading, taken: set[Node]) -> None:
        """Those that no block multiplies."""
        for one in reading.choosers:
            if one.root not in taken:
                why = "it chooses experts; rounded weights would choose others"
                self._leave(reading, (one.weight,), why)

    def _leave(self, reading: Reading, weights: Iterable[Any], why: str) -> None:
        told = f"{self._naming.shown(reading, weights)}: {why}"
        if told not in self.left:  # graphs come again, for other shapes
            self.left.append(told)

    def _tried(
        self, reading: Reading, writes: Writes, written: Written
    ) -> tuple[str, Block | None]:
        """Why there is none, and the block."""
        region = written.region
        if region.elements < self._least:
            return f"{region.elements} elements, min_elements is {self._least}", None
        last = max((reading.order[node] for node in region.inputs), default=-1)
        within = region.nodes()
        users = (user for node in region.outputs for user in node.users if user not in within)
        if any(reading.order[user] <= last for user in users):
            return "something between its parts needs one of them first", None
        if writes.lie_between(last + 0.5, within):
            return "something between its parts writes to what they read", None
        if not can_regroup(region):
            return "its rows are regrouped by extents that nothing in front of it has", None
        key = self._key_of(reading, written)
        block, why = self._kept.get(key), self._refused.get(key, "")
        if block is None and not why:
            block, was_there = self._new_block(reading, written)
            off = self._off(reading, written, block)
            if off:
                with suppress(errors.Error):
                    block.close()
                if was_there:
                    raise errors.FailedPrecondition(
                        f"{self._naming.shown(reading, region.weights)} is published with other values than"
                        " the model's; give another name=, or unpublish that one",
                        reason="OTHER_WEIGHT",
                    )
                why = f"a block's results differ from its by {off:.2g} of their norm"
                self._refused[key] = why
                return why, None
            self._kept[key] = block
            self.blocks.append(block)
        return why, block

    # What a region becomes.

    def _key_of(self, reading: Reading, written: Written) -> tuple[Any, ...]:
        origins = (
            reading.origin(t) for one in written.region.found for t in (one.weight, one.bias)
        )
        kind = None if self._quantize else sample(written.region.outputs[0]).dtype
        return written.recipe([]), kind, *map(id, written.experts), *origins

    def _new_block(self, reading: Reading, written: Written) -> tuple[Block, bool]:
        """The region's, and whether weights of it were published before."""
        sent = list[Matrix]()
        with all_or_none() as held:
            for matrix in written.matrices:
                held.append(self._obtain(reading, matrix, sent))
            weights = [Weights.of(one) for one in held]
            for one, matrix in zip(weights, written.matrices, strict=True):
                self._check(reading, one, matrix)
            matrices, constants = tuple(held), None
            if written.constants:
                device = matrices[0].device if matrices else written.experts[0].device
                constants = self._constants(written, device)
                held.append(constants)
            experts = tuple(written.experts)
            block = Block(self._session, written.recipe(weights), matrices, experts, constants)
        return block, len(sent) < len(written.matrices)

    def _obtain(self, reading: Reading, matrix: Matrix, sent: list[Matrix]) -> Buffer:
        """Published, or made and then one of `sent`."""
        bias = None
        if matrix.has_bias:
            pairs = zip(matrix.weights, matrix.biases, strict=True)
            bias = torch.cat(
                [weight.new_zeros(len(weight)) if one is None else one for weight, one in pairs]
            )

        def joined() -> Any:
            sent.append(matrix)
            given = [one.weight.detach() for one in matrix.products]
            if self._quantize is None:  # autocast may multiply in another type
                given = [
                    one.to(sample(of.root).dtype)
                    for one, of in zip(given, matrix.products, strict=True)
                ]
            return given[0] if len(given) == 1 else torch.cat(given)

        name = self._naming.of(reading, matrix)
        return obtain(self._session, joined, bias, None, name, self._quantize)

    def _check(self, reading: Reading, weights: Weights, matrix: Matrix) -> None:
        """Of those published by another worker."""
        if (weights.n, weights.k) != matrix.shape or weights.has_bias != matrix.has_bias:
            raise errors.FailedPrecondition(
                f"{self._naming.shown(reading, matrix.weights)} is published as [{weights.n}, {weights.k}]"
                f"{' with' if weights.has_bias else ' without'} a bias, the model has"
                f" {list(matrix.shape)}{' with' if matrix.has_bias else ' without'} one; give"
                " another name=, or unpublish that one",
                reason="OTHER_WEIGHT",
            )

    def _constants(self, written: Written, device: str) -> Buffer:
        """What a block keeps beside its weights."""
        size = written.constants_bytes
        buffer = self._session.create_buffer(size, label="block", device=device)
        at = 0
        for one in written.constants:
            given = interop.as_numpy(one.contiguous()).reshape(-1).view(np.uint8)
            self._session._mover.upload(buffer, given.data, at)
            at += padded(given.nbytes)
        return buffer

    def _off(self, reading: Reading, written: Written, block: Block) -> float:
        """By how much of their norm the block's results for random rows are from torch's; 0 if
        within the bound.
        """
        region = written.region
        given = [_rows_like(node, seed) for seed, node in enumerate(region.inputs, 1)]
        x = torch.cat(given, -1)
        values = dict(zip(region.inputs, given, strict=True))  # which some of the nodes write to
        views = {node for node, one in reading.found.items() if one.kind == "view"}
        mixed = {one.root: one for one in region.found if one.kind == "experts"}
        chosen = dict[Node, tuple[Any, Any]]()
        if mixed:
            for one, rows in zip(mixed.values(), block.routed(x), strict=True):
                chosen[one.root] = _chosen(region, one, rows)
        choosing = {node for one in mixed.values() for node in one.nodes - {one.root}}
        for node in sorted(region.nodes() - choosing, key=lambda node: reading.order[node]):
            if node in mixed:
                values[node] = _mixed(mixed[node], values, chosen[node])
                continue
            for one in node.all_input_nodes:
                if one not in values:
                    values[one] = reading.constant(one)
            if node in views:
                values[node] = values[node.args[0]]
            else:
                cast = is_product_call(node)
                values[node] = evaluate(node, _in_type_of(node, values) if cast else values)
        got = block.run(x, copied=True)
        of_experts = [held for one in written.experts for held in one.weights]
        weights = (*block.weights, *of_experts)
        most = bound(x, weights, len(weights))
        offs = [
            differs(by_scale(values[node]), by_scale(got[..., columns]), most)
            for node, columns in written.columns.items()
        ]
        return max((one for one in offs if one is not None), default=0.0)


def _chosen(region: Region, one: Found, x: Any) -> tuple[Any, Any]:
    """The experts and weights that a block chooses for rows of its own: what FP8 has rounded in front
    of a router would have torch choose others.
    """
    assert one.choice is not None
    router = next(other for other in region.found if other.root is one.inputs[1])
    logits = x.float() @ router.weight.float().T
    if router.bias is not None:
        logits = logits + router.bias.float()
    return one.choice.of(logits, None if one.bias is None else one.bias.float())


def _mixed(one: Found, values: dict[Node, Any], chosen: tuple[Any, Any]) -> Any:
    """What a layer of experts gives."""
    assert one.layer is not None
    return one.layer.route(values[one.inputs[0]], *chosen, copied=True)


def _in_type_of(product: Node, values: dict[Node, Any]) -> dict[Node, Any]:
    """What is multiplied, as autocast casts it."""
    dtype = sample(product).dtype
    return {one: values[one].to(dtype) for one in product.all_input_nodes}


def _rows_like(node: Node, seed: int) -> Any:
    """[rows, columns]"""
    of = sample(node)
    return random_rows(int(of.shape[-1]), of.device, of.dtype, seed).flatten(0, -2)
