#!/usr/bin/env python3
"""Says where grouped matmuls lose: runs of `grouped_bench --suite broad-..` and torch's times of the same cases.

    grouped_report.py RUN.json [--peers PEERS.json] [--before RUN.json] [--worst N]

A case's floor is the longer of a plain read of its bytes and of its FLOPs at the rate of the run's first case, one large
group. Means are geometric.
"""

import argparse
import json
import math

RANGES = ((1, 4), (5, 32), (33, 128), (129, 512), (513, 1 << 30))  # of rows for a group that has some


def load(path):
    with open(path) as file:
        return json.load(file)


def mean(values):
    return math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")


def floors(run):
    cases = [c for c in run["figures"] if c["us"] > 0]
    rate = cases[0]["tflops"]
    for case in cases[1:]:
        flops_us = 2e-6 * sum(case["rows"]) * case["n"] * case["k"] / rate
        case["floor"] = max(case["floor_us"], flops_us)
        case["bound"] = "flops" if flops_us > case["floor_us"] else "bytes"
        case["ratio"] = case["us"] / case["floor"]
        case["mean_rows"] = sum(case["rows"]) / sum(r > 0 for r in case["rows"])
    return rate, cases[1:]


def join(cases, others, key, value):
    by_name = {other["name"]: other for other in others}
    for case in cases:
        other = by_name.get(case["name"], {}).get(value)
        if other:
            case[key] = other / case["us"]


def row(title, cases):
    parts = [f"{title:<24} {len(cases):4}  {mean([c['ratio'] for c in cases]):6.3f}"]
    for key in ("grouped", "loop", "before"):
        some = [c[key] for c in cases if key in c]
        parts.append(f"{mean(some):8.3f}" if some else f"{'-':>8}")
    print(" ".join(parts))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--peers")
    parser.add_argument("--before")
    parser.add_argument("--worst", type=int, default=12)
    options = parser.parse_args()
    rate, cases = floors(load(options.run))
    if options.peers:
        peers = load(options.peers)["peers"]
        join(cases, peers, "grouped", "grouped_us")
        join(cases, peers, "loop", "loop_us")
    if options.before:
        join(cases, load(options.before)["figures"], "before", "us")
    print(f"one large group: {rate:.0f} TFLOP/s\n{'rows of a group':<24} cases x floor  grouped     loop   before")
    for least, most in RANGES:
        some = [c for c in cases if least <= c["mean_rows"] < most + 1]
        if some:
            row(f"{least} to {most}" if most < 1 << 30 else f"from {least}", some)
    for front in sorted({c["name"].split()[0] for c in cases}):
        row(front, [c for c in cases if c["name"].split()[0] == front])
    for bound in ("bytes", "flops"):
        row(bound, [c for c in cases if c["bound"] == bound])
    row("all", cases)
    print("\nworst:")
    for case in sorted(cases, key=lambda c: -c["ratio"])[:options.worst]:
        kernels = case.get("kernels_us")
        best = f", best {min(kernels):.1f} of few units pairs rests {kernels}" if kernels else ""
        print(f"  x{case['ratio']:.3f} {case['us']:.1f} us, {case['bound']} {case['floor']:.1f}, {case['name']}, "
              f"most rows {max(case['rows'])}, {case['chosen']}{best}")


if __name__ == "__main__":
    main()
