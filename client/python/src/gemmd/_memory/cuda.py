"""The few calls of the CUDA driver that sharing device memory takes, by ctypes: no build, no torch.

Everything is done in a device's primary context, the one that torch and the CUDA runtime use.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from gemmd.errors import FailedPrecondition, Unavailable

_HANDLE_BYTES = 64
_POINTER_LEGACY_IPC = 10  # CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE
_MPS_ENABLED = 133  # CU_DEVICE_ATTRIBUTE_MPS_ENABLED
_LAZY_PEER_ACCESS = 1  # CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
_CAPTURE_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
_CODES = {
    1: "CUDA_ERROR_INVALID_VALUE",
    201: "CUDA_ERROR_INVALID_CONTEXT",
    205: "CUDA_ERROR_MAP_FAILED",
    400: "CUDA_ERROR_INVALID_HANDLE",
    801: "CUDA_ERROR_NOT_SUPPORTED",
}


class CudaError(FailedPrecondition):
    """A call of the CUDA driver failed.

    Attributes
    ----------
    driver_code : int
        The CUresult.
    """

    def __init__(self, driver_code: int, what: str, remedy: str = "") -> None:
        name = _CODES.get(driver_code, f"CUDA driver error {driver_code}")
        super().__init__(f"{what}: {name}{'; ' + remedy if remedy else ''}", reason="CUDA")
        self.driver_code = driver_code


class _Handle(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_ubyte * _HANDLE_BYTES),)


class Driver:
    """libcuda of this process. Thread-safe. Made by `driver()`."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._contexts: dict[int, ctypes.c_void_p] = {}
        self._lock = threading.Lock()
        self._call("starting CUDA", "cuInit", ctypes.c_uint(0))

    def _call(self, what: str, name: str, *arguments: Any) -> None:
        function = getattr(self._library, name, None)
        code = 801 if function is None else function(*arguments)  # of a driver that is too old
        if code != 0:
            raise CudaError(code, what)

    def _enter(self, device: int) -> None:
        """Makes the device's primary context the thread's current one, until `_leave`."""
        with self._lock:
            if device not in self._contexts:
                context = ctypes.c_void_p()
                self._call(
                    f"opening GPU {device}", "cuDevicePrimaryCtxRetain",
                    ctypes.byref(context), ctypes.c_int(device),
                )  # fmt: skip
                self._contexts[device] = context  # for as long as the process lives
        self._call("choosing a GPU", "cuCtxPushCurrent_v2", self._contexts[device])

    def _leave(self) -> None:
        before = ctypes.c_void_p()
        self._library.cuCtxPopCurrent_v2(ctypes.byref(before))

    def uuid(self, device: int) -> str:
        """ "GPU-5c3f12ab-...": as the server names the GPU."""
        raw = (ctypes.c_ubyte * 16)()
        self._call("asking for a GPU's UUID", "cuDeviceGetUuid_v2", raw, ctypes.c_int(device))
        text = bytes(raw).hex()
        parts = (text[:8], text[8:12], text[12:16], text[16:20], text[20:])
        return "GPU-" + "-".join(parts)

    def device_of(self, uuid: str) -> int:
        """The ordinal in this process, after CUDA_VISIBLE_DEVICES.

        Raises
        ------
        FailedPrecondition
            This process does not see the GPU.
        """
        count = ctypes.c_int()
        self._call("counting GPUs", "cuDeviceGetCount", ctypes.byref(count))
        for device in range(count.value):
            if self.uuid(device) == uuid:
                return device
        raise FailedPrecondition(
            f"this process does not see {uuid} among its {count.value} GPUs; look at"
            " CUDA_VISIBLE_DEVICES, or download instead",
            reason="CUDA",
        )

    def allocation(self, pointer: int, device: int) -> tuple[int, int]:
        """Where the allocation that `pointer` lies in begins, and its bytes."""
        self._enter(device)
        try:
            base, size = ctypes.c_uint64(), ctypes.c_size_t()
            self._call(
                "looking up an allocation", "cuMemGetAddressRange_v2",
                ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(pointer),
            )  # fmt: skip
            return base.value, size.value
        finally:
            self._leave()

    def export(self, base: int, device: int) -> bytes:
        """The IPC handle of the allocation that begins at `base`.

        Raises
        ------
        FailedPrecondition
            It has none: memory of a virtual-memory allocator.
        """
        self._enter(device)
        try:
            capable = ctypes.c_uint(1)
            self._library.cuPointerGetAttribute(
                ctypes.byref(capable), ctypes.c_int(_POINTER_LEGACY_IPC), ctypes.c_uint64(base)
            )  # older drivers do not know it: then the next call tells
            handle = _Handle()
            code = self._library.cuIpcGetMemHandle(ctypes.byref(handle), ctypes.c_uint64(base))
            if code != 0 or capable.value == 0:
                raise CudaError(
                    code or 1,
                    "this GPU memory has no CUDA IPC handle",
                    "it comes from a virtual-memory or stream-ordered allocator: run with"
                    " PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False, copy into a tensor over"
                    ' a "device_shared" buffer, or upload',
                )
            return bytes(handle.bytes)
        finally:
            self._leave()

    def open(self, handle: bytes, device: int) -> int:
        """Maps another process's allocation; its address here.

        Raises
        ------
        FailedPrecondition
            It is this process's own, or of one with the same process id in another PID namespace;
            or its process is gone.
        """
        raw = _Handle()
        ctypes.memmove(raw.bytes, handle, _HANDLE_BYTES)
        self._enter(device)
        try:
            pointer = ctypes.c_uint64()
            code = self._library.cuIpcOpenMemHandle_v2(
                ctypes.byref(pointer), raw, ctypes.c_uint(_LAZY_PEER_ACCESS)
            )
            if code == 201:
                raise CudaError(
                    code,
                    "mapping device memory",
                    "it is this process's own: use it where it is; or its process has the same"
                    f" process id, {os.getpid()}, in another PID namespace: give one of the two"
                    " another, by shareProcessNamespace in its pod or an init in its container",
                )
            if code != 0:
                raise CudaError(
                    code,
                    "mapping another process's device memory",
                    "that process has freed it or ended, or this driver wants the two in one PID"
                    " namespace; download instead",
                )
            return pointer.value
        finally:
            self._leave()

    def close(self, pointer: int, device: int) -> None:
        """Unmaps what `open` gave. The driver waits for all work of this process that may use it,
        and a stream's capture goes on: cuCtxSynchronize would end one of any thread, and garbage is
        collected while others capture.
        """
        self._enter(device)
        try:
            with self.relaxed_capture():
                what = "unmapping device memory"
                self._call(what, "cuIpcCloseMemHandle", ctypes.c_uint64(pointer))
        finally:
            self._leave()

    def is_time_sliced(self, device: int) -> bool:
        """Whether this process has the GPU to itself for slices of time, as it has without MPS."""
        under_mps = ctypes.c_int()
        code = self._library.cuDeviceGetAttribute(
            ctypes.byref(under_mps), ctypes.c_int(_MPS_ENABLED), ctypes.c_int(device)
        )
        return bool(code == 0 and under_mps.value == 0)  # older drivers do not know it

    @contextmanager
    def relaxed_capture(self) -> Iterator[None]:
        """This thread may map memory although a stream is being captured, which that has no part in."""
        mode = ctypes.c_int(_CAPTURE_RELAXED)
        exchange = "cuThreadExchangeStreamCaptureMode"
        self._call("allowing calls beside a capture", exchange, ctypes.byref(mode))
        try:
            yield
        finally:
            self._call("restoring the capture's mode", exchange, ctypes.byref(mode))

    def at_end_of_graph(self, stream: int, function: int, data: int) -> None:
        """Has the driver call a C function(data), once the graph that a stream is being captured in
        is gone with all that was made of it. On a thread of its own, which must not come to Python.
        """
        status, graph, made = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
        one = ctypes.c_uint(1)  # of it; and the flags that are asked for
        self._call(
            "looking up a capture", "cuStreamGetCaptureInfo_v2", ctypes.c_void_p(stream),
            ctypes.byref(status), None, ctypes.byref(graph), None, None,
        )  # fmt: skip
        self._call(
            "watching a graph", "cuUserObjectCreate", ctypes.byref(made), ctypes.c_void_p(data),
            ctypes.c_void_p(function), one, one,
        )  # fmt: skip
        self._call("watching a graph", "cuGraphRetainUserObject", graph, made, one, one)

    def wait_for_default_stream(self, device: int) -> None:
        self._enter(device)
        try:
            self._call("waiting for a GPU", "cuStreamSynchronize", ctypes.c_void_p(0))
        finally:
            self._leave()


@cache
def _load() -> Driver | str:
    try:
        return Driver(ctypes.CDLL("libcuda.so.1"))
    except OSError as error:
        return f"no NVIDIA driver here: {error}"
    except CudaError as error:
        return str(error)


def driver() -> Driver:
    """The driver. Unavailable, with the reason, when this machine has none or no GPU."""
    found = _load()
    if isinstance(found, str):
        raise Unavailable(found)
    return found


def why_not() -> str:
    """Why this process has no GPU; "" if it has."""
    found = _load()
    return found if isinstance(found, str) else ""
