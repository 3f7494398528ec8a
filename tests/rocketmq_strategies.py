"""Hypothesis strategies for the dialect `rocketmq`: expressions, property maps with strings and with typed values."""

from __future__ import annotations

import math
import string

from hypothesis import strategies as st

from headgate.message import SYSTEM_PROPERTIES, AmqpType, AmqpValue
from headgate.protocols.rocketmq import RocketMessage

NAMES = ("a", "b", "size", "price", "flag", "TAGS", "UNIQ_KEY", "$y", "missing")
TEXTS = (
    "", "red", "5", "05", "+5", "-5", "5.0", " 5", "true", "TRUE", "false", "NaN", "Infinity", "-Infinity", "-0",
    "-0.0", "0", "1e3", "1E3d", ".5", "5.", "0x1p3", "0X.8P-2f", "\u0663", "\uff12", "1_000", "2147483647",
    "2147483648", "-2147483648", "-2147483649", "9223372036854775807", "9223372036854775808", "1e400", "1e-400",
    "abc", "o'neil", "\u65e5\u672c", "\U0001f600", "10L", "2f", "\t7\n", "9007199254740993", "16777217", "0.1",
    "19.99", "1e", "-", "+-5",
)  # fmt: skip
"""Texts of properties and literals: numbers in many spellings, things that are nearly numbers, other texts."""

texts = st.one_of(st.sampled_from(TEXTS), st.text(alphabet="05.eE+-xpdfNaI ", max_size=6))

_INTEGERS = (
    "0", "1", "5", "10", "-5", "2147483647", "2147483648", "-2147483648", "9223372036854775807", "5L", "16777217",
    "9007199254740993",
)  # fmt: skip
_FLOATS = ("5.0", "1e1", ".5", "0.1", "1E-3", "19.99", "4.9e-324", "1e7", "-0.5", "2.5", "9007199254740993.0")


def quoted(text: str) -> str:
    """A string constant."""
    return "'" + text.replace("'", "''") + "'"


names = st.sampled_from(NAMES)
numbers = st.sampled_from(_INTEGERS + _FLOATS)
strings = texts.map(quoted)
_literals = st.one_of(numbers, strings, st.sampled_from(("TRUE", "false", "NULL")))
_operands = st.one_of(names, names, _literals, names.map("-{}".format), names.map("+{}".format))
_lists = st.lists(strings, min_size=1, max_size=6).map(", ".join)
_orders = st.sampled_from(("<", "<=", ">", ">="))
_tests = st.sampled_from(("CONTAINS", "startswith", "ENDSWITH", "NOT CONTAINS", "NOT STARTSWITH", "not endswith"))
_predicates = st.one_of(
    st.builds("{} {} {}".format, names, _orders, st.one_of(names, numbers)),
    st.builds("{} {} {}".format, _operands, st.sampled_from(("=", "<>")), _operands),
    st.builds("{} {}BETWEEN {} AND {}".format, names, st.sampled_from(("", "NOT ")), numbers, numbers),
    st.builds("{} {}IN ({})".format, names, st.sampled_from(("", "NOT ")), _lists),
    st.builds("{} {} {}".format, _operands, _tests, strings),
    st.builds("{} IS {}NULL".format, _operands, st.sampled_from(("", "NOT "))),
    names,
    st.sampled_from(("TRUE", "FALSE", "NULL")),
)


def _logical(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("{} AND {}".format, inner, inner),
        st.builds("{} OR {}".format, inner, inner),
        st.builds("NOT ({})".format, inner),
        st.builds("({})".format, inner),
        st.builds("({}) = ({})".format, inner, inner),
        st.builds("({}) IS NOT NULL".format, inner),
    )


expressions = st.recursive(_predicates, _logical, max_leaves=6)
"""Texts most of which the dialect accepts; they reach every operator and mix types freely."""

_TOKENS = (
    *NAMES, *_INTEGERS, *_FLOATS, "=", "<>", "<", ">=", "(", ")", ",", "+", "-", "NOT", "AND", "OR", "IS", "NULL", "IN",
    "BETWEEN", "CONTAINS", "TRUE", "'x'", "'5'", "''", "'", "--", "-- c\n", "/* c */", "/*", "\n", "\xa0", "!", ";",
    ".", "*", "\xe9", "LIKE", "0.0", "1e400", "99999999999999999999", "\ud800",
)  # fmt: skip
token_soups = st.lists(st.sampled_from(_TOKENS), max_size=10).flatmap(
    lambda tokens: st.sampled_from(("", " ")).map(lambda blank: blank.join(tokens))
)
"""Tokens of the language and of none, in any order."""

string_maps = st.dictionaries(st.sampled_from(NAMES[:-1]), texts, max_size=6)
"""Property maps as RocketMQ has them."""


def _integers(kind: AmqpType, bits: int) -> st.SearchStrategy[AmqpValue]:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    common = [value for value in (0, 1, 5, -5, 7, 16777217, 9007199254740993, low, high) if low <= value <= high]
    return st.one_of(st.sampled_from(common), st.integers(low, high)).map(lambda value: AmqpValue(kind, value))


_doubles = st.one_of(st.sampled_from((0.0, -0.0, 5.0, 0.1, 2.5, math.nan, math.inf, -math.inf, 2.0**53)), st.floats())
typed_values = st.one_of(
    _integers(AmqpType.BYTE, 8),
    _integers(AmqpType.SHORT, 16),
    _integers(AmqpType.INT, 32),
    _integers(AmqpType.LONG, 64),
    _doubles.map(lambda value: AmqpValue(AmqpType.DOUBLE, value)),
    st.floats(width=32).map(lambda value: AmqpValue(AmqpType.FLOAT, value)),
    st.booleans().map(lambda value: AmqpValue(AmqpType.BOOLEAN, value)),
    texts.map(lambda value: AmqpValue(AmqpType.STRING, value)),
    st.integers(0, 9).map(lambda value: AmqpValue(AmqpType.UINT, value)),
    st.just(AmqpValue(AmqpType.SYMBOL, "5")),
    st.just(AmqpValue(AmqpType.TIMESTAMP, 5)),
)
"""Values of every type that the language sees, and some that it does not."""

typed_maps = st.dictionaries(st.sampled_from(NAMES[:-1]), typed_values, max_size=6)
"""Property maps as messages of other protocols bring them."""

_property_texts = st.text(
    st.characters(exclude_characters="\x01\x02", exclude_categories=("Cs",)), min_size=1, max_size=300
)
_property_names = st.one_of(st.text(string.ascii_letters, min_size=1, max_size=8), _property_texts).filter(
    lambda name: name not in SYSTEM_PROPERTIES
)
rocket_messages = st.builds(
    RocketMessage,
    st.binary(max_size=400),
    user=st.dictionaries(_property_names, _property_texts, max_size=8),
    system=st.dictionaries(st.sampled_from(sorted(SYSTEM_PROPERTIES)), _property_texts, max_size=8).map(
        lambda system: {**system, "UNIQ_KEY": system.get("UNIQ_KEY", "7F00")}
    ),
    born_ms=st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
    born_host=st.sampled_from(("", "10.0.0.1:50312", "[::1]:7")),
    flag=st.integers(-(2**31), 2**31 - 1),
    message_group=st.one_of(st.none(), _property_texts),
)
"""Messages as clients of RocketMQ send them."""
