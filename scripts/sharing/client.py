"""Another user of gemmd's GPU, who does not call gemmd.

    client.py fault              an illegal access
    client.py spin SECONDS       one kernel for so long
    client.py memory GIB         an allocation
    client.py look               whether it works, and under MPS
"""

from __future__ import annotations

import sys

from gpu import Gpu


def main() -> None:
    what, *rest = sys.argv[1:]
    gpu = Gpu()
    sharing = "MPS" if gpu.under_mps() else "time slices"
    if what == "fault":
        gpu.launch(b"fault")
        print(f"{sharing}: the faulting client's own CUDA error: {gpu.code('cuCtxSynchronize')}")
    elif what == "spin":
        gpu.launch(b"spin", int(float(rest[0]) * 1e9))
        print(f"{sharing}: spins", flush=True)
        print(f"{sharing}: the spinning client's CUDA error: {gpu.code('cuCtxSynchronize')}")
    elif what == "memory":
        print(f"{sharing}: an allocation of {rest[0]} GiB: CUDA error {gpu.allocate(int(rest[0]) << 30)}")
    else:
        gpu.launch(b"spin", 1000)
        print(f"{sharing}: a kernel: CUDA error {gpu.code('cuCtxSynchronize')}")


if __name__ == "__main__":
    main()
