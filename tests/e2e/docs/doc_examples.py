#!/usr/bin/env python3
"""docs/api.md's examples do what they say: the Python block is run as it stands, the C++ block must be the text of
api_example.cc, and that program is run. Arguments: api.md, api_example.cc, its binary, a daemon's address."""

import pathlib
import re
import subprocess
import sys


def block(text, language):
    found = re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)
    if len(found) != 1:
        sys.exit(f"api.md has {len(found)} {language} blocks, expected 1")
    return found[0]


def output(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    if done.returncode != 0:
        sys.exit(f"{command[0]} exited with {done.returncode}:\n{done.stderr}")
    return done.stdout


def main():
    page, source, binary, server = sys.argv[1:]
    text = pathlib.Path(page).read_text(encoding="utf-8")
    if block(text, "cpp") not in pathlib.Path(source).read_text(encoding="utf-8"):
        sys.exit(f"the C++ block of {page} is not the text of {source}")
    from_cpp = output([binary, server])
    from_python = output([sys.executable, "-c", block(text, "python"), server])
    print(from_cpp, from_python, sep="")
    if from_cpp.split() != ["1", "6"]:
        sys.exit("C++: expected 1 6")
    if "[[1. 6.]] cpu:0" not in from_python:
        sys.exit("Python: expected [[1. 6.]] cpu:0")


if __name__ == "__main__":
    main()
