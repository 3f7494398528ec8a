"""Compiled work on many messages at once: out of a batch, with an id as they are stored, as receivers get them.

What a kernel is not sure of it leaves open, and Python looks at that alone: `messages.py`, `batches.py`.
Layouts: OASIS AMQP 1.0 part 3, section 3.2; servicebus_wire, section 6.
"""

from __future__ import annotations

from headgate.kernels.compiler import helper, inlined, kernel
from headgate.kernels.memory import (
    copy_bytes,
    load_be_u32,
    load_i64,
    load_u8,
    store_be_i64,
    store_be_u16,
    store_be_u32,
    store_i64,
    store_u8,
)
from headgate.message.lookup.elements.kernel import behind_element
from headgate.protocols.amqp10.layout import SPANS
from headgate.protocols.amqp10.sections.kernel import (
    APPLICATION_PROPERTIES,
    DATA,
    FAIL,
    FOOTER,
    PROPERTIES,
    before_bare,
    behind_descriptor,
    compound_count,
    compound_head,
    compound_stop,
    descriptor,
    skip_map,
    write_annotations_head,
    write_header,
)
from headgate.protocols.servicebus.batches import ID_BYTES
from headgate.protocols.servicebus.layout import DELIVERY, IDS

DONE, UNDECIDED = 0, 1
"""Status of a row: it is written, or Python has to look at it."""

MOVED, NO_BODY, SEQUENCE, FIRST_SEQUENCE, ENQUEUED, STATE, LOCKED = 0, 1, 2, 3, 4, 5, 6
"""Rows of the table of names: the annotations of copies that Python reads, then the ones that deliveries carry."""

_EXPIRY_FIELD, _CREATION_FIELD, _FIELDS = 8, 9, 13
_NULL = 0x40
_LONG, _TIMESTAMP, _SYMBOL = 0x81, 0x83, 0xA3
_TOLD_BYTES = 9
"""A long or a time."""


@kernel("int64(int64, int64, int64, int64, int64, int64, int64)")
def unbatch(data: int, first: int, stop: int, widths: int, starts: int, lengths: int, room: int) -> int:
    """Where the messages of a batch lie in `data`, whose data sections begin at `first`; gives their number.

    A failure for other sections, and for more messages than there is room.
    """
    position = data + first
    last = data + stop
    count = 0
    while position < last:
        code: int = descriptor(position, last)
        if code == FOOTER and count > 0:
            behind: int = behind_element(behind_descriptor(position), last, widths)
            return FAIL if behind == FAIL else count
        if code != DATA or count >= room:
            return FAIL
        position = behind_descriptor(position)
        if last - position < 2:
            return FAIL
        if load_u8(position) == 0xA0:
            size: int = load_u8(position + 1)
            position += 2
        elif load_u8(position) == 0xB0 and last - position >= 5:
            size = load_be_u32(position + 1)
            position += 5
        else:
            return FAIL
        if size > last - position:
            return FAIL
        store_i64(starts + (count << 3), position - data)
        store_i64(lengths + (count << 3), size)
        position += size
        count += 1
    return count


@helper
def _has_id(position: int, stop: int) -> int:
    """1 if the properties at `position` have a message id, 0 if not, or if there are none (0); or a failure."""
    if position == 0 or (position < stop and load_u8(position) == 0x45):
        return 0
    head: int = compound_head(position, stop, 0xC0, 0xD0)
    if head == FAIL:
        return FAIL
    if compound_count(position, head) == 0:
        return 0
    if position + head >= compound_stop(position, head):
        return FAIL
    return 0 if load_u8(position + head) == _NULL else 1


@helper
def _is_content(position: int, stop: int) -> int:
    """1 if application properties, a body or nothing follows the properties."""
    if descriptor(position, stop) == APPLICATION_PROPERTIES:
        position = skip_map(behind_descriptor(position), stop)
        if position == FAIL:
            return 0
    if position == stop:
        return 1
    return 1 if DATA <= descriptor(position, stop) <= FOOTER else 0


@helper
def _behind_properties(bare: int, properties: int, stop: int, widths: int) -> int:
    """The byte behind the properties, if there are any (else 0) at the beginning of the bare message; or a failure.

    A failure, too, if what lies behind is no content.
    """
    behind = bare
    if properties != 0:
        behind = behind_element(properties, stop, widths)
        if behind == FAIL:
            return FAIL
    return behind if _is_content(behind, stop) else FAIL


