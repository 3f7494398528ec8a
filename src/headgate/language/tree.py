"""The tree of a filter: a parser makes it, a binder resolves its names, and every evaluator walks it.

One set of nodes for all languages. Before binding, a field is a `Name`; after binding, it is a `Field`, and every
semantic decision that differs between languages is written on the node (`ValueRules`, …), so that an evaluator
implements operators and never asks for the dialect.

Truth is three-valued (false, true, unknown). An error of the language ends the evaluation of the whole filter.
Operands are evaluated left to right, and AND and OR stop at the first that decides.
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable, Hashable
from dataclasses import dataclass, fields, replace
from decimal import Decimal
from typing import Any, TypeAlias, get_args

from headgate.message import AmqpValue, FieldReference

Span: TypeAlias = tuple[int, int]
"""Start and stop position in the filter text, in code points."""


class ValueRules(enum.Enum):
    """The values that a language sees in a message, and the semantics of its operators.

    The tables are in `headgate.evaluate.semantics`, one module each.
    """

    RABBITMQ = "number, bytes, boolean; unlike kinds: `=` false, `<>` true, order false"
    ROCKETMQ = "strings are parsed as what they meet; a string that cannot be is an error"
    ROCKETMQ_MAP = "ROCKETMQ, on fields of a property map that was never stored: an empty string is no NULL"
    SERVICE_BUS = "C#: promotions between numbers; unlike kinds are an error"
    CORRELATION = "`=` alone, on the values of SERVICE_BUS: numbers by value; absent, null and unlike kinds are false"
    CESQL = (
        "strings, integers of 32 bits, booleans, cast into each other; what is missing or cannot be cast is an error"
    )


@dataclass(frozen=True, slots=True)
class OwnRules:
    """The values of a language from outside: the module of this name has the functions of `Semantics`.

    See `headgate.evaluate.semantics`, which imports it at first use. The reference evaluator decides filters with such
    rules, and nothing is concluded from their own operators.
    """

    module: str


Rules: TypeAlias = ValueRules | OwnRules
"""The semantics of a node's operator."""


class CompareOperator(enum.Enum):
    """The six comparison operators, by their usual spelling."""

    EQUAL = "="
    NOT_EQUAL = "<>"
    LESS = "<"
    LESS_OR_EQUAL = "<="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="

    @property
    def apply(self) -> Callable[[Any, Any], Any]:
        """Python's operator of that spelling."""
        return _PYTHONS[self]

    @property
    def is_equality(self) -> bool:
        """Whether it is `=` or `<>`; the others ask for an order."""
        return self in (CompareOperator.EQUAL, CompareOperator.NOT_EQUAL)

    @property
    def mirrored(self) -> CompareOperator:
        """The operator that says the same with the operands the other way round."""
        return _MIRRORED.get(self, self)


_PYTHONS: dict[CompareOperator, Callable[[Any, Any], Any]] = {
    CompareOperator.EQUAL: operator.eq,
    CompareOperator.NOT_EQUAL: operator.ne,
    CompareOperator.LESS: operator.lt,
    CompareOperator.LESS_OR_EQUAL: operator.le,
    CompareOperator.GREATER: operator.gt,
    CompareOperator.GREATER_OR_EQUAL: operator.ge,
}
_MIRRORED = {
    CompareOperator.LESS: CompareOperator.GREATER,
    CompareOperator.LESS_OR_EQUAL: CompareOperator.GREATER_OR_EQUAL,
    CompareOperator.GREATER: CompareOperator.LESS,
    CompareOperator.GREATER_OR_EQUAL: CompareOperator.LESS_OR_EQUAL,
}


class ArithmeticOperator(enum.Enum):
    """The five binary arithmetic operators, by their usual spelling."""

    ADD = "+"
    SUBTRACT = "-"
    MULTIPLY = "*"
    DIVIDE = "/"
    MODULO = "%"


@dataclass(frozen=True, slots=True)
class Constant:
    """A value from the text: strings are held as UTF-8 bytes, None is NULL, and `AmqpValue` is any other type.
    No text has a Decimal: the reference evaluator makes constants of what is found in a body.
    `typed` is the value of a parameter: a property that is set to it keeps its exact type.
    """

    value: bool | int | float | Decimal | bytes | AmqpValue | None
    span: Span = (0, 0)
    typed: AmqpValue | None = None


