#!/usr/bin/env python3
"""Who may know whom: checks every #include against the layers of docs/architecture.md.

All packages' headers share one include folder, so the compiler does not stop a layer from reaching
past its neighbour; this does. Run from anywhere; the argument is the tree (default: this checkout).
"""

import dataclasses
import pathlib
import re
import sys

CUDA = r"cuda|cublas|nv[a-z]*\.h|cooperative_groups|cute/|cutlass/"
PROTOBUF = r"google/protobuf|.*\.pb\.h"
GRPC = r"grpc|.*\.grpc\.pb\.h"
ABSEIL = r"absl/|status/"  # status/ is Abseil's idiom, for all who may include Abseil
SOURCES = {".h", ".cc", ".cu", ".cuh"}


@dataclasses.dataclass(frozen=True)
class Layer:
    """Files, the project folders they may include, and the outside headers they must not."""

    name: str
    files: str  # a regular expression over the path
    project: str  # project headers allowed
    forbidden: str  # outside headers refused
    why: str


# The first layer that matches a file is its layer.
LAYERS = [
    Layer("status", r"status/.*", r"", CUDA + "|" + PROTOBUF + "|" + GRPC, "every other layer may include it"),
    Layer("cuda kernels", r"kernels/(bench/)?cuda/.*\.(cu|cuh)|kernels/cuda/ptx/.*", r"kernels/(bench/)?cuda/.*",
          ABSEIL + r"|string$|vector$|map$|iostream$|" + PROTOBUF + "|" + GRPC,
          "raw CUDA compiles in 1 s a file, with Abseil in 3.7 s"),
    Layer("cuda backend", r"kernels/(bench/)?cuda/.*", r"kernels/.*", PROTOBUF + "|" + GRPC,
          "the kernels library serves without a wire"),
    Layer("kernels", r"kernels/.*", r"kernels/(?!cuda/).*", CUDA + "|" + PROTOBUF + "|" + GRPC,
          "the core builds on a machine without CUDA and knows no wire"),
    # armed_region.h is the layout of memory shared with clients: plain C, which no protobuf comes with.
    Layer("engine", r"server/engine/.*",
          r"server/engine/.*|kernels/(?!cpu/|cuda/|bench/).*|gemmd/v1/armed_region\.h",
          CUDA + "|" + PROTOBUF + "|" + GRPC,
          "sessions, buffers and scheduling know neither the wire nor a device's API"),
    Layer("config", r"server/config/.*", r"server/(config|engine)/.*|gemmd/v1/config\.pb\.h|kernels/[^/]*",
          CUDA + "|" + GRPC, "the file's schema is protobuf, its meaning is not gRPC"),
    Layer("guard", r"server/guard/.*", r"server/(guard/.*|engine/observe/exposition\.h)",
          CUDA + "|" + PROTOBUF + "|" + GRPC, "it looks at bytes before gRPC does"),
    Layer("service", r"server/service/.*", r"server/(service|engine|guard)/.*|kernels/[^/]*|gemmd/v1/.*",
          CUDA, "the wire side does not know which backend runs"),
    Layer("gRPC's threads", r"server/grpc_threads/.*", r"server/(grpc_threads/.*|engine/observe/exposition\.h)",
          ABSEIL + "|" + CUDA + "|" + PROTOBUF + "|" + GRPC, "gemmctl has it linked in, and any process may preload it"),
    Layer("daemon", r"server/[^/]*", r"server/.*|kernels/(?!cuda/.*\.cuh$).*|gemmd/v1/.*", CUDA,
          "main and Server compose; CUDA stays behind the kernels library"),
    Layer("armed slots", r"client/armed/.*|client/python/.*", r"client/armed/.*|gemmd/v1/armed_region\.h",
          ABSEIL + "|" + CUDA + "|" + PROTOBUF + "|" + GRPC, "the Python package compiles it without the rest"),
    Layer("C++ client", r"client/cpp/.*", r"client/(cpp|armed)/.*|gemmd/v1/.*", CUDA + "|prometheus/",
          "clients build without the daemon"),
    Layer("gemmd_bench", r"bench/.*", r"bench/.*|client/(cli|cpp)/.*|gemmd/v1/.*", CUDA + "|prometheus/",
          "it measures through the client, as users call"),
    Layer("gemmctl", r"client/cli/.*", r"client/(cli|cpp)/.*|gemmd/v1/.*", CUDA + "|prometheus/",
          "clients build without the daemon"),
]

# The rooms of kernels/cuda, lowest first: each knows those in front of it. What is in the folder itself stands on all.
CUDA_ROOMS = (
    "ptx", "device", "memory", "ops", "experts", "args", "sm90", "tuning", "matmul", "grouped", "ladder", "run",
)  # fmt: skip
CUDA_ROOM = re.compile(r"kernels/cuda/([^/]+)/")

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
PROJECT = re.compile(r"(kernels|server|client|bench|tests|gemmd)/")


def layer_of(path):
    return next((layer for layer in LAYERS if re.fullmatch(layer.files, path)), None)


def is_above(path, header):
    """Whether a file of kernels/cuda includes a header of a room above its own, or of one without a place."""
    own, other = CUDA_ROOM.match(path), CUDA_ROOM.match(header)
    if not path.startswith("kernels/cuda/") or other is None:
        return False
    known = CUDA_ROOMS[: CUDA_ROOMS.index(own[1]) + 1] if own and own[1] in CUDA_ROOMS else CUDA_ROOMS
    return other[1] not in known


def violations_in(path, text):
    """Complaints about one file, each 'path:line: ...'."""
    layer = layer_of(path)
    if layer is None:
        return []
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        header = match.group(2)
        if PROJECT.match(header):
            bad = not re.fullmatch(layer.project, header)
        else:
            bad = re.match(layer.forbidden, header) is not None
        if bad:
            found.append(f"{path}:{number}: {layer.name} must not include {header}: {layer.why}")
        elif is_above(path, header):
            found.append(f"{path}:{number}: {header} is of a room above; the order is {' < '.join(CUDA_ROOMS)}")
    return found


def check(root):
    """All complaints about a tree, and how many files were read."""
    complaints, count = [], 0
    for top in ("status", "kernels", "server", "client", "bench"):
        for file in sorted((root / top).rglob("*")):
            if file.suffix in SOURCES and file.is_file():
                count += 1
                relative = file.relative_to(root).as_posix()
                complaints += violations_in(relative, file.read_text(encoding="utf-8"))
    return complaints, count


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    complaints, count = check(root)
    for complaint in complaints:
        print(complaint)
    if count == 0:
        print(f"layering: no source file under {root}")
        return 1
    print(f"layering: {count} files, {len(complaints)} complaints")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
