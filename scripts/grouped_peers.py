#!/usr/bin/env python3
"""Times torch on the cases of a run of `grouped_bench --suite broad-..`, on the same GPU.

    grouped_peers.py RUN.json [--dtype e4m3|bf16] [--repeats N] [--out PEERS.json]

Two peers: torch's grouped matmul (of E4M3 with a scale for each row, which is less work than blocks), and a matmul for each
group that has rows. Times are medians of cold calls by events; 256 MiB are written before each.
"""

import argparse
import json
import statistics

import torch

FLUSH_BYTES = 256 << 20
COLUMNS = 16  # rows of E4M3 for a single matmul come in multiples of it


def median_us(call, flush, repeats):
    times = []
    for i in range(repeats + 1):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        flush.zero_()
        start.record()
        call()
        end.record()
        end.synchronize()
        if i > 0:  # the first call chooses and loads its kernels
            times.append(start.elapsed_time(end) * 1e3)
    return statistics.median(times)


def operands(case, dtype):
    rows, n, k = case["rows"], case["n"], case["k"]
    total = sum(rows)
    a = torch.empty(total, k, dtype=torch.bfloat16, device="cuda").normal_()
    b = torch.empty(len(rows), n, k, dtype=torch.bfloat16, device="cuda").normal_()
    if dtype == "e4m3":
        a, b = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn)
    return a, b


def by_groups(case, a, b, dtype):
    offsets = torch.tensor(case["rows"], device="cuda").cumsum(0).to(torch.int32)
    weights = b.transpose(-2, -1)
    if dtype == "bf16":
        return lambda: torch._grouped_mm(a, weights, offs=offsets)
    a_scales = torch.ones(a.shape[0], dtype=torch.float32, device="cuda")
    b_scales = torch.ones(b.shape[0], b.shape[1], dtype=torch.float32, device="cuda")
    return lambda: torch._scaled_grouped_mm(a, weights, a_scales, b_scales, offs=offsets, out_dtype=torch.bfloat16,
                                            use_fast_accum=True)


def one_by_one(case, a, b, dtype):
    parts, at = [], 0
    one = torch.ones((), device="cuda")
    for group, rows in enumerate(case["rows"]):
        if rows > 0:
            mine = a[at:at + rows]
            if dtype == "e4m3" and rows % COLUMNS != 0:
                mine = torch.cat([mine, mine.new_zeros(COLUMNS - rows % COLUMNS, a.shape[1])])
            parts.append((mine, b[group].t()))
        at += rows
    if dtype == "bf16":
        return lambda: [x @ w for x, w in parts]
    return lambda: [torch._scaled_mm(x, w, one, one, out_dtype=torch.bfloat16, use_fast_accum=True) for x, w in parts]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--dtype", default="e4m3", choices=("e4m3", "bf16"))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out")
    options = parser.parse_args()
    with open(options.run) as file:
        cases = json.load(file)["figures"]
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    found = []
    for case in cases:
        a, b = operands(case, options.dtype)
        times = {"name": case["name"]}
        for peer, make in (("grouped_us", by_groups), ("loop_us", one_by_one)):
            try:
                times[peer] = round(median_us(make(case, a, b, options.dtype), flush, options.repeats), 2)
            except (RuntimeError, AttributeError) as error:  # what this torch does not take
                times[peer] = None
                times[peer + "_trouble"] = str(error).split("\n", maxsplit=1)[0][:160]
        found.append(times)
        print(times["name"], times["grouped_us"], times["loop_us"], flush=True)
        del a, b
        if options.out:
            with open(options.out, "w") as file:
                json.dump({"torch": torch.__version__, "peers": found}, file, indent=1)


if __name__ == "__main__":
    main()
