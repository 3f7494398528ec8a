"""At which offsets the entries of a batch lie: who asks is told exactly what readers find."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers import Answers, batch, open_broker, open_session
from examples import examples
from headgate.broker import PublishBatch, Written
from headgate.errors import StreamFullError
from headgate.log import Pin, Stream, stream_folder
from headgate.log.entries import SubBatch
from headgate.log.format import Compression
from log_streams import quick_folder, read_messages

ENTRIES = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from([None, b"AMER", b"EMEA"])), min_size=1, max_size=8
) | st.builds(
    # Long enough for the kernel, and for runs of one filter value, which get chunks of their own.
    lambda count, value, sub_batches: [(0, value)] * count + [(2, None)] * sub_batches,
    st.sampled_from([30, 700]),
    st.sampled_from([None, b"AMER", b"EMEA"]),
    st.integers(0, 3),
)
"""How many messages are in the sub-batch, 0 for a message alone; the filter value."""

BATCHES = st.lists(
    st.tuples(st.sampled_from([None, "p", "q"]), ENTRIES, st.integers(0, 4), st.booleans()), min_size=1, max_size=6
)
"""The publisher's name, the entries, how far its sequences go back (without a name: odd for a whole batch), and
whether somebody asks."""


@given(writes=st.lists(BATCHES, min_size=1, max_size=3))
@examples(0.5)
def test_the_offset_of_an_entry_is_where_readers_find_it(
    writes: list[list[tuple[str | None, list, int, bool]]],
) -> None:
    with quick_folder() as folder:
        root = Path(folder)
        broker = open_broker(root)
        session = open_session(broker)
        # Segments end within an append, and a snapshot takes an offset.
        session.declare_stream("s", {"stream-max-segment-size-bytes": 3000})
        publishers = {name: session.publisher("s", reference=name) for name in (None, "p", "q")}
        last = {"p": 0, "q": 0}
        asked: list[tuple[list[bytes | None], Written]] = []
        number = 0
        for batches in writes:
            answers = Answers()
            for name, given_entries, back, asks in batches:
                bodies: list[bytes] = []
                first_bodies: list[bytes | None] = []
                for members, _ in given_entries:
                    texts = [b"%07d" % (number + at) for at in range(max(1, members))]
                    number += len(texts)
                    bodies.append(SubBatch.of(texts, Compression.NONE).encode() if members else texts[0])
                    first_bodies.append(texts[0])
                sequences = None
                if name is not None:
                    start = max(1, last[name] + 1 - back)
                    sequences = range(start, start + len(bodies))
                    first_bodies = [
                        body if sequence > last[name] else None
                        for sequence, body in zip(sequences, first_bodies, strict=True)
                    ]
                    last[name] = max(last[name], start + len(bodies) - 1)
                made = batch(
                    bodies,
                    answers.to(name),
                    sequences=sequences,
                    values=[None if members else value for members, value in given_entries],
                    records=[members for members, _ in given_entries],
                )
                made.is_whole = name is None and back % 2 == 1 and not any(members for members, _ in given_entries)
                if asks:
                    made.places = Written()
                    asked.append((first_bodies, made.places))
                publishers[name].publish(made)
            broker.write_queued()
            assert answers.refused == []
        found = {body: offset for offset, body in read_messages(Stream.open(stream_folder(root, "s")))}
        for first_bodies, places in asked:
            assert places.offsets().tolist() == [-1 if body is None else found[body] for body in first_bodies]
        broker.close()


def test_places_are_known_when_the_confirm_comes_and_only_then(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    session = open_session(broker)
    session.declare_stream("s", {})
    publisher = session.publisher("s", reference="p")
    seen: list[list[int]] = []

    def ask(sequences: list[int]) -> None:
        places = Written()
        entries = batch([b"m"] * len(sequences), lambda error: None).entries
        publisher.publish(
            PublishBatch(
                entries,
                lambda error: seen.append([] if error else places.offsets().tolist()),
                np.array(sequences, dtype=np.uint64),
                places,
            )
        )
        with pytest.raises(ValueError, match="not written"):
            places.offsets()
        broker.write_queued()

    ask([1, 2])
    ask([3])
    ask([2, 3])
    writer = broker.catalogue.get("s").writer
    assert writer is not None
    writer.pin(Pin(0, 1))
    ask([4])
    assert seen == [[0, 1], [2], [-1, -1], []]
    broker.close()


def test_a_full_stream_refuses_publishers_until_something_is_settled(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    session = open_session(broker)
    session.declare_stream("s", {"headgate-drop-settled": True})
    unnamed, named = session.publisher("s"), session.publisher("s", reference="p")
    answers = Answers()

    def publish_both(number: int) -> None:
        unnamed.publish(batch([b"u%d" % number], answers.to(("u", number))))
        named.publish(batch([b"n%d" % number], answers.to(("n", number)), sequences=[number]))
        broker.write_queued()

    publish_both(1)
    writer = broker.catalogue.get("s").writer
    assert writer is not None and writer.settings.arguments.drops_settled
    writer.pin(Pin(0, 10))
    publish_both(2)
    unnamed.publish(batch([b"alone"], answers.to("alone")))
    broker.write_queued()
    assert [type(error) for error in answers.refused] == [StreamFullError] * 3
    session.store_offset("s", "reader", 1)
    writer.pin(Pin(writer.next_offset, 10))
    publish_both(2)
    assert answers.confirmed == [("u", 1), ("n", 1), ("u", 2), ("n", 2)]
    assert session.stored_offset("s", "reader") == 1
    broker.close()
    found = [body for _, body in read_messages(Stream.open(stream_folder(tmp_path, "s")))]
    assert found == [b"u1", b"n1", b"u2", b"n2"]
