"""Where a torch graph is cut: each stretch between two things that gemmd does not do is a `Region`,
and becomes one call.

A node's level counts how often its way from the graph's begin leaves what gemmd does. What is of one
level can run at once: nothing that lies between two of its nodes is of another.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from torch.fx import Node

from gemmd._layers.graph.found import Found
from gemmd._layers.graph.reading import Reading

_TAKES_ROWS = ("linear", "norm", "view", "router", "experts")


@dataclass(frozen=True)
class Region:
    """Attributes
    ----------
    found : tuple of Found
        In the graph's order.
    inputs, outputs : tuple of Node
        What it is given, and what of it others take.
    """

    found: tuple[Found, ...]
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]

    @property
    def weights(self) -> list[Any]:
        """Of its products."""
        return [one.weight for one in self.found if one.kind == "linear"]

    @property
    def elements(self) -> int:
        """Of its products and experts."""
        layers = [one.layer for one in self.found if one.layer is not None]
        counts = [math.prod(held.shape) for layer in layers for held in layer.weights]
        return sum([*counts, *(int(one.numel()) for one in self.weights)])

    def nodes(self) -> set[Node]:
        return {node for one in self.found for node in one.nodes}


def regions_of(reading: Reading) -> list[Region]:
    """In the graph's order. A region has one product, or experts, at least."""
    chosen = _fitting(reading, _claimed(reading))
    return [
        _region(reading, found)
        for found in _connected(reading, chosen)
        if any(one.kind in ("linear", "experts") for one in found)
    ]


def _claimed(reading: Reading) -> list[Found]:
    """What is found, each node once: what comes last in the graph has the more."""
    chosen, taken = list[Found](), set[Node]()
    for root in reversed(reading.graph.nodes):
        one = reading.found.get(root)
        if one is not None and taken.isdisjoint(one.nodes):
            chosen.append(one)
            taken |= one.nodes
    return chosen[::-1]


def _fitting(reading: Reading, chosen: list[Found]) -> list[Found]:
    """Those that can be done where they are, with what they go with in the same region."""
    while True:
        owners = {node: one for one in chosen for node in one.nodes}
        level = _levels(reading, owners)
        fit = list[Found]()
        for one in chosen:
            ways = (one, *_the_other_way(one, owners))
            fit += [way for way in ways if _fits(way, owners, level)][:1]
        if len(fit) == len(chosen):
            return fit
        chosen = fit


def _the_other_way(one: Found, owners: dict[Node, Found]) -> Iterator[Found]:
    """A sum of two products, of which one may be another region's."""
    other = owners.get(one.inputs[-1])
    if one.kind == "add" and other is not None and other.root is one.inputs[1]:
        if other.kind in ("norm", "add", "experts") or (
            other.kind == "linear" and len(other.root.users) == 1
        ):
            yield replace(one, inputs=one.inputs[::-1])


def _levels(reading: Reading, owners: dict[Node, Found]) -> dict[Node, int]:
    level = dict[Node, int]()
    for node in reading.graph.nodes:
        of = [one for one in node.all_input_nodes if reading.constant(one) is None]
        level[node] = max(
            (level[one] + (one in owners and node not in owners) for one in of), default=0
        )
    return level


def _fits(one: Found, owners: dict[Node, Found], level: dict[Node, int]) -> bool:
    here = level[one.root]
    # What a choice makes of buffers alone is there before.
    if one.kind != "experts" and any(level[node] != here for node in one.nodes):
        return False
    if one.kind == "linear":
        return True
    users = (user for user in one.root.users if user in owners and level[user] == here)
    if one.kind == "router":
        return any(owners[user].kind == "experts" for user in users)
    if one.kind == "experts":
        return one.inputs[1] in owners and level[one.inputs[1]] == here
    if one.kind in ("norm", "view"):
        makers = one.inputs[0] in owners and level[one.inputs[0]] == here
        return makers or any(owners[user].kind in _TAKES_ROWS for user in users)
    if one.kind == "add" and not any(  # torch's own sum takes no longer then
        user in owners and level[user] == here for user in one.root.users
    ):
        return False
    products = one.inputs[:1] if one.kind == "add" else one.inputs
    return all(product in owners and level[product] == here for product in products)


def _connected(reading: Reading, chosen: list[Found]) -> Iterator[list[Found]]:
    """Those of one level that have something in common: a value that one makes and the other takes,
    or that both are given.
    """
    owners = {node: one for one in chosen for node in one.nodes}
    level = _levels(reading, owners)
    group = {one.root: one.root for one in chosen}

    def head(root: Node) -> Node:
        while group[root] is not root:
            root = group[root]
        return root

    takers: dict[tuple[Node, int], Node] = {}
    for one in chosen:
        for given in one.inputs:
            maker = owners.get(given)
            if maker is None or level[given] != level[one.root]:
                maker_root = takers.setdefault((given, level[one.root]), one.root)
            else:
                maker_root = maker.root
            group[head(one.root)] = head(maker_root)
    members = defaultdict[Node, list[Found]](list)
    for one in chosen:
        members[head(one.root)].append(one)
    yield from members.values()


def _region(reading: Reading, found: list[Found]) -> Region:
    within = {node for one in found for node in one.nodes}
    inputs = dict.fromkeys(given for one in found for given in one.inputs if given not in within)
    outputs = [one.root for one in found if any(user not in within for user in one.root.users)]
    by_order = sorted(inputs, key=lambda node: reading.order[node])
    return Region(tuple(found), tuple(by_order), tuple(outputs))
