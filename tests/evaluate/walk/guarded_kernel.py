"""Run the kernel over messages whose slack ends where memory may not be read; started by test_kernel_bounds.py.

A read outside the message and its slack ends this process with a signal. Prints the number of messages looked at.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import mmap
import random
import struct
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from headgate.evaluate import Action
from headgate.evaluate.edits import run_edits
from headgate.evaluate.program import compile_program
from headgate.kernels import load
from headgate.language import bind, parse
from headgate.message.batch import SLACK_BYTES, EncodedMessages

FILTERS = (
    "n = 5 OR s LIKE '%b_%' OR price > 1.5",
    "p.subject = 'order.created' AND h.priority > 3 AND region IN ('AMER', 'a rather long region name')",
    "p.reply_to_group_id LIKE '%x' OR s LIKE 'a%c' OR [a key that is longer than eight bytes] IS NULL",
    "absent = TRUE",
)
AMQP_FILTERS = (
    "body.a.b = 'x' OR body.[1].k LIKE '_a%b' OR body.a[0] > 1.5 OR body.c[*].d <> 'y' OR body.c[*] IN (1, 'z')",
    "body.s = 'the longest' AND body.c[*] = body.a.b AND body.\"a key of more than eight bytes\" IS NOT NULL",
    "h.durable OR EXISTS(h.ttl) OR h.first_acquirer OR m.[x-opt-partition-key] = 'k7' OR d.trace = 'a' OR f.crc = 42",
    "n[0] = INF OR s['a']['b'][2] = 'x' OR keys[1] || keys['sym'] = 'ab' OR EXISTS(texts[1]) OR nested[0][1][1] = NAN",
    "LOWER(s) || UPPER(city) = 'x' OR LEFT(s, 3) || RIGHT(s, 3) = 'y' OR SUBSTRING(city, 2, 2) = 'z' OR temp = NAN",
    "DATE(d0) > 0 OR DATE(d6) > 0 OR DATE(s) > 0 OR DATE(p.subject) > 0 OR LOWER(m.[x-opt-path][0]) = 'a' OR n = -INF",
)
ROCKETMQ_FILTERS = (
    "n > 10 OR s > 1.5 OR n = TRUE OR s CONTAINS 'b' OR TAGS = 'a' OR UNIQ_KEY IN ('x') OR -price < 5",
    "n > 1.5 OR n > s OR s ENDSWITH 'c'",
)
SERVICE_BUS_FILTERS = (
    "N = 5 OR S LIKE '%b_%' OR Price * 2 > 1 OR sys.PartitionKey = 'k' OR [A KEY THAT IS LONGER THAN EIGHT BYTES] = S",
    "sys.MessageId IS NULL OR sys.TimeToLive IS NULL OR sys.ExpiresAtUtc IS NULL OR s > 'ab' OR n IN (1, 'a', region)",
)
CESQL_FILTERS = (
    "n = 5 OR n AND TRUE OR n LIKE '%b_%' OR EXISTS s OR n IN (1, TRUE, 'a') OR INT(n) + 1 > 2 OR n = '21474836480'",
    "datacontenttype = 'a' OR n < s",
)
ACTIONS = (
    "SET n = N + 1; SET new = S + '/' + Price; REMOVE [A KEY THAT IS LONGER THAN EIGHT BYTES]; SET k = newid()",
    "SET copy = s; SET n = 5; SET sys.PartitionKey = 'k'; SET sys.To = sys.MessageId; REMOVE sys.TimeToLive; REMOVE s",
)
NUMBERS = (
    b"-", b"1", b"19.9", b"1e", b"1e5", b" ", b"7 ", b"+.", b"NaN", b"Infinity", b"-Infinit", b"0x", b"0x1p", b"tru",
    b"true", b"2147483648", b"99999999999999999999", b"0." + b"3" * 40, b"\xd9\xa3", b"a\xff",
)  # fmt: skip
"""Texts that are read as numbers, up to the end of a message."""
AROUND = (0xA1, 0x40, 0xB1, 0x00)
"""Constructors that would lead on: a string, a null, a long string, a described value."""

JSON_TEXTS = (
    b'{"a":{"b":"x"},"c":[{"d":"y"},1,"z"],"a key of more than eight bytes":-12.5e+3,"s":"the longest of all"}',
    b'[ true , {"k":"\\u00e9\\n\\ud83d\\ude00", "a key of more than eight bytes":[[[]]]}, 123456789012345678901]',
    '{"s":"größe ありがとう","c":[],"\\u0061":{"b":0.1234567890123456789},"c":[1,"\\u007a"]}'.encode(),
)
JSON_AROUND = b'"\\0]},e['
"""Bytes that would lead on in JSON."""

CONSTRUCTORS = (
    *range(0x40, 0x46), *range(0x50, 0x57), 0x60, 0x61, *range(0x70, 0x75), *range(0x80, 0x85), 0x94, 0x98,
    0xA0, 0xA1, 0xA3, 0xB0, 0xB1, 0xB3, 0xC0, 0xC1, 0xD0, 0xD1, 0xE0, 0xF0, 0x00, 0x3F, 0xFF,
)  # fmt: skip


class GuardedBuffer:
    """Places of readable pages, each with an unreadable one behind it; `size` is how many bytes of one are readable."""

    def __init__(self, pages: int, places: int = 1) -> None:
        self.size = pages * mmap.PAGESIZE
        self.places = places
        step = self.size + mmap.PAGESIZE
        self.mapping = mmap.mmap(-1, places * step)
        anchor = ctypes.c_char.from_buffer(self.mapping)
        library = ctypes.CDLL(None, use_errno=True)
        self.ends = [place * step + self.size for place in range(places)]
        for end in self.ends:
            behind = ctypes.c_void_p(ctypes.addressof(anchor) + end)
            if library.mprotect(behind, ctypes.c_size_t(mmap.PAGESIZE), 0) != 0:
                raise OSError(ctypes.get_errno(), "mprotect")
        self.data = np.frombuffer(self.mapping, dtype=np.uint8, count=self.ends[-1])

    def batch_of(self, messages: Sequence[tuple[bytes, int]]) -> EncodedMessages:
        """At most `places` messages, the slack of each up to an unreadable page; the second of each pair is the byte
        that stands before it and in the slack.
        """
        # Before the last end, so that the buffer ends with the slack of the last message.
        ends = self.ends[self.places - len(messages) :]
        starts = [end - SLACK_BYTES - len(message) for end, (message, _) in zip(ends, messages, strict=True)]
        for start, end, (message, around) in zip(starts, ends, messages, strict=True):
            self.data[start - 64 : end] = around
            self.data[start : start + len(message)] = np.frombuffer(message, dtype=np.uint8)
        return EncodedMessages(self.data, np.array(starts), np.array([len(message) for message, _ in messages]))


def hostile_messages() -> Iterator[bytes]:
    """Sections that promise more than there is, with every constructor at the last place."""
    counts = (0, 1, 2, 3, 10, 255, 2**31 - 1, 2**31, 2**32 - 1)
    for code in range(0x70, 0x79):
        for head in (
            b"\x00\x53" + bytes([code]),
            b"\x00\x80" + struct.pack(">Q", code),
            b"\x00\xa3\x10amqp:header:list",
        ):
            for value in (
                b"",
                b"\x45",
                b"\xc0",
                b"\xc1",
                b"\xd0",
                b"\xd1",
                b"\xc1\x00",
                b"\xc1\x01\x00",
                b"\xd1\x00\x00\x00\x03",
            ):
                yield head + value
        for constructor in CONSTRUCTORS:
            for count in counts:
                small = bytes([constructor]) if count < 3 else b"\xa1\x01n" + bytes([constructor])
                for compound in (0xC0, 0xC1):
                    yield b"\x00\x53" + bytes([code, compound, len(small) + 1, min(count, 255)]) + small
                    large = struct.pack(">II", len(small) + 4, count)
                    yield b"\x00\x53" + bytes([code, compound + 0x10]) + large + small
    for code, key in (
        (0x74, b"\xa1\x01n"),
        (0x74, b"\xa1\x04keys"),
        (0x72, b"\xa3\x0ax-opt-path"),
        (0x78, b"\xa3\x03crc"),
    ):
        for outer in (0xC0, 0xC1, 0xE0, 0xD0, 0xD1, 0xF0):
            for constructor in CONSTRUCTORS:
                for count in (1, 3, 255, 2**32 - 1):
                    yield nested_message(code, key, outer, constructor, count)
    for length in (0, 1, 7, 8, 9, 254, 255):
        yield (
            b"\x00\x53\x74\xc1"
            + bytes([4 + length & 0xFF, 2, 0xA1, length])
            + b"a key that is longer than eight bytes"[:length]
        )
    for text in NUMBERS:
        for key in (b"n", b"N", b"s", b"cloudEvents_n", b"cloudEvents:n"):
            value = b"\xa1" + bytes([len(key)]) + key + b"\xa1" + bytes([len(text)]) + text
            yield b"\x00\x53\x74\xc1" + bytes([len(value) + 1, 2]) + value
    for media_type in (b"application/cloudevent", b"application/cloudevents", b"a" * 23, b"a" * 15):
        for count in (7, 8):
            value = b"\x40" * 6 + b"\xa3" + bytes([len(media_type)]) + media_type
            yield b"\x00\x53\x73\xc0" + bytes([len(value) + 1, count]) + value
    for described in (
        b"\xa3\x11com.microsoft:uri\xa1\x01k",
        b"\xb3\x00\x00\x00\x11com.microsoft:uri\xb1\x00\x00\x00\x00",
    ):
        value = b"\xa3\x13x-opt-partition-key\x00" + described
        yield b"\x00\x53\x72\xc1" + bytes([len(value) + 1, 2]) + value
    for size in (0, 1, 2**31 - 1, 2**32 - 1):
        yield b"\x00\x53\x74\xd1" + struct.pack(">II", 12, 2) + b"\xa1\x01n\xb1" + struct.pack(">I", size)


def json_messages(changes: int) -> Iterator[tuple[bytes, int]]:
    """JSON in bodies that end with it, cut anywhere and changed, before bytes that would lead on."""
    chance = random.Random(3)
    cut = [text[:length] for text in JSON_TEXTS for length in range(len(text) + 1)]
    changed = []
    for text in chance.choices(cut[1:], k=changes):
        place = chance.randrange(len(text) + 1)
        changed.append(text[:place] + bytes([chance.choice(JSON_AROUND)]) + text[place + 1 :])
    for text in (*cut, *changed):
        for head in (b"", b"\x00\x53\x74\xc1\x01\x00"):
            data = head + b"\x00\x53\x75\xa0" + bytes([len(text)]) + text
            yield data, JSON_AROUND[len(text) % len(JSON_AROUND)]
            yield head + b"\x00\x53\x77\xb1" + struct.pack(">I", len(text)) + text, chance.choice(JSON_AROUND)


def nested_message(code: int, key: bytes, outer: int, constructor: int, count: int) -> bytes:
    """A section with one container, whose size is right and whose count and last element promise more."""
    inside = b"\x50\x01" * (count & 1) + bytes([constructor])
    size = min(count, 255)
    is_short = outer in (0xC0, 0xC1, 0xE0)
    held = bytes([len(inside) + 1, size]) if is_short else struct.pack(">II", len(inside) + 4, count)
    container = bytes([outer]) + held + inside
    return b"\x00\x53" + bytes([code, 0xC1, len(key) + len(container) + 1, 2]) + key + container


def main(vectors: list[str], changes: int) -> None:
    if load("headgate.evaluate.kernel") is None or load("headgate.evaluate.edits.kernel") is None:
        sys.exit("kernels cannot be compiled here")
    texts = [("rocketmq", text) for text in ROCKETMQ_FILTERS] + [("servicebus", text) for text in SERVICE_BUS_FILTERS]
    texts += [("amqp", text) for text in AMQP_FILTERS + FILTERS] + [("cesql", text) for text in CESQL_FILTERS]
    programs = [compile_program(bind(parse(text, dialect), dialect, text)) for dialect, text in texts]
    edits = [program for text in ACTIONS for program in Action.parse(text).programs("r")]
    lines = [line for path in vectors for line in Path(path).read_text().splitlines()]
    stored = [bytes.fromhex(json.loads(line)["encoded_hex"]) for line in lines]
    buffer = GuardedBuffer(4, 256)
    recorded = [message for message in stored if 0 < len(message) < buffer.size - 128]
    looked_at = 0
    cases = itertools.chain(
        ((message, around) for message in hostile_messages() for around in AROUND),
        ((message[:length], AROUND[length % 4]) for message in recorded for length in range(len(message) + 1)),
        changed_messages(recorded, changes),
        json_messages(changes // 4),
    )
    while some := list(itertools.islice(cases, buffer.places)):
        batch = buffer.batch_of(some)
        for program in programs:
            assert program is not None
            program.verdicts(batch, 0)
            program.verdicts(batch, 0, exact=False)
        for edit in edits:
            which, ids = np.zeros(len(batch), dtype=np.int64), np.zeros((len(edit.occurrences), 16), dtype=np.uint8)
            run_edits([edit], which, batch, ids, which)
        looked_at += len(some)
    print(looked_at)


def changed_messages(recorded: Sequence[bytes], count: int) -> Iterator[tuple[bytes, int]]:
    """Recorded messages with up to three bytes changed, cut anywhere."""
    chance = random.Random(7)
    for _ in range(count):
        changed = bytearray(chance.choice(recorded))
        for _ in range(chance.randint(1, 3)):
            changed[chance.randrange(len(changed))] = chance.choice((*CONSTRUCTORS, chance.randrange(256)))
        yield bytes(changed[: chance.randint(0, len(changed))]), chance.choice(AROUND)


if __name__ == "__main__":
    main(sys.argv[2:], int(sys.argv[1]))
