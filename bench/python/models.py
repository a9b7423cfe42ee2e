"""Models of transformers by gemmd.compile and gemmd.adopt, beside themselves in torch:
`python3 bench/python/models.py --server TARGET --json FILE`.

Layers have the sizes of published models, random weights in bfloat16, and are a few. Each model is
called with one token of 32 sequences, without a cache, with 2048 tokens of one, or with images; as
torch calls it, and as a captured graph. Ways take turns. `--inductor` adds torch's own compiler, and
gemmd.compile with it for the rest. `--autocast`: models are float32, and each call is under
torch.autocast to bfloat16. An error is the norm of the difference to torch's result: where
experts are chosen by random weights it is mostly that of other choices. Needs torch, transformers 5,
a GPU, and a daemon on this host that has it; run both under MPS.
"""

from __future__ import annotations

import argparse
import copy
import fnmatch
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gemmd
from calls import add_security_flags, security_of

_WARM_CALLS = 40  # results are kept from the 33rd on
_TURNS = 5
_TURN_US = 20e3
_ADOPTED = 1 << 22  # elements of the smallest weight


class Model(NamedTuple):
    """A model's layers: its family's name in transformers, its configuration, and what it is given."""

    name: str
    family: str
    config: dict[str, Any]
    inputs: tuple[str, ...] = ("decode", "prefill")


def _decoder(
    name: str, family: str, sizes: tuple[int, int, int, int], layers: int, **more: Any
) -> Model:
    """`sizes`: hidden, inner, heads, heads of keys and values."""
    hidden, inner, heads, kv_heads = sizes
    config = {
        "vocab_size": 32000, "hidden_size": hidden, "intermediate_size": inner,
        "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv_heads,
        "max_position_embeddings": 8192, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
        **more,
    }  # fmt: skip
    return Model(name, family, config)


def _experts(
    count: int, top: int, inner: int, named: str = "num_experts"
) -> dict[str, int]:
    return {named: count, "num_experts_per_tok": top, "moe_intermediate_size": inner}


_V3 = {
    **_experts(64, 8, 2048, "n_routed_experts"),
    "n_group": 8, "topk_group": 4, "first_k_dense_replace": 0,
}  # fmt: skip
MODELS = [
    _decoder("Qwen3-30B-A3B", "qwen3_moe", (2048, 6144, 32, 4), 4, head_dim=128, **_experts(128, 8, 768)),
    _decoder("gpt-oss-20b", "gpt_oss", (2880, 2880, 64, 8), 4, head_dim=64,
             num_local_experts=32, num_experts_per_tok=4),
    _decoder("Mixtral-8x7B", "mixtral", (4096, 14336, 32, 8), 2, num_local_experts=8),
    _decoder("DeepSeek-V3, 64 experts", "deepseek_v3", (7168, 18432, 32, 32), 2, **_V3),
    _decoder("OLMoE-1B-7B", "olmoe", (2048, 1024, 16, 16), 4, num_experts=64, num_experts_per_tok=8),
    _decoder("Qwen3-8B", "qwen3", (4096, 12288, 32, 8), 4, head_dim=128),
    _decoder("Gemma-2-9B", "gemma2", (3584, 14336, 16, 8), 4, head_dim=256),
    _decoder("Phi-4-mini", "phi3", (3072, 8192, 24, 8), 4),
    _decoder("Falcon-7B", "falcon", (4544, 18176, 71, 71), 4, multi_query=True),
    Model("ModernBERT-large", "modernbert", {
        "vocab_size": 32000, "hidden_size": 1024, "intermediate_size": 2624, "num_hidden_layers": 8,
        "num_attention_heads": 16, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
        "cls_token_id": 3, "sep_token_id": 4,
    }, ("batch",)),
    Model("SigLIP-so400m", "siglip_vision_model", {
        "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 8,
        "num_attention_heads": 16, "image_size": 384, "patch_size": 14,
    }, ("images",)),
    Model("DINOv2-giant", "dinov2", {
        "hidden_size": 1536, "num_hidden_layers": 8, "num_attention_heads": 24, "mlp_ratio": 4,
        "use_swiglu_ffn": True, "image_size": 518, "patch_size": 14,
    }, ("images",)),
    _decoder("BLOOM-7B", "bloom", (4096, 16384, 32, 32), 4, n_head=32, n_layer=4),
]  # fmt: skip


