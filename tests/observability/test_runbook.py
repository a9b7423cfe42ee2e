"""docs/runbook.md: what it tells somebody to type exists, and so does what it tells to look for."""

import functools
import re
import subprocess

import pytest

from repository import REPOSITORY, RUNBOOK

TEXT = RUNBOOK.read_text(encoding="utf-8")
SPANS = [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", TEXT)]
COMMANDS = sorted({span for span in SPANS if span.startswith(("gemmctl ", "gemmd "))})


@functools.cache
def sources() -> str:
    files = [*(REPOSITORY / "server").rglob("*.cc"), *(REPOSITORY / "server").rglob("*.h")]
    return "\n".join(path.read_text(encoding="utf-8") for path in files)


def schema() -> str:
    return (REPOSITORY / "proto/gemmd/v1/config.proto").read_text(encoding="utf-8")


def help_of(*command: str) -> str:
    done = subprocess.run(
        [*command, "--help"], capture_output=True, text=True, timeout=60, check=False
    )
    return done.stdout if done.returncode == 0 else ""


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_and_flag_exists(command, gemmd, gemmctl):
    words = command.split()
    if words[0] == "gemmd":
        text = help_of(gemmd)
    elif len(words) == 2 and words[1].startswith("-"):
        text = help_of(gemmctl)
    else:
        text = help_of(gemmctl, words[1])
    assert text, f"{command}: there is no such command"
    for flag in re.findall(r"(?<!\S)--?[a-z][a-z-]*", command):
        assert re.search(rf"(?<![\w-]){flag}(?![\w-])", text), f"{command}: {flag} is no flag of it"


def test_a_command_that_is_none_is_noticed(gemmctl):
    assert help_of(gemmctl, "nonsense") == ""


@pytest.mark.parametrize("word", sorted(set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", TEXT))))
def test_every_word_to_look_for_is_one_of_the_daemons(word):
    assert f'"{word}"' in sources() or re.search(rf"\b{word} = \d", schema()), word


@pytest.mark.parametrize("field", sorted(set(re.findall(r"`([a-z]+\.[a-z_]+)`", TEXT))))
def test_every_config_field_exists(field):
    assert re.search(rf"\b{field.split('.')[1]} = \d", schema()), field


@pytest.mark.parametrize("reason", sorted(set(re.findall(r"`([A-Z]+_[A-Z_]+)`", TEXT))))
def test_every_reason_exists(reason):
    assert f'"{reason}"' in sources(), reason


def test_every_reason_that_refuses_work_is_explained():
    constants = re.search(r"namespace reason \{(.*?)\}", sources(), re.S)[1]
    for reason in re.findall(r'"([A-Z_]+_LIMIT|DEADLINE|DEVICE_MEMORY|WINDOW)"', constants):
        if reason not in ("TRACE_LIMIT", "TUNE_LIMIT"):  # of gemmctl trace and tune: an operator's own
            assert f"`{reason}`" in TEXT, reason


def test_every_link_within_leads_somewhere():
    headings = re.findall(r"^#+ (.*)$", TEXT, re.M)
    anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    for target in re.findall(r"\]\(#([^)]*)\)", TEXT):
        assert target in anchors, target
