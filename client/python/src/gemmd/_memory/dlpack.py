"""DLPack by ctypes: memory of any framework described, and ours handed out, without a copy.

What is taken is of the kind that every framework gives (unversioned "dltensor"). What is given is
of the consumer's choice: only the versioned kind can say that memory is read-only, and numpy takes
the other for read-only always.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmd import dtypes
from gemmd._memory.layout import row_major

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13  # DLDeviceType
_NAME, _VERSIONED_NAME = b"dltensor", b"dltensor_versioned"
_VERSION, _READ_ONLY = (1, 0), 1  # of the versioned kind; a flag of it
_UINT = 1

# numpy dtype to DLDataType (code, bits).
_CODES: dict[np.dtype[Any], tuple[int, int]] = {
    dtypes.float32: (2, 32),
    dtypes.float16: (2, 16),
    dtypes.bfloat16: (4, 16),
    dtypes.float8_e4m3fn: (10, 8),
    dtypes.float8_e5m2: (12, 8),
    dtypes.int8: (0, 8),
    dtypes.int32: (0, 32),
    np.dtype(np.uint8): (_UINT, 8),
}
_DTYPES = {code: dtype for dtype, code in _CODES.items()}


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter))


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", _Deleter),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


# Prototypes of our own: those that hang on ctypes.pythonapi are shared with every other package.
_Destructor = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, _Destructor)(
    ("PyCapsule_New", ctypes.pythonapi)
)
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)
_pointer_in = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)

# What is handed out, by the address of its struct, until its consumer deletes it.
_lent: dict[int, tuple[Any, ...]] = {}
_lent_lock = threading.Lock()


@_Deleter  # type: ignore[untyped-decorator]
def _delete(address: int) -> None:
    with _lent_lock:
        kept = _lent.pop(address, None)
    del kept  # the struct goes here, and with it perhaps the memory: outside the lock


@_Destructor  # type: ignore[untyped-decorator]
def _destroy(capsule: int) -> None:
    # By address: a reference to an object that is being destroyed would destroy it again. A capsule
    # that was consumed has another name.
    for name in (_NAME, _VERSIONED_NAME):
        if _is_valid(capsule, name):
            _delete(_pointer_in(capsule, name))


def capsule(
    pointer: int,
    device: tuple[int, int],
    dtype: np.dtype[Any],
    shape: Sequence[int],
    owner: Any,
    *,
    max_version: tuple[int, int] | None = None,
    read_only: bool = False,
) -> Any:
    """A capsule over dense row-major memory, which `owner` keeps alive: versioned if the consumer
    takes that.

    Raises
    ------
    BufferError
        DLPack has no such element type, or the memory is read-only and the consumer would not know.
    """
    if dtype not in _CODES:
        raise BufferError(f"dtype={dtype} has no DLPack type; view it as one of gemmd's")
    versioned = max_version is not None and max_version[0] >= _VERSION[0]
    if read_only and not versioned:
        raise BufferError(
            "the buffer is read-only, which this consumer's DLPack cannot say; use buffer.array()"
        )
    extents = (ctypes.c_int64 * max(len(shape), 1))(*shape)
    code, bits = _CODES[dtype]
    tensor = _Tensor(pointer, *device, len(shape), code, bits, 1, extents, None, 0)
    managed: _Managed | _Versioned
    if versioned:
        managed = _Versioned(*_VERSION, None, _delete, _READ_ONLY if read_only else 0, tensor)
    else:
        managed = _Managed(tensor, None, _delete)
    address = ctypes.addressof(managed)
    with _lent_lock:
        _lent[address] = (managed, extents, owner)
    return _new(address, _VERSIONED_NAME if versioned else _NAME, _destroy)


def host_capsule(
    array: np.ndarray[Any, np.dtype[Any]],
    *,
    stream: Any = None,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None,
    copy: bool | None = None,
) -> Any:
    """What `__dlpack__` answers for dense memory of the host.

    Raises
    ------
    BufferError
        It is read-only and the consumer would not know, or a copy is asked for.
    """
    if copy or dl_device not in (None, (CPU, 0)) or stream is not None:
        raise BufferError("shared memory is handed over where it is: no copy, no device, no stream")
    return capsule(
        array.ctypes.data, (CPU, 0), array.dtype, array.shape, array,
        max_version=max_version, read_only=not array.flags.writeable,
    )  # fmt: skip


@dataclass(frozen=True)
class Memory:
    """An array of some framework, as it lies in memory.

    Attributes
    ----------
    pointer : int
        To element [0, ..., 0].
    on_gpu : bool
    device : int
        The GPU's ordinal in this process.
    dtype : numpy.dtype
    shape, strides : tuple of int
        In elements.
    owner : object
        Keeps the memory alive.
    """

    pointer: int
    on_gpu: bool
    device: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    owner: Any


def describe(array: Any) -> Memory:
    """What an object with `__dlpack__` holds. On a GPU the default stream waits for what made it.

    Raises
    ------
    TypeError
        It is no DLPack producer, lies on a device gemmd does not know, or has another element type.
    """
    if not hasattr(array, "__dlpack__") or not hasattr(array, "__dlpack_device__"):
        raise TypeError(f"{type(array).__name__} is no tensor and has no __dlpack__")
    kind = int(array.__dlpack_device__()[0])
    if kind not in (CPU, CUDA, CUDA_HOST):
        raise TypeError(
            f"DLPack device type {kind} is neither a CPU (1, 3) nor CUDA memory (2); copy it there"
        )
    held = array.__dlpack__(stream=1) if kind == CUDA else array.__dlpack__()
    tensor = ctypes.cast(_pointer_of(held, _NAME), ctypes.POINTER(_Managed)).contents.tensor
    dtype = _DTYPES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    if dtype is None:
        raise TypeError(
            f"DLPack type ({tensor.code}, {tensor.bits} bits, {tensor.lanes} lanes) is not an"
            " element type of gemmd; convert to f32, bf16, f16, e4m3, e5m2 or i8"
        )
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    if tensor.strides:
        strides = tuple(tensor.strides[i] for i in range(tensor.ndim))
    else:
        strides = row_major(shape)
    return Memory(
        pointer=(tensor.data or 0) + tensor.byte_offset,
        on_gpu=kind == CUDA,
        device=tensor.device_id,
        dtype=dtype,
        shape=shape,
        strides=strides,
        owner=(held, array),
    )


def as_host_array(memory: Memory) -> np.ndarray[Any, np.dtype[Any]]:
    """Host memory as a numpy array over it, without a copy."""
    last = sum(
        (extent - 1) * stride for extent, stride in zip(memory.shape, memory.strides, strict=True)
    )
    if 0 in memory.shape:
        return np.empty(memory.shape, memory.dtype)
    size = (last + 1) * memory.dtype.itemsize
    raw: Any = (ctypes.c_ubyte * size).from_address(memory.pointer)
    raw._owner = memory.owner
    width = memory.dtype.itemsize
    # As integers first: numpy cannot stride over float8_e5m2, whose name it does not know.
    flat = np.frombuffer(raw, dtype=f"u{width}")
    strided = np.lib.stride_tricks.as_strided(
        flat, memory.shape, [stride * width for stride in memory.strides]
    )
    return strided.view(memory.dtype)
