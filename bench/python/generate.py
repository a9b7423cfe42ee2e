"""Models of transformers as they decode with a cache, by `generate`, with gemmd.compile beside torch:
`python3 bench/python/generate.py --server TARGET --json FILE`.

Layers have the sizes of published models and random weights in bfloat16; models.py says which, and
`--layers` how many. Of a few, the host's part of `generate` is most of a token's time. A figure is the
time of a token: that of many less that of two, over as many. "dynamic" is the cache that `generate` has
by itself, "static" one of one size, with which it makes a CUDA graph of what decodes. "once": each prompt
is longer than those before, so that no two tokens meet as many others; else all have one length,
`--prompt` tokens.
Needs torch, transformers 5, a GPU, and a daemon on this host that has it; run both under MPS.
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gemmd
from calls import add_security_flags, security_of
from models import Model, chosen

_TOKENS = 32
_WARM, _TURNS = 3, 5


class Way(NamedTuple):
    """Whether gemmd compiles the model, and with which cache it decodes."""

    name: str
    by_gemmd: bool
    cache: dict[str, Any]  # what generate is told
    once: bool = False


_STATIC = {"cache_implementation": "static"}
WAYS = (
    Way("torch, dynamic", False, {}),
    Way("torch, static", False, _STATIC),
    Way("gemmd, dynamic", True, {}),
    Way("gemmd, static", True, _STATIC),
    Way("torch, once", False, {}, True),
    Way("gemmd, once", True, {}, True),
)


def generated(
    model: Any, ids: Any, count: int, cache: dict[str, Any]
) -> tuple[float, Any]:
    """Seconds, and what the model said."""
    import torch

    torch.cuda.synchronize()
    began = time.perf_counter()
    said = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, min_new_tokens=count,
        do_sample=False, pad_token_id=0, **cache,
    )  # fmt: skip
    torch.cuda.synchronize()
    return time.perf_counter() - began, said


def token_us(model: Any, ids: Any, way: Way) -> tuple[float, Any]:
    """Of one token of all sequences, and what the model said of the first prompt."""
    prompt = ids

    def turn(count: int) -> tuple[float, Any]:
        nonlocal prompt
        got = generated(model, prompt, count, way.cache)
        if way.once:
            prompt = prompt[:, :1].repeat(1, prompt.shape[1] + count)
        return got

    def seconds(count: int) -> float:
        return statistics.median(turn(count)[0] for _ in range(_TURNS))

    _, said = turn(2)
    for _ in range(_WARM):
        turn(_TOKENS + 2)
        turn(2)
    us = (seconds(_TOKENS + 2) - seconds(2)) / _TOKENS * 1e6
    return us, said


def measured(
    client: gemmd.Client, one: Model, batch: int, given: argparse.Namespace
) -> dict[str, Any]:
    """A row of the result."""
    import torch
    import transformers

    torch.manual_seed(1)
    more = {"num_hidden_layers": given.layers} if given.layers else {}
    config = transformers.CONFIG_MAPPING[one.family](**{**one.config, **more})
    with torch.device("cuda"):
        model = transformers.AutoModelForCausalLM.from_config(
            config, dtype=torch.bfloat16
        ).eval()
        ids = torch.randint(3, 30000, (batch, given.prompt))
    kept = {id(held): held for held in (*model.parameters(), *model.buffers())}
    us, said, made = dict[str, float](), dict[str, Any](), ""
    for way in given.ways:
        torch._dynamo.reset()
        own = copy.deepcopy(model, dict(kept))  # the weights are the same
        with client.session(label="generate") as session:
            fast = None
            if way.by_gemmd:
                fast = gemmd.compile(own, session, in_place=True)
            us[way.name], said[way.name] = token_us(own, ids, way)
            made = repr(fast) if fast is not None else made
            if fast is not None:
                fast.close()
        del own
        gc.collect()
    wanted = said.pop(given.ways[0].name)
    same = {name: float((got == wanted).float().mean()) for name, got in said.items()}
    del model
    gc.collect()
    torch.cuda.empty_cache()
    return {
        "model": one.name, "layers": config.num_hidden_layers, "batch": batch, "prompt": given.prompt,
        "us": us, "same": same, "compiled": made,
    }  # fmt: skip


def shown(row: dict[str, Any]) -> str:
    us = row["us"]
    (first, first_us), *others = us.items()
    what = f"{row['model']}, {row['layers']} layers, {row['batch']} sequences"
    what += f" behind {row['prompt']} tokens"
    parts = [f"{what}: {first} {first_us:.0f} us a token"]
    parts += [f"{name} {one / first_us:.2f}" for name, one in others]
    return "; ".join(parts)


def ways(text: str) -> tuple[Way, ...]:
    """Those of these names, in that order."""
    by_name = {way.name: way for way in WAYS}
    names = [name.strip() for name in text.split(";")]
    unknown = [name for name in names if name not in by_name]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"no way is named {unknown[0]!r}; they are: {'; '.join(by_name)}"
        )
    return tuple(by_name[name] for name in names)


def parser() -> argparse.ArgumentParser:
    flags = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    flags.add_argument(
        "--server", required=True, help="unix:/path of a daemon with this GPU"
    )
    flags.add_argument(
        "--models", type=chosen, default=chosen("Qwen3-*,gpt-oss*,Mixtral*,Gemma*"),
        help="patterns of names, as 'Qwen*,gpt*'",
    )  # fmt: skip
    flags.add_argument(
        "--layers", type=int, default=0, help="of each model; 0: as models.py has them"
    )
    flags.add_argument(
        "--batches", type=int, nargs="+", default=[1, 32], help="sequences"
    )
    flags.add_argument(
        "--prompt",
        type=int,
        default=128,
        help="tokens in front of those that are timed",
    )
    flags.add_argument(
        "--ways", type=ways, default=WAYS,
        help="which to measure, as 'torch, dynamic;gemmd, dynamic'; the first is what others go by",
    )  # fmt: skip
    flags.add_argument(
        "--limit-s", type=float, default=1e9, help="begin no model after these seconds"
    )
    flags.add_argument("--json", type=Path, help="where the figures go")
    add_security_flags(flags)
    return flags


def main(argv: Sequence[str] | None = None) -> int:
    given = parser().parse_args(argv)
    try:
        import torch
        import transformers  # noqa: F401
    except ImportError as error:
        print(
            f"generate.py: {error}; torch and transformers are needed", file=sys.stderr
        )
        return 1
    began, rows = time.monotonic(), list[dict[str, Any]]()
    with torch.no_grad(), gemmd.Client(given.server, **security_of(given)) as client:
        for one in given.models:
            for batch in given.batches:
                if time.monotonic() - began > given.limit_s:
                    print(f"no time left for {one.name}, {batch} sequences")
                    continue
                try:
                    rows.append(measured(client, one, batch, given))
                except Exception as error:  # others are measured all the same
                    print(f"{one.name}: {type(error).__name__}: {error}")
                else:
                    print(shown(rows[-1]), flush=True)
    if given.json is not None:
        about = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
        given.json.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")
    return 0 if rows else 1


if __name__ == "__main__":
    sys.exit(main())
