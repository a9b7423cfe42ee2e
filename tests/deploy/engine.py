"""An image's daemon as an engine would run it, and as what asks it would."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import time

from container import Spec, container_argv, exec_argv
from dockerfile import Dockerfile
from image import Image

RUN_FOLDER = {"/run/gemmd": "uid=8470,gid=8470,mode=750"}  # what a tmpfs of it needs


def _read(path: str) -> str:
    return pathlib.Path(path).read_text(encoding="utf-8")


@dataclasses.dataclass
class Container:
    outer: subprocess.Popen
    pid: int  # of gemmd, in this machine's numbers
    log: pathlib.Path

    def run(self, *argv: str, uid: int = 8470) -> subprocess.CompletedProcess:
        return subprocess.run(
            exec_argv(self.pid, uid, list(argv)),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def stop(self) -> int:
        os.kill(self.pid, signal.SIGTERM)
        return self.outer.wait(60)

    def status(self) -> dict[str, str]:
        lines = _read(f"/proc/{self.pid}/status").splitlines()
        return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


@contextlib.contextmanager
def started(spec: Spec, log: pathlib.Path):
    """The container, once gemmd is the process in it."""
    with log.open("w", encoding="utf-8") as out:
        outer = subprocess.Popen(container_argv(spec), stdout=out, stderr=out)
    try:
        deadline, pid = time.monotonic() + 60, 0
        while not pid:
            assert outer.poll() is None and time.monotonic() < deadline, _read(str(log))
            children = _read(f"/proc/{outer.pid}/task/{outer.pid}/children").split()
            if children and _read(f"/proc/{children[0]}/comm") == "gemmd\n":
                pid = int(children[0])
            time.sleep(0.05)
        yield Container(outer, pid, log)
    finally:
        outer.kill()
        outer.wait(60)


def entry_point(dockerfile: Dockerfile, image: Image) -> list[str]:
    return json.loads(dockerfile.last(image.stage, "ENTRYPOINT").value)


def of_image(dockerfile: Dockerfile, image: Image, **changes) -> Spec:
    """Read-only, without capabilities and without a network, as the Dockerfile starts it."""
    uid, _, gid = dockerfile.last(image.stage, "USER").value.partition(":")
    command = json.loads(dockerfile.last(image.stage, "CMD").value)
    spec = Spec(
        root=str(image.root),
        argv=entry_point(dockerfile, image) + command,
        env=image.env,
        uid=int(uid),
        gid=int(gid),
        read_only=True,
        confined=True,
        network=False,
        workdir=dockerfile.last(image.stage, "WORKDIR").value,
        tmpfs=RUN_FOLDER,
    )
    return dataclasses.replace(spec, **changes)


def ask_until(container: Container, argv: list[str]) -> subprocess.CompletedProcess:
    deadline = time.monotonic() + 60
    while (done := container.run(*argv)).returncode != 0 and time.monotonic() < deadline:
        time.sleep(0.1)
    return done
