"""A model with other modules in the place of some, beside the model as it is."""

from __future__ import annotations

from typing import Any


def shadow(model: Any, replaced: dict[Any, Any]) -> Any:
    """`model` itself where nothing of it is replaced. Else a copy of the modules above those, whose
    parameters, buffers and other attributes are the model's own.
    """
    made = dict[Any, Any](replaced)

    def of(module: Any) -> Any:
        if module is None or module in made:
            return made.get(module)
        children = {name: of(one) for name, one in module._modules.items()}
        if all(one is module._modules[name] for name, one in children.items()):
            made[module] = module
        else:
            made[module] = object.__new__(type(module))
            made[module].__dict__.update(module.__dict__, _modules=children)
        return made[module]

    return of(model)
