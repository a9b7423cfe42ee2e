"""Point 10: whether a memory limit of the process's own group is seen. Needs root: it makes groups and mounts."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import subprocess
from collections.abc import Callable, Iterator

from daemon import MIB, Daemon, Programs

LIMIT = 400 * MIB
DEVICES = 'devices { name: "cpu:0" threads: 1 }'  # no memory_bytes: the daemon looks for itself
V1 = pathlib.Path("/sys/fs/cgroup/memory")


def offered(programs: Programs, folder: pathlib.Path, before: Callable[[], None] | None,
            launcher: tuple[str, ...] = ()) -> tuple[bool, str]:
    with Daemon(programs, folder, devices=DEVICES, before=before, launcher=launcher) as daemon:
        info = subprocess.run([programs.gemmctl, "info", "--json", "--server", daemon.target()],
                              capture_output=True, check=True, timeout=30)
        size = int(json.loads(info.stdout)["devices"][0]["memory_bytes"])
        return size <= LIMIT // 2, f"{size / MIB:.0f} MiB offered"


def version_1(programs: Programs, folder: pathlib.Path) -> tuple[bool, str]:
    if not (V1 / "memory.limit_in_bytes").exists():
        raise RuntimeError(f"no v1 memory hierarchy at {V1}")
    with group(V1 / f"findings-{os.getpid()}") as path:
        (path / "memory.limit_in_bytes").write_text(str(LIMIT), encoding="ascii")

        def enter() -> None:
            (path / "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")

        return offered(programs, folder, enter)


# A group as systemd makes one for a unit with MemoryMax, seen without a namespace: the limit lies in the group's own folder.
# On a host whose memory is under v1, cgroup2 has no memory.max, so a file system with one is mounted over the folder.
UNIT = """
set -e
mount -t cgroup2 none /sys/fs/cgroup
mkdir -p /sys/fs/cgroup/$0
echo $$ >/sys/fs/cgroup/$0/cgroup.procs
if [ ! -f /sys/fs/cgroup/$0/memory.max ]; then mount -t tmpfs none /sys/fs/cgroup/$0; fi
echo $1 >/sys/fs/cgroup/$0/memory.max
shift
exec "$@"
"""


def version_2(programs: Programs, folder: pathlib.Path) -> tuple[bool, str]:
    name = f"findings-{os.getpid()}.service"
    try:
        return offered(programs, folder, None, ("unshare", "--mount", "bash", "-c", UNIT, name, str(LIMIT)))
    finally:
        subprocess.run(["unshare", "--mount", "bash", "-c",
                        f"mount -t cgroup2 none /sys/fs/cgroup && rmdir /sys/fs/cgroup/{name}"], check=False)


@contextlib.contextmanager
def group(path: pathlib.Path) -> Iterator[pathlib.Path]:
    path.mkdir()
    try:
        yield path
    finally:
        path.rmdir()
