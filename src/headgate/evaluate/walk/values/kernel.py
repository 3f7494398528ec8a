"""Encoded values in the kernel: where one ends, and its content for a register.

The rules of `headgate.evaluate.walk.kernel` hold: what is read here has had its end checked, or lies within the slack.
"""

from __future__ import annotations

from headgate.evaluate import layout
from headgate.evaluate.layout import REGISTER
from headgate.evaluate.values.kernel import (
    set_bytes,
    set_float,
    set_register,
    set_text,
)
from headgate.kernels.compiler import helper, inlined
from headgate.kernels.memory import (
    float_of_bits,
    kept_apart,
    load_be_f32,
    load_be_i16,
    load_be_i32,
    load_be_i64,
    load_be_u16,
    load_be_u32,
    load_i8,
    load_i64,
    load_u8,
    load_u16,
    multiply_overflows,
    store_i64,
    trailing_zeros,
)

NULLS = 0x4040404040404040
TICKS_PER_MS = 10_000
URI_FIRST = 0x7263696D2E6D6F63  # com.microsoft:uri, eight bytes at a time
URI_SECOND = 0x72753A74666F736F
URI_LAST = 0x69


# -- where values end --------------------------------------------------------------------------------------------------


@helper
def skip_rare(position: int, stop: int, widths: int) -> int:
    """As `skip`, for any value."""
    kept_apart()
    pending = 1
    while pending > 0:
        if position >= stop:
            return stop + 1
        width = load_u16(widths + 2 * load_u8(position))
        if width < layout.WIDTH_SIZE8:
            position += width
        elif width < layout.WIDTH_RARE:
            position += 2 + load_u8(position + 1)
        elif width == layout.WIDTH_SIZE32:
            position += 5 + load_be_u32(position + 1)
        elif width == layout.WIDTH_DESCRIBED:
            position += 1
            pending += 2
        else:
            return stop + 1
        pending -= 1
    return position


@inlined
def skip(position: int, stop: int, widths: int) -> int:
    """The address after the value at `position`, at most `stop`; above `stop` if no whole value is there."""
    constructor = load_u8(position)
    if constructor == 0xA1 or constructor == 0xA3 or constructor == 0xA0:
        return position + 2 + load_u8(position + 1)
    width = load_u16(widths + 2 * constructor)
    if width < layout.WIDTH_SIZE8:
        return position + width
    return skip_rare(position, stop, widths)


@inlined
def null_run(position: int, most: int) -> int:
    """How many of the next `most` values are null, at most eight."""
    count = trailing_zeros(load_i64(position) ^ NULLS) >> 3
    return count if count < most else most


# -- values into registers ---------------------------------------------------------------------------------------------


@helper
def decode(position: int, register: int, pool: int) -> None:
    """Decode the value at `position`, whose end was checked, as the kind that the program's table gives.

    The register of a value without a kind of its own holds the address.
    """
    constructor = load_u8(position)
    kind = load_u8(pool + layout.KINDS + constructor)
    if constructor == 0xA1 or constructor == 0xA3 or constructor == 0xA0:
        size = load_u8(position + 1)
        if size == 0 and constructor == 0xA1:
            kind = load_u8(pool + layout.KINDS + layout.KIND_OF_EMPTY)
        set_text(register, kind, position + 2, size)
    elif kind <= layout.ODD:
        if constructor == 0x72 and load_be_u16(position + 1) & 0x7F80 == 0x7F80:
            kind = load_u8(pool + layout.KINDS + layout.KIND_OF_NOT_FINITE)
        set_register(register, kind, position)
    elif constructor == 0x41:
        set_register(register, kind, 1)
    elif constructor == 0x42 or constructor == 0x43 or constructor == 0x44:
        set_register(register, kind, 0)
    elif constructor == 0x50 or constructor == 0x52 or constructor == 0x53:
        set_register(register, kind, load_u8(position + 1))
    elif constructor == 0x51 or constructor == 0x54 or constructor == 0x55:
        set_register(register, kind, load_i8(position + 1))
    elif constructor == 0x56:
        set_register(register, kind, 1 if load_u8(position + 1) != 0 else 0)
    elif constructor == 0x60:
        set_register(register, kind, load_be_u16(position + 1))
    elif constructor == 0x61:
        set_register(register, kind, load_be_i16(position + 1))
    elif constructor == 0x70 or constructor == 0x73:
        set_register(register, kind, load_be_u32(position + 1))
    elif constructor == 0x71:
        set_register(register, kind, load_be_i32(position + 1))
    elif constructor == 0x72:
        store_i64(register + REGISTER.payload, position)
        set_float(register, load_be_f32(position + 1), load_u8(pool + layout.KINDS + layout.KIND_OF_NOT_FINITE))
    elif constructor == 0x80:
        value = load_be_i64(position + 1)
        set_register(register, kind if value >= 0 else layout.LARGE, value)
    elif constructor == 0x81 or constructor == 0x83:
        set_register(register, kind, load_be_i64(position + 1))
    elif constructor == 0x82:
        store_i64(register + REGISTER.payload, position)
        set_float(
            register, float_of_bits(load_be_i64(position + 1)), load_u8(pool + layout.KINDS + layout.KIND_OF_NOT_FINITE)
        )
    elif constructor == 0x98:
        set_text(register, kind, position + 1, 16)
    else:
        size = load_be_u32(position + 1)
        if size == 0 and constructor == 0xB1:
            kind = load_u8(pool + layout.KINDS + layout.KIND_OF_EMPTY)
        set_text(register, kind, position + 5, size)