@inlined
def _write_time(position: int, time_ms: int) -> int:
    store_u8(position, _TIMESTAMP)
    store_be_i64(position + 1, time_ms)
    return position + _TOLD_BYTES


@helper
def _write_properties(
    target: int, source: int, stop: int, widths: int, identity: int, expires_ms: int, created_ms: int
) -> int:
    """Write the properties at `source`, changed; gives the byte behind them, or a failure.

    `source` is 0 where there are none. `identity` is the address of a new id, 0 to keep what is there; the times are
    said if `expires_ms` is above 0.
    """
    count = 0
    end = 0
    if source != 0 and load_u8(source) != 0x45:
        head: int = compound_head(source, stop, 0xC0, 0xD0)
        if head == FAIL:
            return FAIL
        count = compound_count(source, head)
        end = compound_stop(source, head)
        source += head
        if count > _FIELDS:
            return FAIL
    written = count
    if identity != 0 and written < 1:
        written = 1
    if expires_ms > 0 and written <= _CREATION_FIELD:
        written = _CREATION_FIELD + 1
    store_be_u16(target, 0x0053)
    store_u8(target + 2, PROPERTIES)
    store_u8(target + 3, 0xD0)
    store_be_u32(target + 8, written)
    place = target + 12
    for index in range(written):
        behind = source
        if index < count:
            behind = behind_element(source, end, widths)
            if behind == FAIL:
                return FAIL
        if index == 0 and identity != 0:
            store_u8(place, 0xA1)
            store_u8(place + 1, ID_BYTES)
            copy_bytes(place + 2, identity, ID_BYTES)
            place += 2 + ID_BYTES
        elif index == _EXPIRY_FIELD and expires_ms > 0:
            place = _write_time(place, expires_ms)
        elif index == _CREATION_FIELD and expires_ms > 0:
            place = _write_time(place, created_ms)
        elif index < count:
            copy_bytes(place, source, behind - source)
            place += behind - source
        else:
            store_u8(place, _NULL)
            place += 1
        source = behind
    if count > 0 and source != end:
        return FAIL
    store_be_u32(target + 4, place - target - 8)
    return place


@kernel("int64(int64)")
def with_ids(block: int) -> int:
    """Write stored messages side by side, with an id where one has none; gives the bytes written.

    `block` is the address of an `IdsBlock`.
    """
    data: int = load_i64(block + IDS.data)
    starts: int = load_i64(block + IDS.starts)
    lengths: int = load_i64(block + IDS.lengths)
    count: int = load_i64(block + IDS.rows)
    widths: int = load_i64(block + IDS.widths)
    ids: int = load_i64(block + IDS.ids)
    target: int = load_i64(block + IDS.target)
    out_starts: int = load_i64(block + IDS.out_starts)
    out_lengths: int = load_i64(block + IDS.out_lengths)
    status: int = load_i64(block + IDS.status)
    spans: int = load_i64(block + IDS.spans)
    place = target
    for row in range(count):
        at = row << 3
        start: int = data + load_i64(starts + at)
        size: int = load_i64(lengths + at)
        stop = start + size
        store_i64(out_starts + at, place - target)
        store_i64(out_lengths + at, 0)
        store_i64(status + at, DONE)
        if size == 0:
            continue
        store_i64(status + at, UNDECIDED)
        bare: int = before_bare(start, stop, widths, 0, 0, spans, 0)
        if bare == FAIL:
            continue
        code: int = descriptor(bare, stop)
        if code < PROPERTIES or code > FOOTER:
            continue
        source: int = behind_descriptor(bare) if code == PROPERTIES else 0
        has_id: int = _has_id(source, stop)
        rest: int = _behind_properties(bare, source, stop, widths)
        if has_id == FAIL or rest == FAIL:
            continue
        if has_id == 1:
            copy_bytes(place, start, size)
            behind = place + size
        else:
            copy_bytes(place, start, bare - start)
            behind = _write_properties(place + bare - start, source, stop, widths, ids + row * ID_BYTES, 0, 0)
            if behind == FAIL:
                continue
            copy_bytes(behind, rest, stop - rest)
            behind += stop - rest
        store_i64(out_lengths + at, behind - place)
        store_i64(status + at, DONE)
        place = behind
    return place - target


