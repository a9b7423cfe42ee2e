#!/usr/bin/env python3
"""Fails when the documentation's tests run fewer commands than they should: a page that lost its examples is not noticed otherwise.

  doc_count.py LEAST PAGE.. --rows PAGE.. --python-rows PAGE..
"""

import argparse
import sys

import doc_pages
import doc_python_rows
import doc_rows


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("least", type=int)
    parser.add_argument("pages", nargs="+")
    parser.add_argument("--rows", nargs="+", required=True)
    parser.add_argument("--python-rows", nargs="+", required=True)
    wanted = parser.parse_args()
    elsewhere = tuple(doc_rows.ELSEWHERE)
    counts = {
        "in blocks": sum(map(doc_pages.commands_of, wanted.pages)),
        "in tables": sum(not c.startswith(elsewhere) for page in wanted.rows for c in doc_rows.commands_of(page)),
        "of Python in tables": sum(
            span not in doc_python_rows.ELSEWHERE for page in wanted.python_rows for span in doc_python_rows.code_of(page)
        ),
    }
    print(", ".join(f"{count} {where}" for where, count in counts.items()))
    if sum(counts.values()) < wanted.least:
        sys.exit(f"{sum(counts.values())} commands in all, fewer than {wanted.least}")


if __name__ == "__main__":
    main()
