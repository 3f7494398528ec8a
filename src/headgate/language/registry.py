"""The filter languages by name: the built-in languages, and languages from other distributions.

A distribution brings a language as an entry point of the group `headgate.languages`:

    [project.entry-points."headgate.languages"]
    shout = "headgate_shout:SHOUT"

The object is a `Dialect` of that name. It may follow the rules of a built-in language (`ValueRules`), or bring a module
with operators of its own (`OwnRules`). An entry point is loaded at the first use of its language. It cannot replace a
built-in language.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from headgate.errors import ConfigError
from headgate.language.amqp import AMQP, RABBITMQ
from headgate.language.cesql import CESQL
from headgate.language.dialect import Dialect
from headgate.language.rocketmq import ROCKETMQ
from headgate.language.servicebus import SERVICE_BUS

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINTS = "headgate.languages"
"""The group of entry points under which distributions bring languages."""

BUILT_IN: Mapping[str, Dialect] = MappingProxyType(
    {dialect.name: dialect for dialect in (RABBITMQ, AMQP, ROCKETMQ, SERVICE_BUS, CESQL)}
)
"""The languages that come with the package."""


def dialect_names() -> tuple[str, ...]:
    """The names of all languages, the built-in ones first. Loads none; cost: a look at the installed distributions."""
    brought = {point.name for point in _entry_points()}
    return (*BUILT_IN, *sorted(brought - BUILT_IN.keys()))


def dialect_named(name: str) -> Dialect:
    """The language of that name.

    Raises ConfigError that lists the known names, or names the distribution whose language does not load.
    """
    return BUILT_IN[name] if name in BUILT_IN else _brought(name)


@functools.cache
def _brought(name: str) -> Dialect:
    points = [point for point in _entry_points() if point.name == name]
    if not points:
        raise ConfigError(f"found dialect {name!r}, expected one of {', '.join(dialect_names())}")
    if len(points) > 1:
        origins = " and ".join(sorted(map(_origin, points)))
        raise ConfigError(f"dialect {name!r} is brought by {origins}; uninstall all but one")
    point = points[0]
    try:
        found = point.load()
    except Exception as error:
        # Whatever a module from outside raises while it is imported, it is that distribution which is broken.
        raise ConfigError(
            f"dialect {name!r} of {_origin(point)} cannot be loaded from {point.value}: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(found, Dialect):
        raise ConfigError(
            f"dialect {name!r} of {_origin(point)}: {point.value} is a {type(found).__name__}, expected a Dialect"
        )
    if found.name != name:
        raise ConfigError(f"dialect {name!r} of {_origin(point)}: {point.value} calls itself {found.name!r}")
    return found


def _entry_points() -> tuple[EntryPoint, ...]:
    # Reading the metadata of all distributions takes milliseconds, which the built-in languages do not cost.
    from importlib.metadata import entry_points

    return tuple(entry_points(group=ENTRY_POINTS))


def _origin(point: EntryPoint) -> str:
    return "an unknown distribution" if point.dist is None else f"{point.dist.name} {point.dist.version}"
