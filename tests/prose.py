#!/usr/bin/env python3
"""Guides are easy to read: no sentence over 30 words, no line over 130 characters outside tables, no table cell over 200.

  prose.py PAGE..      exit 1 names every place
"""

import pathlib
import re
import sys

MAX_WORDS = 30
MAX_LINE = 130
MAX_CELL = 200


def shown(text):
    """What a reader sees of a link is its text."""
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)


def findings(text):
    text = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    text = re.sub(r"^    .*$", "", text, flags=re.M)
    lines = text.split("\n")
    for line in lines:
        if line.startswith("|"):
            for cell in line.split("|"):
                if len(shown(cell)) > MAX_CELL:
                    yield f"a table cell of {len(shown(cell))} characters: {cell.strip()[:60]}.."
        elif len(line) > MAX_LINE:
            yield f"a line of {len(line)} characters: {line[:60]}.."
    # A paragraph ends at an empty line, a heading, a list item or a table.
    body = "\n".join("" if line.startswith(("|", "#")) else line for line in lines)
    for paragraph in re.split(r"\n\s*\n|\n\s*(?:[-*]|\d+\.)\s", body):
        for sentence in re.split(r"(?<=[.!?])\s+", shown(paragraph).strip()):
            words = len(sentence.split())
            if words > MAX_WORDS:
                yield f"a sentence of {words} words: {' '.join(sentence.split())[:60]}.."


def main():
    failed = False
    for page in sys.argv[1:]:
        for finding in findings(pathlib.Path(page).read_text(encoding="utf-8")):
            failed = True
            print(f"{page}: {finding}")
    if failed:
        print("say it in two sentences, or shorter")
    sys.exit(failed)


if __name__ == "__main__":
    main()
