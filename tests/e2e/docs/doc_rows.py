#!/usr/bin/env python3
"""Runs the commands in pages' tables as a reader would: in order, for each page in a folder that has the files it names, on a
daemon that was started without an argument.

  doc_rows.py GEMMD GEMMCTL PAGE..

A row's commands are its code spans that begin with `gemmctl`, or with `gemmd` and name a config file. What cannot be run is in
ELSEWHERE with the reason, and a reason without such a row is an error, too.
"""

import pathlib
import re
import signal
import subprocess
import sys
import tempfile

import doc_files
import doc_pages

ROW = re.compile(r"^\|(.*)\|$", re.M)
COMMAND = re.compile(r"(?<!`)`(gemmctl [^`]*|source <\(gemmctl [^`]*|gemmd --config FILE[^`]*)`")
# What a reader puts in the place of a page's words: the daemon's own socket, and a config file in the folder.
MEANT = {"FILE": "gemmd.textproto", "SOCKET": "unix:$XDG_RUNTIME_DIR/gemmd/gemmd.sock"}
MEANT |= dict.fromkeys(["ADDRESS", "unix:/run/gemmd/gemmd.sock"], MEANT["SOCKET"])

# By its beginning; the first that fits holds.
ELSEWHERE = {
    "gemmctl end ": "no session has the name; e2e_gemmctl_test ends one",
    "gemmd --config FILE --supervise": "serves until it is told to stop; e2e_supervise_test",
    "gemmctl top --once --server SOCKET --metrics": "the daemon without a config has no metrics; gemmctl_top_test",
    "gemmctl info --server gemm.example:8470": "no such host; e2e_tls_test connects with TLS",
    "gemmctl tune --server": "two servers with GPUs; tune_test moves times from one to another",
    "gemmctl tune": "needs a device that can be tuned; tune_test has one",
    "gemmctl explain --groups": "of the CPU, whose grouped matmuls have one kernel; grouped_test asks for GPUs'",
}
# What a reader sees and a pipe does not: the screen is gemmctl_screens' to look at.
AT_A_TERMINAL = {"gemmctl top": "gemmctl top --once"}
UNTIL_STOPPED = {"gemmd --config FILE"}  # its config is checked

def commands_of(page):
    text = re.sub(r"^```.*?^```$", "", pathlib.Path(page).read_text(encoding="utf-8"), flags=re.M | re.S)
    found = [c.replace("\\|", "|") for row in ROW.findall(text) for c in COMMAND.findall(row)]
    if not found:
        sys.exit(f"{page} has no table with a command: there is nothing to test")
    return found


def meant(command):
    command = AT_A_TERMINAL.get(command, command) + (" --check" if command in UNTIL_STOPPED else "")
    return re.sub("|".join(map(re.escape, MEANT)), lambda word: MEANT[word[0]], command)


def run(command, shell):
    done = subprocess.run(["bash", "-euc", command], capture_output=True, text=True, timeout=240, check=False, **shell)
    if done.returncode != 0:
        print(f"`{command}` exited with {done.returncode}:\n{done.stdout[-1000:]}{done.stderr[-2000:]}")
    return done.returncode == 0


def run_all(pages, shell, unused):
    ran = failed = 0
    for page in pages:
        shell = shell | {"cwd": pathlib.Path(shell["cwd"], pathlib.Path(page).stem)}
        shell["cwd"].mkdir()
        subprocess.run([sys.executable, "-c", doc_files.FILES], check=True, cwd=shell["cwd"])
        for command in commands_of(page):
            why = next((start for start in ELSEWHERE if command.startswith(start)), None)
            if why is not None:
                unused.discard(why)
                continue
            ran += 1
            failed += not run(meant(command), shell)
    return ran, failed


def main():
    gemmd, gemmctl, *pages = sys.argv[1:]
    doc_pages.alone_on_loopback()
    unused = set(ELSEWHERE)
    with tempfile.TemporaryDirectory() as root:
        shell = {"env": doc_pages.environment(root, gemmd, gemmctl), "cwd": doc_pages.folder_in(root)}
        daemon = subprocess.Popen(["gemmd"], stderr=subprocess.DEVNULL, **shell)
        try:
            run("gemmctl health --timeout 60s", shell)
            ran, failed = run_all(pages, shell, unused)
        finally:
            daemon.send_signal(signal.SIGTERM)
            status = daemon.wait(timeout=120)
    print(f"{ran} commands ran, {failed} failed, {len(ELSEWHERE)} kinds are tested elsewhere; gemmd exited with {status}")
    if unused:
        sys.exit(f"no row has these any more: {sorted(unused)}")
    if failed or status != 0:
        sys.exit(1)


if __name__ == "__main__":
    main()
