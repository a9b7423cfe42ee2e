"""What handing a tensor on the GPU to the daemon costs: by CUDA IPC none of its bytes move.

    python3 bench/python/imports.py --server TARGET --metrics http://127.0.0.1:9464/metrics

Needs torch, a GPU, and a daemon on this host that has it. One JSON object on stdout; `moved_bytes`
is by how much the daemon's own count of transferred bytes grew, by whatever way, while tensors
were handed over and read there.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import urllib.request
from collections.abc import Sequence
from typing import Any

import numpy as np
from calls import add_security_flags, percentiles, security_of

import gemmd

_MOVED = "gemmd_transfer_bytes_total"


def total_of(page: str, name: str) -> float:
    """The sum of a counter's samples on a metrics page, 0 when it has none."""
    lines = (line.split() for line in page.splitlines() if not line.startswith("#"))
    return sum(float(fields[-1]) for fields in lines if fields and fields[0].split("{")[0] == name)


def measure(
    client: gemmd.Client, session: gemmd.Session, torch: Any, page: str, options: argparse.Namespace
) -> dict[str, Any]:
    def moved() -> float:
        with urllib.request.urlopen(page, timeout=10) as answer:
            return total_of(answer.read().decode(), _MOVED)

    def used() -> int:
        return sum(one.used_bytes for one in client.devices())

    elements = (options.mib << 20) // 2
    x = torch.randn(elements // 1024, 1024, device="cuda", dtype=torch.bfloat16)
    copy = session.create_buffer(shape=tuple(x.shape), dtype="bf16")
    torch.cuda.synchronize()
    moved_before, used_before = moved(), used()
    handed, let_go = [], []
    for _ in range(options.count):
        began = time.perf_counter()
        tensor = session.from_dlpack(x)
        handed.append(time.perf_counter() - began)
        session.execute([gemmd.copy(tensor, copy)])  # all of it is read there
        began = time.perf_counter()
        tensor.owner.delete()
        let_go.append(time.perf_counter() - began)
    figures = {
        "bytes": x.numel() * 2,
        "moved_bytes": moved() - moved_before,
        "used_bytes_grew_by": used() - used_before,
        **percentiles("hand_over", handed),
        **percentiles("let_go", let_go),
    }
    arrived = copy.download().view(np.uint16)
    same = np.array_equal(arrived, x.view(torch.uint16).cpu().numpy())
    return {**figures, "arrived_bit_for_bit": same}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="imports.py", description=__doc__)
    parser.add_argument("--server", required=True, help='"unix:/path"')
    parser.add_argument("--metrics", required=True, metavar="URL", help="the daemon's metrics")
    parser.add_argument("--device", default="", help="of the daemon; default: its choice")
    parser.add_argument("--mib", type=int, default=256, help="of a tensor (default 256)")
    parser.add_argument("--count", type=int, default=20, help="tensors handed over (default 20)")
    add_security_flags(parser)
    options = parser.parse_args(arguments)
    if options.mib < 1 or options.count < 1:
        parser.error("--mib and --count are 1 at least")
    try:
        import torch
    except ImportError:
        print("imports.py: torch is not installed: it makes the tensors", file=sys.stderr)
        return 1
    try:
        with (
            gemmd.Client(options.server, **security_of(options)) as client,
            client.session(label="bench import", device=options.device) as session,
        ):
            figures = measure(client, session, torch, options.metrics, options)
    except (gemmd.Error, OSError, ValueError, RuntimeError) as error:
        print(f"imports.py: {error}", file=sys.stderr)
        return 1
    print(json.dumps(figures))
    return 0 if figures["arrived_bit_for_bit"] else 1


if __name__ == "__main__":
    sys.exit(main())
