"""The cases of RocketMQ's filter bit map: parameters, hashes, positions, arrays (rocketmq_filters, section 8)."""

from __future__ import annotations

from headgate.case_tables.rabbitmq import Disagreement, Line, WrongLine, compare, field, hex_bytes
from headgate.errors import ConfigError
from headgate.scan.match_index import BitMapParameters, bit_array, has_positions, low_hash

KINDS = ("params", "params_error", "hash", "pos", "bits", "bitsarray")

_MOST_BITS = 1 << 24


class BitMapCases:
    """The cases of one file. A `bits` line is asked for the strings of the `pos` lines before it, of its parameters."""

    def __init__(self) -> None:
        self._strings: dict[tuple[int, int], list[str]] = {}

    def check(self, content: Line) -> None:
        """One line of one of `KINDS`; raises Disagreement or WrongLine."""
        match content["kind"]:
            case "params":
                parameters = _parameters(content)
                compare(content, {"k": parameters.positions_per_id, "m": parameters.bit_length})
            case "params_error":
                _check_refusal(content)
            case "hash":
                compare(content, {"murmur3_128_low64_hex": f"{low_hash(field(content, 's', str)):016x}"})
            case "pos":
                text = field(content, "s", str)
                self._strings.setdefault(_key(content), []).append(text)
                compare(content, {"pos": list(_parameters(content).positions(text))})
            case "bits":
                self._check_bits(content)
            case _:
                bit_length = field(content, "bit_length", int)
                if not 0 <= bit_length <= _MOST_BITS:
                    raise WrongLine(f"key 'bit_length': found {bit_length}, expected 0 to {_MOST_BITS}")
                positions = _numbers_below(content, "set", bit_length)
                array = bit_array(bit_length, positions)
                compare(content, {"byte_length": len(array), "bytes_hex": array.hex()})

    def _check_bits(self, content: Line) -> None:
        import numpy as np

        parameters = _parameters(content)
        members = field(content, "members", list)
        if not all(isinstance(member, str) for member in members):
            raise WrongLine(f"key 'members': found {members!r}, expected a list of strings")
        asked = np.frombuffer(hex_bytes(field(content, "bytes_hex", str)), dtype=np.uint8)
        if len(asked) != parameters.byte_length:
            raise Disagreement(f"an array of {len(asked)} bytes", f"one of {parameters.byte_length}")
        positions = (position for member in members for position in parameters.positions(member))
        array = bit_array(parameters.bit_length, positions)
        strings = self._strings.get(_key(content), [])
        hits = [text for text in strings if has_positions(asked[None, :], parameters.positions(text))[0]]
        compare(content, {"bytes_hex": array.hex(), "hits": hits})


def _key(content: Line) -> tuple[int, int]:
    return field(content, "f", int), field(content, "n", int)


def _parameters(content: Line) -> BitMapParameters:
    rate, consumers = _key(content)
    return BitMapParameters.of(expected_consumers=consumers, max_error_rate_percent=rate)


def _check_refusal(content: Line) -> None:
    expected = field(content, "error", str).rpartition(": ")[2]
    try:
        got = str(_parameters(content))
    except ConfigError as error:
        got = str(error)
    if got != expected:
        raise Disagreement(expected, got)


def _numbers_below(content: Line, key: str, limit: int) -> list[int]:
    numbers = field(content, key, list)
    if not all(type(number) is int and 0 <= number < limit for number in numbers):
        raise WrongLine(f"key {key!r}: found {numbers!r}, expected numbers from 0 to below {limit}")
    return numbers
