"""Text of strangers, safe for a terminal, a log, and readers of lines."""

from __future__ import annotations

import json


def visible(text: str) -> str:
    """`text` as one line of visible characters; all others become `\\n`, `\\x1b`, `\\u2028`.

    Names and values come from clients: without escapes a client could write lines and colours of its own.
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


def visible_json(text: str) -> str:
    """A text of JSON without blanks and line ends, with `\\u009b` for each character that is not visible.

    It means the same. JSON itself escapes only the characters below U+0020.
    """
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else json.dumps(character)[1:-1] for character in text)