@helper
def _is_name(position: int, row: int) -> int:
    """1 if the symbol of the small form at `position` is the name in a row: the length in front."""
    for index in range(load_u8(row) + 1):
        if load_u8(position + 1 + index) != load_u8(row + index):
            return 0
    return 1


@helper
def _which_name(position: int, names: int, count: int) -> int:
    """Which of `count` names the symbol of the small form at `position` is; or a failure."""
    for index in range(count):
        if _is_name(position, names + (index << 5)):
            return index
    return FAIL


@helper
def _kept_annotations(target: int, source: int, stop: int, widths: int, names: int, count: int) -> int:
    """Copy the pairs of annotations that have none of the names; gives the bytes, or a failure where Python looks.

    With a target of 0 they are counted only: bytes · 2^32 + pairs.
    """
    size = 0
    pairs = 0
    while source < stop:
        if load_u8(source) != _SYMBOL:
            return FAIL
        middle: int = behind_element(source, stop, widths)
        if middle == FAIL:
            return FAIL
        behind: int = behind_element(middle, stop, widths)
        if behind == FAIL:
            return FAIL
        name: int = _which_name(source, names, count)
        if name in (MOVED, NO_BODY, FIRST_SEQUENCE):
            return FAIL
        if name == FAIL:
            if target != 0:
                copy_bytes(target + size, source, behind - source)
            size += behind - source
            pairs += 1
        source = behind
    return size if target != 0 else size << 32 | pairs


@helper
def _write_name(place: int, row: int) -> int:
    store_u8(place, _SYMBOL)
    copy_bytes(place + 1, row, load_u8(row) + 1)
    return place + load_u8(row) + 2


@helper
def _write_long(place: int, row: int, constructor: int, value: int) -> int:
    place = _write_name(place, row)
    store_u8(place, constructor)
    store_be_i64(place + 1, value)
    return place + _TOLD_BYTES


@helper
def _write_delivery_count(header: int, behind: int, count: int) -> int:
    """Say in a header that `write_header` wrote how often a message was given out before; gives the byte behind it."""
    if count == 0:
        return behind
    store_u8(behind - 2, 0x42)
    if count < 0x100:
        store_u8(behind - 1, 0x52)
        store_u8(behind, count)
        more = 1
    else:
        store_u8(behind - 1, 0x70)
        store_be_u32(behind, count)
        more = 4
    store_u8(header + 4, load_u8(header + 4) + more)
    return behind + more


@helper
def _said_lifetime(spans: int) -> int:
    """The time to live that a header says, in milliseconds; 0 for none."""
    length: int = load_i64(spans + SPANS.ttl_bytes)
    if length == 0:
        return 0
    position: int = load_i64(spans + SPANS.ttl)
    if load_u8(position) == 0x52 and length == 2:
        return load_u8(position + 1)
    if load_u8(position) == 0x70 and length == 5:
        return load_be_u32(position + 1)
    return 0


@helper
def _write_hex(target: int, number: int) -> None:
    for index in range(ID_BYTES):
        shift = 4 * (ID_BYTES - 1 - index)
        digit = 0 if shift > 60 else (number >> shift) & 15
        store_u8(target + index, 48 + digit if digit < 10 else 87 + digit)


