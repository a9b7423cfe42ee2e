"""A torch whose CUDA tensors are host memory, over the driver that the C++ tests play
(tests/client/armed/fake_cuda.cc), for the tests of on_fake_gpu.py.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import tempfile
import weakref
from types import SimpleNamespace
from typing import ClassVar

import numpy as np

import gemmd
from gemmd import errors
from gemmd._layers import layer, local, places
from gemmd._memory import interop
from gemmd.share import SharedArray

from .server import FakeServer

PATIENCE_MS = 20_000


class Stream:
    def __init__(self, driver: ctypes.CDLL) -> None:
        driver.FakeCudaStream.restype = ctypes.c_void_p
        self.driver, self.handle = driver, driver.FakeCudaStream(0)
        self.waited: list[Stream] = []

    def settle(self) -> None:
        assert self.driver.FakeCudaSettled(ctypes.c_void_p(self.handle), PATIENCE_MS)

    def synchronize(self) -> None:
        self.settle()

    def wait_stream(self, other: Stream) -> None:
        self.waited.append(other)
        other.settle()


class Storage:
    """Memory, and how many tensors are over it."""

    all: ClassVar[weakref.WeakValueDictionary[int, Storage]] = weakref.WeakValueDictionary()

    def __init__(self, memory: SharedArray | None) -> None:
        self.memory, self.uses, self._cdata = memory, 0, id(self)
        Storage.all[self._cdata] = self

    def data_ptr(self) -> int:
        return 0 if self.memory is None else self.memory.array.ctypes.data


class FakeTensor:
    """Float32 in host memory, as a CUDA tensor of device 0."""

    is_cuda, requires_grad, dtype, device = True, False, "torch.float32", "cuda:0"

    def __init__(self, array: np.ndarray, storage: Storage | None = None) -> None:
        self.array, self.shape = array, array.shape
        self.storage = storage or Storage(None)
        self.storage.uses += 1

    def __del__(self) -> None:
        self.storage.uses -= 1

    def untyped_storage(self) -> Storage:
        return self.storage

    def view(self, shape) -> FakeTensor:
        return FakeTensor(self.array.reshape(shape), self.storage)

    def __getitem__(self, rows: slice) -> FakeTensor:
        return FakeTensor(self.array[rows], self.storage)

    @property
    def data(self) -> FakeTensor:
        return FakeTensor(self.array, self.storage)

    def is_neg(self) -> bool:
        return False

    def get_device(self) -> int:
        return 0

    def is_contiguous(self) -> bool:
        return bool(self.array.flags.c_contiguous)

    def contiguous(self) -> FakeTensor:
        return FakeTensor(np.ascontiguousarray(self.array))

    def data_ptr(self) -> int:
        return self.array.ctypes.data


class FakeTorch:
    Tensor = FakeTensor

    def __init__(self, driver: ctypes.CDLL) -> None:
        self.streams = [Stream(driver), Stream(driver)]
        self.now, self.capturing = 0, False  # which stream is current, and whether that of 1 is captured
        self._C = SimpleNamespace(
            _cuda_getDevice=lambda: 0,
            _cuda_getCurrentRawStream=lambda _: self.streams[self.now].handle,
            _cuda_isCurrentStreamCapturing=lambda: self.capturing and self.now == 1,
            _len_torch_function_stack=lambda: 0,
            _storage_Use_Count=lambda number: Storage.all[number].uses,
        )
        self.inference_mode = contextlib.nullcontext
        self.cuda = SimpleNamespace(
            current_stream=lambda _: self.streams[self.now], stream=self.made_current
        )

    @contextlib.contextmanager
    def made_current(self, stream: Stream):
        before, self.now = self.now, self.streams.index(stream)
        yield
        self.now = before

    @staticmethod
    def empty(shape, dtype, device) -> FakeTensor:
        memory = SharedArray(shape, "f4")
        memory.array[...] = np.nan
        return FakeTensor(memory.array, Storage(memory))


def from_dlpack(session, tensor, *, ready, label):
    """Over shared memory, in the place of CUDA IPC."""
    if not from_dlpack.works:
        raise errors.FailedPrecondition("no CUDA IPC handle")
    return session.import_array(tensor.storage.memory, label=label).tensor(tensor.shape)


from_dlpack.works = True


@contextlib.contextmanager
def layer_on_fake_gpu(weight: np.ndarray):
    driver = ctypes.CDLL("libcuda.so.1")
    torch = FakeTorch(driver)
    interop.torch_module = lambda: torch
    interop.torch_of = lambda value: torch if isinstance(value, FakeTensor) else None
    interop.torch_dtype = lambda _: FakeTensor.dtype
    transforms = SimpleNamespace(carries_tangents=lambda: False)  # the module needs torch's own
    sys.modules["gemmd._layers.transforms"] = gemmd._layers.transforms = transforms
    layer.Layer.why_not_on_gpu = lambda *_: ""
    gemmd.Session.from_dlpack = from_dlpack
    make = local.LocalCalls._make

    def make_on_host(self, kind, io_bytes, scratch_bytes):
        memory = make(self, "host_shared", io_bytes, scratch_bytes)
        if kind == "device_shared":
            memory.array = memory.mapped
            memory.mapped = memory.array.ctypes.data
        return memory

    local.LocalCalls._make = make_on_host
    places.COPIED_FIRST = 0
    with tempfile.TemporaryDirectory() as directory:
        server = FakeServer(directory, share=True, arms=True)
        with gemmd.Client(server.target) as client, client.session() as session:
            # Not closed with a failed call under way: the stream's thread would touch freed memory.
            yield torch, server, gemmd.Linear(session, weight, quantize=None)
        server.close()
