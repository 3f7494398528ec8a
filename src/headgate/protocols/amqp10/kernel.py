"""Compiled work on many messages at once: transfers in, the form they are stored in, transfers out.

Arguments are addresses and counts; a block of int64 words carries what is many. What a kernel is not sure of it leaves
open (a frame it stops at, a row it marks), and Python looks at that alone: `transfers.py`, `messages.py`.
Layouts: OASIS AMQP 1.0 part 2, sections 2.3 and 2.7.5; part 3, section 3.2.
"""

from __future__ import annotations

from headgate.kernels.compiler import helper, inlined, kernel
from headgate.kernels.memory import (
    copy_bytes,
    load_be_u16,
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
from headgate.protocols.amqp10.layout import FILTER_VALUE, RUN, SPANS, STORE, TAGGED, TRANSFER
from headgate.protocols.amqp10.sections.kernel import (
    APPLICATION_PROPERTIES,
    FAIL,
    FOOTER,
    PROPERTIES,
    before_bare,
    behind_descriptor,
    body_fits,
    compound_count,
    compound_head,
    compound_stop,
    descriptor,
    skip_map,
    user_fits,
    write_annotations_head,
    write_header,
)

DONE, UNDECIDED = 0, 1
"""Status of a row: it is written, or Python has to look at it."""

FRAME_BYTES = 33
"""Head and performative of a transfer that carries a whole message, as `frame_messages` writes them."""

_NULL = -2
_TRANSFER, _DISPOSITION = 0x14, 0x15


@inlined
def _uint(position: int, stop: int) -> int:
    """The uint at `position`; null or a failure as negative numbers."""
    if position >= stop:
        return FAIL
    constructor: int = load_u8(position)
    if constructor == 0x43:
        return 0
    if constructor == 0x40:
        return _NULL
    if constructor == 0x52 and stop - position >= 2:
        return load_u8(position + 1)
    if constructor == 0x70 and stop - position >= 5:
        return load_be_u32(position + 1)
    return FAIL


@inlined
def _boolean(position: int, stop: int) -> int:
    """1 or 0 for the boolean at `position`; null or a failure as negative numbers."""
    if position >= stop:
        return FAIL
    constructor: int = load_u8(position)
    if constructor == 0x41:
        return 1
    if constructor == 0x42:
        return 0
    if constructor == 0x40:
        return _NULL
    if constructor == 0x56 and stop - position >= 2:
        return 1 if load_u8(position + 1) != 0 else 0
    return FAIL


@inlined
def _width(position: int) -> int:
    """Bytes of the uint or boolean at `position`, which has been read already."""
    constructor: int = load_u8(position)
    if constructor == 0x70:
        return 5
    return 2 if constructor == 0x52 or constructor == 0x56 else 1


@helper
def _transfer_row(position: int, end: int, count: int, stop: int, base: int, row: int, step: int) -> int:
    """Store a transfer whose fields are `position` … `end`, its payload up to `stop`; gives its handle or a failure."""
    if count < 3 or count > 11:
        return FAIL
    handle: int = _uint(position, end)
    if handle < 0:
        return FAIL
    position += _width(position)
    delivery_id: int = _uint(position, end)
    if delivery_id < 0:
        return FAIL
    position += _width(position)
    if end - position < 2 or load_u8(position) != 0xA0:
        return FAIL
    tag: int = load_u8(position + 1)
    if tag > 32 or tag > end - position - 2:
        return FAIL
    position += 2 + tag
    settled = 0
    if count >= 4:
        message_format: int = _uint(position, end)
        if message_format != _NULL and message_format != 0:
            return FAIL
        position += _width(position)
    if count >= 5:
        settled = _boolean(position, end)
        if settled == FAIL:
            return FAIL
        position += _width(position)
    for index in range(5, count):
        # more, rcv-settle-mode, state, resume, aborted: only without effect; batchable says nothing.
        if position >= end:
            return FAIL
        if index == 6 and end - position >= 2 and load_u8(position) == 0x50 and load_u8(position + 1) == 0:
            position += 2
            continue
        flag: int = _boolean(position, end)
        if flag == FAIL or (flag == 1 and index != 10) or (index in (6, 7) and flag != _NULL):
            return FAIL
        position += _width(position)
    if position != end:
        return FAIL
    store_i64(row, end - base)
    store_i64(row + step, stop - end)
    store_i64(row + 2 * step, delivery_id)
    store_i64(row + 3 * step, 1 if settled == 1 else 0)
    return handle


@helper
def _is_settled_by_receiver(position: int, end: int, count: int) -> int:
    """1 if the fields of a disposition say that a receiver settled some deliveries."""
    if count < 4 or count > 6 or _boolean(position, end) != 1:
        return 0
    position += _width(position)
    first: int = _uint(position, end)
    if first < 0:
        return 0
    position += _width(position)
    last: int = _uint(position, end)
    if last == FAIL:
        return 0
    if last >= 0 and (last - first) & 0xFFFFFFFF > 0x7FFFFFFF:
        return 0
    position += _width(position)
    return 1 if _boolean(position, end) == 1 else 0


@kernel("int64(int64, int64, int64, int64, int64, int64, int64, int64, int64)")
def parse_transfers(
    data: int,
    first: int,
    stop: int,
    max_frame_size: int,
    channel: int,
    skip_settled: int,
    rows: int,
    room: int,
    run: int,
) -> int:
    """Read frames from `first` on while each is a whole message on one link; gives their number.

    Columns of `room` words in `rows`: start and length of the message, delivery id, settled. `run` is the address
    of a `RunBlock`. With `skip_settled` dispositions that only say that a receiver settled are passed over.
    """
    count = 0
    handle = FAIL
    position = data + first
    last = data + stop
    step = room << 3
    while count < room and last - position >= 16:
        size: int = load_be_u32(position)
        if size > max_frame_size or size < 16 or size > last - position or load_be_u16(position + 4) != 0x0200:
            break
        if load_be_u16(position + 6) != channel:
            break
        frame_stop = position + size
        code: int = descriptor(position + 8, frame_stop)
        if code != _TRANSFER and not (code == _DISPOSITION and skip_settled):
            break
        fields: int = behind_descriptor(position + 8)
        head: int = compound_head(fields, frame_stop, 0xC0, 0xD0)
        if head == FAIL:
            break
        end: int = compound_stop(fields, head)
        number: int = compound_count(fields, head)
        if code == _DISPOSITION:
            if not _is_settled_by_receiver(fields + head, end, number):
                break
        else:
            found: int = _transfer_row(fields + head, end, number, frame_stop, data, rows + (count << 3), step)
            if found == FAIL or (count > 0 and found != handle):
                break
            handle = found
            count += 1
        position = frame_stop
    store_i64(run + RUN.stop, position - data)
    store_i64(run + RUN.handle, handle)
    return count


@kernel("int64(int64)")
def store_messages(block: int) -> int:
    """Write messages in the form they are stored in, side by side; gives the bytes written.

    `block` is the address of a `StoreBlock`.
    """
    data: int = load_i64(block + STORE.data)
    starts: int = load_i64(block + STORE.starts)
    lengths: int = load_i64(block + STORE.lengths)
    count: int = load_i64(block + STORE.rows)
    routing: int = load_i64(block + STORE.routing)
    routing_bytes: int = load_i64(block + STORE.routing_bytes)
    routing_elements: int = load_i64(block + STORE.routing_elements)
    user: int = load_i64(block + STORE.user)
    user_bytes: int = load_i64(block + STORE.user_bytes)
    widths: int = load_i64(block + STORE.widths)
    names: int = load_i64(block + STORE.names)
    name_count: int = load_i64(block + STORE.name_count)
    target: int = load_i64(block + STORE.target)
    out_starts: int = load_i64(block + STORE.out_starts)
    out_lengths: int = load_i64(block + STORE.out_lengths)
    value_starts: int = load_i64(block + STORE.value_starts)
    value_lengths: int = load_i64(block + STORE.value_lengths)
    status: int = load_i64(block + STORE.status)
    spans: int = load_i64(block + STORE.spans)
    value = spans + SPANS.value
    written = 0
    for row in range(count):
        at = row << 3
        position: int = data + load_i64(starts + at)
        stop: int = position + load_i64(lengths + at)
        store_i64(out_starts + at, written)
        store_i64(out_lengths + at, 0)
        store_i64(value_lengths + at, -1)
        store_i64(value_starts + at, 0)
        store_i64(status + at, UNDECIDED)
        position = before_bare(position, stop, widths, names, name_count, spans, value)
        if position == FAIL:
            continue
        content: int = load_i64(spans + SPANS.annotations)
        content_bytes: int = load_i64(spans + SPANS.annotations_bytes)
        elements: int = load_i64(spans + SPANS.annotations_elements)
        code: int = descriptor(position, stop)
        bare = position
        if code == PROPERTIES:
            position = behind_descriptor(position)
            if user_bytes >= 0 and not user_fits(position, stop, widths, user, user_bytes):
                continue
            position = behind_element(position, stop, widths)
            if position == FAIL:
                continue
            code = descriptor(position, stop)
        if code == APPLICATION_PROPERTIES:
            position = skip_map(behind_descriptor(position), stop)
            if position == FAIL:
                continue
        if not body_fits(position, stop, widths):
            continue
        place: int = write_header(target + written, spans, 0x41)
        place = write_annotations_head(place, content_bytes + routing_bytes, elements + routing_elements)
        if load_i64(value + FILTER_VALUE.length) >= 0:
            store_i64(value_starts + at, place + load_i64(value + FILTER_VALUE.address) - content - target)
            store_i64(value_lengths + at, load_i64(value + FILTER_VALUE.length))
        copy_bytes(place, content, content_bytes)
        place += content_bytes
        copy_bytes(place, routing, routing_bytes)
        place += routing_bytes
        copy_bytes(place, bare, stop - bare)
        place += stop - bare
        store_i64(out_lengths + at, place - target - written)
        store_i64(status + at, DONE)
        written = place - target
    return written


@kernel("int64(int64)")
def frame_tagged(block: int) -> int:
    """Write messages as transfers of one frame each, up to the first that does not fit into one; gives their number.

    `block` is the address of a `TaggedBlock`.
    """
    data: int = load_i64(block + TAGGED.data)
    starts: int = load_i64(block + TAGGED.starts)
    lengths: int = load_i64(block + TAGGED.lengths)
    first: int = load_i64(block + TAGGED.first)
    count: int = load_i64(block + TAGGED.rows)
    channel: int = load_i64(block + TAGGED.channel)
    handle: int = load_i64(block + TAGGED.handle)
    delivery_id: int = load_i64(block + TAGGED.delivery_id)
    tags: int = load_i64(block + TAGGED.tags)
    tag_bytes: int = load_i64(block + TAGGED.tag_bytes)
    settled: int = load_i64(block + TAGGED.settled)
    max_frame_size: int = load_i64(block + TAGGED.max_frame_size)
    target: int = load_i64(block + TAGGED.target)
    frame = target
    done = 0
    head_bytes = FRAME_BYTES - 8 + tag_bytes
    for row in range(first, count):
        at = row << 3
        length: int = load_i64(lengths + at)
        if head_bytes + length > max_frame_size:
            break
        store_be_u32(frame, head_bytes + length)
        store_be_u16(frame + 4, 0x0200)
        store_be_u16(frame + 6, channel)
        store_be_u32(frame + 8, 0x005314C0)
        store_u8(frame + 12, head_bytes - 13)
        store_u8(frame + 13, 5)
        store_u8(frame + 14, 0x52)
        store_u8(frame + 15, handle)
        store_u8(frame + 16, 0x70)
        store_be_u32(frame + 17, (delivery_id + done) & 0xFFFFFFFF)
        store_u8(frame + 21, 0xA0)
        store_u8(frame + 22, tag_bytes)
        copy_bytes(frame + 23, tags + row * tag_bytes, tag_bytes)
        place = frame + 23 + tag_bytes
        store_u8(place, 0x43)
        store_u8(place + 1, 0x41 if settled else 0x42)
        copy_bytes(place + 2, data + load_i64(starts + at), length)
        frame = place + 2 + length
        done += 1
    store_i64(block + TAGGED.written, frame - target)
    return done


@kernel("int64(int64)")
def frame_messages(block: int) -> int:
    """Write messages as transfers of one frame each, up to the first that Python has to look at; gives their number.

    `block` is the address of a `TransferBlock`.
    """
    data: int = load_i64(block + TRANSFER.data)
    starts: int = load_i64(block + TRANSFER.starts)
    lengths: int = load_i64(block + TRANSFER.lengths)
    offsets: int = load_i64(block + TRANSFER.offsets)
    first: int = load_i64(block + TRANSFER.first)
    count: int = load_i64(block + TRANSFER.rows)
    channel: int = load_i64(block + TRANSFER.channel)
    handle: int = load_i64(block + TRANSFER.handle)
    delivery_id: int = load_i64(block + TRANSFER.delivery_id)
    tag: int = load_i64(block + TRANSFER.tag)
    settled: int = load_i64(block + TRANSFER.settled)
    max_frame_size: int = load_i64(block + TRANSFER.max_frame_size)
    widths: int = load_i64(block + TRANSFER.widths)
    name: int = load_i64(block + TRANSFER.name)
    key: int = load_i64(block + TRANSFER.key)
    target: int = load_i64(block + TRANSFER.target)
    spans: int = load_i64(block + TRANSFER.spans)
    frame = target
    done = 0
    for row in range(first, count):
        at = row << 3
        position: int = data + load_i64(starts + at)
        stop: int = position + load_i64(lengths + at)
        position = before_bare(position, stop, widths, name, 1, spans, 0)
        if position == FAIL:
            break
        absent = 0x40 if load_i64(spans + SPANS.has_header) else 0x41
        content: int = load_i64(spans + SPANS.annotations)
        content_bytes: int = load_i64(spans + SPANS.annotations_bytes)
        elements: int = load_i64(spans + SPANS.annotations_elements)
        code: int = descriptor(position, stop)
        if code < PROPERTIES or code > FOOTER:
            break
        if stop - position + content_bytes + 96 > max_frame_size:
            break
        store_be_u16(frame + 4, 0x0200)
        store_be_u16(frame + 6, channel)
        store_be_u32(frame + 8, 0x005314C0)
        store_be_u16(frame + 12, 0x1405)
        store_u8(frame + 14, 0x52)
        store_u8(frame + 15, handle)
        store_u8(frame + 16, 0x70)
        store_be_u32(frame + 17, (delivery_id + done) & 0xFFFFFFFF)
        store_be_u16(frame + 21, 0xA008)
        store_be_i64(frame + 23, (tag + done) & 0xFFFFFFFF)
        store_u8(frame + 31, 0x43)
        store_u8(frame + 32, 0x41 if settled else 0x42)
        place: int = write_header(frame + FRAME_BYTES, spans, absent)
        place = write_annotations_head(place, content_bytes + 26, elements + 2)
        copy_bytes(place, content, content_bytes)
        place += content_bytes
        copy_bytes(place, key, 17)
        store_u8(place + 17, 0x81)
        store_be_i64(place + 18, load_i64(offsets + at))
        place += 26
        copy_bytes(place, position, stop - position)
        place += stop - position
        store_be_u32(frame, place - frame)
        frame = place
        done += 1
    store_i64(block + TRANSFER.written, frame - target)
    return done
