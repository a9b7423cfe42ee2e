"""Arrays of other packages: torch tensors and DLPack producers, told apart without importing torch.

Nothing here talks to a server.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt

from gemmd import dtypes
from gemmd._memory import cuda, dlpack
from gemmd._memory.dlpack import Memory
from gemmd.errors import FailedPrecondition

_NOTHING = nullcontext()
_TORCH_NAMES: dict[str, np.dtype[Any]] = {
    "float32": dtypes.float32,
    "float16": dtypes.float16,
    "bfloat16": dtypes.bfloat16,
    "float8_e4m3fn": dtypes.float8_e4m3fn,
    "float8_e5m2": dtypes.float8_e5m2,
    "int8": dtypes.int8,
    "int32": dtypes.int32,
}


def torch_of(value: Any) -> Any:
    """The torch module if `value` is one of its tensors; else None. Who has a tensor has imported
    it.
    """
    torch = sys.modules.get("torch")
    return torch if torch is not None and isinstance(value, torch.Tensor) else None


def apart(weight: Any, scales: Any) -> tuple[Any, Any]:
    """FP8 values and their scales of a tensor that is both (`_layers/scaled.py`); others as they are."""
    values = getattr(weight, "fp8_values", None)
    return (weight, scales) if values is None else (values, weight.fp8_scales)


def refuse_module(what: str, value: Any) -> None:
    """Raises TypeError for a module of torch where its weight is meant: it is callable, too."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.nn.Module):
        raise TypeError(
            f"{what} is a module of torch, {type(value).__name__}; give its .weight, and its .bias"
            " as the bias"
        )


def has_torch() -> bool:
    """Whether this process has imported torch."""
    return "torch" in sys.modules


def past_torch_functions(torch: Any) -> Any:
    """Entered, keeps modes as that of a default device from looking at each call of torch, which
    takes 2 us. Of calls that name their device, and make nothing that a mode should know.
    """
    native = torch._C
    return native.DisableTorchFunction() if native._len_torch_function_stack() else _NOTHING


def torch_module() -> Any:
    """torch. ImportError, with the remedy, where it is not installed."""
    try:
        import torch
    except ImportError as error:
        raise ImportError("this needs torch: pip install torch") from error
    return torch


def dtype_of(tensor: Any) -> np.dtype[Any]:
    """A torch tensor's dtype as numpy's.

    Raises
    ------
    TypeError
        If gemmd has no such element type.
    """
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in _TORCH_NAMES:
        raise TypeError(
            f"dtype={tensor.dtype} is not an element type of gemmd; convert to one of"
            f" {', '.join(_TORCH_NAMES)}"
        )
    return _TORCH_NAMES[name]


def torch_dtype(dtype: np.dtype[Any]) -> Any:
    """numpy's dtype as torch's."""
    return getattr(torch_module(), dtype.name)


def is_tensor(value: Any) -> bool:
    """True for torch tensors and for what DLPack hands over and is no numpy array."""
    if isinstance(value, np.ndarray | np.generic):
        return False
    return torch_of(value) is not None or hasattr(value, "__dlpack_device__")


def settle(tensor: Any, ready: Any = None) -> None:
    """Waits until the GPU work that writes a torch tensor has finished.

    Parameters
    ----------
    ready : optional
        None waits for all that the current stream of the tensor's device has been given. A
        torch.cuda.Event or Stream is waited for. False waits for nothing: the caller has.
    """
    if ready is False:
        return
    if ready is not None:
        ready.synchronize()
    elif tensor.is_cuda:
        torch_module().cuda.current_stream(tensor.device).synchronize()


def pin(value: Any, ready: Any) -> Any:
    """`ready` for a call on another thread, where the current stream is another one: an event
    recorded on this thread's.
    """
    if ready is not None or torch_of(value) is None or not value.is_cuda:
        return ready
    torch = torch_module()
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(value.device))
    return event


def describe(value: Any, ready: Any = None) -> Memory:
    """Where a tensor's elements lie. On a GPU, what writes them has finished when this returns.

    Raises
    ------
    TypeError
        It is no tensor, or of an element type or a device that gemmd does not know.
    """
    if torch_of(value) is None:
        memory = dlpack.describe(value)
        if memory.on_gpu and ready is not False:
            ready.synchronize() if ready is not None else cuda.driver().wait_for_default_stream(
                memory.device
            )
        return memory
    if value.device.type not in ("cpu", "cuda"):
        raise TypeError(f"a tensor on {value.device}; move it to a CUDA device or the CPU")
    if value.is_cuda and value.is_neg():
        raise TypeError("a view that is negated where it is read; give tensor.resolve_neg()")
    settle(value, ready)
    return Memory(
        pointer=value.data_ptr(),
        on_gpu=value.is_cuda,
        device=value.device.index or 0,
        dtype=dtype_of(value),
        shape=tuple(value.shape),
        strides=tuple(value.stride()),
        owner=value,
    )


