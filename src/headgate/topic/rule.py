"""A rule in its written form, and in its compiled form.

The written form, in the history, in configuration and on the command line, is a JSON object:

    {"name": "red", "sql": "color = 'red'", "dialect": "servicebus", "parameters": {"@limit": 5}}
    {"name": "eu", "correlation": {"label": "order", "properties": {"region": "EMEA"}}}
    {"name": "paid", "tags": "paid || refunded"}
    {"name": "big", "properties": {"subject": "&p:order."}, "application_properties": {"size": "big"}}

each with an optional `"action": "SET quantity = quantity / 2"`. Values are plain JSON, or typed as in
`{"t": "int", "v": 2}` where the exact type counts (`headgate.message.typed_json`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from headgate.errors import ConfigError, FilterError, RuleError
from headgate.evaluate import Filter
from headgate.language import dialect_named
from headgate.language.servicebus import DEFAULT_LIMITS, Limits, typed_constant
from headgate.message import from_plain_or_typed, to_json

if TYPE_CHECKING:
    from headgate.evaluate import Action

DEFAULT_RULE_NAME = "$Default"
"""The one name that begins with `$`: the rule of a subscription that is made without rules."""

DEFAULT_RULE_DIALECT = "servicebus"
"""The default language of SQL filters."""

TRUE_FILTER = "1=1"
FALSE_FILTER = "1=0"

_NO_LIMIT = 2**31
_Compiled = TypeVar("_Compiled")


class RuleDefinition(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A rule in its written form, with exactly one kind of filter. `dialect` and `parameters` belong to `sql`.

    `parameters` are the values of `@name` in filter and action.
    """

    name: str
    """The name of the rule, unique in its subscription, ignoring case."""
    sql: str | None = None
    """A filter as text."""
    dialect: str | None = None
    """The language of `sql`. Default: `servicebus`."""
    correlation: dict[str, Any] | None = None
    """A correlation filter: system properties and `properties`, each with the value that it must have."""
    tags: str | None = None
    """A tag expression of RocketMQ."""
    properties: dict[str, Any] | None = None
    """A property filter: fields of the properties section, each with the value that it must have."""
    application_properties: dict[str, Any] | None = None
    """The same for application properties; may be given together with `properties`."""
    action: str | None = None
    """Changes to the copy, in the language of Service Bus actions."""
    parameters: dict[str, Any] | None = None
    """The values of `@name` in `sql` and `action`."""

    @staticmethod
    def of(value: object) -> RuleDefinition:
        """The definition in a JSON object. Raises ConfigError that names the wrong key."""
        try:
            return msgspec.convert(value, RuleDefinition)
        except msgspec.ValidationError as error:
            raise ConfigError(f"not a rule: {error}") from error

    @property
    def is_constant(self) -> bool:
        """Whether the filter is the true filter or the false filter."""
        return self.sql is not None and "".join(self.sql.split()) in (TRUE_FILTER, FALSE_FILTER)

    @property
    def servicebus_sql(self) -> str | None:
        """The filter if it is SQL of Service Bus, the language where none is named; None for any other filter."""
        return self.sql if self.dialect in (None, DEFAULT_RULE_DIALECT) else None

    @property
    def filter_text(self) -> str:
        """The filter on one line, for people."""
        if self.sql is not None:
            dialect = "" if self.dialect is None else f"{self.dialect}: "
            return dialect + " ".join(self.sql.split())
        if self.tags is not None:
            return f"tags: {self.tags}"
        maps = {
            "correlation": self.correlation,
            "properties": self.properties,
            "application_properties": self.application_properties,
        }
        return "; ".join(
            f"{name}: {msgspec.json.encode(value).decode()}" for name, value in maps.items() if value is not None
        )

    @property
    def kind(self) -> str:
        """The kind of filter: sql, correlation, tags or properties. Raises ConfigError unless exactly one is given."""
        given = {
            "sql": self.sql is not None,
            "correlation": self.correlation is not None,
            "tags": self.tags is not None,
            "properties": self.properties is not None or self.application_properties is not None,
        }
        kinds = [kind for kind, is_given in given.items() if is_given]
        if len(kinds) != 1:
            found = "no filter" if not kinds else f"the filters {' and '.join(kinds)}"
            raise ConfigError(f"found {found}, expected one of sql, correlation, tags, properties")
        if self.dialect is not None and kinds != ["sql"]:
            raise ConfigError(f"found a dialect beside {kinds[0]}, expected it with sql only")
        if self.parameters is not None and self.sql is None and self.action is None:
            raise ConfigError("found parameters without an SQL filter or an action that could name them")
        return kinds[0]

    def compile_filter(self, limits: Limits) -> Filter:
        """The compiled filter. Raises FilterError with the place, ConfigError for a wrong written form."""
        match self.kind:
            case "sql":
                dialect = DEFAULT_RULE_DIALECT if self.dialect is None else self.dialect
                # Parameters of the action are not given to a filter language without parameters.
                takes_them = self.action is None or dialect_named(dialect).takes_parameters
                parameters = self.parameters if takes_them else None
                return Filter.parse(str(self.sql), dialect, parameters=_values(parameters), limits=limits)
            case "correlation":
                fields = dict(self.correlation or {})
                if "properties" in fields:
                    fields["properties"] = _values(fields["properties"])
                return Filter.from_correlation(**fields)
            case "tags":
                return Filter.from_tags(str(self.tags))
            case _:
                return Filter.from_properties(_values(self.properties), _values(self.application_properties))

    def compile_action(self, limits: Limits) -> Action | None:
        """The action, None if the rule has none. Raises FilterError with the place."""
        if self.action is None:
            return None
        from headgate.evaluate import Action

        return Action.parse(self.action, parameters=_values(self.parameters), limits=limits)


