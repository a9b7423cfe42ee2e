"""torch tensors and the server's buffers over the same GPU memory.

    python3 tensors.py --server unix:/run/gemmd/gemmd.sock

Needs torch, a GPU of this machine that the server uses, and a server on this host.
"""

from __future__ import annotations

import argparse
import sys

import torch

import gemmd


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", required=True)
    with (
        gemmd.Client(parser.parse_args().server) as client,
        client.session(label="tensors") as session,
    ):
        # The server's memory in this process: the safer way round, since the server owns it.
        x = session.create_buffer(shape=(64, 512), dtype="bf16", memory_kind="device_shared")
        y = session.create_buffer(shape=(64, 256), dtype="bf16", memory_kind="device_shared")
        x_here, y_here = x.torch(), y.torch()
        x_here.normal_()

        # This process's memory on the server: no copy either. It is kept until it is deleted.
        weight = torch.randn(256, 512, device="cuda", dtype=torch.bfloat16)
        w = session.from_dlpack(weight)  # waits for the current stream

        torch.cuda.current_stream().synchronize()  # x is written before the program reads it
        result = session.execute([gemmd.matmul(x, w, y)])  # y is complete when this returns
        error = (y_here.float() - x_here.float() @ weight.float().T).abs().max()
        print(f"{result.report.kernel}: largest difference to torch {error:.3f}")

        w.owner.delete()  # the server has let go of `weight` when this returns
        del x_here, y_here  # before their buffers go, with the session
    return 0


if __name__ == "__main__":
    sys.exit(main())
