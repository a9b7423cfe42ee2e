#!/usr/bin/env python3
"""How many files of kernels/ know a config or an operand kind of the CUDA matmul kernels: what adding one touches.

    extension_cost.py REPOSITORY
"""

import pathlib
import re
import sys

MOST_FILES_OF_A_KIND = 8
# The first kind that is scaled as it is stored: its store, exchange and epilogue stand under its own name.
NEW_LOOPS = {"kI8": 14}
CONFIG_NAME = re.compile(r"sm90_\w+_(?:tiled|skinny)_m\d+n\d+")
SOURCES = {".cc", ".h", ".cu", ".cuh", ".txt"}


def code_of(path):
    """Its text without comments of a line."""
    return re.sub(r"//[^\n]*", "", path.read_text(encoding="utf-8"))


def sources(root):
    return {
        path.relative_to(root).as_posix(): code_of(path)
        for path in sorted((root / "kernels").rglob("*"))
        if path.suffix in SOURCES
    }


def kinds_of(files):
    body = re.search(r"enum class Mma : uint8_t \{(.*?)\}", files["kernels/cuda/sm90/gemm_config.h"], re.S)[1]
    return re.findall(r"\bk\w+", body)


def files_of_kind(files, kind):
    """That name the kind, its families, or the file with its kernels."""
    family = kind[1:]
    stem = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", family).lower()
    named = re.compile(rf"\bMma::{kind}\b|\bkSm90{family}(Tiled|Skinny)\b|\bsm90_{stem}\.cu\b")
    own = ("/gemm_config.h", f"/sm90_{stem}.cu")
    return [path for path, text in files.items() if named.search(text) or path.endswith(own)]


def complaints(files):
    found = [
        f"{path}: names the config {name[0]}; a config is one line in its family's list"
        for path, text in files.items()
        for name in [CONFIG_NAME.search(text)]
        if name
    ]
    for kind in kinds_of(files):
        paths = files_of_kind(files, kind)
        if len(paths) > NEW_LOOPS.get(kind, MOST_FILES_OF_A_KIND):
            found.append(f"Mma::{kind} is known to {len(paths)} files, limit {MOST_FILES_OF_A_KIND}: {', '.join(paths)}")
    return found


def main():
    files = sources(pathlib.Path(sys.argv[1]))
    for kind in kinds_of(files):
        print(f"{kind}: {len(files_of_kind(files, kind))} files")
    found = complaints(files)
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