@dataclass(frozen=True, slots=True)
class Name:
    """Unbound: a field as the text names it. `section` is the prefix before the dot, None without one.

    `path` are the references after it, into maps and lists (`FieldReference.path`).
    """

    section: str | None
    name: str
    span: Span = (0, 0)
    path: tuple[bytes | int, ...] = ()


@dataclass(frozen=True, slots=True)
class Field:
    """Bound: the value of a field of the message, as `rules` see it."""

    reference: FieldReference
    rules: Rules = ValueRules.RABBITMQ
    span: Span = (0, 0)


@dataclass(frozen=True, slots=True)
class BodyPath:
    """Unbound: a path into the JSON of the body: names of members, numbers of elements, and None for `[*]`.

    Binding makes a Field of it or, with `[*]`, an AnyElement of the condition that it stands in.
    """

    steps: tuple[bytes | int | None, ...]
    span: Span = (0, 0)


@dataclass(frozen=True, slots=True)
class Element:
    """In the condition of an AnyElement: the value that `path` leads to in the element that is looked at.

    An empty path is the element itself. Within another AnyElement it is the element of the inner one.
    """

    path: tuple[bytes | int, ...] = ()
    rules: Rules = ValueRules.RABBITMQ
    span: Span = (0, 0)


@dataclass(frozen=True, slots=True)
class AnyElement:
    """Whether `condition` is true of an element of an array in the body: `body.flags[*] = 'urgent'`.

    True if it is true of one, else unknown if it is unknown of one, else false; so an empty array is false. Unknown
    where `array` is no array. `array` is a Field into the body or, within another AnyElement, an Element. `condition`
    is a Compare, CompareSpecial, In, Like, IsNull or Exists, with one Element that it looks at directly, or it is an
    AnyElement whose array is an Element.
    """

    array: Field | Element
    condition: Node
    span: Span = (0, 0)


@dataclass(frozen=True, slots=True)
class Parameter:
    """Unbound: `@name`, a value that is given beside the text; binding makes a Constant of it."""

    name: str
    span: Span = (0, 0)


@dataclass(frozen=True, slots=True)
class PropertyOf:
    """`property(name)`: the application property that the string `name` names, without case, as `rules` see it.

    Unknown if the name is unknown or the message has no such property; a name that is not a string is an error. Binding
    makes a Field of it where the name is a constant string.
    """

    name: Node
    rules: Rules = ValueRules.SERVICE_BUS
    span: Span = (0, 0)


@dataclass(frozen=True, slots=True)
class NewId:
    """`newid()`: a uuid made of the evaluator's identity and `occurrence`, the number of this call in the text.

    See `headgate.language.servicebus.values.new_id`; in a filter the evaluator's identity is empty.
    """

    occurrence: int = 0
    span: Span = (0, 0)


@dataclass(frozen=True, slots=True)
class MessageSize:
    """The bytes of the encoded message, a number; never unknown."""

    span: Span = (0, 0)


@dataclass(frozen=True, slots=True)
class Now:
    """Milliseconds since the epoch, given to each evaluation as an input."""

    span: Span = (0, 0)


@dataclass(frozen=True, slots=True)
class And:
    """Three-valued conjunction of two or more operands, left to right; an operand that is not a boolean is unknown."""

    operands: tuple[Node, ...]
    span: Span = (0, 0)


@dataclass(frozen=True, slots=True)
class Or:
    """Three-valued disjunction of two or more operands, left to right; an operand that is not a boolean is unknown."""

    operands: tuple[Node, ...]
    span: Span = (0, 0)


@dataclass(frozen=True, slots=True)
class Not:
    """Three-valued negation; an operand that is not a boolean is unknown."""

    operand: Node
    span: Span = (0, 0)


@dataclass(frozen=True, slots=True)
class Compare:
    """A comparison; unknown if a side is unknown, else by `rules`.

    ROCKETMQ: two NULLs are equal; NULL on the left alone is unknown, on the right alone `=` is false and `<>` true; an
    order is unknown with NULL on a side, and the right side is not evaluated behind a NULL on the left.
    """

    operator: CompareOperator
    left: Node
    right: Node
    rules: Rules = ValueRules.RABBITMQ
    span: Span = (0, 0)


class SpecialNumber(enum.Enum):
    """The numbers that no other operator sees."""

    INFINITY = "INF"
    NEGATIVE_INFINITY = "-INF"
    NAN = "NAN"


