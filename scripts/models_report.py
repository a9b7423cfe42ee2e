#!/usr/bin/env python3
"""Writes docs/benchmarks/h200-fp8-models.md and .json from the results of `scripts/models.sh judge`.

    models_report.py --pool JUDGE --tuned TUNED --table TABLE --dense DENSE --bits BITS [--background BACKGROUND]
                     [--command COMMAND]... [--out docs/benchmarks/h200-fp8-models]

JUDGE is a sweep of the whole pool, by which the model alone is judged; TUNED one that chose by a table of the service's tuner,
TABLE (they may be one run); DENSE the 44 shapes; BITS runs that were compared bit by bit.
"""

import argparse
import json
import math
import os

RANGES = ((1, 16), (17, 64), (65, 512), (513, 4096))  # of rows, as in kernels/bench/models.h
RATIO_WANTED = {(1, 16): 1.17, (17, 64): 1.10, (65, 512): 0.95, (513, 4096): 0.97}
MODEL_ALLOWANCE = 0.03
COMMANDS = ["TABLE=deploy/tuning/h200.json scripts/models.sh judge build/dist out      # on the GPU machine"]


def load(path):
    with open(path) as file:
        run = json.load(file)
    run["all"] = len(run["shapes"])
    run["asked"] = sum(s["outcome"] != "skipped" for s in run["shapes"])
    run["shapes"] = [s for s in run["shapes"] if s["outcome"] == "ok"]
    return run


def mean(values):
    return sum(values) / len(values)


def geometric(values):
    return math.exp(mean([math.log(v) for v in values]))


def percentile(values, share):
    values = sorted(values)
    at = share * (len(values) - 1)
    low = int(at)
    return values[low] + (at - low) * (values[min(low + 1, len(values) - 1)] - values[low])


def within(shapes, rows):
    return [s for s in shapes if rows[0] <= s["m"] <= rows[1]]


def regrets(shapes, key):
    return [100 * (s[key] / s["best"][0]["us"] - 1) for s in shapes]


def ratios(shapes, peer, key="us"):
    return [s[peer] / s[key] for s in shapes if s.get(peer) and s.get(key)]


def only_tuned(shapes, table):
    with open(table) as file:
        keys = {(e["m"], e["n"], e["k"]) for e in json.load(file)["entries"]}
    return [s for s in shapes if (s["m"], s["n"], s["k"]) in keys]


class Figures:
    def __init__(self):
        self.list = []

    def add(self, line, name, value, unit, wanted, ok):
        self.list.append({"line": line, "name": name, "value": None if value is None else round(value, 4), "unit": unit,
                          "wanted": wanted, "ok": bool(ok)})

    def at_most(self, line, name, value, unit, limit):
        self.add(line, name, value, unit, f"<= {limit:g}", value <= limit)

    def at_least(self, line, name, value, unit, limit):
        self.add(line, name, value, unit, f">= {limit:g}", value >= limit)


def regret_figures(figures, pool, tuned):
    model, choice = regrets(pool, "model_us"), regrets(tuned, "us")
    figures.at_most(3, "model alone: mean regret", mean(model), "%", 3)
    figures.at_most(3, "model alone: regret of 99 % of shapes", percentile(model, 0.99), "%", 12)
    figures.at_most(3, "after the tuner: mean regret", mean(choice), "%", 1)
    figures.at_most(3, "after the tuner: most regret", max(choice), "%", 3)


def ratio_figures(figures, pool, tuned):
    for rows in RANGES:
        label = f"m = {rows[0]} to {rows[1]}"
        wanted = RATIO_WANTED[rows]
        for name, shapes, key, limit in (("after the tuner", tuned, "us", wanted),
                                         ("model alone", pool, "model_us", wanted - MODEL_ALLOWANCE)):
            values = ratios(within(shapes, rows), "cublaslt_tensorwise_us", key)
            if values:
                figures.at_least(4, f"{name}, {label}: cuBLASLt tensor-wise over ours", geometric(values), "x", limit)
    figures.at_least(4, "least of cuBLASLt block-scaled over ours", min(ratios(tuned, "cublaslt_block_us")), "x", 0.98)


def dense_figures(figures, dense):
    def tensorwise(chosen):
        return geometric(ratios([s for s in dense if chosen(s)], "cublaslt_tensorwise_us"))

    figures.at_least(5, "the 44: cuBLASLt tensor-wise over ours", tensorwise(lambda s: True), "x", 1.12)
    figures.at_least(5, "the 44, m <= 128", tensorwise(lambda s: s["m"] <= 128), "x", 1.20)
    figures.at_least(5, "the 44, m <= 128: share of the floor",
                     mean([s["floor_us"] / s["us"] for s in dense if s["m"] <= 128]), "1", 0.90)
    figures.at_least(5, "the 44, m = 512", tensorwise(lambda s: s["m"] == 512), "x", 0.99)
    figures.at_least(5, "the 44, m >= 4096", tensorwise(lambda s: s["m"] >= 4096), "x", 0.98)
    figures.at_least(5, "8192 x 8192 x 8192", tensorwise(lambda s: s["m"] == 8192), "x", 1.00)


def bits_figures(figures, run):
    runs = min(s["bitwise_runs"] for s in run["shapes"])
    figures.at_most(7, f"shapes on which a kernel of the pool gave other bits in {runs} runs, of {run['asked']}",
                    run["asked"] - len(run["shapes"]), "shapes", 0)


