"""How `gemmd.compile` goes: torch's compiler hands over graphs, and each region of one becomes a call
of a `Block`. What is left runs as torch runs it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Graph, GraphModule, Node

from gemmd import errors
from gemmd._layers.agreement import bound, differs
from gemmd._layers.block import Block
from gemmd._layers.chain import random_rows
from gemmd._layers.graph.nodes import alike, evaluate, sample
from gemmd._layers.graph.reading import Reading
from gemmd._layers.graph.regions import Region, regions_of
from gemmd._layers.graph.writes import Writes
from gemmd._layers.graph.written import Matrix, Written
from gemmd._layers.linear_step import Weights, float_bytes
from gemmd._memory.layout import padded
from gemmd.buffer import Buffer
from gemmd.loads import MOST_NAME_BYTES, published_name
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
        rest: str,
    ) -> None:
        self._session = session
        self._name = name
        self._quantize = quantize
        self._least = least
        self._rest = rest
        self._paths = {id(one): path for path, one in model.named_parameters()}
        self._kept = dict[tuple[Any, ...], Block]()  # by what they are made of: graphs come again
        self._parameters = list(model.parameters())  # alive, or others could have their ids
        self._sent = set[Matrix]()  # whose weights were not there before
        self.blocks = list[Block]()
        self.left = list[str]()
        self.graphs = 0

    def __call__(self, graph_module: GraphModule, inputs: Any) -> Callable[..., Any]:
        """What runs in a graph's place."""
        self.graphs += 1
        with torch.no_grad():
            reading = Reading(graph_module, inputs)
            regions = regions_of(reading)
            writes = Writes(reading.graph, reading.order, {x for one in regions for x in one.nodes()})
            made = [(one, self._made(reading, writes, one)) for one in map(Written, regions)]
            now = dict[Node, Node]()  # what stands where an output did
            for written, block in made:
                if block is not None:
                    self._rewrite(reading, written, block, now)
        graph_module.graph.lint()
        graph_module.recompile()
        if self._rest == "eager":
            forward: Callable[..., Any] = graph_module.forward
            return forward
        compiled: Callable[..., Any] = torch._dynamo.lookup_backend(self._rest)(graph_module, inputs)
        return compiled

    def _made(self, reading: Reading, writes: Writes, written: Written) -> Block | None:
        """A region's block; None if the region is left alone."""
        why, block = self._tried(reading, writes, written)
        if why:
            self.left.append(f"{self._shown(written.region)}: {why}")
        return block

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
        if not _can_regroup(region):
            return "its rows are regrouped by extents that nothing in front of it has", None
        block, fresh = self._block(reading, written)
        if fresh:
            off = self._off(reading, written, block)
            if off:
                self._drop(block)
                if not self._sent.issuperset(written.matrices):
                    raise errors.FailedPrecondition(
                        f"{self._shown(region)} is published with other values than the model's;"
                        " give another name=, or unpublish that one",
                        reason="OTHER_WEIGHT",
                    )
                return f"a block's results differ from its by {off:.2g} of their norm", None
            self.blocks.append(block)
        return "", block

    def _shown(self, region: Region) -> str:
        paths = [
            self._paths.get(id(one.weight), "a weight")
            for one in region.found
            if one.kind == "linear"
        ]
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        return str(paths[0]).removesuffix(".weight") + more

    # What a region becomes.

    def _block(self, reading: Reading, written: Written) -> tuple[Block, bool]:
        """The region's, and whether it is new."""
        origins = (reading.origin(t) for one in written.region.found for t in (one.weight, one.bias))
        key = written.recipe([]), *origins
        found = self._kept.get(key)
        if found is not None:
            return found, False
        with all_or_none() as held:
            for matrix in written.matrices:
                held.append(self._obtain(matrix))
            weights = [Weights.of(one) for one in held]
            for one, matrix in zip(weights, written.matrices, strict=True):
                self._check(one, matrix)
            if written.vectors_bytes:
                held.append(self._vectors(written, held[0].device))
            block = Block(self._session, written.recipe(weights), tuple(held))
        self._kept[key] = block
        return block, True

    def _obtain(self, matrix: Matrix) -> Buffer:
        bias = None
        if matrix.has_bias:
            pairs = zip(matrix.weights, matrix.biases, strict=True)
            bias = torch.cat(
                [weight.new_zeros(len(weight)) if one is None else one for weight, one in pairs]
            )

        def joined() -> Any:
            self._sent.add(matrix)
            given = [one.detach() for one in matrix.weights]
            return given[0] if len(given) == 1 else torch.cat(given)

        name = self._name_of(matrix)
        return obtain(self._session, joined, bias, None, name, self._quantize)

    def _name_of(self, matrix: Matrix) -> str:
        paths = [self._paths.get(id(one), "") for one in matrix.weights]
        if not self._name or not all(paths):
            return ""
        first, *others = (path.removesuffix(".weight") for path in paths)
        ending = "".join("." + path.rpartition(".")[2] for path in others)
        name = published_name(self._name, first + ending)
        if len(name) > MOST_NAME_BYTES:
            raise ValueError(
                f"{first} would be published as {name}, {len(name)} bytes, limit {MOST_NAME_BYTES};"
                " give a shorter name="
            )
        return name

    def _check(self, weights: Weights, matrix: Matrix) -> None:
        """Of those published by another worker."""
        if (weights.n, weights.k) != matrix.shape or weights.has_bias != matrix.has_bias:
            raise errors.FailedPrecondition(
                f"{self._name_of(matrix)} is published as [{weights.n}, {weights.k}]"
                f"{' with' if weights.has_bias else ' without'} a bias, the model has"
                f" {list(matrix.shape)}{' with' if matrix.has_bias else ' without'} one; give"
                " another name=, or unpublish that one",
                reason="OTHER_WEIGHT",
            )

    def _vectors(self, written: Written, device: str) -> Buffer:
        """The norms' weights and biases."""
        buffer = self._session.create_buffer(written.vectors_bytes, label="norms", device=device)
        at = 0
        for one in written.norms:
            for vector in (one.weight, one.bias):
                if vector is not None:
                    given = float_bytes(vector.detach())
                    self._session._mover.upload(buffer, given, at)
                    at += padded(len(given))
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
        for node in sorted(region.nodes(), key=lambda node: reading.order[node]):
            for one in node.all_input_nodes:
                if one not in values:
                    values[one] = reading.constant(one)
            values[node] = values[node.args[0]] if node in views else evaluate(node, values)
        got = block.run(x, copied=True)
        most = bound(x, block.weights, len(block.weights))
        offs = [
            differs(_by_scale(values[node]), _by_scale(got[..., columns]), most)
            for node, columns in written.columns.items()
        ]
        return max((one for one in offs if one is not None), default=0.0)

    def _drop(self, block: Block) -> None:
        self._kept = {key: one for key, one in self._kept.items() if one is not block}
        with suppress(errors.Error):
            block.close()

    def _rewrite(
        self, reading: Reading, written: Written, block: Block, now: dict[Node, Node]
    ) -> None:
        graph, region = reading.graph, written.region
        given = [now.get(node, node) for node in region.inputs]
        last = next(node for node in reversed(graph.nodes) if node in given)
        parts = dict[Node, Node]()
        with graph.inserting_before(_behind(last)):
            if not _are_alike(region.inputs):
                given = [_flat(graph, node, one) for node, one in zip(region.inputs, given, strict=True)]
            if self._rest == "eager":
                y = graph.call_function(_caller(block), tuple(given))
            else:
                x = given[0] if len(given) == 1 else graph.call_function(torch.cat, (given, -1))
                traced = block._traced
                assert traced is not None
                dtype = sample(region.outputs[0]).dtype
                arguments = (x, traced.key, block.out_features, dtype)
                y = graph.call_function(torch.ops.gemmd.layer, arguments)
            for node, columns in written.columns.items():
                part = y
                if columns != slice(0, block.out_features):
                    part = graph.call_function(operator.getitem, (y, (..., columns)))
                parts[node] = _regrouped(graph, region, node, part, now)
        for node, part in parts.items():
            part.meta = dict(node.meta)
            node.replace_all_uses_with(part)
            now[node] = part
        for node in sorted(region.nodes(), key=lambda node: -reading.order[node]):
            graph.erase_node(node)


