#!/usr/bin/env python3
"""How long 'gemmctl load' takes beside reading the same checkpoint and moving the same bytes.

    build/venv/bin/python scripts/load_ratio.py --gemmd PATH --gemmctl PATH [--size-gb 1.5] [--repeats 3]

Makes an FP8 checkpoint in shards (E4M3 matrices and their scales) in --dir, starts a daemon on this machine's CPU, and for
each repeat measures, with the files out of the page cache (or in it, --warm): reading them, moving them by 'gemmctl upload'
one tensor at a time, 'gemmctl load', the same load again, and four loads at once. Prints each repeat as a JSON line and the
medians at the end. --server measures a server that runs instead, such as one with a GPU.
"""

import argparse
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gemmd
import numpy as np
from gemmd.checkpoint import open_checkpoint

PREFIX = "load-ratio"


def write_shard(path, names, shape, warm):
    random = np.random.default_rng()
    (n, k), header, at = shape, {}, 0
    scales = n // 128 * (k // 128)
    for name in names:
        for tensor, dtype, shape, size in (
            (name, "F8_E4M3", [n, k], n * k),
            (name + "_scale_inv", "F32", [n // 128, k // 128], 4 * scales),
        ):
            header[tensor] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
            at += size
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % 64)
    values = random.integers(0, 0x78, n * k + len(names), dtype=np.uint8)  # each matrix begins a byte later
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for i in range(len(names)):
            file.write(values[i : i + n * k])
            file.write(random.random(scales, dtype=np.float32))
        if not warm:
            file.flush()
            os.fsync(file.fileno())


def make_checkpoint(folder, size_gb, shards, shape, warm):
    index = folder / "model.safetensors.index.json"
    each = max(1, round(size_gb * 1e9 / shards / (shape[0] * shape[1])))
    metadata = {"matrices": each * shards, "shape": shape}
    if not index.exists() or json.loads(index.read_text())["metadata"] != metadata:
        shard_of = {}
        with ThreadPoolExecutor() as pool:
            for shard in range(shards):
                file = f"model-{shard:05d}.safetensors"
                names = [f"layers.{shard * each + i}.weight" for i in range(each)]
                pool.submit(write_shard, folder / file, names, shape, warm)
                shard_of |= {one + end: file for one in names for end in ("", "_scale_inv")}
        index.write_text(json.dumps({"metadata": metadata, "weight_map": shard_of}))
    return sorted(folder / one for one in set(json.loads(index.read_text())["weight_map"].values()))


def forget(files):
    """Takes the files out of the page cache."""
    for file in files:
        with file.open("rb") as opened:
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read(files):
    room = bytearray(8 << 20)
    began = time.perf_counter()
    for file in files:
        with file.open("rb", buffering=0) as opened:
            while opened.readinto(room):
                pass
    return time.perf_counter() - began


def ctl(arguments, *words):
    line = [arguments.gemmctl, *words, "--server", arguments.server, "--json"]
    return json.loads(subprocess.run(line, check=True, capture_output=True, text=True).stdout)


def move(arguments, folder):
    """What 'gemmctl upload' tells of its transfers, tensor by tensor, from the page cache: neither making buffers nor
    starting the program counts.
    """
    seconds = 0.0
    for one in open_checkpoint(folder):
        moved = ctl(arguments, "upload", f"{one.file}:{one.name}", "--name", PREFIX)
        seconds += moved["transfer"]["seconds"]
        ctl(arguments, "unpublish", PREFIX)
    return seconds


def four_at_once(arguments, folder):
    line = [arguments.gemmctl, "load", str(folder), "--prefix", PREFIX, "--json", "--server", arguments.server]
    began = time.perf_counter()
    running = [subprocess.Popen(line, stdout=subprocess.PIPE) for _ in range(4)]
    reports = [json.loads(one.communicate()[0]) for one in running]
    return {
        "seconds": time.perf_counter() - began,
        "published": sum(one["loaded"] for one in reports),
        "moved_bytes": sum(one["moved_bytes"] for one in reports),
    }


def measure(arguments, folder, files):
    with gemmd.Client(arguments.server) as client:
        client.wait_ready()
        for _ in range(arguments.repeats):
            if not arguments.warm:
                forget(files)
            read_s = read(files)
            print(f"read in {read_s:.2f} s", file=sys.stderr, flush=True)
            move_s = move(arguments, folder)
            print(f"moved in {move_s:.2f} s", file=sys.stderr, flush=True)
            if not arguments.warm:
                forget(files)
            first = ctl(arguments, "load", str(folder), "--prefix", PREFIX, "--jobs", str(arguments.jobs))
            again = ctl(arguments, "load", str(folder), "--prefix", PREFIX)
            ctl(arguments, "unpublish", PREFIX + "/*")
            four = four_at_once(arguments, folder)
            held = sum(one.size_bytes for one in client.published() if one.published_name.startswith(PREFIX))
            ctl(arguments, "unpublish", PREFIX + "/*")
            yield {
                "bytes": first["moved_bytes"],
                "read_s": read_s,
                "move_s": move_s,
                "load_s": first["seconds"],
                "ratio": first["seconds"] / (read_s + move_s),
                "again_s": again["seconds"],
                "again_bytes": again["moved_bytes"],
                "four_s": four["seconds"],
                "four_moved": four["moved_bytes"] / first["moved_bytes"],
                "four_copies": held / first["moved_bytes"],
            }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gemmctl", required=True)
    parser.add_argument("--gemmd", help="started here, unless --server is given")
    parser.add_argument("--server")
    parser.add_argument("--dir", type=Path, help="kept, with the checkpoint; default: one that is removed")
    parser.add_argument("--size-gb", type=float, default=1.5)
    parser.add_argument("--warm", action="store_true", help="leave the files in the page cache: memory, not a disk")
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--shape", type=int, nargs=2, default=[4096, 2048], help="of each matrix: multiples of 128")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=4)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.dir or Path(temporary) / "model"
        folder.mkdir(parents=True, exist_ok=True)
        files = make_checkpoint(folder, arguments.size_gb, arguments.shards, arguments.shape, arguments.warm)
        daemon = None
        if not arguments.server:
            arguments.server = f"unix:{temporary}/gemmd.sock"
            config = Path(temporary) / "gemmd.textproto"
            memory = int(arguments.size_gb * 3e9)
            config.write_text(
                f'listeners {{ address: "{arguments.server}" tenant: "default" }}\n'
                f'devices {{ name: "cpu:0" memory_bytes: {memory} }}\n'
            )
            with open(f"{temporary}/gemmd.log", "w") as log:
                daemon = subprocess.Popen([arguments.gemmd, "--config", str(config)], stderr=log)
        try:
            rows = []
            for row in measure(arguments, folder, files):
                rows.append(row)
                print(json.dumps({key: round(value, 4) for key, value in row.items()}), flush=True)
            medians = {key: statistics.median(row[key] for row in rows) for key in rows[0]}
            print("median", json.dumps({key: round(value, 4) for key, value in medians.items()}))
        finally:
            if daemon is not None:
                daemon.terminate()
                daemon.wait()


if __name__ == "__main__":
    main()
