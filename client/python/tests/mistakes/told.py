"""What an error must say of a mistake."""

import pytest


def check_told(session, mistake, kind, words):
    """`mistake`, done to the session, raises `kind` with the words in their order."""
    with pytest.raises(kind) as caught:
        mistake(session)
    text, at = str(caught.value), 0
    for word in words:
        assert word in text[at:], f"{word!r} is not in {text!r} behind what was found before it"
        at = text.index(word, at)
