"""A process in a container made of namespaces: what an engine does, as far as these tests need it.

    python3 container.py '{"root": "/tmp/root", "argv": ["/bin/sh"], ...}'

is the inner half: it runs as the first process of its namespaces (container_argv says how), mounts,
drops its rights and becomes the program. Needs root and the standard library alone.
"""

from __future__ import annotations

import ctypes
import dataclasses
import fcntl
import json
import os
import pathlib
import socket
import struct
import subprocess
import sys

PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38
SIOCSIFFLAGS = 0x8914
IFF_UP_RUNNING = 0x41
DEVICES = ("null", "zero", "full", "random", "urandom")


@dataclasses.dataclass
class Spec:
    root: str
    argv: list[str]
    env: dict[str, str]
    uid: int = 0
    gid: int = 0
    workdir: str = "/"
    read_only: bool = False
    network: bool = True  # the host's; without it: loopback alone
    confined: bool = False  # no capability, no new privileges
    tmpfs: dict[str, str] = dataclasses.field(default_factory=dict)  # path -> mount options
    binds: dict[str, str] = dataclasses.field(
        default_factory=dict
    )  # path -> what of the host, or "HOST:ro"


def container_argv(spec: Spec) -> list[str]:
    namespaces = ["--mount", "--pid", "--fork", "--kill-child", "--ipc", "--uts"] + (
        [] if spec.network else ["--net"]
    )
    return [
        "unshare",
        *namespaces,
        "/usr/bin/python3",
        __file__,
        json.dumps(dataclasses.asdict(spec)),
    ]


def exec_argv(pid: int, uid: int, argv: list[str]) -> list[str]:
    """Runs argv beside process `pid`, in its namespaces and root."""
    spaces = ["--mount", "--pid", "--net", "--ipc", "--uts", "--root", "--wd"]
    return [
        "nsenter",
        "--target",
        str(pid),
        *spaces,
        "--setuid",
        str(uid),
        "--setgid",
        str(uid),
        "--",
        *argv,
    ]


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def _mount_all(spec: Spec) -> None:
    root = pathlib.Path(spec.root)
    _mount("--make-rprivate", "/")
    _mount("--bind", spec.root, spec.root)
    for path in (*spec.tmpfs, *spec.binds, "/dev/shm"):  # before the root is read-only
        target = root / path.lstrip("/")
        source = spec.binds.get(path, "").removesuffix(":ro")
        if source and not os.path.isdir(source):
            target.parent.mkdir(parents=True, exist_ok=True)
            target.touch()
        else:
            target.mkdir(parents=True, exist_ok=True)
    _mount("-t", "proc", "proc", str(root / "proc"))
    _mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", str(root / "dev"))
    for name in DEVICES:
        (root / "dev" / name).touch()
        _mount("--bind", f"/dev/{name}", str(root / "dev" / name))
    (root / "dev/pts").mkdir()
    _mount("-t", "devpts", "-o", "newinstance,ptmxmode=0666", "devpts", str(root / "dev/pts"))
    (root / "dev/ptmx").symlink_to("pts/ptmx")
    (root / "dev/shm").mkdir()
    _mount("-t", "tmpfs", "-o", "mode=1777", "tmpfs", str(root / "dev/shm"))
    for name, to in (
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
    ):
        (root / "dev" / name).symlink_to(to)
    for path, source in spec.binds.items():
        target = str(root / path.lstrip("/"))
        _mount("--bind", source.removesuffix(":ro"), target)
        if source.endswith(":ro"):
            _mount("-o", "remount,bind,ro", target)
    for path, options in spec.tmpfs.items():
        _mount("-t", "tmpfs", "-o", options, "tmpfs", str(root / path.lstrip("/")))
    if spec.read_only:
        _mount("-o", "remount,bind,ro", spec.root)


def _loopback_up() -> None:
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP_RUNNING))


def _drop_rights(spec: Spec, libc: ctypes.CDLL, last_capability: int) -> None:
    if spec.confined:
        for capability in range(last_capability + 1):
            if libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
                raise OSError(ctypes.get_errno(), f"capability {capability} stays")
        if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "no_new_privs")
    os.setgroups([])
    os.setgid(spec.gid)
    os.setuid(spec.uid)


def main() -> None:
    spec = Spec(**json.loads(sys.argv[1]))
    if not spec.network:
        _loopback_up()
    _mount_all(spec)
    # Whatever Python itself loads, it must load before its own files are out of sight.
    libc = ctypes.CDLL(None, use_errno=True)
    last_capability = int(pathlib.Path("/proc/sys/kernel/cap_last_cap").read_text(encoding="utf-8"))
    os.chroot(spec.root)
    os.chdir(spec.workdir)
    _drop_rights(spec, libc, last_capability)
    os.execvpe(spec.argv[0], spec.argv, spec.env)


if __name__ == "__main__":
    main()
