"""A layer of experts in FP8 on a gemmd server, held against numpy.

    python3 moe.py --model mixtral --tokens 64
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

import gemmd

Floats = npt.NDArray[np.float32]

LARGEST_ERROR = 0.08  # of the result's norm: FP8 keeps 4 bits, twice on the way


@dataclass(frozen=True)
class Sizes:
    """Of a layer, an eighth of the model's hidden and inner sizes."""

    hidden: int
    inner: int
    experts: int
    top_k: int
    renormalize: bool  # whether the chosen experts' shares are brought to a sum of 1


MODELS = {
    "mixtral": Sizes(hidden=512, inner=1792, experts=8, top_k=2, renormalize=True),
    "deepseek": Sizes(hidden=896, inner=256, experts=64, top_k=8, renormalize=True),
}


def layer(sizes: Sizes, random: np.random.Generator) -> tuple[Floats, Floats, Floats]:
    """Router [experts, hidden], gate_up [experts, 2 inner, hidden] and down [experts, hidden,
    inner].
    """

    def normal(*shape: int) -> Floats:
        return random.standard_normal(shape, "f4") / np.float32(np.sqrt(shape[-1]))

    return (
        normal(sizes.experts, sizes.hidden),
        normal(sizes.experts, 2 * sizes.inner, sizes.hidden),
        normal(sizes.experts, sizes.hidden, sizes.inner),
    )


def in_numpy(x: Floats, logits: Floats, gate_up: Floats, down: Floats, sizes: Sizes) -> Floats:
    """The layer as its definition has it, a token at a time."""
    shares = np.exp(logits - logits.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    y = np.zeros_like(x)
    for t, row in enumerate(x):
        chosen = np.argsort(-shares[t], kind="stable")[: sizes.top_k]
        factors = shares[t, chosen]
        if sizes.renormalize:
            factors = factors / factors.sum()
        for e, factor in zip(chosen, factors, strict=True):
            gate, up = np.split(gate_up[e] @ row, 2)
            y[t] += factor * (down[e] @ (gate / (1 + np.exp(-gate)) * up))
    return y


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="moe.py", description=__doc__.splitlines()[0])
    parser.add_argument("--server", help="default: GEMMD_SERVER, or a gemmd of this machine")
    parser.add_argument("--model", choices=sorted(MODELS), default="mixtral")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--calls", type=int, default=20, help="that are timed")
    parser.add_argument("--hidden", type=int)
    parser.add_argument("--inner", type=int)
    parser.add_argument("--experts", type=int)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    model = MODELS[options.model]
    sizes = Sizes(
        options.hidden or model.hidden,
        options.inner or model.inner,
        options.experts or model.experts,
        model.top_k,
        model.renormalize,
    )
    random = np.random.default_rng(29)
    router, gate_up, down = layer(sizes, random)
    x = random.standard_normal((options.tokens, sizes.hidden), "f4")
    logits = x @ router.T
    with gemmd.Client(options.server) as client, client.session() as session:
        with gemmd.MoE(session, gate_up, down, top_k=sizes.top_k) as moe:
            y = moe.from_logits(x, logits, renormalize=sizes.renormalize)
            began = time.perf_counter()
            for _ in range(options.calls):
                moe.from_logits(x, logits, renormalize=sizes.renormalize)
            seconds = (time.perf_counter() - began) / max(options.calls, 1)
            kind = repr(moe)
    exact = in_numpy(x, logits, gate_up, down, sizes)
    error = float(np.linalg.norm(np.asarray(y) - exact) / np.linalg.norm(exact))
    found = {"layer": kind, "tokens": options.tokens, "error": error, "us": seconds * 1e6}
    if options.json:
        print(json.dumps(found))
    else:
        print(f"{kind}: {options.tokens} tokens in {seconds * 1e6:.0f} us, error {error:.4f}")
    return 0 if error < LARGEST_ERROR else 1


if __name__ == "__main__":
    sys.exit(main())