@helper
def _read_uri(position: int, register: int) -> None:
    """Read the text of a described com.microsoft:uri; NULL for any other value."""
    descriptor = position + 2
    if load_u8(position + 1) == 0xA3:
        size = load_u8(descriptor)
        text = descriptor + 1
    elif load_u8(position + 1) == 0xB3:
        size = load_be_u32(descriptor)
        text = descriptor + 4
    else:
        size = 0
        text = descriptor
    value = text + size
    if (
        load_u8(position) == 0
        and size == 17
        and load_i64(text) == URI_FIRST
        and load_i64(text + 8) == URI_SECOND
        and load_u8(text + 16) == URI_LAST
    ):
        if load_u8(value) == 0xA1:
            set_bytes(register, value + 2, load_u8(value + 1))
            return
        if load_u8(value) == 0xB1:
            set_bytes(register, value + 5, load_be_u32(value + 1))
            return
    store_i64(register, layout.NULL)


@helper
def read_as(reading: int, position: int, register: int) -> None:
    """Set NULL for a decoded value of another type than `reading` asks for; times become ticks."""
    kind = load_i64(register)
    if kind in (layout.ABSENT, layout.NULL):
        return
    if reading == layout.AS_TEXT and kind == layout.OPEN:
        _read_uri(position, register)
        return
    is_integer = kind in (layout.INTEGER, layout.LARGE)
    if reading == layout.AS_IDENTIFIER and kind != layout.BYTES:
        constructor = load_u8(position)
        if constructor == 0x44 or constructor == 0x53 or constructor == 0x80 or kind in (layout.UUID, layout.BINARY):
            store_i64(register, layout.ODD)
            return
    if reading == layout.AS_TIME_SPAN and is_integer:
        milliseconds = load_i64(register + REGISTER.payload)
        if kind == layout.LARGE or multiply_overflows(milliseconds, TICKS_PER_MS) != 0:
            store_i64(register, layout.NULL)
        else:
            set_register(register, layout.TIME_SPAN, milliseconds * TICKS_PER_MS)
        return
    fits = kind == layout.BYTES
    if reading == layout.AS_DATE_TIME:
        fits = kind == layout.TIMESTAMP
    elif reading == layout.AS_INTEGER:
        fits = is_integer
    elif reading == layout.AS_TIME_SPAN:
        fits = False
    if not fits:
        store_i64(register, layout.NULL)


@helper
def decode_as(reading: int, position: int, register: int, pool: int) -> None:
    """Decode a field as `reading` asks; a value of another type becomes NULL or counts as absent."""
    kept_apart()
    constructor = load_u8(position)
    if reading == layout.UBYTE_ONLY:
        if constructor == 0x50:
            set_register(register, layout.INTEGER, load_u8(position + 1))
    elif reading != layout.OF_ITS_TYPE:
        decode(position, register, pool)
        read_as(reading, position, register)
    elif load_i64(register + REGISTER.length) == layout.A_BOOLEAN:
        if constructor == 0x41 or constructor == 0x42 or constructor == 0x56:
            decode(position, register, pool)
    elif constructor == 0x43 or constructor == 0x52 or constructor == 0x70:
        decode(position, register, pool)


@inlined
def decode_text_first(position: int, register: int, pool: int) -> None:
    """`decode` with the most common constructor in line."""
    head = load_u16(position)
    if head & 0xFF == 0xA1 and head > 0xFF:
        set_bytes(register, position + 2, head >> 8)
    else:
        decode(position, register, pool)
