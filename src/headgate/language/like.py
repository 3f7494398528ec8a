"""LIKE patterns: text and escape character → `LikePattern`, and back.

Source: rabbitmq_filters, section 2.5; servicebus_filters, section 3.5. A pattern with no `_` and at most one `%`
compares bytes; any other walks code points, where RabbitMQ's wildcards do not match a line feed.
"""

from __future__ import annotations

from headgate.language.tree import LikePattern, LikeShape, LikeWildcard, Span


class LikeRefused(Exception):  # noqa: N818 - not an error of the user's tree: the binder turns it into a FilterError
    """A pattern or an escape that the language does not take.

    `where` is the part of the pattern (or of the escape, if `in_escape`) in code points.
    """

    def __init__(self, reason: str, where: Span, *, in_escape: bool = False) -> None:
        super().__init__(reason)
        self.where = where
        self.in_escape = in_escape


def compile_like(pattern: str, escape: str | None) -> LikePattern:
    """The compiled form of a pattern by RabbitMQ's rules, without control characters; raises LikeRefused."""
    return _compiled(pattern, escape, any_character=False)


def compile_any_like(pattern: str, escape: str | None) -> LikePattern:
    """The compiled form of a pattern that may hold any character; raises LikeRefused."""
    return _compiled(pattern, escape, any_character=True)


def _compiled(pattern: str, escape: str | None, *, any_character: bool) -> LikePattern:
    if escape is not None and len(escape) != 1:
        raise LikeRefused(f"the escape has {len(escape)} characters, expected one", (0, len(escape)), in_escape=True)
    elements = _elements(pattern, escape, any_character=any_character)
    wildcards = [element for element in elements if isinstance(element, LikeWildcard)]
    if LikeWildcard.ONE in wildcards or len(wildcards) > 1:
        return LikePattern(LikeShape.GENERAL, elements=elements)
    texts = [element for element in elements if isinstance(element, bytes)]
    if not wildcards:
        return LikePattern(LikeShape.EXACT, prefix=b"".join(texts))
    if len(elements) == 3:
        return LikePattern(LikeShape.PREFIX_SUFFIX, prefix=texts[0], suffix=texts[1])
    if elements[0] is LikeWildcard.ANY:
        return LikePattern(LikeShape.SUFFIX, suffix=b"".join(texts))
    return LikePattern(LikeShape.PREFIX, prefix=b"".join(texts))


def _elements(pattern: str, escape: str | None, *, any_character: bool) -> tuple[bytes | LikeWildcard, ...]:
    elements: list[bytes | LikeWildcard] = []
    literal = ""
    position = 0
    while position < len(pattern):
        character = pattern[position]
        escaped = character == escape
        if escaped:
            position += 1
            if position == len(pattern):
                raise LikeRefused("the pattern ends with the escape character", (position - 1, position))
            character = pattern[position]
        if not any_character and (character < " " or character == "\x7f"):
            raise LikeRefused(
                f"found control character U+{ord(character):04X}, which a pattern cannot hold", (position, position + 1)
            )
        position += 1
        if escaped or character not in "%_":
            literal += character
            continue
        if literal:
            elements.append(literal.encode("utf-8", "surrogateescape"))
            literal = ""
        elements.append(LikeWildcard(character))
    if literal:
        elements.append(literal.encode("utf-8", "surrogateescape"))
    return tuple(elements)


_ESCAPES = "!\\#$^~|" + "".join(map(chr, range(0x21, 0x7F)))


def like_text(pattern: LikePattern) -> tuple[str, str | None]:
    """A pattern and an escape (None where none is needed) that compile to `pattern`."""
    elements = pattern.parts
    literals = b"".join(element for element in elements if isinstance(element, bytes)).decode(errors="replace")
    if not ("%" in literals or "_" in literals):
        return "".join(e.value if isinstance(e, LikeWildcard) else e.decode(errors="replace") for e in elements), None
    escape = next(candidate for candidate in _ESCAPES if candidate not in "%_'\"" and candidate not in literals)
    text = ""
    for element in elements:
        if isinstance(element, LikeWildcard):
            text += element.value
        else:
            text += element.decode(errors="replace").replace("%", f"{escape}%").replace("_", f"{escape}_")
    return text, escape
