#!/usr/bin/env python3
"""Writes docs/config.md from the comments of config.proto, so that the two say the same.

    scripts/config_reference.py            writes it
    scripts/config_reference.py --check    exit status 1 when it is not what would be written
"""

import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROTO = ROOT / "proto/gemmd/v1/config.proto"
PAGE = ROOT / "docs/config.md"

BLOCK = re.compile(r"^\s*(message|enum)\s+(\w+)\s*\{$")
FIELD = re.compile(r"^\s*(?:(repeated|optional)\s+)?(\w+)\s+(\w+)\s*=\s*\d+;\s*(?://\s*(.*))?$")
VALUE = re.compile(r"^\s*([A-Z]\w*)\s*=\s*\d+;\s*(?://\s*(.*))?$")
COMMENT = re.compile(r"^\s*//\s?(.*)$")
MOST_IN_CELL = 190  # characters; what a field has to say beyond that stands below its table
SCALARS = {"string", "bool", "int32", "int64", "double"}


def parse(text):
    """[(kind, name, comment, [(field, type, comment)])], nested ones behind their message."""
    blocks, stack, comment = [], [], []
    for number, line in enumerate(text.splitlines(), 1):
        if match := COMMENT.match(line):
            comment.append(match[1])
        elif match := BLOCK.match(line):
            stack.append((match[1], match[2], " ".join(comment), []))
            blocks.append(stack[-1])
            comment = []
        elif line.strip() == "}":
            stack.pop()
            comment = []
        elif stack and stack[-1][0] == "enum" and (match := VALUE.match(line)):
            stack[-1][3].append((match[1], "", " ".join(filter(None, comment + [match[2]]))))
            comment = []
        elif stack and (match := FIELD.match(line)):
            kind = ("repeated " if match[1] == "repeated" else "") + match[2]
            stack[-1][3].append((match[3], kind, " ".join(filter(None, comment + [match[4]]))))
            comment = []
        elif stack and line.strip():
            sys.exit(f"{PROTO.name}:{number}: not understood: {line}")
        else:
            comment = []
    return blocks


def cell(text):
    return re.sub(r"([|<>])", r"\\\1", text)


def wrapped(text):
    return textwrap.wrap(text, 130, break_long_words=False, break_on_hyphens=False)


def cut(text):
    """The sentences that a cell has room for, at least one, and those that it has not."""
    sentences = re.split(r"(?<=[.;])\s+(?=[A-Z0-9`\"])", text)
    short = sentences[0]
    for number, sentence in enumerate(sentences[1:], 1):
        if len(f"{short} {sentence} More below.") > MOST_IN_CELL:
            return f"{short} More below.", " ".join(sentences[number:])
        short += f" {sentence}"
    return short, ""


def type_cell(kind, names):
    word = kind.split()[-1]
    if word in SCALARS:
        return f"`{kind}`"
    if word not in names:
        sys.exit(f"{PROTO.name}: type {word} is not in the file")
    return kind.replace(word, f"[{word}](#{word.lower()})")


def page(blocks):
    names = {name for _, name, _, _ in blocks}
    lines = [
        "# The config file",
        "",
        "<!-- written by scripts/config_reference.py from proto/gemmd/v1/config.proto -->",
        "",
        "A [textproto](https://protobuf.dev/reference/protobuf/textformat-spec/) of `ServerConfig`. `gemmd --config FILE",
        "--check` says whether it is right, and `--print-config` shows it with every default filled in. SIGHUP reads it again:",
        "what is marked [reload] takes effect, and a change to anything else is refused with its path. A file that is not right",
        "leaves everything as it was. 0 or unset means the default.",
    ]
    for kind, name, comment, fields in blocks:
        fields = [field for field in fields if not field[0].endswith("_UNSPECIFIED")]
        lines += ["", f"## {name}", ""]
        if comment and name != "ServerConfig":
            lines += [*wrapped(cell(comment)), ""]
        if kind == "enum":
            lines += ["| value | meaning |", "|---|---|"]
            lines += [f"| `{field}` | {cell(text)} |" for field, _, text in fields]
        else:
            lines += ["| field | type | meaning |", "|---|---|---|"]
            below = []
            for field, type_, text in fields:
                short, rest = cut(cell(text))
                lines.append(f"| `{field}` | {type_cell(type_, names)} | {short} |")
                if rest:
                    below += ["", *wrapped(f"`{field}`: {rest}")]
            lines += below
    return "\n".join(lines) + "\n"


def main():
    text = page(parse(PROTO.read_text()))
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(text)
        return 0
    if PAGE.exists() and PAGE.read_text() == text:
        print(f"config_reference: {PAGE.name} is what {PROTO.name} says")
        return 0
    print(f"config_reference: {PAGE.relative_to(ROOT)} is not what {PROTO.name} says; run scripts/config_reference.py")
    return 1


if __name__ == "__main__":
    sys.exit(main())
