"""Paths into JSON bodies in the dialect `amqp`: what a text means, what stays a name, and what is refused where."""

from __future__ import annotations

import pytest

from headgate.errors import FilterError, FilterLimitError, FilterSyntaxError, FilterTypeError
from headgate.language import bind, parse
from headgate.language import tree as t
from headgate.language.printer import print_tree
from headgate.message import FieldReference, Section
from spans import without_spans


def bound(text: str, dialect: str = "amqp") -> t.Node:
    return without_spans(bind(parse(text, dialect), dialect, text))


def field(*path: bytes | int) -> t.Field:
    return t.Field(FieldReference(Section.DATA, path=path))


def equal(operand: t.Node, value: bytes | int = b"x") -> t.Compare:
    return t.Compare(t.CompareOperator.EQUAL, operand, t.Constant(value))


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("body.order", (b"order",)),
        ("body.order.total", (b"order", b"total")),
        ("body._id.a_1", (b"_id", b"a_1")),
        ("body.NULL.in.UTC.lower", (b"NULL", b"in", b"UTC", b"lower")),
        ('body."odd name"', (b"odd name",)),
        ('body."a ""b"" [c] \'d\' . é"', ("a \"b\" [c] 'd' . é".encode(),)),
        ('body.""', (b"",)),
        ("body.['it''s']", (b"it's",)),
        ('body.["x"]', (b"x",)),
        ("body.[0]", (0,)),
        ("body.[7].x", (7, b"x")),
        ("body.items[0].sku", (b"items", 0, b"sku")),
        ("body.items['0'][\"k\"][2147483647]", (b"items", b"0", b"k", 2147483647)),
        ('body.x."y"[00].z', (b"x", b"y", 0, b"z")),
        ("body.body.body", (b"body", b"body")),
    ],
)
def test_a_path_is_its_steps(text: str, path: tuple[bytes | int, ...]) -> None:
    assert bound(text) == field(*path)
    assert bound(f"{text} IS NULL AND EXISTS({text})") == t.And((t.IsNull(field(*path)), t.Exists(field(*path))))


@pytest.mark.parametrize(
    "text", ["body = 1", "body['x'] = 1", "body[0] = 1", "a.body = 1", "a.body['x'] = 1", "[body] = 1", "[body.x] = 1"]
)
def test_the_property_named_body_keeps_its_meaning(text: str) -> None:
    found = [node.reference.section for node in t.walk(bound(text)) if isinstance(node, t.Field)]
    assert found == [Section.APPLICATION_PROPERTIES]


@pytest.mark.parametrize(
    "text", ["body.x = 1", "body.[x] = 1", "body.[0] = 1", "body.x.y = 1", "y = 1 OR body.x[*] = 1"]
)
@pytest.mark.parametrize("dialect", ["rabbitmq", "rocketmq", "servicebus"])
def test_other_languages_refuse_paths_and_name_the_one_that_has_them(text: str, dialect: str) -> None:
    with pytest.raises(FilterError, match="paths into the body are in the language amqp"):
        bound(text, dialect)


@pytest.mark.parametrize(
    ("text", "array", "condition"),
    [
        ("body.flags[*] = 'x'", field(b"flags"), equal(t.Element())),
        ("'x' = body.flags[*]", field(b"flags"), t.Compare(t.CompareOperator.EQUAL, t.Constant(b"x"), t.Element())),
        ("body.[*] = 'x'", field(), equal(t.Element())),
        ("body.a[0].b[*].c.d[1] = 'x'", field(b"a", 0, b"b"), equal(t.Element((b"c", b"d", 1)))),
        ("body.a[*] = body.b", field(b"a"), t.Compare(t.CompareOperator.EQUAL, t.Element(), field(b"b"))),
        ("body.a[*] IS NOT NULL", field(b"a"), t.IsNull(t.Element(), True)),
        ("EXISTS(body.a[*].b)", field(b"a"), t.Exists(t.Element((b"b",)))),
        ("body.a[*] NOT IN ('x', y)", field(b"a"), bound("y NOT IN ('x', y)")),
        (
            "body.a[*] < INF",
            field(b"a"),
            t.CompareSpecial(t.CompareOperator.LESS, t.Element(), t.SpecialNumber.INFINITY),
        ),
        ("body.a[*].b[*].c = 'x'", field(b"a"), t.AnyElement(t.Element((b"b",)), equal(t.Element((b"c",))))),
        ("body.[*][*] = 'x'", field(), t.AnyElement(t.Element(), equal(t.Element()))),
    ],
)
def test_a_condition_over_any_element_is_a_node_of_its_own(text: str, array: t.Field, condition: t.Node) -> None:
    if isinstance(condition, t.In):
        condition = t.In(t.Element(), condition.members, condition.negated)
    assert bound(text) == t.AnyElement(array, condition)


