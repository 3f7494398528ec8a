"""Hypothesis strategies of paths into JSON bodies: documents, filters that reach into them, messages around both."""

from __future__ import annotations

from hypothesis import strategies as st

from headgate.message import AmqpType, AmqpValue, Body, Message

_names = st.sampled_from(("a", "b", "k", "two words", "é", ""))
_numbers = st.one_of(
    st.integers(-3, 12).map(str),
    st.sampled_from(("0.5", "5.0", "1e0", "0.1", "19.99", "-0", "9007199254740993", "1e400", "9" * 501, "1e10000")),
    st.decimals(-20, 20, places=2).map(str),
)
_strings = st.sampled_from(('"x"', '"abc"', '""', r'"\u0078"', '"é"', r'"\ud800"', r'"a\nb"', r'"\"\\"', '"A-1"'))
_scalars = st.one_of(_numbers, _strings, st.sampled_from(("true", "false", "null")))
_blanks = st.sampled_from(("", "", "", " ", "\n\t"))
_keys = st.one_of(_names.map(lambda name: f'"{name}"'), st.sampled_from((r'"\u0061"', r'"\ud800"', '"other"')))


def _containers(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds(
            lambda elements, blank: f"[{blank}{','.join(elements)}{blank}]", st.lists(inner, max_size=4), _blanks
        ),
        st.builds(
            lambda pairs, blank: (
                f"{{{blank}{','.join(f'{key}{blank}:{blank}{value}' for key, value in pairs)}{blank}}}"
            ),
            st.lists(st.tuples(_keys, inner), max_size=4),
            _blanks,
        ),
    )


_any_texts = st.recursive(_scalars, _containers, max_leaves=8)
_lists = st.lists(_scalars, min_size=1, max_size=3).map(lambda elements: f"[{','.join(elements)}]")
_usual = st.builds(
    '{{"a":{},"b":{},"k":{},"a":{}}}'.format,
    _any_texts,
    _scalars,
    st.one_of(_lists, st.builds('[{{"a":{}}},{{"a":{},"b":{}}}]'.format, _scalars, _scalars, _lists), _any_texts),
    _scalars,
)
json_texts = st.one_of(_usual, _usual, _usual, _any_texts)
"""Documents of few keys, with equal and escaped ones among them."""

_broken = st.builds(lambda text, at, junk: text[:at] + junk + text[at + 1 :], json_texts, st.integers(0, 30), _blanks)
_bodies = st.one_of(
    json_texts.map(lambda text: Body.data(text.encode())),
    json_texts.map(lambda text: Body.data(text.encode())),
    _broken.map(lambda text: Body.data(text.encode())),
    st.builds(lambda text, at: Body.data(text.encode()[:at], text.encode()[at:]), json_texts, st.integers(0, 30)),
    json_texts.map(lambda text: Body.value(AmqpValue(AmqpType.STRING, text))),
    st.binary(max_size=8).map(Body.data),
)
body_messages = st.builds(
    lambda body, a, b: Message(body, application_properties={"a": a, "b": b}).encode(),
    _bodies,
    st.sampled_from((1, 0.5, 19.99, "x", True)),
    st.sampled_from((5, 0.1, "A-1", False)),
)
"""Messages whose bodies mostly are JSON, some of them broken."""

_pieces = st.sampled_from(
    (r"\"", r"\\", r"\/", r"\b", r"\f", r"\n", r"\r", r"\t", r"\u0041", r"\u00e9", r"\u20AC", r"\ud83d\ude00",
     r"\uD83D", r"\uDE00", r"\u0000", r"\uFFFF", "x", "é", "😀", "a text of more than eight bytes")
)  # fmt: skip
_escaped = st.lists(_pieces, max_size=5).map(lambda pieces: f'"{"".join(pieces)}"')
_lengths = st.sampled_from((1, 15, 16, 17, 18, 19, 20, 309, 399, 400, 401, 499, 500, 501))
_exponents = st.sampled_from(("", "e0", "E+1", "e-1", "e22", "e-23", "e308", "e-400", "e9999", "e-9999", "e10000"))


