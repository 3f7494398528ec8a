"""A filter ready to use: parsed once, evaluated for single messages or for batches of encoded messages.

Batches go through the kernel; rows that it leaves open, and whole batches where kernels cannot be used, go to the
reference evaluator. Both give the same verdicts.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from headgate.arrays import largest
from headgate.errors import ConfigError
from headgate.evaluate import reference
from headgate.evaluate.explanation import Explanation, explain
from headgate.evaluate.program import Program, compile_program
from headgate.evaluate.semantics import semantics_of
from headgate.evaluate.verdict import UNDECIDED, Verdict
from headgate.language import DEFAULT_DIALECT, Assumption, Conversion, Limits, bind, convert_tree, dialect_named, parse
from headgate.language import tree as t
from headgate.language.amqp import (
    FilterSet,
    application_properties_entries,
    application_properties_filter,
    joined,
    properties_entries,
    properties_filter,
)
from headgate.language.rocketmq import LISTS, TagExpression, parse_tags
from headgate.language.servicebus import correlation_filter
from headgate.message import EncodedMessages, FieldReference, Message, Section
from headgate.message.body_schema import BodySchema


class Engine(enum.Enum):
    """Which evaluator decides a batch; the verdicts are the same."""

    KERNEL = "kernel"
    REFERENCE = "reference"


class Filter:
    """One filter, bound and immutable; may be pickled and used by several threads.

    `text` is the filter's text, or a display of its property maps; the spans of `tree` are places in it. `dialect` is
    the language of the text, None for property maps, correlation filters and tags. `uses_time` and `uses_chance`: it
    contains UTC() or newid(), so the verdict depends on more than the message. `has_own_rules`: its language has
    operators of its own, which only the reference knows. `has_body_paths`: it looks into bodies by paths. `body_schema`
    is the schema that these bodies have, which only the reference decodes; None: JSON.
    """

    __slots__ = (
        "_compiled",
        "_program",
        "body_schema",
        "dialect",
        "fields",
        "has_body_paths",
        "has_own_rules",
        "text",
        "tree",
        "uses_chance",
        "uses_time",
    )

    def __init__(self, tree: t.Node, text: str, dialect: str | None) -> None:
        self.tree = tree
        self.text = text
        self.dialect = dialect
        nodes = t.walk(tree)
        kinds = {type(node) for node in nodes}
        self.fields = frozenset([node.reference for node in nodes if isinstance(node, t.Field)])
        # Attributes of events lie in bodies, too, and have no paths.
        self.has_body_paths = t.Attribute not in kinds and any(map(_is_in_body, self.fields))
        own = t.own_rules(tree)
        self.has_own_rules = own is not None
        if own is not None:
            # Evaluating never raises, so errors in the operators are raised now.
            semantics_of(own)
        schemas = {field.schema for field in self.fields if field.schema is not None}
        for schema in schemas:
            # For the same reason. A task may run where the library of the format is missing.
            schema.check()
        self.body_schema = next(iter(schemas), None)
        self.uses_time = t.Now in kinds
        self.uses_chance = t.NewId in kinds
        self._program: Program | None = None
        self._compiled = False

    @classmethod
    def parse(
        cls,
        text: str,
        dialect: str = DEFAULT_DIALECT,
        *,
        parameters: Mapping[str, object] | None = None,
        limits: Limits | None = None,
    ) -> Filter:
        """The filter that a text states. Raises FilterError with place and reason, ConfigError for the dialect.

        `parameters` are the values of `@name` (servicebus), plain Python or `AmqpValue`; `limits` take the place of the
        dialect's limit of length.
        """
        tree = bind(parse(text, dialect, limits=limits), dialect, text, parameters=parameters)
        return cls(tree, text, dialect_named(dialect).name)

    @classmethod
    def from_correlation(cls, /, **conditions: object) -> Filter:
        """The correlation filter of Service Bus with these conditions, ANDed: `label="red", properties={"size": 5}`.

        Conditions on system properties are strings under the names of `CORRELATION_FIELDS`
        (`headgate.language.servicebus.system_properties`); those on application properties are plain Python values or
        `AmqpValue`, by name, under `properties`. None is no condition. Raises ConfigError for wrong names and values,
        FilterError for a filter that could never match or has no condition.
        """
        text, tree = correlation_filter(conditions)
        return cls(tree, text, None)

    @classmethod
    def from_properties(
        cls,
        properties: Mapping[str, object] | None = None,
        application_properties: Mapping[str, object] | None = None,
    ) -> Filter:
        """The AMQP property filters of one or both maps, ANDed; values are plain Python or `AmqpValue`.

        `{"subject": "&p:order."}` asks for a prefix, `{"region": None}` in application properties for the key alone.
        Raises ConfigError for wrong names and plain values, FilterError for values that a property filter cannot hold.
        """
        parts = []
        if properties is not None:
            parts.append(properties_filter(properties_entries(properties)))
        if application_properties is not None:
            parts.append(application_properties_filter(application_properties_entries(application_properties)))
        if not parts:
            raise ConfigError("found no property filter, expected properties, application_properties, or both")
        text, tree = joined(parts)
        return cls(tree, text, None)

    @classmethod
    def from_tags(cls, text: str | None) -> Filter:
        """The filter of a RocketMQ tag expression, `TagA || TagB` or `*`. Raises FilterError."""
        return cls._listed(parse_tags(text))

    @classmethod
    def _listed(cls, expression: TagExpression) -> Filter:
        return cls(expression.tree(), expression.text, None)

    @classmethod
    def stated(cls, text: str, dialect: str) -> Filter:
        """The filter that a text states in a dialect, or as a list (`LISTS`). Raises FilterError, ConfigError."""
        return cls._listed(LISTS[dialect](text)) if dialect in LISTS else cls.parse(text, dialect)

    @classmethod
    def subscribed(cls, text: str | None, dialect: str) -> Filter | None:
        """The filter that a client of RocketMQ subscribes with, None for one that takes everything. As `stated`."""
        if dialect not in LISTS:
            return cls.parse(text or "", dialect)
        expression = LISTS[dialect](text)
        return None if expression.takes_everything else cls._listed(expression)

    @classmethod
    def from_set(cls, filter_set: FilterSet) -> Filter | None:
        """The expression in force of a filter map; None if it has none."""
        if filter_set.tree is None or filter_set.text is None:
            return None
        return cls(filter_set.tree, filter_set.text, filter_set.dialect if filter_set.is_text else None)

    def over(self, body_schema: str | None) -> Filter:
        """The filter for the messages of a stream that declares a schema of its bodies; the same one without a schema.

        `body_schema` is the text of a `BodySchema`. Attributes of events are read by the content type of the message,
        with or without a schema. Raises ConfigError if bodies cannot be decoded here.
        """
        if body_schema is None or not self.has_body_paths:
            return self
        schema = BodySchema.parse(body_schema)

        def bound(node: t.Node) -> t.Node:
            if isinstance(node, t.Field) and _is_in_body(node.reference):
                return replace(node, reference=replace(node.reference, schema=schema))
            return node

        return Filter(t.with_leaves(self.tree, bound), self.text, self.dialect)

    def __reduce__(self) -> tuple[object, ...]:
        return Filter, (self.tree, self.text, self.dialect)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Filter):
            return NotImplemented
        return (self.dialect, self.text, self.tree) == (other.dialect, other.text, other.tree)

    def __hash__(self) -> int:
        return hash((self.dialect, self.text))

    def __repr__(self) -> str:
        return f"<Filter {self.dialect or 'properties'}: {self.text}>"

    def uses(self, field: FieldReference) -> bool:
        """Whether the verdict may depend on that field."""
        return field in self.fields

    def verdict(self, message: Message | bytes | memoryview, *, now_ms: int | None = None) -> Verdict:
        """The verdict for one message, by the reference evaluator; ERROR for bytes that are no message.

        Here and below: `now_ms` is the time for UTC(). It may be left out if the filter does not use the time
        (`uses_time`); if it does, ConfigError. No message makes any of these methods raise.
        """
        time_ms = self._time_ms(now_ms)
        if isinstance(message, Message):
            return reference.verdict(self.tree, message, time_ms)
        return reference.verdict_of_bytes(self.tree, message, time_ms)

    def matches(self, message: Message | bytes | memoryview, *, now_ms: int | None = None) -> bool:
        """Whether the message is delivered: only a true filter delivers."""
        return self.verdict(message, now_ms=now_ms) is Verdict.TRUE

    def mask(
        self, batch: EncodedMessages, *, now_ms: int | None = None, engine: Engine = Engine.KERNEL
    ) -> NDArray[np.bool_]:
        """Which messages are delivered: `(messages,)` bool. The fast way; use `verdicts` to tell unknown from false."""
        return np.equal(self.verdicts(batch, now_ms=now_ms, engine=engine, exact=False), Verdict.TRUE)

    def verdicts(
        self,
        batch: EncodedMessages,
        *,
        now_ms: int | None = None,
        engine: Engine = Engine.KERNEL,
        exact: bool = True,
    ) -> NDArray[np.uint8]:
        """The `Verdict` of each message: `(messages,)` uint8.

        Without `exact` only TRUE is reliable: the kernel leaves a message as soon as it cannot match.
        """
        program, time_ms = self.program if engine is Engine.KERNEL else None, self._time_ms(now_ms)
        if program is None:
            found = np.full(len(batch), UNDECIDED, dtype=np.uint8)
        else:
            found = program.verdicts(batch, time_ms, exact=exact)
        self.settle(found, batch, time_ms)
        return found

    def explain(
        self,
        message: Message | bytes | memoryview,
        *,
        now_ms: int | None = None,
        filter_values: Collection[bytes] = (),
        match_unfiltered: bool = False,
        filter_value: bytes | None = None,
        declared_source: FieldReference | None = None,
    ) -> Explanation:
        """The verdict of each clause on the message, and why it does not match.

        The other arguments are those of stage 1, see `headgate.evaluate.explanation.explain`.
        """
        return explain(
            self.tree,
            self.text,
            message,
            now_ms=self._time_ms(now_ms),
            filter_values=tuple(filter_values),
            match_unfiltered=match_unfiltered,
            filter_value=filter_value,
            declared_source=declared_source,
        )

    def convert(self, dialect: str, *, assume: Collection[Assumption | str] = ()) -> Conversion:
        """The filter in another language, true for the same messages (`headgate.language.convert`).

        `assume` are known facts about the messages, `kinds` and `spelling`. Raises FilterConversionError with the place
        and the difference, ConfigError for unknown names.
        """
        known = [assumption.value for assumption in Assumption]
        for given in assume:
            if not isinstance(given, Assumption) and given not in known:
                raise ConfigError(f"found assumption {given!r}, expected {' or '.join(known)}")
        return convert_tree(
            self.tree, self.text, self.dialect, dialect_named(dialect), assume=[Assumption(given) for given in assume]
        )

    @property
    def program(self) -> Program | None:
        """The compiled form, made at first use; None for trees that only the reference evaluator takes."""
        if not self._compiled:
            self._program = compile_program(self.tree)
            self._compiled = True
        return self._program

    def _time_ms(self, now_ms: int | None) -> int:
        if now_ms is not None:
            return now_ms
        if self.uses_time:
            raise ConfigError(f"the filter asks for the time: give now_ms, which is what UTC() is in {self.text!r}")
        return 0

    def settle(self, found: NDArray[np.uint8], batch: EncodedMessages, now_ms: int) -> None:
        """Put the verdict of the reference evaluator wherever a kernel left a row UNDECIDED."""
        if not len(found) or largest(found) < UNDECIDED:
            return
        for row in np.flatnonzero(found == UNDECIDED):
            found[row] = reference.verdict_of_bytes(self.tree, batch.message(int(row)), now_ms)


def _is_in_body(field: FieldReference) -> bool:
    return field.section is Section.DATA