def as_numpy(value: Any) -> npt.NDArray[Any]:
    """Any array as numpy's. Host memory is not copied where its dtype allows; GPU memory is brought
    here.

    Raises
    ------
    TypeError
        A tensor that is sparse, nested or quantised, or has no elements; an array that hides some.
    FailedPrecondition
        A tensor on a GPU, while a graph is captured.
    """
    if not is_tensor(value):
        if np.ma.is_masked(value):
            raise TypeError("an array with masked elements; say what they are, array.filled(0)")
        given = np.asarray(value)
        # numpy would read numbers out of text, dates and records, too.
        if given.dtype.hasobject or given.dtype.kind in "SUMm" or given.dtype.type is np.void:
            raise TypeError(_no_array(value))
        # Byte-swapped, as of a big-endian file: the same numbers in this machine's order.
        return given if given.dtype.isnative else given.astype(given.dtype.newbyteorder("="))
    torch = torch_of(value)
    if torch is None:
        memory = dlpack.describe(value)
        if memory.on_gpu:
            raise TypeError(
                "GPU memory that is not torch's: hand it over by session.from_dlpack, or copy it to"
                " the host first"
            )
        return dlpack.as_host_array(memory)
    if value.layout is not torch.strided or value.is_nested or value.is_quantized:
        kind = "nested" if value.is_nested else "quantised" if value.is_quantized else value.layout
        raise TypeError(f"a tensor that is {kind}; a dense one is needed")
    if value.is_meta:
        raise TypeError("a tensor on the meta device has no elements; load it to the CPU first")
    if value.is_cuda and torch.cuda.is_current_stream_capturing():
        raise FailedPrecondition(
            "a graph is being captured, and this data goes by way of the host, which no replay does:"
            " call it before, or multiply by a gemmd.Linear",
            reason="CAPTURING",
        )
    host = value.detach().cpu().contiguous().resolve_neg()
    name = str(host.dtype).removeprefix("torch.")
    if name in _TORCH_NAMES:
        raw: npt.NDArray[Any] = host.reshape(-1).view(torch.uint8).numpy()
        typed: npt.NDArray[Any] = raw.view(_TORCH_NAMES[name]).reshape(tuple(host.shape))
        return typed
    try:
        array: npt.NDArray[Any] = host.numpy()
    except TypeError:  # torch's words name no choice
        dtype_of(host)
        raise
    return array


def _no_array(value: Any) -> str:
    what = f"{type(value).__name__} is no array of numbers"
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return f"an array of dtype {value.dtype} is none of numbers; take a field or convert it"
    if hasattr(value, "__cuda_array_interface__"):
        return f"{what} to numpy: hand it over as torch.as_tensor(it), which copies nothing"
    return what


def element_type(value: Any) -> np.dtype[Any] | None:
    """The dtype of a torch tensor or an array as one of gemmd's element types; None if it has
    none.
    """
    return element_type_of(value.dtype)


def element_type_of(dtype: Any) -> np.dtype[Any] | None:
    """The same of torch's or numpy's dtype."""
    return _TORCH_NAMES.get(str(dtype).removeprefix("torch."))


def as_type(value: Any, dtype: np.dtype[Any]) -> Any:
    """A torch tensor or an array in that element type; itself if it has it."""
    if torch_of(value) is not None:
        return value.to(torch_dtype(dtype))
    return value.astype(dtype, copy=False)


def as_torch(array: npt.NDArray[Any]) -> Any:
    """A numpy array as a CPU torch tensor over the same memory. Read-only arrays are copied: torch
    has none.
    """
    torch = torch_module()
    writable = np.ascontiguousarray(array).view(np.ndarray)
    if not writable.flags.writeable:
        writable = writable.copy()
    if writable.dtype.name not in _TORCH_NAMES:
        return torch.from_numpy(writable)
    flat = torch.from_numpy(writable.reshape(-1).view(np.uint8))
    return flat.view(torch_dtype(writable.dtype)).reshape(writable.shape)
