#!/usr/bin/env python3
"""Puts the output of commands into docs/demo.md, between the comments that name them, so that what it shows was printed.

  make demo > demo.txt && scripts/demo_page.py demo demo.txt
  make test > test.txt && scripts/demo_page.py test test.txt
"""

import pathlib
import re
import sys

PAGE = pathlib.Path(__file__).parent.parent / "docs/demo.md"


def plain(path):
    return re.sub(r"\x1b\[[0-9;]*m", "", pathlib.Path(path).read_text(encoding="utf-8"))


def fill(text, command, lines):
    block = "```\n" + "\n".join(lines).strip("\n") + "\n```\n"
    mark = f"<!-- output of {command}, by scripts/demo_page.py -->\n"
    pattern = re.compile(re.escape(mark) + r".*?<!-- end -->", re.S)
    text, count = pattern.subn(lambda _: mark + block + "<!-- end -->", text)
    if count != 1:
        sys.exit(f"{PAGE.name} has {count} places for the output of {command}")
    return text


def main():
    what, path = sys.argv[1:]
    lines = plain(path).splitlines()
    if what == "demo":
        first = next(i for i, line in enumerate(lines) if line.startswith("1. "))
        last = next(i for i, line in enumerate(lines) if line.startswith("gemmd exited with 0"))
        lines = lines[first : last + 1]
    else:
        lines = [line for line in lines if "tests passed" in line][-1:]
        if not lines or not lines[0].startswith("100%"):
            sys.exit(f"{path} does not end with a passing ctest line")
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(fill(text, f"make {what}", lines), encoding="utf-8")


if __name__ == "__main__":
    main()
