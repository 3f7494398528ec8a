"""How RocketMQ shows an expression in its errors: `(color == 'red')`, `(NOT x)`, `x IN ( a, b )`.

Source: rocketmq_filters, section 5. Not the spelling of the language: that is `rocketmq_printer`'s.
"""

from __future__ import annotations

from functools import reduce

from headgate.language import tree as t
from headgate.language.rocketmq.java import double_text, string_hash
from headgate.language.values import Value
from headgate.message import AmqpValue
from headgate.message.constructors import AmqpType

_SHORT_LIST = 4
"""Longer lists of IN are hash sets in the original and show in the order of their buckets."""


def expression_text(node: t.Node) -> str:
    """The text of an unbound expression. Recursion as deep as the tree is high."""
    match node:
        case t.Constant(value):
            return (
                f"'{plain_text(value).replace(chr(39), chr(39) * 2)}'"
                if isinstance(value, bytes)
                else plain_text(value)
            )
        case t.Name(name=name):
            return name
        case t.BooleanCast(operand):
            return expression_text(operand)
        case t.Not(operand):
            return f"(NOT {expression_text(operand)})"
        case t.Sign(operand=operand):
            return f"(- {expression_text(operand)})"
        case t.And(operands):
            return reduce(lambda left, right: f"({left} && {right})", map(expression_text, operands))
        case t.Or(operands):
            return reduce(lambda left, right: f"({left} || {right})", map(expression_text, operands))
        case t.Compare(operator, left, right):
            return _comparison(operator, expression_text(left), expression_text(right))
        case t.IsNull(operand, negated):
            test = f"({expression_text(operand)} == NULL)"
            return f"(NOT {test})" if negated else test
        case t.In(subject, members, negated):
            listed = ", ".join(
                _shown([plain_text(member.value) for member in members if isinstance(member, t.Constant)])
            )
            return f"{expression_text(subject)} {'NOT ' if negated else ''}IN ( {listed} )"
        case t.TextTest(kind, subject, _, negated):
            return f"({'NOT ' if negated else ''}{kind.value} {expression_text(subject)})"
        case _:
            raise TypeError(f"no expression of this language: {node}")


def plain_text(value: Value) -> str:
    """A constant as Java prints it, strings without quotes."""
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case bytes():
            return value.decode()
        case AmqpValue(type=AmqpType.DOUBLE):
            return double_text(value.value)
        case AmqpValue():
            return str(value.value)
        case _:
            raise TypeError(f"no constant of this language: {value!r}")


def _comparison(operator: t.CompareOperator, left: str, right: str) -> str:
    if operator is t.CompareOperator.NOT_EQUAL:
        return f"(NOT ({left} == {right}))"
    return f"({left} {'==' if operator is t.CompareOperator.EQUAL else operator.value} {right})"


def _shown(members: list[str]) -> list[str]:
    """The members in the order of the original: as given, or by bucket of a hash set made of the list."""
    if len(members) <= _SHORT_LIST:
        return members
    buckets = 16
    while buckets < int(len(members) / 0.75) + 1:
        buckets *= 2
    return sorted(dict.fromkeys(members), key=lambda member: _bucket(member, buckets))


def _bucket(member: str, buckets: int) -> int:
    hashed = string_hash(member) & 0xFFFFFFFF
    return (hashed ^ hashed >> 16) & (buckets - 1)
