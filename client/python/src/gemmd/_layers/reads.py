"""Which attributes of its children a module's forward reads: another module in their place needs
them, too.
"""

from __future__ import annotations

import dis
import inspect
import sys
from collections.abc import Iterable, Iterator
from types import CodeType, FunctionType
from typing import Any

import torch

from gemmd._layers.told import TOLD

_LOADS = ("LOAD_ATTR", "LOAD_METHOD")
_NOT_LOOKED_AT = (torch.nn.Module, object)  # they read nothing of a child


def read_by(kind: type) -> set[tuple[str, str]]:
    """The pairs of names in `x.child.attribute`, in the bytecode of `kind.forward` and of all
    methods that it may call. Not that of a weight of which only the type or the like is asked. An
    attribute that is read by way of a variable or an index is not seen.
    """
    return {
        (first.argval, second.argval)
        for code in _reached(kind)
        for first, second, third in _threes(dis.get_instructions(code))
        if _loads(first) and _loads(second) and not _asks_of_weight(second, third)
    }


def _threes(
    code: Iterable[dis.Instruction],
) -> Iterator[tuple[dis.Instruction, dis.Instruction, dis.Instruction]]:
    """Each instruction with the two behind it. The last is a return."""
    instructions = list(code)
    yield from zip(instructions, instructions[1:], instructions[2:], strict=False)


def _loads(one: dis.Instruction) -> bool:
    return one.opname in _LOADS


def _asks_of_weight(load: dis.Instruction, next: dis.Instruction) -> bool:
    return load.argval == "weight" and _loads(next) and next.argval in TOLD


def taken_by(kind: type) -> set[str]:
    """The names of children in `x.child` that this code does something else with than to call them
    at once: it may iterate over a container of modules, or take one out.
    """
    return {
        one.argval
        for code in _reached(kind)
        for one in dis.get_instructions(code)
        if _loads(one) and not _is_called(one)
    }


def _is_called(load: dis.Instruction) -> bool:
    if sys.version_info < (3, 12):
        return load.opname == "LOAD_METHOD"
    return bool(load.arg and load.arg & 1)  # of LOAD_ATTR, which is both


def _reached(kind: type) -> Iterator[CodeType]:
    """Of `forward`, and of what it may call."""
    seen, todo = set[str](), {"forward"}
    while todo:
        name = todo.pop()
        seen.add(name)
        for code in _codes_of(kind, name):
            yield code
            todo.update(one for one in code.co_names if one not in seen)


def _codes_of(kind: type, name: str) -> Iterator[CodeType]:
    """Of the methods of that name, the base classes' too: `super()` calls those."""
    for base in kind.__mro__:
        if base in _NOT_LOOKED_AT:
            continue
        method: Any = vars(base).get(name)
        method = getattr(method, "fget", None) or getattr(method, "__func__", method)
        method = inspect.unwrap(method) if callable(method) else None
        if isinstance(method, FunctionType):
            yield from _within(method.__code__)


def _within(code: CodeType) -> Iterator[CodeType]:
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _within(one)