def background_figures(figures, path):
    with open(path) as file:
        for one in json.load(file)["figures"]:
            figures.list.append({"line": 7 if "bits" in one["name"] else 6, **one, "name": f"background tuning: {one['name']}"})


def row(cells):
    return "| " + " | ".join(cells) + " |"


def rows_table(pool, tuned):
    out = [row(["m", "shapes", "tensor-wise", "block-scaled", "model: tensor-wise", "model: mean, 99 %, most",
                "tuned: mean, 99 %, most"]), row(["---"] * 7)]
    for rows in (*RANGES, (1, 4096)):
        p, t = within(pool, rows), within(tuned, rows)
        if not p or not t:
            continue
        spread = lambda v: f"{mean(v):.1f}, {percentile(v, 0.99):.1f}, {max(v):.1f} %"
        out.append(row([f"{rows[0]} to {rows[1]}", f"{len(p)}, {len(t)}",
                        f"{geometric(ratios(t, 'cublaslt_tensorwise_us')):.3f}",
                        f"{geometric(ratios(t, 'cublaslt_block_us')):.3f}",
                        f"{geometric(ratios(p, 'cublaslt_tensorwise_us', 'model_us')):.3f}",
                        spread(regrets(p, "model_us")), spread(regrets(t, "us"))]))
    return out


def shapes_table(tuned):
    out = [row(["m x n x k", "us", "pool's best", "model's", "tensor-wise", "kernel"]), row(["---"] * 6)]
    for s in sorted(tuned, key=lambda s: (s["m"], s["n"], s["k"])):
        peer = s.get("cublaslt_tensorwise_us")
        out.append(row([f"{s['m']}x{s['n']}x{s['k']}", f"{s['us']:.2f}", f"{s['best'][0]['us']:.2f}",
                        f"{s['model_us']:.2f}" if s.get("model_us") else "-", f"{peer / s['us']:.3f}" if peer else "-",
                        s["kernel"].removeprefix("sm90_fp8_")]))
    return out


def document(run, figures, pool, tuned, notes, commands):
    out = ["# FP8 with block scales on public models' layers", "",
           f"{run['gpu']}, driver {run['driver']}, cuBLASLt {run['cublaslt']}, {run['date']}, commit {run['commit']}.",
           "Layers of the judging half of the suite `models` (kernels/bench/models.cc), which fitting never saw. Written by",
           "scripts/models_report.py; every time is in [h200-fp8-models.json](h200-fp8-models.json).", "",
           "    scripts/dist.sh build/cuda build/dist", *(f"    {command}" for command in commands), "",
           "Ratios are cuBLASLt's time over ours, geometric means. Regret is how much longer than the pool's best kernel the",
           "chosen one takes. The model's is against every kernel of the pool; the tuner's "
           f"against {notes}.", "",
           f"{len(tuned)} of {run['all']} shapes fitted into the run's time.", ""]
    out += rows_table(pool, tuned) + ["", "## Beside the targets", "", row(["", "value", "wanted", ""]), row(["---"] * 4)]
    for f in figures:
        value = "not measured" if f["value"] is None else f"{f['value']:g} {f['unit'] if f['unit'] in '%x' else ''}".strip()
        out.append(row([f["name"], value, f["wanted"], "yes" if f["ok"] else "no"]))
    out += ["", "## Every shape, by the tuned choice", ""] + shapes_table(tuned)
    return "\n".join(out) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("pool", "tuned", "table", "dense", "bits"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--background", help="figures of scripts/background_tuning.py")
    parser.add_argument("--tuned-against", default="every kernel of the pool")
    parser.add_argument("--command", action="append", help="what was run on the GPU machine; may be repeated")
    parser.add_argument("--out", default="docs/benchmarks/h200-fp8-models")
    arguments = parser.parse_args()
    pool, tuned, dense, bits = (load(getattr(arguments, name)) for name in ("pool", "tuned", "dense", "bits"))
    chosen = only_tuned(tuned["shapes"], arguments.table)
    figures = Figures()
    regret_figures(figures, pool["shapes"], chosen)
    ratio_figures(figures, pool["shapes"], chosen)
    dense_figures(figures, dense["shapes"])
    bits_figures(figures, bits)
    if arguments.background:
        background_figures(figures, arguments.background)
    run = {key: tuned[key] for key in ("gpu", "driver", "cublaslt", "date", "commit", "all")}
    for shape in {id(s): s for s in pool["shapes"] + chosen}.values():
        shape["best"] = shape["best"][:3]
    with open(arguments.out + ".json", "w") as file:
        json.dump({**run, "figures": figures.list, "pool": pool["shapes"], "tuned": chosen, "dense": dense["shapes"]}, file,
                  indent=None, separators=(",", ":"))
        file.write("\n")
    with open(arguments.out + ".md", "w") as file:
        file.write(document(run, figures.list, pool["shapes"], chosen, arguments.tuned_against, arguments.command or COMMANDS))
    for figure in figures.list:
        print(f"{figure['line']}  {figure['name']}: {figure['value']} ({figure['wanted']}) {'ok' if figure['ok'] else 'NO'}")


if __name__ == "__main__":
    main()
