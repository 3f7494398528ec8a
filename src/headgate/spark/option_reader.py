"""How an option is declared, and how declared options are read from the texts that Spark hands over.

One `Option` describes an option completely: its reading, its errors and its line in `docs/reference` come from it.
Spark hands options over as texts and ignores the case of their names.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from headgate.errors import ConfigError

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Values(Generic[T_co]):
    """The texts that an option takes: described for readers (Markdown), and parsed.

    `parse` raises ConfigError; the name of the option is put in front of the error.
    """

    described: str
    parse: Callable[[str], T_co]


@dataclass(frozen=True, slots=True)
class Option(Generic[T_co]):
    """One option. `default` is a text that `values` takes; without one, `otherwise` describes the case of no option.

    `meaning` and `otherwise` are Markdown. `example` is another text that `values` takes.
    """

    name: str
    values: Values[T_co]
    meaning: str
    example: str
    default: str | None = None
    otherwise: str = ""


_SPARKS_OWN = frozenset({"checkpointlocation", "queryname", "serialization.format"}) | {
    # what Spark's catalogue knows of a table comes along with the table's options
    *("collation", "comment", "external", "is_managed_location", "location", "owner", "provider", "table_type")
}


class OptionReader:
    """The options of one read or write. ConfigError for one that is not declared; it names the nearest that is."""

    def __init__(self, options: Mapping[str, str], declared: Iterable[Option[object]], *, subject: str) -> None:
        # Spark gives the options of a table twice, once with this prefix.
        given = {name.lower(): value for name, value in options.items()}
        self._options = {name: value for name, value in given.items() if not name.startswith("option.")}
        self._declared = frozenset(option.name for option in declared)
        self._subject = subject
        for name in sorted(self._options.keys() - self._declared - _SPARKS_OWN):
            near = difflib.get_close_matches(name, self._declared, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(self._declared))}"
            raise ConfigError(f"{subject} option {name} is unknown; {hint}")

    def has(self, option: Option[object]) -> bool:
        """Whether it is given."""
        assert option.name in self._declared, option.name
        return option.name in self._options

    def given(self, option: Option[T]) -> T | None:
        """Its value; None where it is not given. Empty text is an error. Raises ConfigError."""
        if not self.has(option):
            return None
        text = self._options[option.name]
        try:
            if not text.strip():
                raise found(text, "a value")
            return option.values.parse(text)
        except ConfigError as error:
            raise ConfigError(f"{self._subject} option {option.name}: {error}") from error

    def value(self, option: Option[T]) -> T:
        """Its value, or its default."""
        given = self.given(option)
        if given is not None:
            return given
        assert option.default is not None, option.name
        return option.values.parse(option.default)

    def missing(self, option: Option[object]) -> ConfigError:
        """The error for an option that has to be given and is not."""
        return ConfigError(f"{self._subject} option {option.name} is missing: expected {option.values.described}")

    def conflict(self, first: Option[object], second: Option[object], reason: str) -> ConfigError:
        """The error for two options that cannot stand together."""
        return ConfigError(f"{self._subject} options {first.name} and {second.name}: {reason}")


def found(value: str, expected: str) -> ConfigError:
    """The error for a text that is not as expected."""
    shown = value if len(value) <= 80 else value[:77] + "…"
    return ConfigError(f"found {shown!r}, expected {expected}")


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise found(text, "true or false")
    return text.lower() == "true"


def _words(text: str) -> tuple[str, ...]:
    if text.lstrip().startswith("["):
        words = json_value(text, "a JSON list of strings")
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise found(text, "a JSON list of strings")
    else:
        words = [word.strip() for word in text.split(",")]
        if not all(words):
            raise found(text, "names between the commas")
    if not words:
        raise found(text, "at least one value")
    return tuple(words)


def _token(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", text):
        raise found(text, "at most 100 letters, digits, dots, dashes and underscores")
    return text


def json_value(text: str, expected: str) -> object:
    """The value of a JSON text. ConfigError, with `expected`, for another text."""
    try:
        return json.loads(text)
    except ValueError:
        raise found(text, expected) from None


FLAG = Values("`true` or `false`", _flag)
WORDS = Values("a comma list, or a JSON list of texts where one of them holds a comma", _words)
TOKEN = Values("at most 100 letters, digits, dots, dashes and underscores, the first a letter or digit", _token)


def text_of(described: str) -> Values[str]:
    """Any text."""
    return Values(described, str)


def choice(*allowed: str) -> Values[str]:
    """One of a few words."""

    def parse(text: str) -> str:
        if text not in allowed:
            raise found(text, " or ".join(allowed))
        return text

    return Values(" or ".join(f"`{word}`" for word in allowed), parse)


_MOST = 2**63 - 1


def number(*, least: int = 1, most: int = _MOST) -> Values[int]:
    """A whole number within bounds."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"\d{1,19}", text.strip()) or not least <= int(text) <= most:
            raise found(text, f"a whole number from {least} to {most}")
        return int(text)

    return Values(f"a whole number from {least}" + (f" to {most:,}" if most < _MOST else ""), parse)