@dataclass(frozen=True, slots=True)
class Special:
    """Unbound: INF, +INF, -INF or NAN as the text has it; only a comparison with a name takes one."""

    number: SpecialNumber
    span: Span = (0, 0)


@dataclass(frozen=True, slots=True)
class CompareSpecial:
    """A field compared with an infinity or NaN: the one operator that sees infinities and NaN in a message.

    Numbers compare as in IEEE 754, every integer below INF, except that `= NAN` tells whether the field is NaN, and
    `<> NAN` that it is not. Another kind: `=` false, `<>` true, order false. Absent, null, decimals and compounds are
    unknown. Source: amqp_extensions, section 6.
    """

    operator: CompareOperator
    operand: Node
    number: SpecialNumber
    span: Span = (0, 0)


@dataclass(frozen=True, slots=True)
class In:
    """`subject [NOT] IN (members)`: unknown if the subject is, else whether a member equals it; unknown ones do not.

    Under ROCKETMQ the members are strings, and a subject that is not a string is unknown, too.
    """

    subject: Node
    members: tuple[Node, ...]
    negated: bool = False
    rules: Rules = ValueRules.RABBITMQ
    span: Span = (0, 0)


class LikeShape(enum.Enum):
    """How a pattern without regular-expression regime is decided; see `LikePattern`."""

    EXACT = "exact"
    PREFIX = "prefix"
    SUFFIX = "suffix"
    PREFIX_SUFFIX = "prefix and suffix"
    GENERAL = "general"


@dataclass(frozen=True, slots=True)
class LikePattern:
    """A compiled LIKE pattern.

    EXACT, PREFIX, SUFFIX, PREFIX_SUFFIX compare bytes: `prefix` and `suffix` (EXACT: all of `prefix`), not overlapping.
    GENERAL walks code points with `elements`: bytes = literal UTF-8 text, ANY = `%`, ONE = `_`. In RabbitMQ's GENERAL
    regime wildcards do not match LF, one trailing LF of the subject is tolerated, and a subject that is not UTF-8 is
    unknown. In that of Service Bus wildcards match every character, and a byte that is not UTF-8 is one character.
    """

    shape: LikeShape
    prefix: bytes = b""
    suffix: bytes = b""
    elements: tuple[bytes | LikeWildcard, ...] = ()

    @property
    def parts(self) -> tuple[bytes | LikeWildcard, ...]:
        """A pattern of any shape as texts and wildcards."""
        has_any = self.shape in (LikeShape.PREFIX, LikeShape.SUFFIX, LikeShape.PREFIX_SUFFIX)
        parts = (self.prefix, *((LikeWildcard.ANY,) if has_any else ()), self.suffix)
        return self.elements if self.shape is LikeShape.GENERAL else tuple(part for part in parts if part != b"")


class LikeWildcard(enum.Enum):
    """A wildcard of a GENERAL pattern."""

    ANY = "%"
    ONE = "_"


@dataclass(frozen=True, slots=True)
class Like:
    """`subject [NOT] LIKE pattern`."""

    subject: Node
    pattern: LikePattern
    negated: bool = False
    rules: Rules = ValueRules.RABBITMQ
    span: Span = (0, 0)


@dataclass(frozen=True, slots=True)
class LikeText:
    """Unbound: LIKE with its pattern and escape as the text states them; `escape` is None without ESCAPE."""

    subject: Node
    pattern: str
    escape: str | None
    negated: bool = False
    pattern_span: Span = (0, 0)
    escape_span: Span = (0, 0)
    span: Span = (0, 0)


@dataclass(frozen=True, slots=True)
class LikeValue:
    """`subject [NOT] LIKE pattern [ESCAPE escape]` with a pattern and an escape that are expressions.

    Unknown if one of the operands is; else an operand that is not a string, an escape that is not one character, and an
    escape at the end of the pattern are errors. Binding makes a Like of it where pattern and escape are constants.
    """

    subject: Node
    pattern: Node
    escape: Node | None
    negated: bool = False
    rules: Rules = ValueRules.SERVICE_BUS
    span: Span = (0, 0)


class TextTestKind(enum.Enum):
    """Where a TextTest looks for its text, by the operator's spelling."""

    CONTAINS = "CONTAINS"
    STARTS_WITH = "STARTSWITH"
    ENDS_WITH = "ENDSWITH"


