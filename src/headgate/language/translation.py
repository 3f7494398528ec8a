"""Conditions of one family of languages in another, for messages whose values have the types that the filter expects.

The families are those of `ValueRules`: RABBITMQ (the languages `rabbitmq` and `amqp`), ROCKETMQ, and SERVICE_BUS with
CORRELATION. Each field of the filter has one kind, from the constants that it is compared with, and messages are
assumed to hold a value of that kind, or none:

    text      a string, UTF-8; beside ROCKETMQ not an empty one, elsewhere a symbol, too
    number    an integer or a finite float or double; never beside ROCKETMQ, whose numbers are parsed out of texts
    boolean   a boolean

Then no operator fails in any language, so the order of operands does not matter, negations can be pushed down to the
conditions, and it is enough that each condition is true for the same messages. Only these conditions are translated;
where RocketMQ is true for a missing property and the others are unknown, `IS NULL OR` is added.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from headgate.language import printer, servicebus
from headgate.language import tree as t
from headgate.language.dialect import Dialect
from headgate.language.servicebus import SystemType, system_name, system_type
from headgate.language.values import Value, is_number, is_utf8
from headgate.message import SYSTEM_PROPERTIES, AmqpType, FieldReference, Section, without_case

_EXACT_NUMBERS = 2**53
_OPPOSITE = {
    t.CompareOperator.EQUAL: t.CompareOperator.NOT_EQUAL,
    t.CompareOperator.NOT_EQUAL: t.CompareOperator.EQUAL,
    t.CompareOperator.LESS: t.CompareOperator.GREATER_OR_EQUAL,
    t.CompareOperator.LESS_OR_EQUAL: t.CompareOperator.GREATER,
    t.CompareOperator.GREATER: t.CompareOperator.LESS_OR_EQUAL,
    t.CompareOperator.GREATER_OR_EQUAL: t.CompareOperator.LESS,
}

_KINDS_DIFFER = {
    t.ValueRules.RABBITMQ: "rabbitmq and amqp compare a symbol, a binary or a uuid with a text by its bytes, and "
    "unlike kinds without an error",
    t.ValueRules.ROCKETMQ: "rocketmq sees no texts but strings, an empty one as none, and unlike kinds can be an error",
    t.ValueRules.SERVICE_BUS: "servicebus sees strings and symbols as texts, and unlike kinds are an error",
}


class Refused(Exception):  # noqa: N818 - not an error of the user's tree: `convert` turns it into a FilterError
    """A part of a filter that cannot be converted; `span` is its place."""

    def __init__(self, reason: str, span: t.Span) -> None:
        super().__init__(reason)
        self.reason = reason
        self.span = span


class FieldKind(enum.Enum):
    """The kind of constants that a field is compared with; ANY where the filter only tests for a value."""

    TEXT = "text"
    NUMBER = "number"
    BOOLEAN = "boolean"
    ANY = "any"


@dataclass(slots=True)
class Translation:
    """A tree in the target's rules, and its assumptions about messages.

    `kinds_differ` and `spelling_differs` are the reasons (the latter is empty where the spelling of names does not
    matter), `span` is the place of the first field.
    """

    tree: t.Node
    kinds: dict[str, FieldKind]
    """The kind of each field, by its name in the source."""
    kinds_differ: str
    spelling_differs: str
    strings_only: bool
    span: t.Span

    def sentences(self) -> tuple[str, ...]:
        """The assumptions: one sentence for each field, and one for the spelling."""
        texts = "a string that is not empty" if self.strings_only else "a string or symbol"
        holds = {FieldKind.TEXT: texts, FieldKind.NUMBER: "a finite number", FieldKind.BOOLEAN: "a boolean"}
        holds[FieldKind.ANY] = texts
        listed = [f"{name} holds {holds[kind]}, or nothing" for name, kind in self.kinds.items()]
        if self.spelling_differs:
            listed.append("no application property has one of these names in another letter case")
        return tuple(listed)


def translated(tree: t.Node, rules: object, target: Dialect) -> Translation:
    """The bound tree, whose fields are read by `rules`, for `target`. Raises Refused."""
    source = t.ValueRules.SERVICE_BUS if rules is t.ValueRules.CORRELATION else rules
    wanted = target.rules
    if not (source in _KINDS_DIFFER and wanted in _KINDS_DIFFER and source is not wanted):
        raise Refused(f"{target.name} has no filter that is true for the same messages", tree.span)
    assert isinstance(source, t.ValueRules) and isinstance(wanted, t.ValueRules)
    translator = _Translator(source, wanted, target.name)
    found = translator.condition(tree, negated=False)
    spelling = ""
    if t.ValueRules.SERVICE_BUS in (source, wanted) and translator.keys:
        name = next(iter(translator.keys)).decode(errors="replace")
        other = name.swapcase() if name.swapcase() != name else name
        spelling = f"names have any letter case in servicebus alone: {other!r} may stand for {name!r}"
    return Translation(
        tree=found,
        kinds={seen.name: seen.kind for seen in translator.fields.values()},
        kinds_differ=f"{_KINDS_DIFFER[source]}; {_KINDS_DIFFER[wanted]}",
        spelling_differs=spelling,
        strings_only=t.ValueRules.ROCKETMQ in (source, wanted),
        span=next((seen.span for seen in translator.fields.values()), tree.span),
    )


def is_safe_number(number: Value) -> bool:
    """Whether every integer and every double compares with this number alike, exactly or rounded to a double."""
    return is_number(number) and -_EXACT_NUMBERS < number < _EXACT_NUMBERS  # type: ignore[operator]


@dataclass(slots=True)
class _Seen:
    name: str
    kind: FieldKind
    span: t.Span


_FieldKey = tuple[Section, int | None, bytes | None]


@dataclass(slots=True)
class _Translator:
    source: t.ValueRules
    target: t.ValueRules
    target_name: str
    fields: dict[_FieldKey, _Seen] = field(default_factory=dict)
    keys: dict[bytes, bytes] = field(default_factory=dict)
    """Names of application properties, and the same without case."""

    def condition(self, node: t.Node, *, negated: bool) -> t.Node:
        """The condition that is true where `node` is true or, if `negated`, where it is false."""
        match node:
            case t.Not(operand):
                return self.condition(operand, negated=not negated)
            case t.And(operands, span) | t.Or(operands, span):
                junction = t.And if isinstance(node, t.And) is not negated else t.Or
                return junction(tuple(self.condition(operand, negated=negated) for operand in operands), span)
            case t.Constant(value, span):
                return t.Constant(value is not negated if isinstance(value, bool) else False, span)
            case t.Field() | t.BooleanCast(t.Field()):
                named = node if isinstance(node, t.Field) else node.operand
                assert isinstance(named, t.Field)
                flag = self._field(named, FieldKind.BOOLEAN)
                return self._compare(t.CompareOperator.EQUAL, flag, t.Constant(not negated, node.span), node.span)
            case t.IsNull(t.Field() as named, is_negated, span):
                return t.IsNull(self._field(named, FieldKind.ANY), is_negated is not negated, span)
            case t.Compare(operator, t.Field() as named, t.Constant() as constant, _, span):
                return self._comparison(_OPPOSITE[operator] if negated else operator, named, constant, span)
            case t.Compare(operator, t.Constant() as constant, t.Field() as named, _, span):
                return self._mirrored(operator, named, constant, span, negated=negated)
            case t.In(t.Field(), members) if all(isinstance(member, t.Constant) for member in members):
                return self._in(node, negated=negated)
            case t.Like(t.Field() as named, pattern, is_negated, _, span):
                return self._like(named, pattern, span, negated=is_negated is not negated)
            case t.TextTest(_, t.Field()):
                return self._text_test(node, negated=negated)
            case _:
                raise self._refused("only conditions that compare one field with constants can be converted", node.span)

    def _refused(self, reason: str, span: t.Span) -> Refused:
        return Refused(f"{reason}; {self.target_name} has nothing that is true for the same messages", span)

    def _field(self, node: t.Field, kind: FieldKind) -> t.Field:
        """The field as the target reads it; remembers its kind."""
        reference, span = node.reference, node.span
        place = (reference.section, reference.position, reference.key)
        if reference.path or reference.default is not None or reference.only not in (None, AmqpType.STRING):
            raise self._refused("this field has a default, a type or an inside of its own", span)
        wanted = self._reference(reference, kind, span)
        name = (servicebus if self.source is t.ValueRules.SERVICE_BUS else printer).field_text(reference)
        seen = self.fields.setdefault(place, _Seen(name, kind, span))
        if seen.kind is FieldKind.ANY:
            seen.kind = kind
        elif kind not in (FieldKind.ANY, seen.kind):
            raise self._refused(f"the field is compared with a {seen.kind.value} and with a {kind.value}", span)
        if reference.section is Section.APPLICATION_PROPERTIES and reference.key is not None:
            folded = without_case(reference.key)
            if any(other == folded and key != reference.key for key, other in self.keys.items()):
                raise self._refused("two names here differ in letter case only", span)
            self.keys[reference.key] = folded
        return t.Field(wanted, self.target, span)

    def _reference(self, reference: FieldReference, kind: FieldKind, span: t.Span) -> FieldReference:
        plain = FieldReference(reference.section, reference.position, reference.key)
        is_property = reference.section is Section.APPLICATION_PROPERTIES
        if t.ValueRules.SERVICE_BUS in (self.source, self.target) and not is_property:
            is_text = system_type(reference) in (SystemType.TEXT, SystemType.IDENTIFIER)
            if not (is_text and kind in (FieldKind.TEXT, FieldKind.ANY) and system_name(plain)):
                raise self._refused("the languages do not see the same here", span)
        match self.target:
            case t.ValueRules.SERVICE_BUS if is_property:
                return FieldReference(reference.section, key=reference.key, ignore_case=True)
            case t.ValueRules.ROCKETMQ if not is_property:
                for known in SYSTEM_PROPERTIES.values():
                    if (known.section, known.position, known.key) == (plain.section, plain.position, plain.key):
                        return known
                raise Refused(f"{self.target_name} does not see this field", span)
            case _:
                return plain

    def _kind(self, constants: list[t.Constant], span: t.Span) -> FieldKind:
        """The kind of all the constants."""
        kinds = set()
        for constant in constants:
            value = constant.value
            if isinstance(value, bool):
                kinds.add(FieldKind.BOOLEAN)
            elif is_number(value) and t.ValueRules.ROCKETMQ not in (self.source, self.target):
                if not is_safe_number(value):
                    raise self._refused("servicebus rounds an integer beside a double, from 2^53 on", constant.span)
                kinds.add(FieldKind.NUMBER)
            elif isinstance(value, bytes) and is_utf8(value):
                kinds.add(FieldKind.TEXT)
            elif isinstance(value, bytes) or value is None:
                raise self._refused("found a constant that is no text, number or boolean", constant.span)
            else:
                raise self._refused("rocketmq parses numbers out of texts, the other languages do not", constant.span)
        if len(kinds) != 1:
            raise self._refused("the constants are of several kinds", span)
        return kinds.pop()

    def _comparison(self, operator: t.CompareOperator, named: t.Field, constant: t.Constant, span: t.Span) -> t.Node:
        kind = self._kind([constant], span)
        if not operator.is_equality and kind is not FieldKind.NUMBER:
            raise self._refused(f"the order of a {kind.value} is another in each language", span)
        return self._compare(operator, self._field(named, kind), constant, span)

    def _compare(self, operator: t.CompareOperator, named: t.Field, constant: t.Constant, span: t.Span) -> t.Node:
        return t.Compare(operator, named, constant, self.target, span)

    def _mirrored(
        self, operator: t.CompareOperator, named: t.Field, constant: t.Constant, span: t.Span, *, negated: bool
    ) -> t.Node:
        """A comparison with the constant on the left; without a value, RocketMQ's `=` is false, not unknown."""
        mirrored = operator.mirrored
        effective = _OPPOSITE[mirrored] if negated else mirrored
        found = self._comparison(effective, named, constant, span)
        if self.source is t.ValueRules.ROCKETMQ and effective is t.CompareOperator.NOT_EQUAL:
            return self._or_null(named, found, span)
        return found

    def _or_null(self, named: t.Field, condition: t.Node, span: t.Span) -> t.Node:
        return t.Or((t.IsNull(self._field(named, FieldKind.ANY), False, span), condition), span)

    def _in(self, node: t.In, *, negated: bool) -> t.Node:
        members = [member for member in node.members if isinstance(member, t.Constant)]
        kind = self._kind(members, node.span)
        if kind is FieldKind.BOOLEAN:
            raise self._refused("IN with booleans is not the same in the languages", node.span)
        assert isinstance(node.subject, t.Field)
        return t.In(
            self._field(node.subject, kind), tuple(members), node.negated is not negated, self.target, node.span
        )

    def _like(self, named: t.Field, pattern: t.LikePattern, span: t.Span, *, negated: bool) -> t.Node:
        """LIKE where wildcards do not stand for single characters: between `%` and texts the languages agree."""
        subject = self._field(named, FieldKind.TEXT)
        if self.target is t.ValueRules.ROCKETMQ:
            return self._text_test_of(subject, pattern, span, negated=negated)
        if pattern.shape is t.LikeShape.GENERAL:
            raise self._refused("with `_` or two `%`, rabbitmq and amqp take a line feed for no character", span)
        return t.Like(subject, pattern, negated, self.target, span)

    def _text_test_of(self, subject: t.Field, pattern: t.LikePattern, span: t.Span, *, negated: bool) -> t.Node:
        """RocketMQ's words for a pattern."""
        tests = {
            t.LikeShape.PREFIX: (t.TextTestKind.STARTS_WITH, pattern.prefix),
            t.LikeShape.SUFFIX: (t.TextTestKind.ENDS_WITH, pattern.suffix),
        }
        kind, text = tests.get(pattern.shape, (t.TextTestKind.CONTAINS, b""))
        if pattern.shape is t.LikeShape.EXACT:
            operator = t.CompareOperator.NOT_EQUAL if negated else t.CompareOperator.EQUAL
            return self._compare(operator, subject, t.Constant(pattern.prefix, span), span)
        if pattern.shape is t.LikeShape.GENERAL and self.source is t.ValueRules.SERVICE_BUS:
            match pattern.elements:
                case (t.LikeWildcard.ANY, bytes() as middle, t.LikeWildcard.ANY):
                    text = middle
        if not text:
            raise self._refused("rocketmq looks for one text: at the start, at the end or anywhere", span)
        return t.TextTest(kind, subject, text, negated, span)

    def _text_test(self, node: t.TextTest, *, negated: bool) -> t.Node:
        """STARTSWITH, ENDSWITH and CONTAINS, which are false, and so true under NOT, without a value."""
        if not node.text:
            raise self._refused("a search for no text is never true", node.span)
        assert isinstance(node.subject, t.Field)
        match node.kind:
            case t.TextTestKind.STARTS_WITH:
                pattern = t.LikePattern(t.LikeShape.PREFIX, prefix=node.text)
            case t.TextTestKind.ENDS_WITH:
                pattern = t.LikePattern(t.LikeShape.SUFFIX, suffix=node.text)
            case t.TextTestKind.CONTAINS if self.target is t.ValueRules.SERVICE_BUS:
                elements = (t.LikeWildcard.ANY, node.text, t.LikeWildcard.ANY)
                pattern = t.LikePattern(t.LikeShape.GENERAL, elements=elements)
            case t.TextTestKind.CONTAINS:
                reason = "LIKE with two `%` takes a line feed for no character in rabbitmq and amqp"
                raise self._refused(reason, node.span)
        subject = self._field(node.subject, FieldKind.TEXT)
        found = t.Like(subject, pattern, node.negated is not negated, self.target, node.span)
        return self._or_null(node.subject, found, node.span) if negated else found
