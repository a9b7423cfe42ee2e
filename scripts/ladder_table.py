#!/usr/bin/env python3
"""Writes the table of docs/ladder.md from a run: ladder_table.py RUN.json [docs/ladder.md]

RUN.json is of `gemm_bench --suite ladder --json RUN.json`. The table is of its first shape; rates at the others stand
in columns of their own. Replaces what stands between the marks.
"""

import json
import pathlib
import sys

BEGIN, END = "<!-- ladder begins -->", "<!-- ladder ends -->"


def name(shape):
    return " x ".join(str(x) for x in shape)


def rate(row):
    if row["tflops"] is None:
        return row["outcome"]
    text = f"{row['tflops']:.2f}" if row["tflops"] < 10 else f"{row['tflops']:.0f}"
    return text if "took" not in row else f"{text} (of {name(row['took'])})"


def table(run):
    shapes, by_shape = [], {}
    for row in run["ladder"]:
        shape = (row["m"], row["n"], row["k"])
        if shape not in by_shape:
            shapes.append(shape)
        by_shape.setdefault(shape, {})[row["idea"]] = row
    first, others = shapes[0], shapes[1:]
    rows = [f"{run['gpu']}, driver {run['driver']}, cuBLASLt {run['cublaslt']}, {run['date']}, commit {run['commit']}; "
            f"{name(first)}, L2 cold.", ""]
    rows.append("| step | us | TFLOP/s | times before | of cuBLASLt | " + "".join(f"TFLOP/s at {name(s)} | " for s in others))
    rows.append("| --- " * (5 + len(others)) + "|")
    peers = {row["type"]: row for row in by_shape[first].values() if row["kernel"].startswith("cublaslt")}
    before = None
    for idea, row in by_shape[first].items():
        kernel = row["kernel"]
        peer = peers.get(row["type"])
        is_peer = kernel.startswith("cublaslt")
        timed = row["us"] is not None
        gain = f"{row['tflops'] / before['tflops']:.2f}" if timed and before and not is_peer else ""
        share = f"{row['tflops'] / peer['tflops'] * 100:.0f} %" if timed and peer and peer["tflops"] and "took" not in row else ""
        step = kernel.split("_")[2].lstrip("0") + ". " if "_ladder_" in kernel else ""
        more = "".join(f"{rate(by_shape[s][idea]) if idea in by_shape[s] else ''} | " for s in others)
        rows.append(f"| {step}{row['idea']} | {row['us']:.1f} | {rate(row)} | {gain} | {share} | {more}" if timed
                    else f"| {step}{row['idea']} | {row['outcome']} | | | | {more}")
        if timed and not is_peer:
            before = row
    return "\n".join(line.rstrip() for line in rows)


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    page = pathlib.Path(sys.argv[2] if len(sys.argv) == 3 else pathlib.Path(__file__).parent.parent / "docs/ladder.md")
    with open(sys.argv[1], encoding="utf-8") as file:
        run = json.load(file)
    if not run.get("ladder"):
        sys.exit(f"{sys.argv[1]}: no ladder in it; run gemm_bench --suite ladder --json {sys.argv[1]}")
    text = page.read_text(encoding="utf-8")
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        sys.exit(f"{page}: the marks {BEGIN} and {END} must stand there once each")
    head, rest = text.split(BEGIN)
    page.write_text(head + BEGIN + "\n" + table(run) + "\n" + END + rest.split(END)[1], encoding="utf-8")


if __name__ == "__main__":
    main()
