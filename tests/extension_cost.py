#!/usr/bin/env python3
"""What adding a config or an operand kind of the CUDA matmul kernels, or a kind of op, touches: how many files know one.
And whether one finds one's way in every folder.

    extension_cost.py REPOSITORY
"""

import collections
import pathlib
import re
import subprocess
import sys

MOST_FILES_OF_A_KIND = 7
# The first kind whose sums are no floats, and are scaled as they are stored.
NEW_LOOPS = {"kI8": 11}
CONFIG_NAME = re.compile(r"sm90_\w+_(?:tiled|skinny)_m\d+n\d+")
# Ops that are one kernel on each backend; those with families of kernels have files for those.
PLAIN_OPS = ("choose", "route", "combine", "normalize")
MOST_FILES_OF_AN_OP = 20
# Lists that a new kind of op has to be added to, by hand.
MOST_LISTS_OF_OPS = 12
FEWEST_IN_A_LIST = 9
MOST_FILES_OF_A_FOLDER = 40
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


def camel(kind):
    return "".join(word.capitalize() for word in kind.split("_"))


def files_that_make_ops(root):
    """What an op is made of from the wire to the kernel, clients and the page of the API: no tests, benches, layers of clients."""
    found = dict(sources(root))
    for folder in ("proto", "server", "client/cpp", "client/python/src/gemmd"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in {".cc", ".h", ".proto"}:
                found[path.relative_to(root).as_posix()] = code_of(path)
            elif path.suffix == ".py":
                found[path.relative_to(root).as_posix()] = path.read_text(encoding="utf-8")
    found["docs/api.md"] = (root / "docs/api.md").read_text(encoding="utf-8")
    users = ("/bench/", "/_layers/", "/moe.py", "/split_linear", "/src/gemmd/v1/")
    return {path: text for path, text in found.items() if not any(part in "/" + path for part in users)}


def op_kinds(files):
    body = re.search(r"message Op \{\s*oneof kind \{(.*?)\}", files["proto/gemmd/v1/types.proto"], re.S)[1]
    return re.findall(r"(\w+) = \d+;", body)


def knows_op(text, kind):
    """Whether it names the op in one of the ways that layers have for it."""
    name = camel(kind)
    said = (f"message {name} ", f"v1::{name}", f"Op::k{name}", f"const {name}& op", f"struct {name} ", f'"{kind}"', f"def {kind}(", f"`{name}`")
    return any(one in text for one in said) or re.search(rf"\b({name}(Op|Args)|Launch{name})\b", text) is not None


def op_costs(root):
    """kind -> files that know it; files -> how many kinds they know."""
    files = files_that_make_ops(root)
    by_kind = {kind: [path for path, text in files.items() if knows_op(text, kind)] for kind in op_kinds(files)}
    lists = collections.Counter(path for paths in by_kind.values() for path in paths)
    return by_kind, sorted(path for path, kinds in lists.items() if kinds >= FEWEST_IN_A_LIST)


def cost_of(paths):
    """Variants of its kernel, and what it is fused with, are one file: an op needs no more."""
    kernels = [path for path in paths if path.endswith((".cu", ".cuh"))]
    return len(paths) - max(len(kernels) - 1, 0)


def complaints_of_ops(by_kind, lists):
    found = [
        f"op {kind} is known to {cost_of(by_kind[kind])} files, limit {MOST_FILES_OF_AN_OP}: {', '.join(by_kind[kind])}"
        for kind in PLAIN_OPS
        if cost_of(by_kind[kind]) > MOST_FILES_OF_AN_OP
    ]
    if len(lists) > MOST_LISTS_OF_OPS:
        found.append(f"{len(lists)} files list kinds of ops, limit {MOST_LISTS_OF_OPS}: {', '.join(lists)}")
    return found


def cost_of_kind(paths):
    """Its tables, of dense, grouped and stream-k kernels, are one file."""
    return len(paths) - max(sum(path.endswith(".cu") for path in paths) - 1, 0)


def complaints(files):
    found = [
        f"{path}: names the config {name[0]}; a config is one line in its family's list"
        for path, text in files.items()
        for name in [CONFIG_NAME.search(text)]
        if name
    ]
    for kind in kinds_of(files):
        paths = files_of_kind(files, kind)
        if cost_of_kind(paths) > NEW_LOOPS.get(kind, MOST_FILES_OF_A_KIND):
            found.append(f"Mma::{kind} is known to {cost_of_kind(paths)} files, limit {MOST_FILES_OF_A_KIND}: {', '.join(paths)}")
    return found


def crowded_folders(root):
    listed = subprocess.run(["git", "-C", root, "ls-files"], capture_output=True, text=True, check=True).stdout.splitlines()
    folders = collections.Counter(str(pathlib.PurePath(path).parent) for path in listed if (root / path).exists())
    return [
        f"{folder} has {files} files, limit {MOST_FILES_OF_A_FOLDER}"
        for folder, files in folders.items()
        if files > MOST_FILES_OF_A_FOLDER
    ]


def main():
    root = pathlib.Path(sys.argv[1])
    files = sources(root)
    for kind in kinds_of(files):
        print(f"{kind}: {len(files_of_kind(files, kind))} files")
    by_kind, lists = op_costs(root)
    for kind, paths in by_kind.items():
        print(f"op {kind}: {cost_of(paths)} files")
    print(f"lists of ops: {', '.join(lists)}")
    found = complaints(files) + complaints_of_ops(by_kind, lists) + crowded_folders(root)
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
