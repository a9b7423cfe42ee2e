#!/usr/bin/env python3
"""Writes the man pages that no table of commands has: man8/gemmd.8 from `gemmd --help`, and
man5/gemmd.textproto.5 from config.proto.

    scripts/man_pages.py GEMMD FOLDER
"""

import pathlib
import re
import subprocess
import sys

import config_reference

OPTION = re.compile(r"^  (-.*?)(?:  +(\S.*))?$")


def escaped(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text.startswith((".", "'")) else text


def title(name, section, version):
    return f'.TH {escaped(name)} {section} "" "gemmd {escaped(version)}" "gemmd"\n'


def filled(paragraph):
    return escaped(" ".join(paragraph.split())) + "\n"


def tag(words):
    """Options in bold, what they take in italics."""
    parts = re.split(r"(\s+|,)", words)
    shown = [p if not p.strip() or p == "," else f"\\f{'B' if p.startswith('-') else 'I'}{escaped(p)}\\fR" for p in parts]
    return "".join(shown)


def options_of(lines):
    """[(words, text)] of a block of options whose texts may go on over the next lines."""
    options = []
    for line in lines:
        if match := OPTION.match(line):
            options.append([match[1], match[2] or ""])
        else:
            options[-1][1] += " " + line.strip()
    return options


def daemon_page(usage, version):
    """The usage's paragraphs in the order that a man page has them."""
    synopsis, about, options, signals = usage.strip().split("\n\n")
    before, status = signals.split("Exit status:")
    words = re.sub(r"^usage: gemmd", "", synopsis).split("\n")
    page = title("GEMMD", 8, version) + ".SH NAME\ngemmd \\- multiply matrices for other processes\n"
    page += ".SH SYNOPSIS\n\\fBgemmd\\fR" + "".join(escaped(part) for part in words) + "\n"
    page += ".SH DESCRIPTION\n" + filled(about) + ".SH OPTIONS\n"
    for name, text in options_of(options.splitlines()):
        page += f".TP\n{tag(name)}\n{filled(text) if text.strip() else 'Print it, and end.' + chr(10)}"
    page += ".SH SIGNALS\n" + filled(before) + ".SH EXIT STATUS\n" + filled(status)
    page += ".SH FILES\n.TP\n\\fI/etc/gemmd/gemmd.textproto\\fR\n"
    page += "The config of the systemd unit that the Debian package brings.\n"
    return page + ".SH SEE ALSO\n\\fBgemmctl\\fR(1),\n\\fBgemmd.textproto\\fR(5)\n"


def plain(comment):
    return comment.replace("`", "")


def config_page(proto, version):
    page = title("GEMMD.TEXTPROTO", 5, version)
    page += ".SH NAME\ngemmd.textproto \\- the config file of gemmd\n.SH DESCRIPTION\n"
    page += filled(
        "A message gemmd.v1.ServerConfig in Protocol Buffers' text format. What is not set takes its default, which "
        "'gemmd --config FILE --print-config' shows. A SIGHUP reads the file again: what is marked [reload] takes "
        "effect, a change to anything else is refused. 'gemmd --config FILE --check' tells what is wrong with a file."
    )
    for kind, name, comment, fields in config_reference.parse(proto):
        page += f".SH {escaped(('enum ' if kind == 'enum' else '') + name)}\n"
        if comment:
            page += filled(plain(comment))
        for field, type_, text in fields:
            shown = f"\\fB{escaped(field)}\\fR" + (f" \\fI{escaped(type_)}\\fR" if type_ else "")
            page += f".TP\n{shown}\n{filled(plain(text)) if text else chr(92) + '&' + chr(10)}"
    page += ".SH EXAMPLE\n.nf\n"
    page += 'listeners { address: "unix:/run/gemmd/gemmd.sock" }\ndevices { name: "cpu:0" }\n'
    page += 'metrics { address: "127.0.0.1:8471" }\n.fi\n'
    return page + ".SH SEE ALSO\n\\fBgemmd\\fR(8)\n"


def main():
    gemmd, folder = sys.argv[1], pathlib.Path(sys.argv[2])

    def says(option):
        done = subprocess.run([gemmd, option], capture_output=True, text=True, check=False)
        return done.stdout or done.stderr

    version = says("--version").split()[-1]
    proto = config_reference.PROTO.read_text(encoding="utf-8")
    for page, text in (
        ("man8/gemmd.8", daemon_page(says("--help"), version)),
        ("man5/gemmd.textproto.5", config_page(proto, version)),
    ):
        (folder / page).parent.mkdir(parents=True, exist_ok=True)
        (folder / page).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
