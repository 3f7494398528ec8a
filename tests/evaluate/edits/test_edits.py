"""The kernel of edits against the reference: the same bytes, the same failures; and what it leaves undecided."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import json
import uuid
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kernel_strategies
import servicebus_filters
from examples import examples
from headgate.errors import FilterError
from headgate.evaluate import Action, Engine, changed_copies
from headgate.evaluate.actions import ChangedCopies
from headgate.evaluate.edits import run_edits
from headgate.evaluate.verdict import UNDECIDED, Verdict
from headgate.kernels import load
from headgate.language import Limits
from headgate.language.servicebus import DEFAULT_LIMITS
from headgate.message import AmqpType, AmqpValue, EncodedMessages, Message
from strategies import compound, section, string

VECTORS = Path(__file__).parents[2] / "vectors"
PARAMETERS = {
    "time": datetime.datetime.fromtimestamp(1_700_000_000, datetime.UTC),
    "span": datetime.timedelta(minutes=1),
    "guid": uuid.UUID(bytes=bytes(range(16))),
}
ORDER = Message(
    b"an order",
    subject="x",
    ttl=5000,
    application_properties={
        "color": "red",
        "quantity": 10,
        "price": 2.5,
        "size": AmqpValue(AmqpType.INT, 7),
        "code": AmqpValue(AmqpType.SYMBOL, "c"),
        "zero": 0,
        "paid": True,
        "id": uuid.UUID(int=7),
        "raw": b"raw",
    },
).encode()

pytestmark = pytest.mark.skipif(
    load("headgate.evaluate.edits.kernel") is None, reason="kernels cannot be compiled here"
)


def copies(
    action: Action, messages: Sequence[bytes], engine: Engine = Engine.KERNEL, rule: str | None = "r"
) -> ChangedCopies:
    """The copies of messages that lie apart in their buffer."""
    batch = EncodedMessages.of([part for message in messages for part in (b"?" * 5, message)]).take(slice(1, None, 2))
    times = np.zeros(len(messages), dtype=np.int64)
    return changed_copies(
        [(action, rule)],
        np.zeros(len(messages), dtype=np.int64),
        batch,
        now_ms=times,
        identity_of=lambda row: b"s/%d" % row,
        engine=engine,
    )


def listed(made: ChangedCopies) -> dict[int, bytes | None]:
    """What each row became; None where the action failed."""
    found: dict[int, bytes | None] = dict.fromkeys(made.failed.tolist())
    return found | {row: made.messages.message(place) for place, row in enumerate(made.rows.tolist())}


def statuses(action: Action, messages: Sequence[bytes], rule: str | None = "r") -> list[int]:
    """What the kernel says of each message; all undecided where it does not know the action."""
    batch, found = EncodedMessages.of(messages), [int(Verdict.TRUE)] * len(messages)
    for program in action.programs(rule):
        ids = np.zeros((len(messages) * len(program.occurrences), 16), dtype=np.uint8)
        first = np.arange(len(messages), dtype=np.int64) * len(program.occurrences)
        changed = run_edits([program], np.zeros(len(messages), dtype=np.int64), batch, ids, first)
        assert changed is not None
        batch = changed.messages
        found = [
            int(now) if before == Verdict.TRUE else before for before, now in zip(found, changed.statuses, strict=True)
        ]
    return found if action.programs(rule) else [UNDECIDED] * len(messages)


def undecided(text: str, messages: Sequence[bytes], *, limits: Limits = DEFAULT_LIMITS, rule: str | None = "r") -> int:
    """How many rows the kernel leaves undecided; all that it decides must be as the reference says."""
    action = Action.parse(text, parameters=PARAMETERS, limits=limits)
    expected = listed(copies(action, messages, Engine.REFERENCE, rule))
    assert listed(copies(action, messages, rule=rule)) == expected
    found = statuses(action, messages, rule)
    for row, status in enumerate(found):
        if status != UNDECIDED:
            assert (status == Verdict.TRUE) is (expected[row] is not None), messages[row].hex()
    return found.count(UNDECIDED)


def check(text: str, messages: Sequence[bytes], limits: Limits = DEFAULT_LIMITS, rule: str | None = "r") -> None:
    with contextlib.suppress(FilterError):
        undecided(text, messages, limits=limits, rule=rule)


_limits = st.one_of(
    st.just(DEFAULT_LIMITS),
    st.builds(
        Limits,
        identifier_characters=st.integers(1, 12),
        property_bytes=st.integers(4, 30),
        properties_bytes=st.integers(10, 150),
        message_bytes=st.integers(30, 250),
    ),
)
_rules = st.sampled_from((None, "r", "a rule with a longer name"))


@given(
    kernel_strategies.servicebus_actions,
    st.lists(kernel_strategies.servicebus_messages, min_size=1, max_size=4),
    _limits,
    _rules,
)
def test_kernel_and_reference_give_the_same_copies(
    text: str, messages: list[bytes], limits: Limits, rule: str | None
) -> None:
    check(text, messages, limits, rule)


@pytest.mark.long
@examples(20)
@given(
    kernel_strategies.servicebus_actions,
    st.lists(kernel_strategies.servicebus_messages, min_size=1, max_size=4),
    _limits,
    _rules,
)
def test_kernel_and_reference_give_the_same_copies_of_many_more(
    text: str, messages: list[bytes], limits: Limits, rule: str | None
) -> None:
    check(text, messages, limits, rule)


@given(st.lists(servicebus_filters.VALUES, min_size=2, max_size=2), st.integers(0, 3))
def test_a_property_takes_the_same_type_from_both(values: list[AmqpValue], others: int) -> None:
    padding = {f"other{number}": "x" * 80 for number in range(others)}
    message = Message(b"", application_properties={"Old": values[0], **padding, "given": values[1]}).encode()
    texts = ("SET old = given", "SET old = given + 0", "SET old = 7", "SET new = given", "SET new = '' + given")
    for text in (*texts, "SET old = '' + given", "SET old = '7'", "SET old = '2026-01-31'"):
        check(text, [message])


@pytest.mark.parametrize(
    "text",
    [
        "SET quantity = quantity / 2; REMOVE priority; SET sys.CorrelationId = 'low'",
        "SET new = quantity * 2 + size - 1; REMOVE color",
        "SET new = price * 2.5; SET price = quantity; SET quantity = price",
        "SET new = color + '/' + quantity + '/' + paid + '/' + id",
        "SET a = NULL; SET b = missing; SET c = TRUE; SET d = 1.5; SET e = 300; SET f = @guid; SET g = @span",
        "SET a = size; SET b = code; SET c = paid; SET d = id; SET e = raw; SET F = COLOR; SET g = zero",
        "SET id = newid(); SET other = 'id ' + newid()",
        "SET a = 1; SET b = a + 1; REMOVE a; SET c = a; SET b = b * 10",
        "SET sys.Label = quantity; SET sys.To = color + 'x'; REMOVE sys.ReplyTo",
        "SET sys.TimeToLive = @span; SET sys.ScheduledEnqueueTime = @time; SET sys.PartitionKey = 'p'",
        "SET a = sys.TimeToLive; REMOVE sys.TimeToLive; SET sys.ContentType = 'text/plain'; SET b = sys.Label",
        "REMOVE color; REMOVE quantity; REMOVE sys.Label; REMOVE sys.PartitionKey; REMOVE missing",
    ],
)
def test_what_actions_mostly_do_is_not_left_undecided(text: str) -> None:
    assert undecided(text, [ORDER, Message(b"").encode(), Message(None, subject="y").encode()]) == 0


@pytest.mark.parametrize(
    "text",
    [
        "SET new = property(color)",
        "SET new = sys.Size",
        "SET ruleName = 'mine'",
        "SET a = 1; REMOVE a",
        "SET [größe] = 1",
        "SET sys.ForcePersistence = TRUE",
    ],
)
def test_other_actions_are_left_to_the_reference(text: str) -> None:
    assert undecided(text, [ORDER]) == 1


def test_few_of_the_documented_actions_are_left_undecided() -> None:
    with (VECTORS / "servicebus_actions.jsonl").open() as lines:
        texts = [json.loads(line)["action"] for line in lines]
    left = [text for text in texts if accepted(text) and undecided(text, [ORDER])]
    assert len(texts) > 30
    assert len(left) < 0.1 * len(texts), left


def accepted(text: str) -> bool:
    try:
        Action.parse(text, parameters=PARAMETERS)
    except FilterError:
        return False
    return True


def test_the_status_says_which_rows_fail() -> None:
    rows = [Message(b"", application_properties={"n": number}).encode() for number in (0, 2, 0, 5)]
    action = Action.parse("SET share = 10 / n")
    assert statuses(action, rows) == [Verdict.ERROR, Verdict.TRUE, Verdict.ERROR, Verdict.TRUE]
    made = copies(action, rows)
    assert made.rows.tolist() == [1, 3] and made.failed.tolist() == [0, 2]


def test_a_section_that_grows_or_shrinks_takes_its_smallest_form() -> None:
    for size in range(180, 260):
        message = Message(b"", application_properties={"text": "x" * size, "n": 1}).encode()
        assert undecided("SET n = n + 1", [message], rule=None) == 0
        assert undecided("SET other = 'x' + n", [message]) == 0
        assert undecided("REMOVE text", [message]) == 0


def test_properties_of_many_keys_take_the_wide_form() -> None:
    message = Message(b"", application_properties={f"k{number}": 1 for number in range(127)}).encode()
    assert undecided("SET new = k5; SET k7 = 2", [message], rule=None) == 0
    assert undecided("SET new = k5; REMOVE k7", [message]) == 0


def test_copies_may_be_much_larger_than_their_messages() -> None:
    message = Message(b"", application_properties={"text": "x" * 20_000}).encode()
    assert undecided("SET a = text; SET b = text", [message] * 40) == 0


@pytest.mark.parametrize(
    "limits",
    [
        Limits(property_bytes=110),
        Limits(properties_bytes=200),
        Limits(message_bytes=240),
        Limits(identifier_characters=90),
    ],
)
def test_limits_count_for_copies_of_the_kernel(limits: Limits) -> None:
    messages = [Message(b"body", application_properties={"text": "x" * size}).encode() for size in range(60, 300, 3)]
    failures = 0
    for text in ("SET other = 'y'", "SET text = text", "SET other = text; REMOVE text", "SET sys.SessionId = text"):
        undecided(text, messages, limits=limits)
        failures += len(copies(Action.parse(text, limits=limits), messages).failed)
    assert 0 < failures < 4 * len(messages)


@pytest.mark.parametrize("names", [("RuleName",), ("rulename",), ("RULENAME", "rulename"), ("rulename", "RuleName")])
def test_the_name_of_the_rule_takes_the_place_of_another(names: tuple[str, ...]) -> None:
    properties = {"a": 1} | {name: f"old {name}" for name in names} | {"b": 2}
    assert undecided("SET a = 5", [Message(b"", application_properties=properties).encode()]) == 0
    assert undecided("SET c = RULEname", [Message(b"", application_properties=properties).encode()]) == 0


def test_of_keys_that_are_spelled_alike_one_is_left() -> None:
    key, other = string(b"a"), string(b"A")
    for values in itertools.product(
        (b"\x54\x05", b"\x40", b"\xa1\x01x", b"\x45", b"\x82\x7f\xf0" + bytes(6)), repeat=3
    ):
        elements = [key, values[0], other, values[1], string(b"b"), b"\x41", key, values[2]]
        message = section(0x74, compound(0xC1, elements))
        for text in ("SET a = 1", "SET A = 2.5", "REMOVE a", "SET c = a", "SET a = b; SET b = A", "SET a = a + 1"):
            undecided(text, [message])


def test_many_actions_share_a_run() -> None:
    texts = (
        "SET n = newid()",
        "SET a = property(color); SET b = 1",
        "SET a = 1 / zero",
        "SET a = 1; SET b = a",
        "REMOVE color",
    )
    actions = [(Action.parse(text), f"r{number}") for number, text in enumerate(texts)]
    which = np.array([4, 0, 3, 2, 1, 0, 3, 1, 4, 2, 0], dtype=np.int64)
    batch, times = EncodedMessages.of([ORDER] * len(which)), np.zeros(len(which), dtype=np.int64)
    by_kernel, by_reference = (
        changed_copies(actions, which, batch, now_ms=times, identity_of=lambda row: b"%d" % row, engine=engine)
        for engine in (Engine.KERNEL, Engine.REFERENCE)
    )
    assert listed(by_kernel) == listed(by_reference)
    assert by_kernel.failed.tolist() == [3, 9]


def test_a_batch_of_nothing_gives_nothing() -> None:
    made = copies(Action.parse("SET a = newid()"), [])
    assert (len(made.messages), len(made.rows), len(made.failed)) == (0, 0, 0)


def test_a_message_beyond_the_buffer_is_refused() -> None:
    (program,) = Action.parse("REMOVE a").programs(None)
    batch = EncodedMessages.of([ORDER])
    batch.lengths[0] += 1
    zeros = np.zeros(1, dtype=np.int64)
    with pytest.raises(ValueError, match="message 0 is not within the buffer"):
        run_edits([program], zeros, batch, np.empty((0, 16), dtype=np.uint8), zeros)
