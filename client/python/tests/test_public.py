"""What a reader of the package relies on: docstrings, no circle of imports, names to complete."""

import ast
import inspect
import types
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import gemmd
import gemmd.aio

MEMBERS = (types.FunctionType, types.MethodType, property)
SOURCE = Path(gemmd.__file__).parent


def public_names():
    """Everything that users get by name, with its own public methods and properties."""
    for module in (gemmd, gemmd.aio):
        for name in module.__all__:
            thing = getattr(module, name)
            if not callable(thing):
                continue
            yield f"{module.__name__}.{name}", thing
            if inspect.isclass(thing) and thing.__module__.startswith("gemmd"):
                for member, value in inspect.getmembers(thing):
                    if not member.startswith("_") and isinstance(value, MEMBERS):
                        yield f"{module.__name__}.{name}.{member}", value


def test_no_public_name_is_without_a_docstring():
    names = dict(public_names())
    assert len(names) > 200
    assert [name for name, value in names.items() if not inspect.getdoc(value)] == []


def test_completion_offers_what_is_public_alone():
    assert {name for name in dir(gemmd) if not name.startswith("_")} == {*gemmd.__all__, "aio"}
    assert "multiply" not in dir(gemmd) and gemmd._ops.multiply  # there, for who knows it
    for inner in ("move_up", "take_block", "lose", "run_ops", "send", "map", "map_device", "arm"):
        assert not hasattr(gemmd.Session, inner) and not hasattr(gemmd.aio.Session, inner)
    for inner in ("take_block", "lose", "run_ops", "send"):  # there, for who knows them
        assert hasattr(gemmd.Session, f"_{inner}")


def imports_of(path, modules):
    """gemmd's modules that a module imports, those inside functions too: a circle there is one as
    well. Imports for type checkers alone are none.
    """
    found = set()

    def look(node):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
                continue
            if isinstance(child, ast.ImportFrom) and child.module:
                for name in child.names:
                    full = f"{child.module}.{name.name}"
                    found.add(full if full in modules else child.module)
            elif isinstance(child, ast.Import):
                found.update(name.name for name in child.names)
            look(child)

    look(ast.parse(path.read_text(encoding="utf-8")))
    return found & modules.keys()


def modules():
    found = {}
    for path in SOURCE.rglob("*.py"):
        parts = ("gemmd", *path.relative_to(SOURCE).with_suffix("").parts)
        found[".".join(parts).removesuffix(".__init__")] = path
    return {**found, "gemmd._native": None}


def test_modules_import_one_another_without_a_circle():
    found = modules()
    assert len(found) > 60
    graph = {name: imports_of(path, found) for name, path in found.items() if path}
    try:
        tuple(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(f"a circle of imports: {' <- '.join(error.args[1])}")
