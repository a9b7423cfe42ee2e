"""A root file system to install something into, and what was left there afterwards.

An overlay over a root that stays as it is, in a mount namespace of its own.
"""

import os
import pathlib
import shutil
import stat
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "deploy"))
from container import Spec, container_argv  # noqa: E402

SKIPPED = 77
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# How to reach the package indices from here.
REACH = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE")

# What package managers keep for themselves, whatever is installed.
KEPT = ("var/lib/dpkg/", "var/lib/apt/", "var/cache/", "var/log/", "etc/ld.so.cache", "tmp/", "dev/", "proc/", "run/")
# Files that have a copy of their last state beside them.
COPIED = ("etc/passwd-", "etc/group-", "etc/shadow-", "etc/gshadow-", "etc/subuid-", "etc/subgid-", "etc/.pwd.lock")


def in_own_namespace():
    """Runs this program again where it may mount; skips where nobody may."""
    if os.environ.get("GEMMD_OWN_MOUNTS"):
        return
    probe = subprocess.run(["unshare", "--mount", "true"], capture_output=True, text=True, check=False)
    if probe.returncode != 0:
        print(f"skipped: no mount namespace: {probe.stderr.strip()}; run this as root")
        sys.exit(SKIPPED)
    os.environ["GEMMD_OWN_MOUNTS"] = "1"
    os.execvp("unshare", ["unshare", "--mount", "--propagation", "private", sys.executable, *sys.argv])


class Root:
    """lower: a root that is only read; work: an empty folder."""

    def __init__(self, lower, work):
        self.lower, self.path, self.changes = pathlib.Path(lower), work / "root", work / "memory" / "changes"
        (work / "memory").mkdir()
        self.path.mkdir()
        # An overlay's changes cannot lie on an overlay, which a container's root is.
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3g,mode=755", "tmpfs", work / "memory"], check=True)
        for folder in (self.changes, work / "memory" / "work"):
            folder.mkdir()
        options = f"lowerdir={lower},upperdir={self.changes},workdir={work / 'memory' / 'work'}"
        done = subprocess.run(["mount", "-t", "overlay", "-o", options, "overlay", self.path], capture_output=True, text=True)
        if done.returncode != 0:
            print(f"skipped: no overlay here: {done.stderr.strip()}")
            sys.exit(SKIPPED)

    def close(self):
        """A folder with a mount on it could not be deleted."""
        for place in (self.path, self.changes.parent):
            subprocess.run(["umount", "--lazy", place], check=True)

    def put(self, source, name):
        (self.path / "tmp/given").mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, self.path / "tmp/given" / name)

    def run(self, script, network=False):
        """A shell script as root, with loopback alone unless it needs more."""
        env = {"PATH": PATH, "HOME": "/tmp/home", "LANG": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
        env |= {key: value for key, value in os.environ.items() if key.startswith("PIP_") or key in REACH}
        env |= {"PIP_NO_CACHE_DIR": "1", "PYTHONDONTWRITEBYTECODE": "1", "PIP_ROOT_USER_ACTION": "ignore"}
        spec = Spec(
            root=str(self.path),
            argv=["/bin/sh", "-euc", f"umask 022\nmkdir -p /tmp/home\ncd /tmp\n{script}"],
            env=env,
            network=network,
            tmpfs={"/run": "mode=755"},
        )
        subprocess.run(container_argv(spec), check=True, timeout=900)

    def left(self):
        """What is there now and was not, is gone, or differs, beside what package managers keep."""
        found = []
        for folder, folders, files in os.walk(self.changes):
            for name in files + folders:
                path = pathlib.Path(folder, name)
                place = str(path.relative_to(self.changes))
                if (place + "/").startswith(KEPT) or place in COPIED:
                    continue
                info, before = path.lstat(), self.lower / place
                if stat.S_ISCHR(info.st_mode):
                    found.append(f"{place} is gone")
                elif not os.path.lexists(before):
                    found.append(f"{place} is new")
                elif path.is_file() and not path.is_symlink() and before.read_bytes() != path.read_bytes():
                    found.append(f"{place} differs")
        return found


def debian(folder, *packages):
    """A fresh Debian 12 in `folder`, with as little as there is, and these packages."""
    include = [f"--include={','.join(packages)}"] if packages else []
    subprocess.run(
        ["debootstrap", "--variant=minbase", *include, "bookworm", str(folder)],
        check=True, timeout=1800, stdout=subprocess.DEVNULL,
    )
    # The registries' certificate authority, where it is not one that Debian knows.
    if certificates := os.environ.get("PIP_CERT"):
        target = folder / certificates.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(certificates, target)
    return folder
