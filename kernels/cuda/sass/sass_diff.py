#!/usr/bin/env python3
"""Compares the machine instructions of every kernel: the gate of a change that must not touch them.

    sass_diff.py OLD NEW              each one an object, an archive, a linked binary, or several of them with a comma between
    sass_diff.py reference.json NEW   against the last release
    sass_diff.py --write reference.json NEW   makes NEW the reference

Names of symbols and places in the constant bank are no part of what is compared. A renamed kernel with the old one's
instructions counts as the same; a new one is named, and changes nothing. Exit codes: 0 OLD's are all the same; 1 some are
not; 2 usage; 77 the reference is of another compiler, whose instructions say nothing about the sources.
"""

import itertools
import json
import sys

import machine_code

SAME, DIFFERENT, USAGE, OTHER_COMPILER = 0, 1, 2, 77
FORMAT = "gemmd-sass-1"


class Side:
    """One of the two: digests by name, and the code where it is there."""

    def __init__(self, digests, compilers, code=None):
        self.digests, self.compilers, self.code = digests, compilers, code or {}


def read(argument):
    if argument.endswith(".json"):
        with open(argument, encoding="utf-8") as file:
            reference = json.load(file)
        if reference.get("format") != FORMAT:
            sys.exit(f"sass_diff.py: {argument} is no reference of format {FORMAT}; make one with --write")
        return Side(reference["kernels"], {reference["compiler"]})
    found = machine_code.kernels_of(argument.split(","))
    if not found:
        sys.exit(f"sass_diff.py: {argument} holds no kernel that can be read; is it compiled with --no-compress?")
    return Side({name: kernel.digest() for name, kernel in found.items()},
                {kernel.compiler for kernel in found.values()}, found)


def renamed(old, new):
    """Pairs (old name, new name) of kernels that are there under one name each, with the same instructions."""
    gone = {name: digest for name, digest in old.digests.items() if name not in new.digests}
    pairs = []
    for name, digest in new.digests.items():
        if name in old.digests:
            continue
        earlier = next((o for o, d in gone.items() if d == digest), None)
        if earlier is not None:
            pairs.append((earlier, name))
            del gone[earlier]
    return pairs


def first_difference(old, new):
    """Where two kernels part, for somebody who will look at them with cuobjdump."""
    pairs = list(itertools.zip_longest(old.instructions(), new.instructions()))
    differing = [i for i, (x, y) in enumerate(pairs) if x != y]
    return (f"{len(old.code) // 16} instructions became {len(new.code) // 16}, {len(differing)} places differ, "
            f"the first at {differing[0] * 16:#06x}")


def compare(old, new):
    """Lines of text about every kernel that is not the same, and the number of old ones among them."""
    moved = renamed(old, new)
    known = {name for pair in moved for name in pair}
    lines = [f"renamed  {before} -> {after}" for before, after in moved]
    different = 0
    for name in sorted(old.digests.keys() | new.digests.keys()):
        if name in known or old.digests.get(name) == new.digests.get(name):
            continue
        if name not in old.digests:
            lines.append(f"new      {name}")
            continue
        different += 1
        if name not in new.digests:
            lines.append(f"gone     {name}")
        else:
            detail = ""
            if name in old.code and name in new.code:
                detail = ": " + first_difference(old.code[name], new.code[name])
            lines.append(f"changed  {name}{detail}")
    return lines, different


def write(path, side):
    if len(side.compilers) != 1:
        sys.exit(f"sass_diff.py: made by {len(side.compilers)} compilers ({', '.join(sorted(side.compilers))}); build anew with one")
    reference = {"format": FORMAT, "compiler": next(iter(side.compilers)), "kernels": dict(sorted(side.digests.items()))}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(reference, file, indent=1)
        file.write("\n")
    print(f"{path}: {len(side.digests)} kernels of nvcc {reference['compiler']}")


def main(arguments):
    if arguments[:1] == ["--write"] and len(arguments) == 3:
        write(arguments[1], read(arguments[2]))
        return SAME
    if len(arguments) != 2 or arguments[0].startswith("-"):
        print(__doc__)
        return USAGE
    old, new = read(arguments[0]), read(arguments[1])
    if old.compilers != new.compilers:
        print(f"skipped: compiler differs, {', '.join(sorted(old.compilers))} and {', '.join(sorted(new.compilers))}")
        return OTHER_COMPILER
    lines, different = compare(old, new)
    for line in lines:
        print(line)
    print(f"{len(new.digests)} kernels, {different} not as they were")
    return DIFFERENT if different else SAME


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