@dataclass(frozen=True, slots=True)
class TextTest:
    """`subject [NOT] CONTAINS | STARTSWITH | ENDSWITH 'text'` (RocketMQ), on the bytes of UTF-8.

    Never unknown. FALSE, also if `negated`, where `text` is empty or the subject is NULL or no string; else whether the
    subject holds, begins with or ends with `text`, byte for byte, and with `negated` whether it does not.
    """

    kind: TextTestKind
    subject: Node
    text: bytes
    negated: bool = False
    span: Span = (0, 0)


@dataclass(frozen=True, slots=True)
class BooleanCast:
    """A bare property where a condition is wanted (RocketMQ): NULL if it is NULL, TRUE if it is the boolean true.

    FALSE for every other value, the strings `true` and `TRUE` included.
    """

    operand: Node
    span: Span = (0, 0)


@dataclass(frozen=True, slots=True)
class IsNull:
    """`field IS [NOT] NULL`: whether the value is unknown; itself never unknown."""

    operand: Node
    negated: bool = False
    span: Span = (0, 0)


@dataclass(frozen=True, slots=True)
class Exists:
    """Whether the message has the field, key or element, or the event the attribute; never unknown.

    A key or element with a null or any other value exists; in the header and properties lists a null field is as good
    as none, and a default is no field.
    """

    operand: Node
    span: Span = (0, 0)


