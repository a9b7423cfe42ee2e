"""`gemmctl top` and `gemmctl info` on terminals of several widths, letter by letter."""

import re
import signal
import subprocess

import pytest
from terminal import Program


def steady(text):
    """Without what differs from run to run: the time, the address."""
    text = re.sub(r"up \S+,", "up 1h2m3s,", text)
    text = re.sub(r"over \d\.\d s", "over 0.2 s", text)
    return re.sub(r"gemmd-screens-\d+", "gemmd-screens-0000000", text)


def top(gemmctl, target, columns, **environment):
    command = [gemmctl, "top", "--interval", "200ms", "--server", target]
    return Program(command, columns, **environment)


def has_figures(screen):
    return "sessions" in screen.text() or "s-2" in screen.text()


@pytest.mark.parametrize("columns", [40, 80, 120, 200])
def test_top(gemmctl, target, picture, columns):
    with top(gemmctl, target, columns) as program:
        screen = program.until(has_figures)
        assert screen.alternate and not screen.cursor_shown
        picture(f"top_{columns}", steady(screen.text()))
        program.press("q")
        assert program.end() == 0
        assert not screen.alternate and screen.cursor_shown and screen.text() == "\n"
        assert program.modes() == program.modes_before


@pytest.mark.parametrize("columns", [40, 80, 120, 200])
def test_info(gemmctl, target, picture, columns):
    with Program([gemmctl, "info", "--server", target], columns) as program:
        assert program.end() == 0
        picture(f"info_{columns}", steady(program.screen.text()))


def test_info_in_a_pipe_has_all_columns_whatever_the_environment_says(gemmctl, target, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    command = [gemmctl, "info", "--server", target]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "architecture  model" in done.stdout and "\x1b" not in done.stdout
    assert "no room" not in done.stdout


@pytest.mark.parametrize(
    "environment, styles",
    [({}, {"1", "31", "0"}), ({"NO_COLOR": "1"}, set()), ({"TERM": "dumb"}, set())],
    ids=["colours", "NO_COLOR", "a dumb terminal"],
)
def test_a_device_that_does_not_serve_is_red(gemmctl, target, environment, styles):
    command = [gemmctl, "info", "--server", target]
    with Program(command, 80, **environment) as program:
        assert program.end() == 0
        assert program.screen.styles == styles


def test_columns_of_the_environment_count(gemmctl, target):
    command = ["env", "COLUMNS=60", gemmctl, "info", "--server", target]
    with Program(command, 120) as program:
        assert program.end() == 0
        assert max(map(len, program.screen.text().splitlines())) <= 60


@pytest.mark.parametrize("number, status", [(signal.SIGINT, 130), (signal.SIGTERM, 130)])
def test_a_signal_gives_the_terminal_back(gemmctl, target, number, status):
    with top(gemmctl, target, 80) as program:
        program.until(has_figures)
        program.process.send_signal(number)
        assert program.end() == status
        assert not program.screen.alternate and program.screen.cursor_shown
        assert program.modes() == program.modes_before


def test_what_goes_wrong_is_told_on_the_terminals_own_screen(gemmctl, target):
    command = [gemmctl, "top", "--interval", "100ms", "--server", target]
    with Program([*command, "--metrics", "127.0.0.1:1"], 120) as program:
        assert program.end() == 4
        assert "no metrics at 127.0.0.1:1" in program.screen.text()


def test_top_on_a_dumb_terminal_writes_page_after_page(gemmctl, target):
    with top(gemmctl, target, 80, TERM="dumb") as program:
        program.until(lambda screen: screen.text().count("cuda:0") >= 2)
        assert not program.screen.alternate
        program.process.send_signal(signal.SIGINT)
        assert program.end() == 130
