"""The verdicts of the original systems, by both evaluators. RabbitMQ's SQL is in `tests/cli/test_case_tables.py`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from cesql_events import binary_event, event_of, outcome, structured_event
from headgate.errors import ConfigError, FilterError
from headgate.evaluate import Action, Engine, Filter, Verdict, changed_copies, copies_of, servicebus_value
from headgate.language import bind, parse
from headgate.language.amqp import FilterEntry, read_filter_set
from headgate.language.rocketmq import ROCKETMQ, ROCKETMQ_MAP, parse_tags, tag_hash
from headgate.language.servicebus import ValueKind, kind_of, number_of, text_of, value_of
from headgate.message import AmqpType, AmqpValue, EncodedMessages, Message, from_json
from recordings import PropertyMaps, lines_of, servicebus_filter, servicebus_message, system_field, typed, user_field

NOW_MS = 1_795_200_000_000
LETTERS = {Verdict.TRUE: "T", Verdict.FALSE: "F", Verdict.UNKNOWN: "N", Verdict.ERROR: "X"}
VERDICTS = {
    "true": {Verdict.TRUE},
    "false": {Verdict.FALSE},
    "unknown": {Verdict.UNKNOWN},
    "nomatch": {Verdict.FALSE, Verdict.UNKNOWN},
    "error": {Verdict.ERROR},
}

engines = pytest.mark.parametrize("engine", [Engine.KERNEL, pytest.param(Engine.REFERENCE, marks=pytest.mark.slow)])


@engines
@pytest.mark.parametrize("dialect", ["rabbitmq", "amqp"])
@pytest.mark.parametrize("folder", ["", "own/"])
def test_filter_maps_of_rabbitmq(folder: str, dialect: str, engine: Engine) -> None:
    messages = {row["idx"]: bytes.fromhex(row["encoded_hex"]) for row in lines_of(f"{folder}rabbitmq_messages")}
    batch = EncodedMessages.of(messages.values())
    wrong = []
    for row in lines_of(f"{folder}rabbitmq_properties"):
        given = row["filters"]
        found = read_filter_set([_entry(**each) for each in given], dialect)
        filter = Filter.from_set(found)
        chosen = np.ones(len(messages), bool) if filter is None else filter.mask(batch, now_ms=NOW_MS, engine=engine)
        matches = [number for number, is_chosen in zip(messages, chosen, strict=True) if is_chosen]
        in_force = [given[index]["name"] for index in found.effective]
        if row["accepted"] is not None:
            assert row["accepted"] is (len(row["effective"]) == len(given))
            if (in_force, matches) != (row["effective"], row.get("matches", list(messages))):
                wrong.append((row["id"], in_force, matches))
    assert wrong == []


def _entry(name: Any, descriptor: Any, value: Any) -> FilterEntry:
    symbol = AmqpValue(AmqpType.SYMBOL, name) if isinstance(name, str) else from_json(name)
    return FilterEntry(symbol, None if descriptor is None else from_json(descriptor), from_json(value))


@engines
@pytest.mark.parametrize("table", ["rocketmq_sql", "own/rocketmq_sql"])
def test_expressions_of_rocketmq(table: str, engine: Engine) -> None:
    rows = lines_of(table)
    maps = PropertyMaps.of(rows)
    wrong = []
    for row in (row for row in rows if row["kind"] == "expr"):
        try:
            found = {"compile": "ok", "r": _letters(row["expr"], maps, engine)}
        except FilterError as error:
            found = {"compile": "error"}
            # Of refusals the texts of RuntimeException alone are RocketMQ's own, not its parser's.
            if row.get("error_class") == "RuntimeException":
                found["error"] = f"java.lang.RuntimeException: {error.reason}"
        if not found.items() <= row.items():
            wrong.append((row, found))
    assert wrong == []


def _letters(text: str, maps: PropertyMaps, engine: Engine) -> str:
    """A letter for the verdict of each map. A map with an empty value is decided as the map that it is."""
    letters = [""] * len(maps.messages)
    for dialect, of_empty_values in ((ROCKETMQ, False), (ROCKETMQ_MAP, True)):
        filter = Filter(bind(parse(text, dialect), dialect, text), text, ROCKETMQ.name)
        rows = [row for row, has_empty in enumerate(maps.has_empty_value) if has_empty is of_empty_values]
        batch = EncodedMessages.of(maps.messages[row] for row in rows)
        for row, verdict in zip(rows, filter.verdicts(batch, now_ms=NOW_MS, engine=engine), strict=True):
            letters[row] = LETTERS[Verdict(int(verdict))]
    return "".join(letters)


def test_tags_of_rocketmq() -> None:
    rows = [row for row in lines_of("rocketmq_bloom") if row["kind"].startswith("tag")]
    assert rows
    for row in rows:
        if row["kind"] == "taghash":
            assert tag_hash(row["tag"]) == row["code"]
        elif "error" in row:
            with pytest.raises(FilterError) as refused:
                parse_tags(row["expr"])
            assert row["error"].endswith(refused.value.reason)
        else:
            found = parse_tags(row["expr"])
            assert (found.text, sorted(found.tags)) == (row["sub"], sorted(row["tags"]))
            assert list(found.codes) == row["codes"]


@engines
@pytest.mark.parametrize("table", ["servicebus_sql", "servicebus_correlation"])
def test_filters_of_servicebus(table: str, engine: Engine) -> None:
    wrong = []
    for row in lines_of(table):
        expected, place = row["expect"], row.get("error_at", "create")
        batch = EncodedMessages.of([servicebus_message(row).encode()])
        try:
            filter = servicebus_filter(row)
        except (FilterError, ConfigError) as error:
            if expected != "error" or place == "evaluate":
                wrong.append((row, str(error)))
            continue
        verdict = Verdict(int(filter.verdicts(batch, now_ms=NOW_MS, engine=engine)[0]))
        is_delivered = bool(filter.mask(batch, now_ms=NOW_MS, engine=engine)[0])
        is_wanted = verdict in VERDICTS[expected] and not (expected == "error" and place == "create")
        if not is_wanted or is_delivered is not (verdict is Verdict.TRUE):
            wrong.append((row, f"{verdict}, {is_delivered}"))
    assert wrong == []


@engines
def test_conformance_kit_of_cesql(engine: Engine) -> None:
    """Results and errors by the reference; of filters, the verdicts by both engines, in both modes of the binding."""
    wrong = []
    for row in lines_of("own/cesql_kit"):
        prefixed = [binary_event(row["event"], prefix) for prefix in ("cloudEvents_", "cloudEvents:")]
        for message in (*prefixed, structured_event(row["event"])):
            wrong.extend(_otherwise_than(row, message, engine))
    assert wrong == []


@engines
def test_own_cases_of_cesql(engine: Engine) -> None:
    assert [each for row in lines_of("own/cesql") for each in _otherwise_than(row, event_of(row), engine)] == []


def _otherwise_than(row: dict[str, Any], message: Message, engine: Engine) -> Iterator[object]:
    error = row.get("error")
    is_refused = error in ("parse", "missingFunction", "name")
    result, found_error = outcome(row["expression"], message)
    if found_error != error or not (is_refused or (type(result), result) == (type(row["result"]), row["result"])):
        yield row["id"], result, found_error
    if is_refused:
        return
    filter, batch = Filter.parse(row["expression"], "cesql"), EncodedMessages.of([message.encode()])
    verdict = Verdict.ERROR if error is not None else Verdict.of(result if isinstance(result, bool) else None)
    if filter.verdicts(batch, engine=engine).tolist() != [verdict]:
        yield row["id"], verdict, filter.verdicts(batch, engine=engine)
    if filter.mask(batch, engine=engine).tolist() != [verdict is Verdict.TRUE]:
        yield row["id"], verdict, "mask"


@engines
def test_actions_of_servicebus(engine: Engine) -> None:
    wrong: list[object] = []
    for row in lines_of("servicebus_actions"):
        batch, times = EncodedMessages.of([servicebus_message(row).encode()]), np.array([NOW_MS], dtype=np.int64)
        try:
            action = Action.parse(row["action"])
        except FilterError as error:
            if row["expect"] != "error" or row["error_at"] == "evaluate":
                wrong.append((row, str(error)))
            continue
        made = changed_copies(
            [(action, None)], np.array([0]), batch, now_ms=times, identity_of=lambda row: b"", engine=engine
        )
        if row["expect"] == "error":
            if not len(made.failed) or row["error_at"] == "create":
                wrong.append((row, "accepted"))
        elif len(made.failed):
            wrong.append((row, "an error"))
        else:
            wrong.extend(_differences(row, Message.decode(made.messages.message(0))))
    assert wrong == []


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    filter: Filter
    action: Action | None


def test_copies_of_servicebus() -> None:
    for row in lines_of("servicebus_rules"):
        rules = [
            Rule(rule["name"], servicebus_filter(rule), Action.parse(rule["action"]) if "action" in rule else None)
            for rule in row["rules"]
        ]
        message = servicebus_message(row)
        found = copies_of(rules, message, now_ms=NOW_MS, identity_of=lambda rule: rule.name.encode()).copies
        left = [copy.message for copy in found]
        for wanted in row["expect_copies"]:
            copy = next(copy for copy in left if _rule_name(copy) == wanted["rule"])
            assert list(_differences(wanted, copy)) == [], row["id"]
            left.remove(copy)
        assert left == [], row["id"]


def _rule_name(message: Message) -> object:
    found = message.value(user_field("RuleName"))
    return None if found is None else found.value


def _differences(expected: dict[str, Any], copy: Message) -> Iterator[str]:
    """What is otherwise in a copy than a case says."""
    for name, wanted in expected.get("expect_props", {}).items():
        if not _is_as(copy.whole_value(user_field(name)), wanted):
            yield f"{name} is not {wanted}"
    for name, text in expected.get("expect_sys", {}).items():
        value = servicebus_value(copy, system_field(name))
        if value is None or text_of(value) != text.encode():
            yield f"sys.{name} is {value}, not {text}"
    yield from (f"{name} is there" for name in expected.get("absent_props", ()) if copy.value(user_field(name)))
    for name in expected.get("unset_sys", ()):
        if servicebus_value(copy, system_field(name)) is not None:
            yield f"sys.{name} is set"


def _is_as(found: AmqpValue | None, wanted: dict[str, Any]) -> bool:
    """Whether a property is as a case says: `number` is any numeric type, a type without `v` any value of it."""
    if found is None:
        return False
    if wanted["t"] == "number":
        value = value_of(found)
        return value is not None and kind_of(value) is ValueKind.NUMBER and number_of(value) == wanted["v"]
    if wanted["t"] == "guid" and "v" not in wanted:
        return found.type is AmqpType.UUID
    return found == typed(wanted)
