"""Events for filters of `cesql`: as messages in the AMQP binding's two modes, and what an expression gives for one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from headgate.errors import FilterError, FilterTypeError
from headgate.evaluate import Filter, evaluate
from headgate.language import tree as t
from headgate.language.cesql import Failure, ValueType, result_type
from headgate.message import Message, from_json

STRUCTURED = "application/cloudevents+json; charset=UTF-8"


def binary_event(attributes: Mapping[str, object], prefix: str = "cloudEvents_") -> Message:
    """An event in binary mode: values of Python as the types of AMQP that they are."""
    given = {f"{prefix}{name}": value for name, value in attributes.items() if name != "datacontenttype"}
    properties = {"content_type": attributes["datacontenttype"]} if "datacontenttype" in attributes else {}
    return Message(b'{"in": "data"}', application_properties=given, **properties)


def structured_event(attributes: Mapping[str, object], content_type: str = STRUCTURED) -> Message:
    """An event in structured mode."""
    return Message(json.dumps({**attributes, "data": {"in": "data"}}).encode(), content_type=content_type)


def event_of(row: Mapping[str, Any]) -> Message:
    """The message of a case: `event` has attributes, for the binary mode; `message` says exactly what is where."""
    given = row.get("message")
    if given is None:
        return binary_event(row.get("event", {}))
    properties = {name: from_json(value) for name, value in given.get("application_properties", {}).items()}
    fields = {name: value for name, value in given.items() if name not in ("application_properties", "body")}
    return Message(given.get("body", "").encode(), application_properties=properties, **fields)


def outcome(text: str, message: Message) -> tuple[object, str | None]:
    """The result of an expression for an event, and the kind of its error, as the conformance kit states them.

    An operator that is given an error gives the zero of its type; no result for what is refused.
    """
    try:
        tree = Filter.parse(text, "cesql").tree
    except FilterError as error:
        kind = "missingFunction" if "there is no function" in error.reason else "name"
        return None, kind if isinstance(error, FilterTypeError) else "parse"
    try:
        return _shown(evaluate(tree, message, 0)), None
    except Failure as failure:
        result = failure.result
        if any(_fails(operand, message) for operand in t.children(tree)) and not isinstance(tree, t.Attribute):
            result = (result_type(tree) or ValueType.BOOLEAN).zero
        return _shown(result), failure.kind.value


def _fails(node: t.Node, message: Message) -> bool:
    try:
        evaluate(node, message, 0)
    except Failure:
        return True
    return False


def _shown(value: object) -> object:
    return value.decode() if isinstance(value, bytes) else value
