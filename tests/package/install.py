#!/usr/bin/env python3
"""Installs gemmd as a user would, multiplies with it, takes it away again, and looks for what was left.

    install.py wheel|deb BUILD-DIR            into an overlay over this machine's own root
    install.py wheel|deb BUILD-DIR --debian   into one over a fresh Debian 12: minutes
    install.py wheel|deb BUILD-DIR --debian=DIR   into one over the Debian 12 that lies there, which stays as it is

Prints how long it took from nothing to a verified matmul, and how many seconds of processors installing, using and
checking took. Needs root, for mounts.
"""

import array
import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import roots

REPOSITORY = roots.HERE.parent.parent

# The daemon as it is started without a thought, and everything by default names, as in README.
FIRST_RESULT = """
{start} 2>/tmp/gemmd.log &
daemon=$!
trap 'status=$?; [ $status = 0 ] || cat /tmp/gemmd.log; exit $status' EXIT
gemmctl health --timeout 20s
gemmctl matmul /tmp/given/a.npy /tmp/given/b.npy -o /tmp/d.npy --quantize fp8-block --verify
date +%s.%N >/tmp/verified
{more}
kill -TERM $daemon
wait $daemon
"""

IN_PYTHON = """
python3 - <<'END'
import numpy as np, gemmd
with gemmd.connect() as client, client.session() as session:
    y = session.matmul(np.ones((8, 256), "f4"), session.upload(np.eye(256, dtype="f4")).T)
    assert (np.asarray(y) == 1).all()
    print(f"gemmd {gemmd.__version__}: {y.report.kernel}")
import gemmd._native  # which a compiler would have had to make
END
gemmd_bench version
# Libraries come from beside the program, those apart that every system has.
awk '$6 ~ /\\.so/ {print $6}' /proc/$daemon/maps | sort -u >/tmp/loaded
grep -q '/venv/.*/gemmd_programs/lib/libgrpc' /tmp/loaded
if grep -v '/venv/' /tmp/loaded | grep -vE '/(libc|libm|libdl|librt|libpthread|libresolv|libstdc\\+\\+|libgcc_s|ld-linux[^/]*|libnss_[a-z]+)\\.so'; then exit 1; fi
"""

WHEEL_IN = """
python3 -m venv /opt/try/venv
find /opt/try/venv ! -type d | sort >/tmp/before
/opt/try/venv/bin/pip install --quiet --disable-pip-version-check /tmp/given/*.whl
"""

WHEEL_OUT = """
cd /opt/try/venv
bin/pip uninstall --quiet --yes gemmd-service
if find . -path '*gemmd*' | grep .; then echo "the files above were left by pip uninstall"; exit 1; fi
bin/pip freeze --all --disable-pip-version-check | grep -vE '^(pip|setuptools|wheel)==' | cut -d= -f1 | xargs bin/pip uninstall --quiet --yes
# Without folders: pip leaves empty ones.
find /opt/try/venv ! -type d | sort >/tmp/after
diff /tmp/before /tmp/after
rm -rf /opt/try
"""

DEB_MORE = """
test "$(stat -c %U:%G:%a /run/gemmd)" = gemmd:gemmd:750
test "$(stat -c %U /proc/$daemon)" = gemmd
gemmctl completion bash | cmp - /usr/share/bash-completion/completions/gemmctl
for page in man1/gemmctl.1 man1/gemmctl-matmul.1 man8/gemmd.8 man5/gemmd.textproto.5; do gzip -dc /usr/share/man/$page.gz | grep -q '^.SH NAME'; done
"""


def write_npy(path, shape, value):
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    data = array.array("f", (value(i) for i in range(shape[0] * shape[1])))
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + data.tobytes())


def built(script, build, out):
    done = subprocess.run([REPOSITORY / "scripts" / script, build, out], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{script}: {done.stdout}{done.stderr}")
    return pathlib.Path(done.stdout.strip().splitlines()[-1])


def try_wheel(root):
    root.run(WHEEL_IN, network=True)
    more = "export PATH=/opt/try/venv/bin:$PATH\n"
    root.run(more + FIRST_RESULT.format(start="gemmd", more=IN_PYTHON))
    return lambda: root.run(WHEEL_OUT)


def try_deb(root, fresh):
    given = "/tmp/given/gemmd.deb"
    if fresh:
        root.run(f"apt-get -qq update\napt-get -qq install -y --no-install-recommends {given} >/dev/null", network=True)
    else:
        root.run(f"dpkg -i {given} >/dev/null")
    unit = (root.path / "lib/systemd/system/gemmd.service").read_text(encoding="utf-8")
    line = next(line.partition("=")[2] for line in unit.splitlines() if line.startswith("ExecStart="))
    # As the unit does, without systemd: its folder, its user, its line.
    start = "install -d -o gemmd -g gemmd -m 750 /run/gemmd\nsetpriv --reuid gemmd --regid gemmd --clear-groups " + line
    root.run(FIRST_RESULT.format(start=start, more=DEB_MORE))
    if fresh:
        return lambda: root.run("apt-get -qq purge -y --autoremove gemmd >/dev/null")
    return lambda: root.run("dpkg --purge gemmd >/dev/null")


def main():
    what, build, *options = sys.argv[1:]
    build = pathlib.Path(build).resolve()
    roots.in_own_namespace()
    with tempfile.TemporaryDirectory(prefix="gemmd-package-") as folder, contextlib.ExitStack() as mounted:
        work = pathlib.Path(folder)
        package = built({"wheel": "wheel.sh", "deb": "deb.sh"}[what], build, work / "packages")
        fresh = options[0].partition("=") if options else None
        lower = "/"
        if fresh:
            lower = fresh[2] or roots.debian(work / "debian", *(["python3-venv"] if what == "wheel" else []))
        root = roots.Root(lower, work)
        mounted.callback(root.close)
        root.put(package, package.name if what == "wheel" else "gemmd.deb")
        for name, value in (("a.npy", lambda i: (i % 7) - 3), ("b.npy", lambda i: (i % 5) / 4)):
            write_npy(work / name, (256, 256), value)
            root.put(work / name, name)
        began, before = time.time(), os.times()
        remove = try_wheel(root) if what == "wheel" else try_deb(root, fresh)
        after = os.times()
        processors = after.children_user + after.children_system - before.children_user - before.children_system
        took = float((root.path / "tmp/verified").read_text(encoding="utf-8")) - began
        remove()
        left = root.left()
        mib = package.stat().st_size / 2**20
        print(f"{what}: {took:.1f} s from nothing to a verified matmul, {processors:.1f} s of processors in all")
        print(f"{package.name} has {mib:.1f} MiB")
        if left:
            sys.exit(f"{what}: left behind:\n" + "\n".join(left[:40]))


if __name__ == "__main__":
    main()