@pytest.mark.parametrize(
    "text",
    [
        "body.x.y[0].\"a b\" = 1 AND body.[0]['q''q'] IS NULL",
        "NOT body.a[*].b LIKE 'x%' OR body.[*] IN (1, 2)",
        'body.[*][*].x = \'y\' AND EXISTS(body.a[*]."b""c"[*])',
        "body.x > NAN AND -INF < body.x[*]",
        "body.[1][*] NOT LIKE 'a!%' ESCAPE '!'",
    ],
)
def test_what_is_printed_is_the_same_tree(text: str) -> None:
    unbound = parse(text, "amqp")
    assert without_spans(parse(print_tree(unbound), "amqp")) == without_spans(unbound)
    tree = bound(text)
    assert bound(print_tree(tree)) == tree


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("a.body.x = 1", ".", "in a number between digits\n"),
        ("body.5 = 1", "body.", "expected a step"),
        ("body.[x] = 1", "body.[x]", "expected a step"),
        ("body.[-1] = 1", "body.[-1]", "expected a step"),
        ("body.x[-1] = 1", "[-1]", "expected a step"),
        ("body.x[y] = 1", "[y]", "expected a step"),
        ("body.x['y' = 1", "['y' = 1", "expected a step"),
        ("body.x[] = 1", "[]", "expected a step"),
        ("body.x. = 1", ".", "expected a step"),
        ("body.x.5 = 1", ".", "expected a step"),
        ('body.x."y = 1', ".", "expected a step"),
        ("body.x[2147483648] = 1", "[2147483648]", "at most 2147483647"),
        ("body .x = 1", ".x"[:1], "a dot stands only"),
        ("body.x y = 1", "y", "expected an operator"),
        ("body.x(1)", "(", "expected an operator"),
        ("BODY.x = 1", "BODY.x", "expected one of a., application_properties., h., header., p., properties., m."),
        ("region.x.y = 1", ".", "a dot stands only"),
    ],
)
def test_wrong_paths_are_refused_at_their_place(text: str, place: str, reason: str) -> None:
    with pytest.raises(FilterError, match=r".*") as error:
        bound(text)
    assert reason in str(error.value)
    assert text[slice(*error.value.span)] == place


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("body.a[*]", "body.a[*]", "is looked at directly"),
        ("NOT body.a[*]", "body.a[*]", "is looked at directly"),
        ("x = 1 OR body.a[*]", "body.a[*]", "is looked at directly"),
        ("body.a[*] + 1 = 2", "body.a[*]", "is looked at directly"),
        ("-body.a[*] = 2", "body.a[*]", "is looked at directly"),
        ("LOWER(body.a[*]) = 'x'", "body.a[*]", "is looked at directly"),
        ("body.a[*] || 'x' = 'y'", "body.a[*]", "is looked at directly"),
        ("x IN (1, body.a[*])", "body.a[*]", "is looked at directly"),
        ("body.a[*] IN (1, body.b[*])", "body.b[*]", "is looked at directly"),
        ("body.a[*] = body.b[*]", "body.b[*]", "one path with [*]"),
        ("body.a[*] = body.a[*]", "body.a[*]", "one path with [*]"),
    ],
)
def test_any_element_is_refused_where_it_would_not_be_one_question(text: str, place: str, reason: str) -> None:
    with pytest.raises(FilterTypeError) as error:
        bound(text)
    assert reason in str(error.value)
    assert text[slice(*error.value.span)] == place


def test_limits_of_paths() -> None:
    longest = "body" + ".x" * 32
    assert bound(longest) == field(*[b"x"] * 32)
    with pytest.raises(FilterLimitError, match="at most 32 steps"):
        bound(longest + "[0]")
    assert isinstance(bound("body.a[*].b[*] = 1"), t.AnyElement)
    with pytest.raises(FilterLimitError, match=r"at most 2 steps \[\*\]"):
        bound("body.a[*].b[*][*] = 1")
    most = " OR ".join(f"body.a{number} = 1" for number in range(16))
    assert isinstance(bound(f"{most} OR body.a3 = 2"), t.Or)
    with pytest.raises(FilterLimitError, match="at most 16 different paths"):
        bound(f"{most} OR body.b = 1")


def test_names_without_case_are_no_keywords_in_a_path() -> None:
    with pytest.raises(FilterSyntaxError):
        bound("lower = 1")
    assert bound("body.lower = 1") == equal(field(b"lower"), 1)