def _number_text(sign: str, number: int, length: int, point: int, exponent: str) -> str:
    """A number of so many digits."""
    digits = f"{number:0{length}}"[:length]
    whole, fraction = digits[:point], digits[point:]
    return f"{sign}{whole.lstrip('0') or '0'}{'.' if fraction else ''}{fraction}{exponent}"


long_numbers = st.builds(
    _number_text, st.sampled_from(("", "-")), st.integers(0, 10**501), _lengths, st.integers(0, 501), _exponents
)
"""Numbers that lie at a limit of digits or exponents."""

_rare = st.one_of(_escaped, long_numbers, _scalars)
rare_messages = st.builds(
    lambda *values: Message(
        '{{"a":{},"b":{},"k":[{},{{"a":{},"a":{}}}],"\\u00e9":{},"b":{}}}'.format(*values).encode()
    ).encode(),
    *[_rare] * 7,
)
"""Messages with escapes, long numbers and equal keys in their bodies, which are JSON."""

_steps = st.one_of(
    st.sampled_from((".a", ".b", ".k", '."two words"', '."é"', '.""')), st.integers(0, 2).map(lambda at: f"[{at}]")
)
_likely = st.sampled_from(("body.a", "body.b", "body.b", "body.k[0]", "body.k[0].a", "body.k[1].b[0]", "body.[0]"))
paths = st.one_of(
    _likely,
    _likely,
    st.builds(lambda first, steps: f"body.{first.removeprefix('.')}" + "".join(steps), _steps, st.lists(_steps)),
)
_any_paths = st.one_of(
    st.sampled_from(("body.k[*]", "body.k[*].a", "body.k[*].b[*]", "body.[*]", "body.k[1].b[*]", "body.a[*]")),
    st.builds(lambda path, steps: f"{path}[*]" + "".join(steps), paths, st.lists(_steps, max_size=1)),
    st.builds(lambda path, step: f"{path}[*]{step}[*]", paths, _steps),
)
_constants = st.one_of(
    st.integers(-3, 12).map(str),
    st.sampled_from(("0.5", "0.1", "19.99", "'x'", "'abc'", "''", "'é'", "TRUE", "a", "b", "9007199254740992")),
)
_values = st.one_of(
    paths,
    st.builds("LOWER({})".format, paths),
    st.builds("LEFT({}, {})".format, paths, _constants),
    st.builds("{} {} {}".format, paths, st.sampled_from("+-*/%"), _constants),
    st.builds("-{}".format, paths),
    st.builds("{} || 'x'".format, paths),
)
_negations = st.sampled_from(("", "NOT "))
_operators = st.sampled_from(("=", "<>", "<", "<=", ">", ">="))
_patterns = st.sampled_from(("'%'", "'x%'", "'%1'", "'_'", "'a_c'", "'A-%' ", "'%é%'"))
_conditions = st.one_of(
    st.builds("{} {} {}".format, st.one_of(_values, _any_paths), _operators, st.one_of(_constants, _values)),
    st.builds("{} {} {}".format, _constants, _operators, st.one_of(paths, _any_paths)),
    st.builds(
        "{} {}IN ({}, {})".format, st.one_of(_values, _any_paths), st.sampled_from(("", "NOT ")), _values, _constants
    ),
    st.builds("{} {}LIKE {}".format, st.one_of(_values, _any_paths), st.sampled_from(("", "NOT ")), _patterns),
    st.builds("{} IS {}NULL".format, st.one_of(paths, _any_paths), st.sampled_from(("", "NOT "))),
    st.builds("EXISTS({})".format, st.one_of(paths, _any_paths)),
    st.builds("{} {} {}".format, st.one_of(paths, _any_paths), _operators, st.sampled_from(("INF", "-INF", "NAN"))),
    paths,
)
body_expressions = st.recursive(
    _conditions,
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("NOT {}".format, inner),
    ),
    max_leaves=4,
)
"""Filters that look into bodies with every operator; few of them are refused."""
