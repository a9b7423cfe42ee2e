"""Generates the message classes of gemmd.v1 from the repository's proto files, before anything is
packaged.

It runs for wheels, sdists and editable installs alike. An unpacked sdist carries the generated
files and no proto folder.
"""

from pathlib import Path

from setuptools import setup

HERE = Path(__file__).resolve().parent
PROTO_ROOT = HERE.parents[1] / "proto"
OUT = HERE / "src"


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


generate()
setup()