def chosen(patterns: str) -> list[Model]:
    """Those that one of the patterns names, as a shell's."""
    wanted = patterns.split(",")
    found = [
        one for one in MODELS if any(fnmatch.fnmatch(one.name, like) for like in wanted)
    ]
    if not found:
        names = ", ".join(repr(one.name) for one in MODELS)
        raise argparse.ArgumentTypeError(f"{patterns!r} names none of {names}")
    return found


def inputs_of(kind: str, config: dict[str, Any]) -> dict[str, Any]:
    """What a model is called with."""
    import torch

    if kind == "images":
        edge = config["image_size"]
        return {
            "pixel_values": torch.randn(
                8, 3, edge, edge, device="cuda", dtype=torch.bfloat16
            )
        }
    shape = {"decode": (32, 1), "prefill": (1, 2048), "batch": (16, 256)}[kind]
    return {
        "input_ids": torch.randint(3, 30000, shape, device="cuda"),
        "use_cache": False,
    }


def in_float32(value: Any) -> Any:
    """An input of floats in that type."""
    return (
        value.float()
        if hasattr(value, "dtype") and value.is_floating_point()
        else value
    )


def call_us(call: Callable[[], Any], count: int) -> float:
    import torch

    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(count):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - began) * 1e6 / count


def by_turns(ways: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Median microseconds of a call of each."""
    for way in ways.values():
        call_us(way, _WARM_CALLS)
    count = max(4, int(_TURN_US / call_us(ways["torch"], 5)))
    turns = [
        {name: call_us(way, count) for name, way in ways.items()} for _ in range(_TURNS)
    ]
    return {name: statistics.median(one[name] for one in turns) for name in ways}


def graph_of(call: Callable[[], Any]) -> Callable[[], Any]:
    """A replay of the call."""
    import torch

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def graphs_of(ways: dict[str, Callable[[], Any]]) -> dict[str, Callable[[], Any]]:
    """Of all ways; none if torch's own model cannot be captured."""
    import torch

    found = dict[str, Callable[[], Any]]()
    for name, way in ways.items():
        try:
            found[name] = graph_of(way)
        except RuntimeError as error:
            print(f"  no graph of {name}: {str(error).splitlines()[0][:120]}")
            torch.cuda.synchronize()
    return found if "torch" in found else {}


def ways_of(model: Any, sessions: Sequence[Any], inductor: bool) -> dict[str, Any]:
    """The model by name of the way that it goes."""
    import torch

    ways = {"torch": model, "compile": gemmd.compile(model, sessions[0])}
    adopted = copy.deepcopy(model)
    try:
        gemmd.adopt(adopted, sessions[1], min_elements=_ADOPTED)
        ways["adopt"] = adopted
    except ValueError as error:
        print(f"  not adopted: {str(error)[:160]}")
    if inductor:
        ways["torch, inductor"] = torch.compile(model)
        ways["compile, inductor"] = gemmd.compile(model, sessions[2], rest="inductor")
    return ways


def measured(
    client: gemmd.Client, one: Model, inductor: bool, autocast: bool
) -> list[dict[str, Any]]:
    """A row for each of a model's inputs."""
    import torch
    import transformers

    torch.manual_seed(1)
    torch._dynamo.reset()
    config = transformers.CONFIG_MAPPING[one.family](**one.config)
    with torch.device("cuda"):
        dtype = torch.float32 if autocast else torch.bfloat16
        model = transformers.AutoModel.from_config(config, dtype=dtype).eval()
    rows = []
    sessions = [client.session(label="models") for _ in range(3)]
    try:
        ways = ways_of(model, sessions, inductor)
        for kind in one.inputs:
            given = inputs_of(kind, one.config)
            if autocast:
                given = {name: in_float32(value) for name, value in given.items()}

            def called(way: Callable[..., Any], given: dict[str, Any] = given) -> Any:
                if not autocast:
                    return way(**given)[0]
                with torch.autocast("cuda", torch.bfloat16):
                    return way(**given)[0]

            def calls() -> dict[str, Callable[[], Any]]:
                return {name: lambda way=way: called(way) for name, way in ways.items()}

            results = {name: call().float() for name, call in calls().items()}
            wanted = results.pop("torch")
            row = {
                "model": one.name,
                "inputs": f"{kind}, autocast" if autocast else kind,
                "us": by_turns(calls()),
                "error": {
                    name: float((got - wanted).norm() / wanted.norm())
                    for name, got in results.items()
                },
            }
            graphs = graphs_of(calls())
            row["graph_us"] = by_turns(graphs) if graphs else {}
            rows.append(row)
            print(shown(row), flush=True)
        print(f"  {ways['compile']!r}"[:160], flush=True)
    finally:
        ways = None
        for session in sessions:
            session.close()
    del model
    gc.collect()
    torch.cuda.empty_cache()
    return rows


def shown(row: dict[str, Any]) -> str:
    """A line: torch's time, and that of the others over it."""
    parts = [f"{row['model']}, {row['inputs']}"]
    for name, times in (("called", row["us"]), ("as a graph", row["graph_us"])):
        if times:
            over = (
                f"{way} {us / times['torch']:.2f}"
                for way, us in times.items()
                if way != "torch"
            )
            parts.append(f"{name} torch {times['torch']:.0f} us, {', '.join(over)}")
    return "; ".join(parts)


def summary(rows: list[dict[str, Any]]) -> dict[str, float]:
    """The geometric mean of time over torch's, of each way, called and as a graph."""
    found = dict[str, float]()
    for key, ending in (("us", ""), ("graph_us", ", as graphs")):
        ways = dict.fromkeys(way for row in rows for way in row[key] if way != "torch")
        for way in ways:
            ratios = [
                row[key][way] / row[key]["torch"] for row in rows if way in row[key]
            ]
            found[way + ending] = statistics.geometric_mean(ratios)
    return found


def parser() -> argparse.ArgumentParser:
    flags = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    flags.add_argument(
        "--server", required=True, help="unix:/path of a daemon with this GPU"
    )
    flags.add_argument(
        "--models",
        type=chosen,
        default=MODELS,
        help="patterns of names, as 'Qwen*,gpt*'",
    )
    flags.add_argument("--inductor", action="store_true", help="torch's compiler, too")
    flags.add_argument(
        "--autocast", action="store_true", help="float32 models under autocast"
    )
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
        print(f"models.py: {error}; torch and transformers are needed", file=sys.stderr)
        return 1
    began, rows = time.monotonic(), list[dict[str, Any]]()
    with torch.no_grad(), gemmd.Client(given.server, **security_of(given)) as client:
        for one in given.models:
            if time.monotonic() - began > given.limit_s:
                print(f"no time left for {one.name}")
                break
            try:
                rows += measured(client, one, given.inductor, given.autocast)
            except Exception as error:  # others are measured all the same
                print(f"{one.name}: {type(error).__name__}: {error}")
    means = summary(rows)
    for way, mean in means.items():
        print(f"{way}: {mean:.3f} of torch's time, {len(rows)} rows")
    if given.json is not None:
        about = {
            "gpu": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "means": means,
        }
        given.json.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")
    return 0 if rows else 1


if __name__ == "__main__":
    sys.exit(main())
