"""What a forward may ask of a weight that lies on the server, in the place of the tensor."""

from __future__ import annotations

from typing import Any

TOLD = ("dtype", "device", "shape", "ndim", "is_cuda", "requires_grad")


class Told:
    """Type, device and shape of a weight. Anything else that is asked of it raises.

    Attributes
    ----------
    dtype, device, shape, ndim, is_cuda, requires_grad
        As the tensor had them.
    """

    __slots__ = TOLD

    def __init__(self, weight: Any) -> None:
        self.dtype, self.device, self.shape = weight.dtype, weight.device, weight.shape
        self.ndim, self.is_cuda, self.requires_grad = weight.dim(), weight.is_cuda, False

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"weight.{name}: {_WHY}")

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise TypeError(f"{getattr(func, '__name__', func)} of a weight: {_WHY}")

    def __repr__(self) -> str:
        return f"weight on the server({self.dtype}, {tuple(self.shape)})"

    def __deepcopy__(self, memo: Any) -> Told:
        return self


_WHY = (
    "it lies on the server, and this process has no values of it; leave the module out by where="
    " of gemmd.adopt, or min_elements="
)