def _behind(node: Node) -> Node:
    """Where a call that needs it can stand: behind it, and behind all placeholders."""
    where = node.next
    while where.op in ("placeholder", "get_attr"):
        where = where.next
    return where


def _caller(block: Block) -> Callable[[Any], Any]:
    def gemmd_block(*parts: Any) -> Any:
        return block.of_parts(*parts)

    return gemmd_block


def _rows_like(node: Node, seed: int) -> Any:
    """[rows, columns]"""
    of = sample(node)
    return random_rows(int(of.shape[-1]), of.device, of.dtype, seed).flatten(0, -2)


def _by_scale(rows: Any) -> Any:
    """Rows like those, by the scales that they were made with."""
    return rows.unflatten(0, random_rows(1, "cpu").shape[:2])


# Rows in groups: a block's result has those of its inputs, or none if they differ.


def _are_alike(inputs: Sequence[Node]) -> bool:
    return all(alike(inputs[0], one, columns=False) for one in inputs)


def _like(region: Region, node: Node) -> Node | None:
    """An input whose rows are in the same groups."""
    return next((one for one in region.inputs if alike(node, one, columns=False)), None)


def _can_regroup(region: Region) -> bool:
    return all(
        sample(node).dim() == 2
        or all(isinstance(extent, int) for extent in sample(node).shape)
        or _like(region, node) is not None
        for node in region.outputs
    )


def _flat(graph: Graph, was: Node, node: Node) -> Node:
    if sample(was).dim() == 2:
        return node
    return graph.call_method("reshape", (node, -1, int(sample(was).shape[-1])))


def _regrouped(
    graph: Graph, region: Region, node: Node, part: Node, now: dict[Node, Node]
) -> Node:
    """`part`, whose rows are grouped as the block's result, as those of `node`."""
    if _are_alike(region.inputs) and alike(region.inputs[0], node, columns=False):
        return part
    of = sample(node)
    like = _like(region, node)
    shape = list[Any]()
    for at, extent in enumerate(of.shape[:-1]):
        if isinstance(extent, int) or of.dim() == 2:
            shape.append(extent if isinstance(extent, int) else -1)
        else:
            assert like is not None
            shape.append(graph.call_method("size", (now.get(like, like), at)))
    return graph.call_method("reshape", (part, *shape, int(of.shape[-1])))
