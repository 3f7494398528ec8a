"""Filter languages: which there are, and the check of a text while somebody writes it."""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec

from headgate.errors import ConfigError, FilterError
from headgate.evaluate import Filter, wanted_values
from headgate.language import DEFAULT_DIALECT, dialect_named, dialect_names, field_text, warnings_of
from headgate.language.rocketmq import LISTS, ROCKETMQ
from headgate.message import FieldReference, parse_field
from headgate.server.api.rights import readable_stream
from headgate.server.context import ServerContext
from headgate.server.http import Answer, Call, Endpoint, Group

_BODY_BYTES = 32_768
"""Limit of a text to check, with what is around it."""
_TAGS_EXAMPLE = "created || paid"
_MOST_VALUES = 1_000
"""Limit: filter values that are shown."""


class Language(msgspec.Struct, frozen=True):
    """A filter language."""

    name: str
    title: Annotated[str, msgspec.Meta(description="What people call it.")]
    example: Annotated[str, msgspec.Meta(description="A filter of it; empty where it brings none.")]
    page: Annotated[
        str | None,
        msgspec.Meta(description="Where it is explained, from the root of the documentation, or an address."),
    ]
    is_default: bool
    is_list: Annotated[bool, msgspec.Meta(description="Whether its texts are lists of tags and no expressions.")]


class FilterText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A filter, perhaps half written."""

    text: str
    language: str = DEFAULT_DIALECT
    stream: Annotated[
        str | None,
        msgspec.Meta(description="The stream that it is for: its declared source tells `filter_values`."),
    ] = None


class FilterNote(msgspec.Struct, frozen=True):
    """What is hardly meant, and where it stands in the text, in code points."""

    reason: str
    span: tuple[int, int]


class CheckedFilter(msgspec.Struct, frozen=True, kw_only=True):
    """What a language says of a text: with `ok` the keys up to `warnings`, else the others."""

    ok: bool
    fields: list[str] | msgspec.UnsetType = msgspec.UNSET
    """The fields of messages that it asks for."""
    filter_values: list[str] | msgspec.UnsetType | None = msgspec.UNSET
    """The only filter values that messages can have for which it is true, null: any, not known, or more than 1000."""
    warnings: list[FilterNote] | msgspec.UnsetType = msgspec.UNSET
    error: str | msgspec.UnsetType = msgspec.UNSET
    """The reason, and the line with carets under the wrong place."""
    reason: str | msgspec.UnsetType = msgspec.UNSET
    span: tuple[int, int] | msgspec.UnsetType = msgspec.UNSET
    """The wrong place, from and to, in code points."""


def language_group(context: ServerContext) -> Group:
    """The endpoints of languages."""
    requests = _LanguageRequests(context)
    return Group(
        "Filter languages",
        "The languages of filters, and whether a text is one.",
        (
            Endpoint(
                "GET",
                "languages",
                "The languages in which filters can be written, with an example of each.",
                requests.listed,
                answer=list[Language],
            ),
            Endpoint(
                "POST",
                "filters/check",
                "Whether a text is a filter of a language, and which fields it asks for; or where it is wrong. The "
                "status is 200 in both cases.",
                requests.checked,
                permission="any user; with `stream` read the stream",
                body=FilterText,
                example={"text": "region = 'EMEA' AND price > 100", "language": DEFAULT_DIALECT},
                answer=CheckedFilter,
                errors=(404,),
                is_change=False,
                body_bytes=_BODY_BYTES,
            ),
        ),
    )


class _LanguageRequests:
    def __init__(self, context: ServerContext) -> None:
        self._broker = context.broker

    async def listed(self, _call: Call) -> Answer:
        # In a thread: languages that were installed may be imported for it.
        return Answer(await asyncio.to_thread(_languages))

    async def checked(self, call: Call) -> Answer:
        asked: FilterText = call.body
        source = None
        if asked.stream is not None:
            settings = readable_stream(self._broker, call.user, asked.stream).stream.settings
            if settings is not None and settings.filter_source is not None:
                source = parse_field(settings.filter_source)
        # In a thread: a long text takes a while.
        return Answer(await asyncio.to_thread(check, asked.text, asked.language, source))


def _languages() -> list[Language]:
    named = []
    for name in dialect_names():
        try:
            dialect = dialect_named(name)
        except ConfigError:
            # What is installed there cannot be loaded; whoever uses it is told why.
            continue
        title = dialect.title or name
        named.append(
            Language(name, title, dialect.example, dialect.page, is_default=name == DEFAULT_DIALECT, is_list=False)
        )
    tags = [Language(name, name, _TAGS_EXAMPLE, ROCKETMQ.page, is_default=False, is_list=True) for name in LISTS]
    return [*named, *tags]


def check(text: str, language: str, source: FieldReference | None) -> CheckedFilter:
    """What a language says of a text; `source` is the declared source of filter values. Raises ConfigError."""
    try:
        accepted = Filter.stated(text, language)
    except FilterError as error:
        return CheckedFilter(ok=False, error=str(error), reason=error.reason, span=error.span)
    values = None if source is None else wanted_values(accepted.tree, source)
    shown = None
    if values is not None and len(values) <= _MOST_VALUES:
        shown = sorted(value.decode(errors="backslashreplace") for value in values)
    warnings = () if language in LISTS else warnings_of(text, accepted.tree, language)
    return CheckedFilter(
        ok=True,
        fields=sorted(map(field_text, accepted.fields)),
        filter_values=shown,
        warnings=[FilterNote(warning.reason, warning.span) for warning in warnings],
    )