class Rule:
    """One rule: a filter and an optional action. Immutable; may be pickled.

    `Rule("red", "color = 'red'", action="SET quantity = quantity / 2")`. `number` is given by the history: counted from
    1 in its subscription, in order of creation, never used again; 0 before. `limits` are the limits of its topic, and
    `body_schema` is what its stream declares (`Filter.over`).
    """

    __slots__ = ("_action", "_filter", "body_schema", "definition", "limits", "number")

    def __init__(
        self,
        name: str,
        filter: str | Filter | None = None,
        action: str | Action | None = None,
        *,
        dialect: str | None = None,
        correlation: Mapping[str, object] | None = None,
        tags: str | None = None,
        properties: Mapping[str, object] | None = None,
        application_properties: Mapping[str, object] | None = None,
        parameters: Mapping[str, object] | None = None,
    ) -> None:
        """A rule from plain Python values; the filter is compiled now.

        `filter` is an SQL text in `dialect` (default servicebus), or a Filter that was parsed from a text; or one of
        the other kinds is given by its keyword. Raises RuleError with the place, ConfigError.
        """
        compiled = filter if isinstance(filter, Filter) else None
        if compiled is not None:
            if compiled.dialect is None:
                raise ConfigError("a rule takes correlation, tags and property filters by their keyword")
            filter, dialect = compiled.text, compiled.dialect
        self._open(
            RuleDefinition(
                name=name,
                sql=filter if isinstance(filter, str) else None,
                dialect=dialect,
                correlation=_written_correlation(correlation),
                tags=tags,
                properties=_written(properties),
                application_properties=_written(application_properties),
                action=action if action is None or isinstance(action, str) else action.text,
                parameters=_written(parameters),
            ),
            number=0,
            limits=DEFAULT_LIMITS,
        )
        _ = self.filter, self.action

    @classmethod
    def of(
        cls,
        definition: RuleDefinition,
        *,
        number: int = 0,
        limits: Limits = DEFAULT_LIMITS,
        body_schema: str | None = None,
    ) -> Rule:
        """The rule of a definition; filter and action are compiled at first use, or checked by `check`.

        Of the `limits` only the ones on messages that the action makes apply.
        """
        rule = cls.__new__(cls)
        rule._open(definition, number=number, limits=limits, body_schema=body_schema)
        return rule

    def _open(self, definition: RuleDefinition, *, number: int, limits: Limits, body_schema: str | None = None) -> None:
        self.body_schema = body_schema
        self.definition = definition
        self.number = number
        self.limits = limits
        self._filter: Filter | None = None
        self._action: Action | None = None

    @property
    def name(self) -> str:
        """The rule's name, as it was first written."""
        return self.definition.name

    @property
    def filter(self) -> Filter:
        """The compiled filter. Raises RuleError if it cannot be compiled."""
        if self._filter is None:
            self._filter = self._compiled(self._filter_of, _any_length(self.limits))
        return self._filter

    def _filter_of(self, definition: RuleDefinition, limits: Limits) -> Filter:
        return definition.compile_filter(limits).over(self.body_schema)

    @property
    def action(self) -> Action | None:
        """The compiled action; None: the copy is the message as it is. Raises RuleError."""
        if self._action is None and self.definition.action is not None:
            self._action = self._compiled(RuleDefinition.compile_action, _any_length(self.limits))
        return self._action

    @property
    def has_action(self) -> bool:
        """Whether each match gives a copy of its own."""
        return self.definition.action is not None

    def check(self, limits: Limits) -> None:
        """Raise RuleError if filter or action cannot be compiled, or is larger than the limits allow."""
        self._compiled(self._filter_of, limits)
        self._compiled(RuleDefinition.compile_action, limits)

    def _compiled(self, make: Callable[[RuleDefinition, Limits], _Compiled], limits: Limits) -> _Compiled:
        try:
            return make(self.definition, limits)
        except FilterError as error:
            raise RuleError(str(error), rule=self.name, cause=error) from error
        except ConfigError as error:
            raise RuleError(str(error), rule=self.name) from error

    def __reduce__(self) -> tuple[object, ...]:
        return _rule_of, (self.definition, self.number, self.limits, self.body_schema)

    def __eq__(self, other: object) -> bool:
        return self.definition == other.definition if isinstance(other, Rule) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.definition.name, self.definition.sql, self.definition.action))

    def __repr__(self) -> str:
        return f"<Rule {msgspec.json.encode(self.definition).decode()}>"