@dataclass(frozen=True, slots=True)
class HasSimple:
    """Whether the message has the key with a null or with a value of the four kinds; never unknown.

    A null in a property filter means this (RabbitMQ): NaN, infinities, decimals, compounds and described values are no
    simple values, and a key that holds one counts as absent.
    """

    operand: Node
    span: Span = (0, 0)


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Binary arithmetic."""

    operator: ArithmeticOperator
    left: Node
    right: Node
    rules: Rules = ValueRules.RABBITMQ
    span: Span = (0, 0)


@dataclass(frozen=True, slots=True)
class Sign:
    """Unary plus or minus."""

    negative: bool
    operand: Node
    rules: Rules = ValueRules.RABBITMQ
    span: Span = (0, 0)


class Function(enum.Enum):
    """The functions on texts, by their usual spelling; their semantics are in `headgate.language.functions`."""

    LOWER = "LOWER"
    UPPER = "UPPER"
    LEFT = "LEFT"
    RIGHT = "RIGHT"
    SUBSTRING = "SUBSTRING"
    DATE = "DATE"


@dataclass(frozen=True, slots=True)
class Call:
    """A function of one to three arguments; unknown if an argument is unknown or of the wrong kind."""

    function: Function
    arguments: tuple[Node, ...]
    span: Span = (0, 0)


@dataclass(frozen=True, slots=True)
class Attribute:
    """The attribute of that name of a CloudEvent; an error if the event has none.

    `content_type` tells where the event is. In the body: the attribute is `member`; else it is the first of `fields`
    with a value. See `headgate.evaluate.semantics.cesql`.
    """

    name: str
    content_type: Node
    fields: tuple[Node, ...]
    member: Node
    span: Span = (0, 0)


@dataclass(frozen=True, slots=True)
class Apply:
    """A function of CloudEvents SQL, by its name in capitals; never unknown, but an argument may be an error.

    See `headgate.language.cesql.functions`.
    """

    function: str
    arguments: tuple[Node, ...]
    span: Span = (0, 0)


@dataclass(frozen=True, slots=True)
class Concatenate:
    """`left || right`: the bytes joined; unknown unless both are bytes, and beyond 65 535 bytes."""

    left: Node
    right: Node
    span: Span = (0, 0)


Node: TypeAlias = (
    Constant
    | Name
    | BodyPath
    | Parameter
    | Field
    | Element
    | AnyElement
    | PropertyOf
    | NewId
    | MessageSize
    | Now
    | And
    | Or
    | Not
    | Compare
    | Special
    | CompareSpecial
    | In
    | Like
    | LikeText
    | LikeValue
    | TextTest
    | BooleanCast
    | IsNull
    | Exists
    | HasSimple
    | Arithmetic
    | Sign
    | Call
    | Concatenate
    | Attribute
    | Apply
)


def children(node: Node) -> tuple[Node, ...]:
    """The operands of a node, left to right."""
    operands = _OPERANDS.get(type(node))
    return () if operands is None else operands(node)


# By kind in a table: trees are walked often, and most nodes are leaves.
_OPERANDS: dict[type, Callable[[Any], tuple[Node, ...]]] = {
    And: operator.attrgetter("operands"),
    Or: operator.attrgetter("operands"),
    Compare: operator.attrgetter("left", "right"),
    AnyElement: operator.attrgetter("array", "condition"),
    Arithmetic: operator.attrgetter("left", "right"),
    Concatenate: operator.attrgetter("left", "right"),
    Call: operator.attrgetter("arguments"),
    Apply: operator.attrgetter("arguments"),
    Attribute: lambda node: (node.content_type, *node.fields, node.member),
    In: lambda node: (node.subject, *node.members),
    Like: lambda node: (node.subject,),
    LikeText: lambda node: (node.subject,),
    TextTest: lambda node: (node.subject,),
    LikeValue: lambda node: (node.subject, node.pattern, *(() if node.escape is None else (node.escape,))),
    PropertyOf: lambda node: (node.name,),
    Not: lambda node: (node.operand,),
    BooleanCast: lambda node: (node.operand,),
    IsNull: lambda node: (node.operand,),
    Exists: lambda node: (node.operand,),
    HasSimple: lambda node: (node.operand,),
    Sign: lambda node: (node.operand,),
    CompareSpecial: lambda node: (node.operand,),
}


def walk(node: Node) -> list[Node]:
    """The node and everything below it, each before its operands."""
    found: list[Node] = []
    stack = [node]
    while stack:
        current = stack.pop()
        found.append(current)
        operands = _OPERANDS.get(type(current))
        if operands is not None:
            stack.extend(reversed(operands(current)))
    return found


def own_rules(node: Node) -> OwnRules | None:
    """The rules of a language from outside that a tree follows somewhere; None if it follows none. Cost: one walk."""
    for below in walk(node):
        rules = getattr(below, "rules", None)
        if isinstance(rules, OwnRules):
            return rules
    return None


def height(node: Node) -> int:
    """How many nodes lie on the longest way down, the node included. Cost: one walk, without recursion."""
    levels, level = 0, [node]
    while level:
        levels += 1
        level = [child for parent in level for child in children(parent)]
    return levels


def conjuncts(node: Node) -> list[Node]:
    """The conditions that must all be true for a tree to be true, left to right: operands of its ANDs, or the tree."""
    found: list[Node] = []
    stack = [node]
    while stack:
        current = stack.pop()
        if isinstance(current, And):
            stack.extend(reversed(current.operands))
        else:
            found.append(current)
    return found


def identity(tree: Node) -> Hashable:
    """Equal for trees that differ in nothing but the places of their nodes in a text. Cost: one walk.

    TRUE, 1 and 1.0 differ, and so do the two zeros; LIKE patterns of the same parts are equal.
    """
    return tuple(
        (type(node), len(children(node)), *(_told_apart(getattr(node, name)) for name in _PARTS[type(node)]))
        for node in walk(tree)
    )


def _told_apart(value: object) -> Hashable:
    if isinstance(value, float | AmqpValue):
        return repr(value)
    if isinstance(value, LikePattern):
        return value.shape is LikeShape.GENERAL, value.parts
    return None if _is_operand(value) else (type(value), value)


def _is_operand(value: object) -> bool:
    """Whether a field of a node holds an operand or some."""
    return type(value[0] if isinstance(value, tuple) and value else value) in _PARTS


_PARTS: dict[type, tuple[str, ...]] = {
    kind: tuple(field.name for field in fields(kind) if not field.name.endswith("span")) for kind in get_args(Node)
}
"""The fields of each kind of node, without places in the text."""


def with_operands(node: Node, changed: Callable[[Node], Node]) -> Node:
    """The same node with `changed` in place of each of its operands."""
    if type(node) not in _OPERANDS:
        return node
    replaced: dict[str, object] = {}
    for name in _PARTS[type(node)]:
        value = getattr(node, name)
        if _is_operand(value):
            replaced[name] = tuple(map(changed, value)) if isinstance(value, tuple) else changed(value)
    return replace(node, **replaced)  # type: ignore[arg-type]


def with_leaves(node: Node, changed: Callable[[Node], Node]) -> Node:
    """The same tree with `changed` in place of each node that has no operands."""
    return with_operands(node, lambda operand: with_leaves(operand, changed)) if children(node) else changed(node)


def shifted(node: Node, by: int) -> Node:
    """The same tree with all spans moved by `by`."""
    moved = with_operands(node, lambda operand: shifted(operand, by))
    return replace(moved, span=(node.span[0] + by, node.span[1] + by))
