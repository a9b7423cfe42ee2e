"""gemmd.MoE.from_logits, by which the server chooses experts, beside torch's softmax and topk in front
of the layer: `python3 bench/python/choices.py --server TARGET --json FILE`.

As torch calls it, and as a captured graph; ways take turns. Needs torch, a GPU, and a daemon on this
host that has it; run both under MPS.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gemmd
from calls import add_security_flags, security_of
from models import by_turns, graph_of

# Experts, columns, inner columns, experts of a token: Qwen3-30B-A3B and Mixtral-8x7B.
LAYERS = ((128, 2048, 768, 8), (8, 4096, 14336, 2))
TOKENS = (1, 32, 256)


def ways_of(moe: gemmd.MoE, tokens: int, experts: int) -> dict[str, Callable[[], Any]]:
    """By the name of who chooses."""
    import torch

    x = torch.randn(tokens, moe.hidden, device="cuda", dtype=torch.bfloat16)
    logits = torch.randn(tokens, experts, device="cuda", dtype=torch.bfloat16)

    def by_torch() -> Any:
        weights, chosen = logits.float().softmax(-1).topk(moe.top_k)
        return moe.route(x, chosen, weights / weights.sum(-1, keepdim=True))

    return {"torch": by_torch, "server": lambda: moe.from_logits(x, logits)}


def measured(session: gemmd.Session) -> list[dict[str, Any]]:
    """A row for each layer and number of tokens."""
    import torch

    rows = []
    for experts, hidden, inner, top_k in LAYERS:
        given = {"device": "cuda", "dtype": torch.bfloat16}
        gate_up = torch.randn(experts, 2 * inner, hidden, **given) / hidden**0.5
        down = torch.randn(experts, hidden, inner, **given) / inner**0.5
        with gemmd.MoE(session, gate_up, down, top_k=top_k) as moe:
            for tokens in TOKENS:
                ways = ways_of(moe, tokens, experts)
                own, got = (way().float() for way in ways.values())
                row = {
                    "layer": f"{experts} x {hidden}/{inner}, top {top_k}",
                    "tokens": tokens,
                    "off": float((got - own).norm() / own.norm()),
                    "us": by_turns(ways),
                    "graph_us": by_turns({name: graph_of(way) for name, way in ways.items()}),
                }
                rows.append(row)
                called, graph = row["us"], row["graph_us"]
                print(
                    f"{row['layer']}, {tokens} tokens: called {called['torch']:.0f} ->"
                    f" {called['server']:.0f} us, as a graph {graph['torch']:.0f} ->"
                    f" {graph['server']:.0f} us",
                    flush=True,
                )
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    flags = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    flags.add_argument("--server", required=True, help="unix:/path of a daemon with this GPU")
    flags.add_argument("--json", type=Path, help="where the figures go")
    add_security_flags(flags)
    given = flags.parse_args(argv)
    try:
        import torch
    except ImportError as error:
        print(f"choices.py: {error}; torch is needed", file=sys.stderr)
        return 1
    torch.manual_seed(1)
    with torch.no_grad(), gemmd.Client(given.server, **security_of(given)) as client:
        with client.session(label="choices") as session:
            rows = measured(session)
    if given.json is not None:
        about = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
        given.json.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
