"""Generates the message classes of gemmd.v1 and the sync face's modules (faces.py), and gathers the
native module's sources, before anything is packaged.

It runs for wheels, sdists and editable installs alike. An unpacked sdist carries what was generated
and gathered, and no repository around it.
"""

import os
import re
import shutil
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
PROTO_ROOT = REPOSITORY / "proto"
OUT = HERE / "src"
VERSION = OUT / "gemmd" / "_version.py"
GATHERED = Path("native") / "gathered"  # relative: setuptools takes no other


def version() -> str:
    """CMake's project() has it. An unpacked sdist has what was written from that."""
    lists = REPOSITORY / "CMakeLists.txt"
    found = lists.exists() and re.search(r"^project\(gemmd VERSION (\S+)", lists.read_text(), re.M)
    if found:
        VERSION.write_text(f'"""Written by setup.py."""\n\n__version__ = "{found[1]}"\n')
    written = re.search(r'__version__ = "(\S+)"', VERSION.read_text())
    if not written:
        raise SystemExit(f"{VERSION} names no version")
    return written[1]


def generate() -> None:
    protos = sorted((PROTO_ROOT / "gemmd" / "v1").glob("*_service.proto"))
    protos.append(PROTO_ROOT / "gemmd" / "v1" / "types.proto")
    if not protos[-1].exists():
        if not (OUT / "gemmd" / "v1" / "types_pb2.py").exists():
            raise SystemExit(
                f"no proto files at {PROTO_ROOT} and none generated before: build in a checkout"
            )
        return
    from grpc_tools import protoc

    well_known = Path(protoc.__file__).parent / "_proto"
    arguments = [
        "protoc",
        f"-I{PROTO_ROOT}",
        f"-I{well_known}",
        f"--python_out={OUT}",
        f"--pyi_out={OUT}",
    ]
    if protoc.main(arguments + [str(proto) for proto in protos]) != 0:
        raise SystemExit("protoc failed on the files above")


def gather() -> list[str]:
    """client/armed and the layout's header beside module.cc; the sources to compile."""
    armed = REPOSITORY / "client" / "armed"
    if armed.exists():
        shutil.rmtree(HERE / GATHERED, ignore_errors=True)
        layout = PROTO_ROOT / "gemmd" / "v1" / "armed_region.h"
        for source in [*armed.glob("*.h"), *armed.glob("*.cc"), layout]:
            root = PROTO_ROOT if source == layout else REPOSITORY
            target = HERE / GATHERED / source.relative_to(root)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
    sources = sorted((HERE / GATHERED / "client" / "armed").glob("*.cc"))
    return ["native/module.cc", *(str(one.relative_to(HERE)) for one in sources)]


class OptionalExtension(build_ext):
    """Without a C++ compiler the package installs all the same: calls go by gRPC, and say so."""

    def run(self) -> None:
        try:
            super().run()
        except Exception as error:
            self.warn_without(error)

    def build_extension(self, ext: Extension) -> None:
        try:
            super().build_extension(ext)
        except Exception as error:
            self.warn_without(error)

    @staticmethod
    def warn_without(error: Exception) -> None:
        if os.environ.get("GEMMD_NATIVE") == "require":
            raise error
        print(f"gemmd: installed without gemmd._native: {error}", file=sys.stderr)


NATIVE = Extension(
    "gemmd._native",
    gather(),
    include_dirs=[str(GATHERED)],
    extra_compile_args=["-std=c++20", "-O2", "-fvisibility=hidden"],
    libraries=["dl", "pthread"],
    py_limited_api=True,
    optional=True,
    language="c++",
)

sys.path.insert(0, str(HERE))  # isolated builds leave it out
import faces  # noqa: E402

generate()
faces.generate(HERE)
setup(
    version=version(),
    ext_modules=[NATIVE],
    cmdclass={"build_ext": OptionalExtension},
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
