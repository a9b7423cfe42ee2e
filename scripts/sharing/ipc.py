"""Device memory handed between gemmd and this process by CUDA IPC, both ways.

    ipc.py SERVER
"""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

import gemmd
import numpy as np
from gemmd.device_array import DeviceArray
from gpu import Gpu


def theirs(session: gemmd.Session, gpu: Gpu) -> str:
    """A buffer of the server's, mapped here."""
    buffer = session.create_buffer(shape=(1024,), dtype="f32", memory_kind="device_shared")
    session.execute([gemmd.fill(buffer, 7)])
    array = buffer.device_array()
    here = gpu.read_float(array.pointer)
    gpu.write_float(array.pointer, 9.0)
    there = float(session.execute([gemmd.read(buffer)])[0][0])
    return f"ok: read {here:g} of 7, wrote {there:g} of 9"


def ours(session: gemmd.Session, gpu: Gpu) -> str:
    """Memory of this process's, mapped by the server."""
    if gpu.allocate(1 << 21) != 0:
        return "no memory"
    gpu.write_float(gpu.pointer, 5.0)
    mapping = SimpleNamespace(device=0, pointer=gpu.pointer)
    tensor = session.from_dlpack(DeviceArray(mapping, np.dtype(np.float32), (1024,)))
    there = float(session.execute([gemmd.read(tensor)])[0][0])
    session.execute([gemmd.fill(tensor, 3)])
    return f"ok: the server read {there:g} of 5, wrote {gpu.read_float(gpu.pointer):g} of 3"


def main() -> None:
    gpu = Gpu()
    print(f"  this process: pid {os.getpid()}, pid namespace {os.readlink('/proc/self/ns/pid')},"
          f" ipc namespace {os.readlink('/proc/self/ns/ipc')}, {'MPS' if gpu.under_mps() else 'time slices'}")
    with gemmd.Client(sys.argv[1], timeout_s=20) as client, client.session() as session:
        print(f"  the server: {'MPS' if client.info().under_mps else 'time slices'}")
        for name, hand_over in (("the server's memory here", theirs), ("this process's memory there", ours)):
            try:
                text = hand_over(session, gpu)
            except (gemmd.Error, RuntimeError) as error:
                text = f"REFUSED: {error}"
            print(f"  {name}: {text[:230]}")


if __name__ == "__main__":
    main()
