"""A terminal of a given size with a program in it: what it shows, and keys for it."""

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

_ESCAPE = re.compile(r"\x1b\[(\?)?([\d;]*)([A-Za-z])")


class Screen:
    """As much of a terminal as gemmctl uses. Both of its screens are grids of characters."""

    def __init__(self, columns, rows):
        self.columns, self.rows = columns, rows
        self.alternate = False
        self.cursor_shown = True
        self.styles = set()
        self._grids = {False: self._blank(), True: self._blank()}
        self._at = [0, 0]  # row, column
        self._rest = ""

    def _blank(self):
        return [[" "] * self.columns for _ in range(self.rows)]

    @property
    def _grid(self):
        return self._grids[self.alternate]

    def text(self):
        return "\n".join("".join(row).rstrip() for row in self._grid).rstrip("\n") + "\n"

    def feed(self, data):
        text, self._rest = self._rest + data, ""
        at = 0
        while at < len(text):
            if text[at] == "\x1b":
                found = _ESCAPE.match(text, at)
                if found is None:
                    assert len(text) - at < 16, f"not known here: {text[at : at + 16]!r}"
                    self._rest = text[at:]
                    return
                self._escape(found[1], found[2], found[3])
                at = found.end()
            else:
                self._put(text[at])
                at += 1

    def _put(self, letter):
        if letter == "\r":
            self._at[1] = 0
        elif letter == "\n":
            if self._at[0] == self.rows - 1:
                self._grid.append([" "] * self.columns)
                del self._grid[0]
            else:
                self._at[0] += 1
        else:
            if self._at[1] == self.columns:  # a row too wide goes on below, as on a real one
                self._put("\r")
                self._put("\n")
            self._grid[self._at[0]][self._at[1]] = letter
            self._at[1] += 1

    def _escape(self, private, numbers, letter):
        row, column = self._at
        if private:
            if numbers == "1049":
                self.alternate = letter == "h"
                self._grids[True] = self._blank()
                self._at = [0, 0]
            elif numbers == "25":
                self.cursor_shown = letter == "h"
        elif letter == "H":
            self._at = [0, 0]
        elif letter == "K":
            self._grid[row][column:] = [" "] * (self.columns - column)
        elif letter == "J":
            for below in self._grid[row + 1 :]:
                below[:] = [" "] * self.columns
            self._grid[row][column:] = [" "] * (self.columns - column)
        elif letter == "m":
            self.styles.add(numbers)
        else:
            raise AssertionError(f"not known here: ESC [ {numbers} {letter}")


class Program:
    """A program on a terminal of its own. A context manager that ends it."""

    def __init__(self, command, columns, rows=40, **environment):
        self.screen = Screen(columns, rows)
        self._main, side = pty.openpty()
        fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.modes_before = termios.tcgetattr(side)
        env = {**os.environ, "TERM": "xterm", **environment}
        env.pop("COLUMNS", None)
        if "NO_COLOR" not in environment:
            env.pop("NO_COLOR", None)
        self.process = subprocess.Popen(
            command, stdin=side, stdout=side, stderr=side, env=env, start_new_session=True
        )
        self._side = side

    def modes(self):
        return termios.tcgetattr(self._side)

    def press(self, keys):
        os.write(self._main, keys.encode())

    def until(self, shown, patience_s=20.0):
        """Reads until `shown(screen)`."""
        end = time.monotonic() + patience_s
        while not shown(self.screen):
            left = end - time.monotonic()
            assert left > 0, f"not seen in {patience_s} s; the screen:\n{self.screen.text()}"
            if select.select([self._main], [], [], min(left, 0.1))[0]:
                self.screen.feed(os.read(self._main, 65536).decode())
        return self.screen

    def end(self, patience_s=20.0):
        """Waits for the program; its exit status. What it still wrote is on the screen."""
        status = self.process.wait(patience_s)
        while select.select([self._main], [], [], 0)[0]:
            self.screen.feed(os.read(self._main, 65536).decode())
        return status

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        for descriptor in (self._main, self._side):
            with contextlib.suppress(OSError):
                os.close(descriptor)
