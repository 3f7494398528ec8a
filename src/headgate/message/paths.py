"""References into maps, lists and arrays, followed over the encoded bytes.

Only values on the way are read. Where the framing breaks, only the values before the break exist. Source:
amqp_extensions, section 3; docs/design/message-validity.md.
"""

from __future__ import annotations

from headgate.errors import MessageError
from headgate.message.constructors import CONSTRUCTOR_WIDTHS, CONSTRUCTORS, DESCRIBED, WIDTH_SIZE8, AmqpType
from headgate.message.framing import read_unsigned, skip_value

_TEXT_KEYS = {0xA1: 1, 0xA3: 1, 0xB1: 4, 0xB3: 4}
_UNSIGNED = frozenset({AmqpType.UBYTE, AmqpType.USHORT, AmqpType.UINT, AmqpType.ULONG})
_SIGNED = frozenset({AmqpType.BYTE, AmqpType.SHORT, AmqpType.INT, AmqpType.LONG})
_COMPOUNDS = frozenset({AmqpType.LIST, AmqpType.MAP, AmqpType.ARRAY})


def follow(data: bytes, position: int, path: tuple[bytes | int, ...]) -> tuple[int, int] | None:
    """The constructor of the value that `path` leads to from the value at `position`, and where its content begins.

    None if there is no such value. The value at `position` must end within the data. Elements of an array of described
    values have the constructor `DESCRIBED`. Cost: one walk over each compound on the way.
    """
    constructor, content = data[position], position + 1
    try:
        for step in path:
            found = _step(data, constructor, content, step)
            if found is None:
                return None
            constructor, content = found
    except MessageError:
        return None
    return constructor, content


def _step(data: bytes, constructor: int, position: int, step: bytes | int) -> tuple[int, int] | None:
    kind = CONSTRUCTORS.get(constructor)
    width = CONSTRUCTOR_WIDTHS[constructor]
    if kind not in _COMPOUNDS or width == 0:
        return None
    size_width = 1 if width == WIDTH_SIZE8 else 4
    elements = position + 2 * size_width
    stop = position + size_width + read_unsigned(data, position, size_width, len(data))
    count = read_unsigned(data, position + size_width, size_width, stop)
    if kind is AmqpType.MAP:
        return _entry(data, elements, stop, count // 2, step)
    if isinstance(step, bytes) or step >= count:
        return None
    if kind is AmqpType.ARRAY:
        return _array_element(data, elements, stop, step)
    for _ in range(step):
        elements = skip_value(data, elements, stop)
    skip_value(data, elements, stop)
    return data[elements], elements + 1


def _entry(data: bytes, position: int, stop: int, pairs: int, key: bytes | int) -> tuple[int, int] | None:
    """The value of the first entry with that key."""
    for _ in range(pairs):
        value = skip_value(data, position, stop)
        behind = skip_value(data, value, stop)
        if _is_key(data, position, value, key):
            return data[value], value + 1
        position = behind
    return None


def _is_key(data: bytes, position: int, stop: int, key: bytes | int) -> bool:
    constructor = data[position]
    if isinstance(key, bytes):
        width = _TEXT_KEYS.get(constructor)
        return width is not None and data[position + 1 + width : stop] == key
    kind = CONSTRUCTORS.get(constructor)
    number = int.from_bytes(data[position + 1 : stop], "big", signed=kind in _SIGNED)
    return (kind in _SIGNED or kind in _UNSIGNED) and number == key


def _array_element(data: bytes, position: int, stop: int, number: int) -> tuple[int, int] | None:
    """The element of that number, which is less than the count of the array."""
    constructor = read_unsigned(data, position, 1, stop)
    described = constructor == DESCRIBED
    if described:
        position = skip_value(data, position + 1, stop)
        constructor = read_unsigned(data, position, 1, stop)
    width = CONSTRUCTOR_WIDTHS[constructor]
    position += 1
    if width >= 0:
        position += number * width
        behind = position + width
    elif constructor in CONSTRUCTORS:
        size_width = 1 if width == WIDTH_SIZE8 else 4
        behind = position
        for _ in range(number + 1):
            position = behind
            behind = position + size_width + read_unsigned(data, position, size_width, stop)
    else:
        return None
    if behind > stop:
        return None
    return (DESCRIBED if described else constructor), position
