#!/usr/bin/env python3
"""Runs a page's blocks as a reader would: its ```sh blocks in one shell, in order; each ```python block by itself, or, if
it names a file, into that file. With gemmd, gemmctl and the package's python3 on the PATH, in an empty folder; a page that starts
no daemon finds one without an argument there, and the files that examples name.

  doc_pages.py GEMMD GEMMCTL PAGE..

The pages use gemmd's default ports, so that each runs in a network namespace of its own. Who may not make one (exit 77)
cannot run the test.
"""

import ctypes
import fcntl
import os
import pathlib
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile

import doc_files

BLOCK = re.compile(r"^```(sh|python)(?: (\S+))?\n(.*?)^```$", re.M | re.S)
SKIPPED = 77
CLONE_NEWNET = 0x40000000
SIOCSIFFLAGS = 0x8914
IFF_UP = 1


def alone_on_loopback():
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) != 0:
        print(f"no network namespace: {os.strerror(ctypes.get_errno())}; run this as root")
        sys.exit(SKIPPED)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP))


BESIDE_A_DAEMON = f"""
gemmd 2>gemmd.log &
daemon=$!
gemmctl health --timeout 20s
python3 - <<'END_OF_FILES'
{doc_files.FILES}
END_OF_FILES
"""


def blocks_of(page):
    return BLOCK.findall(pathlib.Path(page).read_text(encoding="utf-8"))


def commands_of(page):
    """How many a reader types: lines of shell that begin one, and programs of Python."""
    count = 0
    for language, _, text in blocks_of(page):
        if language == "python":
            count += 1
            continue
        text = re.sub(r"<<'(\w+)'(.*?)^\1$", "", text, flags=re.M | re.S)
        lines = re.sub(r"\\\\\n", " ", text).splitlines()
        count += sum(bool(line.strip()) and not line.lstrip().startswith("#") for line in lines)
    return count


def script_of(page):
    """One bash script, which says where it is so that a failure names its block."""
    blocks = blocks_of(page)
    if not blocks:
        sys.exit(f"{page} has no block of ```sh or ```python: there is nothing to test")
    parts = ["set -eu"]
    starts_one = any(language == "sh" and re.search(r"^gemmd ", text, re.M) for language, _, text in blocks)
    if not starts_one:
        parts.append(BESIDE_A_DAEMON)
    for number, (language, file, text) in enumerate(blocks, 1):
        parts.append(f"echo '== {os.path.basename(page)}, block {number}'")
        if language == "sh":
            parts.append(text)
        else:
            name = file or f"block-{number}.py"
            parts.append(f"cat >{name} <<'END_OF_BLOCK'\n{text}END_OF_BLOCK")
            if not file:
                parts.append(f"python3 {name}")
    if not starts_one:
        parts.append("kill -TERM $daemon\nwait $daemon")
    return "\n".join(parts)


def environment(root, gemmd, gemmctl):
    """A reader's: the programs on the PATH, and sockets at their default place below `root`."""
    programs = pathlib.Path(root, "bin")
    programs.mkdir()
    for name, target in {"gemmd": gemmd, "gemmctl": gemmctl, "python3": sys.executable}.items():
        # Not a link: a virtual environment's python3 finds its packages by the name it was called by.
        (programs / name).write_text(f'#!/bin/sh\nexec "{target}" "$@"\n', encoding="utf-8")
        (programs / name).chmod(0o755)
    kept = {key: os.environ[key] for key in ("HOME", "LANG", "TMPDIR") if key in os.environ}
    return kept | {"PATH": f"{programs}:/usr/bin:/bin", "XDG_RUNTIME_DIR": root}


def folder_in(root):
    folder = pathlib.Path(root, "work")
    folder.mkdir()
    return folder


def run(page, gemmd, gemmctl):
    with tempfile.TemporaryDirectory() as root:
        folder = folder_in(root)
        shell = subprocess.Popen(
            ["bash", "-c", script_of(page)],
            cwd=folder,
            env=environment(root, gemmd, gemmctl),
            start_new_session=True,
        )
        try:
            status = shell.wait(timeout=600)
        except subprocess.TimeoutExpired:
            status = "a time-out"
        finally:
            try:  # a daemon that the page does not stop itself
                os.killpg(shell.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if status != 0:
            for log in folder.glob("*.log"):
                print(f"{log.name}:\n{log.read_text(errors='replace')[-3000:]}")
            sys.exit(f"{page} ended with {status}; the last block named above failed")


def main():
    gemmd, gemmctl, *pages = sys.argv[1:]
    alone_on_loopback()
    for page in pages:
        run(page, gemmd, gemmctl)
    print(f"{sum(map(commands_of, pages))} commands of {len(pages)} pages ran")


if __name__ == "__main__":
    main()