def _rule_of(definition: RuleDefinition, number: int, limits: Limits, body_schema: str | None) -> Rule:
    return Rule.of(definition, number=number, limits=limits, body_schema=body_schema)


@functools.lru_cache(maxsize=8)
def _any_length(limits: Limits) -> Limits:
    """The limits without the ones on the rule itself: a rule in force stays valid when these are lowered."""
    return replace(limits, filter_characters=_NO_LIMIT, action_characters=_NO_LIMIT, action_expressions=_NO_LIMIT)


def default_rule() -> Rule:
    """The true rule of a subscription that is made without rules."""
    return Rule.of(RuleDefinition(DEFAULT_RULE_NAME, sql=TRUE_FILTER))


def _values(written: Any) -> Any:
    """Plain or typed JSON values as `amqp_value` takes them; None stays None."""
    if written is None:
        return None
    if not isinstance(written, Mapping):
        raise ConfigError(f"found a {type(written).__name__}, expected an object with names and values")
    return {name: from_plain_or_typed(value) for name, value in written.items()}


def _written(values: Mapping[str, object] | None) -> dict[str, Any] | None:
    """Values as JSON: plain where that gives the same value back, else typed."""
    if values is None:
        return None
    return {name: _written_value(value) for name, value in values.items()}


def _written_value(value: object) -> Any:
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return value
    return to_json(typed_constant(value))


def _written_correlation(fields: Mapping[str, object] | None) -> dict[str, Any] | None:
    if fields is None:
        return None
    written = dict(fields)
    inner = written.get("properties")
    if isinstance(inner, Mapping):
        written["properties"] = _written(inner)
    return written
