#!/usr/bin/env python3
"""Versions of a model that are loaded, switched and unpublished under workers that call it.

    build/venv/bin/python scripts/switch_under_load.py --gemmctl PATH --server TARGET [--size-gb 1] [--workers 4]

Each version is a checkpoint of `a`, `b` and of filling of --size-gb. In version v the elements of `a` and of `b` are v.
Every worker is a process that looks up `m/a` and `m/b` in a session, runs a program of a product with each, and lets go.
Both products tell the version that made them. Prints one JSON line; exit status 1 if a call failed, a program mixed
versions, or a worker has not seen the last version.
"""

import argparse
import json
import multiprocessing
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import gemmd
import numpy as np

N = 256
FILLING = 8192  # columns and rows of a matrix of it
PREFIX = "switch-under-load"


def write_version(path, version, size_gb):
    count = max(1, round(size_gb * 1e9 / FILLING**2))
    header, at = {}, 0
    sizes = {"a": ("F32", N, 4), "b": ("F32", N, 4)} | {f"filling.{i}": ("I8", FILLING, 1) for i in range(count)}
    for name, (dtype, extent, itemsize) in sizes.items():
        end = at + extent**2 * itemsize
        header[name] = {"dtype": dtype, "shape": [extent, extent], "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    random = np.random.default_rng()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _ in "ab":
            file.write(np.full(N * N, version, np.float32).tobytes())
        for _ in range(count):
            file.write(random.bytes(FILLING**2))


def one_program(session, pause_s):
    a = session.find(f"{PREFIX}/a")
    time.sleep(pause_s)
    with a, session.find(f"{PREFIX}/b") as b:
        x, y = (session.create_buffer(shape=shape, dtype="f32") for shape in ((1, N), (2, 1, N)))
        with x, y:
            first, second = y[0], y[1]
            ops = [gemmd.write(x, np.ones((1, N), "f4")), gemmd.matmul(x, a, first), gemmd.matmul(x, b, second)]
            made = session.execute([*ops, gemmd.read(first), gemmd.read(second)])
            return {float(value) / N for product in (made[0], made[1]) for value in np.unique(product)}


def work(server, pause_s, stop, told):
    counts = {"programs": 0, "failed": 0, "mixed": 0, "newest": 0, "errors": []}
    with gemmd.connect(server) as client:
        while not stop.is_set():
            with client.session(label="switch-under-load") as session:
                for _ in range(3):
                    try:
                        versions = one_program(session, pause_s)
                    except gemmd.Error as error:
                        counts["failed"] += 1
                        counts["errors"] = [*counts["errors"], str(error)][:3]
                        continue
                    counts["programs"] += 1
                    counts["mixed"] += len(versions) != 1
                    counts["newest"] = max(counts["newest"], *versions)
    told.put(counts)


def ctl(arguments, *words):
    line = [arguments.gemmctl, *words, "--server", arguments.server, "--json"]
    return json.loads(subprocess.run(line, check=True, capture_output=True, text=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gemmctl", required=True)
    parser.add_argument("--server", required=True)
    parser.add_argument("--size-gb", type=float, default=1)
    parser.add_argument("--versions", type=int, default=4)
    parser.add_argument("--workers", type=int, default=4)
    arguments = parser.parse_args()
    spawn = multiprocessing.get_context("spawn")
    stop, told = spawn.Event(), spawn.Queue()
    seconds = []
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"v{version}.safetensors" for version in range(1, arguments.versions + 1)]
        for version, file in enumerate(files, 1):
            write_version(file, version, arguments.size_gb)
        ctl(arguments, "load", str(files[0]), "--prefix", f"{PREFIX}@1", "--switch")
        workers = [
            spawn.Process(target=work, args=(arguments.server, 0.001 * i, stop, told)) for i in range(arguments.workers)
        ]
        for worker in workers:
            worker.start()
        for version, file in enumerate(files[1:], 2):
            loaded = ctl(arguments, "load", str(file), "--prefix", f"{PREFIX}@{version}", "--switch")
            seconds.append(loaded["seconds"])
            time.sleep(0.5)
            while subprocess.run(  # until nobody holds the old one
                [arguments.gemmctl, "unpublish", f"{PREFIX}@{version - 1}/*", "--unless-held", "--server", arguments.server],
                capture_output=True,
            ).returncode:
                time.sleep(0.05)
        time.sleep(0.5)
        stop.set()
        counts = [told.get(timeout=60) for _ in workers]
        for worker in workers:
            worker.join()
        left = ctl(arguments, "published", f"{PREFIX}@*")["published"]
        ctl(arguments, "unpublish", f"{PREFIX}@{arguments.versions}/*")
    result = {key: sum(one[key] for one in counts) for key in ("programs", "failed", "mixed")}
    result |= {
        "switches": arguments.versions - 1,
        "workers_at_the_last": sum(one["newest"] == arguments.versions for one in counts),
        "load_s": [round(one, 3) for one in seconds],
        "errors": [text for one in counts for text in one["errors"]][:3],
        "names_left": len(left),
    }
    print(json.dumps(result))
    good = not result["failed"] and not result["mixed"] and result["workers_at_the_last"] == arguments.workers
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
