"""Several processes, one weight: the first makes it, the others find it, each calls it.

    python3 workers.py --server unix:/run/gemmd/gemmd.sock --workers 8

With torch and a GPU that the server uses, activations stay on it (--torch).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time

import numpy as np

import gemmd

OUT, IN, BATCH = 1024, 2048, 64
NAME = "examples/workers/w"


def weight() -> np.ndarray:
    """What would be read from a checkpoint. Called by one process alone."""
    return np.random.default_rng(0).standard_normal((OUT, IN), dtype=np.float32) / IN**0.5


def work(server: str, calls: int, on_gpu: bool) -> dict:
    with gemmd.Client(server) as client, client.session(label="worker") as session:
        layer = gemmd.Linear(session, weight, name=NAME)
        x = np.random.default_rng(1).standard_normal((BATCH, IN), dtype=np.float32)
        if on_gpu:
            import torch

            x = torch.from_numpy(x).to("cuda", torch.bfloat16)
        y = layer(x)  # makes the plan for this batch size
        began = time.perf_counter()
        for _ in range(calls):
            y = layer(x)
        seconds = time.perf_counter() - began
        way = layer.why_not_on_gpu(x.device.index) or "CUDA IPC" if on_gpu else "host memory"
        return {"calls_per_s": calls / seconds, "sum": float(y.sum()), "way": way}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", required=True)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--torch", action="store_true", help="activations are CUDA tensors")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)  # be one worker
    args = parser.parse_args()
    if args.work:
        print(json.dumps(work(args.server, args.calls, args.torch)))
        return 0

    own = [sys.executable, __file__, *sys.argv[1:], "--work"]
    workers = [
        subprocess.Popen(own, stdout=subprocess.PIPE, text=True) for _ in range(args.workers)
    ]
    answers = [one.communicate()[0] for one in workers]
    if any(one.returncode for one in workers):
        return 1
    results = [json.loads(answer) for answer in answers]
    with gemmd.Client(args.server) as client, client.session() as session:
        kept = [one for one in client.published() if one.published_name == NAME]
        session.unpublish(NAME)
    print(f"{args.workers} workers, {kept[0].size_bytes} bytes of weight in {len(kept)} copy")
    print(f"{sum(one['calls_per_s'] for one in results):.0f} calls/s by {results[0]['way']}")
    print("the same result everywhere:", len({one["sum"] for one in results}) == 1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
