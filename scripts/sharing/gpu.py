"""A few calls of the CUDA driver by ctypes: a client of the GPU that begins in a tenth of a second."""

from __future__ import annotations

import ctypes

# fault: a store to an address that nobody has. spin: for so many nanoseconds.
PTX = b"""
.version 7.8
.target sm_70
.address_size 64
.visible .entry fault() {
  .reg .b64 %address; .reg .b32 %value;
  mov.u64 %address, 16; mov.u32 %value, 1;
  st.global.u32 [%address], %value;
  ret;
}
.visible .entry spin(.param .u64 nanoseconds) {
  .reg .b64 %limit, %begin, %now; .reg .pred %more;
  ld.param.u64 %limit, [nanoseconds];
  mov.u64 %begin, %globaltimer;
again:
  mov.u64 %now, %globaltimer;
  sub.u64 %now, %now, %begin;
  setp.lt.u64 %more, %now, %limit;
  @%more bra again;
  ret;
}
"""


class Gpu:
    """GPU 0's primary context, the one that torch uses."""

    def __init__(self) -> None:
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", ctypes.c_uint(0))
        context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), ctypes.c_int(0))
        self.call("cuCtxSetCurrent", context)

    def call(self, name: str, *arguments: object) -> None:
        code = self.code(name, *arguments)
        if code != 0:
            raise RuntimeError(f"{name}: CUDA error {code}")

    def code(self, name: str, *arguments: object) -> int:
        return int(getattr(self.cuda, name)(*arguments))

    def under_mps(self) -> bool:
        value = ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(value), ctypes.c_int(133), ctypes.c_int(0))
        return value.value == 1

    def launch(self, name: bytes, nanoseconds: int | None = None) -> None:
        module, kernel = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), PTX)
        self.call("cuModuleGetFunction", ctypes.byref(kernel), module, name)
        argument = ctypes.c_uint64(nanoseconds or 0)
        pointers = (ctypes.c_void_p * 1)(ctypes.addressof(argument))
        one = ctypes.c_uint(1)
        self.call("cuLaunchKernel", kernel, one, one, one, one, one, one, ctypes.c_uint(0), None,
                  pointers if nanoseconds is not None else None, None)

    def allocate(self, size_bytes: int) -> int:
        """The driver's code, 0 for success; it is kept."""
        pointer = ctypes.c_uint64()
        code = self.code("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size_bytes))
        self.pointer = pointer.value
        return code

    def read_float(self, pointer: int) -> float:
        value = ctypes.c_float()
        self.call("cuMemcpyDtoH_v2", ctypes.byref(value), ctypes.c_uint64(pointer), ctypes.c_size_t(4))
        return value.value

    def write_float(self, pointer: int, value: float) -> None:
        source = ctypes.c_float(value)
        self.call("cuMemcpyHtoD_v2", ctypes.c_uint64(pointer), ctypes.byref(source), ctypes.c_size_t(4))
        self.call("cuCtxSynchronize")
