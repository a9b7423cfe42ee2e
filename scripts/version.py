#!/usr/bin/env python3
"""The version, which project() of CMakeLists.txt has, and the places that have to repeat it.

    scripts/version.py                prints it
    scripts/version.py --check        exit 1 names every place that has another one
    scripts/version.py --set 0.2.0    writes it everywhere; CHANGELOG.md's heading stays to be written

The programs, the Python package, the wheel and the Debian package take it from CMakeLists.txt by themselves.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
NUMBER = r"(\d+\.\d+\.\d+)"
SOURCE = re.compile(rf"(?<=^project\(gemmd VERSION ){NUMBER}", re.M)
# Images are named and deployed by version, and files of that kind can compute nothing.
REPEATED = [
    ("Dockerfile", rf"(?<=^ARG VERSION=){NUMBER}"),
    ("Dockerfile", rf"(?<=gemmd:){NUMBER}(?=-(?:cpu|cuda))"),
    ("deploy/**/*.md", rf"(?<=gemmd:){NUMBER}(?=-(?:cpu|cuda))"),
    ("deploy/**/*.md", rf"(?<=newTag: ){NUMBER}"),
    ("deploy/**/*.yaml", rf"(?<=gemmd:){NUMBER}(?=-(?:cpu|cuda))"),
    ("deploy/**/*.yaml", rf"(?<=newTag: ){NUMBER}"),
    ("tests/deploy/*.py", rf"(?<=gemmd:){NUMBER}(?=-(?:cpu|cuda))"),
]


def version():
    return SOURCE.search((ROOT / "CMakeLists.txt").read_text(encoding="utf-8"))[1]


def places():
    """(file, expression) of every file that repeats the version; a pattern that finds none has gone stale."""
    for glob, expression in REPEATED:
        compiled = re.compile(expression, re.M)
        files = [path for path in sorted(ROOT.glob(glob)) if compiled.search(path.read_text(encoding="utf-8"))]
        if not files:
            sys.exit(f"version.py: {glob} has nothing like {expression} any more; take the row out")
        yield from ((path, compiled) for path in files)


def check(wanted):
    wrong = [
        f"{path.relative_to(ROOT)}: {found[1]}, and CMakeLists.txt has {wanted}"
        for path, expression in places()
        for found in expression.finditer(path.read_text(encoding="utf-8"))
        if found[1] != wanted
    ]
    if not re.search(rf"^## {re.escape(wanted)}$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M):
        wrong.append(f"CHANGELOG.md: no heading '## {wanted}'")
    print("\n".join(wrong) or f"{wanted} everywhere")
    return not wrong


def write(wanted):
    if not re.fullmatch(NUMBER, wanted):
        sys.exit(f"version.py: '{wanted}' is no version; give three numbers, such as 0.2.0")
    for path, expression in [(ROOT / "CMakeLists.txt", SOURCE), *places()]:
        path.write_text(expression.sub(wanted, path.read_text(encoding="utf-8")), encoding="utf-8")


def main():
    if sys.argv[1:2] == ["--set"]:
        write(sys.argv[2])
    elif sys.argv[1:] == ["--check"]:
        sys.exit(not check(version()))
    else:
        print(version())


if __name__ == "__main__":
    main()
