"""The bearer token that a client shows, kept in a file: it can be changed while the client runs,
and appears in no program's text or command line.
"""

from __future__ import annotations

import os
import stat
import threading
import time
import warnings

_SHORTEST, _LONGEST = 32, 4096  # characters
_BETWEEN_LOOKS_S = 1.0

Metadata = tuple[tuple[str, str], ...]


def parse(text: bytes, path: str) -> str:
    """The token in a file's text: one line of 32 to 4096 visible ASCII characters, blanks around it
    left out. ValueError says what is wrong with `path`, and never shows the text.
    """
    token = text.strip()
    if token.startswith(b"sha256:"):
        raise ValueError(
            f"token_file={path} has a line of the server's token file; a client's holds the token "
            "itself, which `gemmctl token` prints beside it"
        )
    if any(not 0x21 <= byte <= 0x7E for byte in token):
        raise ValueError(
            f"token_file={path} does not hold one token alone: there is a blank, a second line or "
            "a byte that is not visible ASCII in it"
        )
    if not _SHORTEST <= len(token) <= _LONGEST:
        raise ValueError(
            f"token_file={path} has a token of {len(token)} characters, not {_SHORTEST} to "
            f"{_LONGEST}; `gemmctl token` makes one"
        )
    return token.decode("ascii")


class TokenFile:
    """Thread-safe. The file is looked at again when it is asked a second after the last time; one
    that has become unusable leaves the token as it was, with a RuntimeWarning.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        self._looking = threading.Lock()
        self._looked = time.monotonic()
        self._seen: object = None
        self.metadata: Metadata = self._read()
        if os.stat(self._path).st_mode & stat.S_IROTH:
            warnings.warn(
                f"token_file={self._path} may be read by every user of this machine; chmod o-r it",
                RuntimeWarning,
                stacklevel=4,
            )

    def current(self) -> Metadata:
        """What goes with a call."""
        if time.monotonic() - self._looked >= _BETWEEN_LOOKS_S and self._looking.acquire(False):
            try:
                self._look()
            finally:
                self._looking.release()
        return self.metadata

    def _look(self) -> None:
        self._looked = time.monotonic()
        before = self._seen
        try:
            self.metadata = self._read()
        except (OSError, ValueError) as error:
            self._seen = str(error)
            if self._seen != before:  # told once
                warnings.warn(f"{error}; the token before it stays", RuntimeWarning, stacklevel=4)

    def _read(self) -> Metadata:
        # Small enough to be read whenever it is looked at: no stamp can hide a change.
        with open(self._path, "rb") as file:
            token = parse(file.read(_LONGEST + 2), self._path)
        self._seen = None
        return (("authorization", f"Bearer {token}"),)