@kernel("int64(int64)")
def deliver(block: int) -> int:
    """Write stored messages as receivers get them, side by side; gives the bytes written.

    `block` is the address of a `DeliveryBlock`.
    """
    data: int = load_i64(block + DELIVERY.data)
    starts: int = load_i64(block + DELIVERY.starts)
    lengths: int = load_i64(block + DELIVERY.lengths)
    count: int = load_i64(block + DELIVERY.rows)
    widths: int = load_i64(block + DELIVERY.widths)
    names: int = load_i64(block + DELIVERY.names)
    name_count: int = load_i64(block + DELIVERY.name_count)
    sequences: int = load_i64(block + DELIVERY.sequences)
    arrivals: int = load_i64(block + DELIVERY.arrivals)
    delivery_counts: int = load_i64(block + DELIVERY.delivery_counts)
    locked_until_ms: int = load_i64(block + DELIVERY.locked_until_ms)
    lifetime_ms: int = load_i64(block + DELIVERY.lifetime_ms)
    latest_ms: int = load_i64(block + DELIVERY.latest_ms)
    target: int = load_i64(block + DELIVERY.target)
    out_starts: int = load_i64(block + DELIVERY.out_starts)
    out_lengths: int = load_i64(block + DELIVERY.out_lengths)
    status: int = load_i64(block + DELIVERY.status)
    spans: int = load_i64(block + DELIVERY.spans)
    identity: int = load_i64(block + DELIVERY.identity)
    told_bytes = 4 * (_TOLD_BYTES + 2) - _TOLD_BYTES + 2
    for index in range(SEQUENCE, LOCKED):
        told_bytes += load_u8(names + (index << 5))
    told_pairs = 4
    if locked_until_ms > 0:
        told_bytes += _TOLD_BYTES + 2 + load_u8(names + (LOCKED << 5))
        told_pairs = 5
    begin = target
    for row in range(count):
        at = row << 3
        start: int = data + load_i64(starts + at)
        stop: int = start + load_i64(lengths + at)
        store_i64(out_starts + at, begin - target)
        store_i64(out_lengths + at, 0)
        store_i64(status + at, UNDECIDED)
        bare: int = before_bare(start, stop, widths, 0, 0, spans, 0)
        if bare == FAIL:
            continue
        code: int = descriptor(bare, stop)
        if code < PROPERTIES or code > FOOTER:
            continue
        content: int = load_i64(spans + SPANS.annotations)
        content_stop: int = content + load_i64(spans + SPANS.annotations_bytes)
        kept: int = _kept_annotations(0, content, content_stop, widths, names, name_count)
        if kept == FAIL:
            continue
        source: int = behind_descriptor(bare) if code == PROPERTIES else 0
        has_id: int = _has_id(source, stop)
        rest: int = _behind_properties(bare, source, stop, widths)
        if has_id == FAIL or rest == FAIL:
            continue
        arrived_ms: int = load_i64(arrivals + at)
        sequence: int = load_i64(sequences + at)
        said_ms: int = _said_lifetime(spans)
        if said_ms == 0 or 0 < lifetime_ms < said_ms:
            said_ms = lifetime_ms
        expires_ms = 0
        if said_ms > 0:
            if said_ms <= 0xFFFFFFFF:
                # How long it lives here: clients count with that.
                store_u8(identity + ID_BYTES, 0x70)
                store_be_u32(identity + ID_BYTES + 1, said_ms)
                store_i64(spans + SPANS.ttl, identity + ID_BYTES)
                store_i64(spans + SPANS.ttl_bytes, 5)
            expires_ms = arrived_ms + said_ms
            if expires_ms > latest_ms or expires_ms < 0:
                expires_ms = latest_ms
        absent = 0x40 if load_i64(spans + SPANS.has_header) else 0x41
        place: int = write_header(begin, spans, absent)
        place = _write_delivery_count(begin, place, load_i64(delivery_counts + at))
        place = write_annotations_head(place, (kept >> 32) + told_bytes, 2 * ((kept & 0xFFFFFFFF) + told_pairs))
        place += _kept_annotations(place, content, content_stop, widths, names, name_count)
        place = _write_long(place, names + (SEQUENCE << 5), _LONG, sequence)
        place = _write_long(place, names + (FIRST_SEQUENCE << 5), _LONG, sequence)
        place = _write_long(place, names + (ENQUEUED << 5), _TIMESTAMP, arrived_ms)
        place = _write_name(place, names + (STATE << 5))
        store_be_u16(place, 0x5400)
        place += 2
        if locked_until_ms > 0:
            place = _write_long(place, names + (LOCKED << 5), _TIMESTAMP, locked_until_ms)
        if has_id == 0 or expires_ms > 0:
            new_id = 0
            if has_id == 0:
                _write_hex(identity, sequence)
                new_id = identity
            place = _write_properties(place, source, stop, widths, new_id, expires_ms, arrived_ms)
            if place == FAIL:
                continue
        else:
            rest = bare
        copy_bytes(place, rest, stop - rest)
        place += stop - rest
        store_i64(out_lengths + at, place - begin)
        store_i64(status + at, DONE)
        begin = place
    return begin - target
