"""Texts of filters of every language over the names and values of `rows`, for the tests of columns."""

from __future__ import annotations

from hypothesis import strategies as st

from ...strategies import TEXTS, expressions, quoted

_names = st.sampled_from(("n", "s", "t", "m", "region", "price", "a_long_property_name", "absent"))
_numbers = st.sampled_from(("5", "-5", "0", "127", "256", "1.0", "0.5", "99.99", "9007199254740993", "4294967296"))
_texts = st.sampled_from(("AMER", "EMEA", "abc", "5", "5.0", "", "a_c", "true")).map(quoted)
_operators = st.sampled_from(("=", "<>", "<", "<=", ">", ">="))


def _language(
    names: st.SearchStrategy[str], constants: st.SearchStrategy[str], more: st.SearchStrategy[str]
) -> st.SearchStrategy[str]:
    predicates = st.one_of(
        st.builds("{} {} {}".format, names, _operators, constants),
        st.builds("{} {} {}".format, names, _operators, names),
        st.builds("{} {} {}".format, constants, _operators, names),
        st.builds("{} IS {}NULL".format, names, st.sampled_from(("", "NOT "))),
        st.builds(
            "{} {}IN ({})".format,
            names,
            st.sampled_from(("", "NOT ")),
            st.lists(_texts, min_size=1, max_size=3).map(", ".join),
        ),
        more,
    )
    return st.recursive(
        predicates,
        lambda inner: st.one_of(
            st.builds("{} AND {}".format, inner, inner),
            st.builds("({}) OR ({})".format, inner, inner),
            st.builds("NOT ({})".format, inner),
        ),
        max_leaves=4,
    )


_like = st.builds("{} LIKE {}".format, _names, st.sampled_from(("a%", "%c", "a_c", "%")).map(quoted))

LANGUAGES = {
    "rabbitmq": expressions,
    "amqp": st.one_of(
        expressions,
        _language(
            _names,
            st.one_of(_numbers, st.sampled_from(TEXTS).map(quoted)),
            st.sampled_from(
                (
                    "EXISTS(n)",
                    "EXISTS(absent)",
                    "LOWER(region) = 'amer'",
                    "h.durable = TRUE",
                    "price = NAN",
                    "s || t = 'abc'",
                    "m[0] = 'abc'",
                    "h.priority = 4",
                )
            ),
        ),
    ),
    "rocketmq": _language(
        st.one_of(_names, st.sampled_from(("TAGS", "KEYS"))).filter(lambda name: name.isidentifier()),
        st.one_of(_numbers, _texts, st.sampled_from(("TRUE", "FALSE"))),
        st.one_of(
            st.builds("{} CONTAINS {}".format, _names, _texts),
            st.builds("{} BETWEEN 1 AND 100".format, _names),
            _names,
        ),
    ),
    "servicebus": _language(
        st.one_of(_names, st.sampled_from(("REGION", "sys.Label", "sys.To", "sys.CorrelationId", "user.N"))),
        st.one_of(_numbers, _texts, st.sampled_from(("TRUE", "FALSE"))),
        st.one_of(_like, st.sampled_from(("EXISTS(n)", "n + 1 > 5", "price * 2 = 10", "-n = 5", "s + t = 'abc'"))),
    ),
}
"""By dialect; a text that its language refuses is no test of columns."""
