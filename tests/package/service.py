#!/usr/bin/env python3
"""The Debian package under a systemd of its own, in an overlay over this machine's root: service.sh installs a former version,
breaks its config, kills the daemon, upgrades it and takes it away.

    service.py BUILD-DIR

Needs root, for mounts and namespaces.
"""

import contextlib
import pathlib
import shutil
import subprocess
import sys
import tempfile

import roots
from install import built

SCENARIO = roots.HERE / "service.sh"
INIT = pathlib.Path("/lib/systemd/systemd")

UNIT = """
[Unit]
DefaultDependencies=no
[Service]
Type=oneshot
ExecStart=/bin/bash /given/service.sh
StandardOutput=file:/given/said
StandardError=inherit
"""

# The root as its first argument. Devices and network of this machine stay out of reach.
BOOT = """
mount -t proc proc "$1/proc"
mount -t sysfs sysfs "$1/sys"
mount -t cgroup2 cgroup2 "$1/sys/fs/cgroup" || exit 77
mount -t tmpfs tmpfs "$1/run"
mount -t tmpfs -o mode=755 tmpfs "$1/dev"
for node in null zero full random urandom tty; do cp -a "/dev/$node" "$1/dev/"; done
mkdir "$1/dev/shm" "$1/dev/pts"
ln -s /proc/self/fd "$1/dev/fd"
export container=lxc
exec chroot "$1" /lib/systemd/systemd --system --unit=try.service --show-status=0 --log-target=null </dev/null
"""

# What another machine's start would bring, and this one has no use for.
MASKED = ("systemd-udevd", "systemd-udev-trigger", "systemd-logind", "systemd-timesyncd", "systemd-networkd", "systemd-resolved")


def former(package, work):
    """The package of a version before, with a config that the next one changes."""
    tree = work / "former"
    subprocess.run(["dpkg-deb", "-R", package, tree], check=True)
    control = tree / "DEBIAN/control"
    lines = ["Version: 0~former" if line.startswith("Version: ") else line for line in control.read_text().splitlines()]
    control.write_text("\n".join(lines) + "\n")
    with (tree / "etc/gemmd/gemmd.textproto").open("a") as config:
        config.write("# the former version's\n")
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "-b", tree, work / "former.deb"], check=True, stdout=subprocess.DEVNULL)
    return work / "former.deb"


def prepare(root, package, old):
    given = root.path / "given"
    given.mkdir()
    shutil.copyfile(package, given / "new.deb")
    shutil.copyfile(old, given / "former.deb")
    shutil.copyfile(SCENARIO, given / SCENARIO.name)
    units = root.path / "etc/systemd/system"
    (units / "try.service").write_text(UNIT)
    for name in [*(f"{service}.service" for service in MASKED), "tmp.mount"]:
        (units / name).unlink(missing_ok=True)
        (units / name).symlink_to("/dev/null")
    (root.path / "usr/sbin/policy-rc.d").unlink(missing_ok=True)  # it would keep the service from starting
    return given


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    if not INIT.exists() or not shutil.which("deb-systemd-invoke"):
        print("skipped: no systemd here")
        sys.exit(roots.SKIPPED)
    roots.in_own_namespace()
    with tempfile.TemporaryDirectory(prefix="gemmd-service-") as folder, contextlib.ExitStack() as mounted:
        work = pathlib.Path(folder)
        package = built("deb.sh", build, work / "packages")
        old = former(package, work)
        root = roots.Root("/", work)
        mounted.callback(root.close)
        given = prepare(root, package, old)
        own = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--uts", "--ipc", "--net", "--cgroup"]
        done = subprocess.run([*own, "sh", "-euc", BOOT, "boot", root.path], check=False, timeout=600)
        if done.returncode == roots.SKIPPED:
            print("skipped: no cgroup2 here")
            sys.exit(roots.SKIPPED)
        said = (given / "said").read_text(encoding="utf-8", errors="replace") if (given / "said").exists() else "nothing"
        print(said)
        if not (given / "passed").exists():
            sys.exit("service.sh failed: its last lines are above")
        left = [place for place in root.left() if "gemmd" in place]
        if left:
            sys.exit("left behind:\n" + "\n".join(left))


if __name__ == "__main__":
    main()
