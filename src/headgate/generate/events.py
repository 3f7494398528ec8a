"""Customer events as Arrow tables, drawn in blocks.

Browsing comes in long stretches and orders in runs between them, as they do when a shop's traffic is bundled by session
and batch jobs; so whole chunks of a stream hold no order, and stage 1 has something to skip. Columns:

    event_id string (uuid)            customer_id bigint, few customers do most       premium_customer boolean
    event_type string                 region string: AMER, EMEA, APJ                  device string
    priority smallint, null on most   creation_time timestamp, 43 ms apart on average, up to two seconds late
    price double                      of the product; of an order its total; null elsewhere
    quantity int, sku string          of products, carts and orders (an order's first line)
    currency string                   of priced events
    stars smallint                    of reviews
    campaign string                   of some logins and searches
    body string                       JSON with the details, not all of it ASCII
"""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

BLOCK_EVENTS = 65_536
"""Events drawn at once; a block depends on the seed and its number only."""

EVENT_TYPES = (
    "user.login",
    "product.view",
    "cart.add",
    "cart.remove",
    "search.run",
    "review.submitted",
    "order.created",
    "order.paid",
    "order.cancelled",
)
"""Event types; those of orders are the last three."""

BASE_TIME = datetime.datetime(2026, 6, 1, 8, 0, tzinfo=datetime.UTC)
"""Creation time of the first event."""

_BROWSING_WEIGHTS = (0.09, 0.55, 0.12, 0.03, 0.19, 0.02)
_ORDER_WEIGHTS = (0.5, 0.41, 0.09)
_ORDERS_PER_RUN = 0.07
_FIRST_ORDER_TYPE = 6
_MICROSECONDS_APART = 43_200
_LATEST_MICROSECONDS = 2_000_000
_CUSTOMERS = 100_000
_PRODUCTS = 5_000

_REGIONS = pa.array(["AMER", "EMEA", "APJ"])
_REGION_WEIGHTS = (0.45, 0.35, 0.20)
_DEVICES = pa.array(["mobile", "desktop", "tablet", "kiosk"])
_CAMPAIGNS = pa.array(["spring-sale", "newsletter", "loyalty", "última-hora"])
_CURRENCIES = pa.array(["USD", "EUR", "JPY"])
_CITIES = pa.array(["Chicago", "São Paulo", "Montréal", "Zürich", "Kraków", "Málaga", "東京", "Sydney", "서울"])
_CITIES_PER_REGION = 3
_PRODUCT_NAMES = pa.array(
    [
        "café crème set",
        "desk lamp",
        "Küchenmesser",
        "notebook",
        "緑茶",
        "running shoes",
        "œuvre d’art print",
        "backpack",
    ]
)
_TERMS = pa.array(["lamp", "gift ideas", "Bücherregal", "tea 緑茶", "shoes size 44", "crème"])
_CENTS = pa.array([f".{cents:02d}" for cents in range(100)])
_HEXADECIMAL = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
_MOST_LINES = 4

SCHEMA = pa.schema(
    [
        ("event_id", pa.string()),
        ("event_type", pa.string()),
        ("customer_id", pa.int64()),
        ("region", pa.string()),
        ("premium_customer", pa.bool_()),
        ("device", pa.string()),
        ("priority", pa.int16()),
        ("creation_time", pa.timestamp("us", tz="UTC")),
        ("price", pa.float64()),
        ("quantity", pa.int32()),
        ("sku", pa.string()),
        ("currency", pa.string()),
        ("stars", pa.int16()),
        ("campaign", pa.string()),
        ("body", pa.string()),
    ]
)
"""Columns of the events."""


def event_block(seed: int, block: int, run_length: int) -> pa.Table:
    """The `BLOCK_EVENTS` events of one block, in order of arrival."""
    draw = np.random.default_rng([seed, block])
    types = _event_types(draw, run_length)
    region = draw.choice(len(_REGIONS), BLOCK_EVENTS, p=_REGION_WEIGHTS)
    customer = (_CUSTOMERS * draw.random(BLOCK_EVENTS) ** 3).astype(np.int64)
    is_order = types >= _FIRST_ORDER_TYPE
    is_priced = is_order | (types == 1) | (types == 2) | (types == 3)
    lines = _Lines(draw, is_order)
    is_campaign = ((types == 0) | (types == 4)) & (draw.random(BLOCK_EVENTS) < 0.3)
    columns: dict[str, pa.Array] = {
        "event_id": _identifiers(draw),
        "event_type": pa.array(EVENT_TYPES).take(pa.array(types)),
        "customer_id": pa.array(10_000_000 + customer),
        "region": _REGIONS.take(pa.array(region)),
        # A customer stays premium: it follows from the id.
        "premium_customer": pa.array((customer * 2_654_435_761 >> 7) % 100 < 12),
        "device": _picked(draw, _DEVICES),
        "priority": _some(draw.integers(0, 10, BLOCK_EVENTS), draw.random(BLOCK_EVENTS) < 0.4, pa.int16()),
        "creation_time": _creation_times(draw, block),
        "price": _some(lines.total_cents() / 100.0, is_priced, pa.float64()),
        "quantity": _some(lines.total_quantity(), is_priced, pa.int32()),
        "sku": _only(_skus(lines.product[0]), is_priced),
        "currency": _only(_CURRENCIES.take(pa.array(region)), is_priced),
        "stars": _some(draw.integers(1, 6, BLOCK_EVENTS), types == 5, pa.int16()),
        "campaign": _only(_picked(draw, _CAMPAIGNS), is_campaign),
    }
    city = _CITIES.take(pa.array(region * _CITIES_PER_REGION + draw.integers(0, _CITIES_PER_REGION, BLOCK_EVENTS)))
    columns["body"] = _bodies(draw, types, columns, lines, city)
    return pa.table(columns, schema=SCHEMA)


def _event_types(draw: np.random.Generator, run_length: int) -> NDArray[np.int64]:
    """Positions in `EVENT_TYPES`: stretches of browsing and runs of orders in turn, of exponential lengths."""
    browsing = draw.choice(_FIRST_ORDER_TYPE, BLOCK_EVENTS, p=_BROWSING_WEIGHTS)
    orders = draw.choice(len(_ORDER_WEIGHTS), BLOCK_EVENTS, p=_ORDER_WEIGHTS) + _FIRST_ORDER_TYPE
    lengths: list[int] = []
    filled = 0
    while filled < BLOCK_EVENTS:
        mean = run_length if len(lengths) % 2 == 0 else run_length * _ORDERS_PER_RUN
        lengths.append(1 + int(draw.exponential(mean)))
        filled += lengths[-1]
    in_orders = np.repeat(np.arange(len(lengths)) % 2 == 1, lengths)[:BLOCK_EVENTS]
    return np.where(in_orders, orders, browsing)


def _creation_times(draw: np.random.Generator, block: int) -> pa.Array:
    base = int(BASE_TIME.timestamp()) * 1_000_000
    position = block * BLOCK_EVENTS + np.arange(BLOCK_EVENTS)
    late = draw.integers(0, _LATEST_MICROSECONDS, BLOCK_EVENTS)
    # Whole milliseconds: what a message can hold.
    moments = (base + position * _MICROSECONDS_APART - late + _LATEST_MICROSECONDS) // 1000 * 1000
    return pa.array(moments, pa.timestamp("us", tz="UTC"))


def _identifiers(draw: np.random.Generator) -> pa.Array:
    """Random UUIDs (version 4) as text."""
    octets = draw.integers(0, 256, (BLOCK_EVENTS, 16), dtype=np.uint8)
    octets[:, 6] = octets[:, 6] & 0x0F | 0x40
    octets[:, 8] = octets[:, 8] & 0x3F | 0x80
    digits = np.empty((BLOCK_EVENTS, 32), dtype=np.uint8)
    digits[:, 0::2] = _HEXADECIMAL[octets >> 4]
    digits[:, 1::2] = _HEXADECIMAL[octets & 15]
    text = np.full((BLOCK_EVENTS, 36), ord("-"), dtype=np.uint8)
    text[:, [*range(8), *range(9, 13), *range(14, 18), *range(19, 23), *range(24, 36)]] = digits
    offsets = np.arange(0, 36 * (BLOCK_EVENTS + 1), 36, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), BLOCK_EVENTS, [None, pa.py_buffer(offsets), pa.py_buffer(text.ravel())])


def _picked(draw: np.random.Generator, choices: pa.Array) -> pa.Array:
    return choices.take(pa.array(draw.integers(0, len(choices), BLOCK_EVENTS)))


def _some(values: NDArray[Any], chosen: NDArray[np.bool_], kind: pa.DataType) -> pa.Array:
    return pa.array(values.astype(kind.to_pandas_dtype()), kind, mask=~chosen)


def _only(values: pa.Array, chosen: NDArray[np.bool_]) -> pa.Array:
    return pc.if_else(pa.array(chosen), values, pa.scalar(None, values.type))


def _skus(product: NDArray[np.int64]) -> pa.Array:
    return _joined("SKU-", _digits(product + 10_000))


class _Lines:
    """One to four lines of an order; other events have one. Columns of the lines by number, `(events,)` each."""

    def __init__(self, draw: np.random.Generator, is_order: NDArray[np.bool_]) -> None:
        self.count = np.where(is_order, 1 + draw.binomial(_MOST_LINES - 1, 0.35, BLOCK_EVENTS), 1)
        self.product = [draw.integers(0, _PRODUCTS, BLOCK_EVENTS) for _ in range(_MOST_LINES)]
        self.quantity = [draw.geometric(0.7, BLOCK_EVENTS).clip(1, 9) for _ in range(_MOST_LINES)]
        self.cents = [
            np.exp(draw.normal(7.6, 0.9, BLOCK_EVENTS)).clip(99, 999_999).astype(np.int64) for _ in range(_MOST_LINES)
        ]

    def total_cents(self) -> NDArray[np.int64]:
        return self._total([cents * quantity for cents, quantity in zip(self.cents, self.quantity, strict=True)])

    def total_quantity(self) -> NDArray[np.int64]:
        return self._total(self.quantity)

    def _total(self, lines: list[NDArray[np.int64]]) -> NDArray[np.int64]:
        total: NDArray[np.int64] = np.sum(
            [np.where(self.count > line, values, 0) for line, values in enumerate(lines)], axis=0
        )
        return total

    def json(self, line: int, rows: NDArray[np.intp]) -> pa.Array:
        """One line as JSON for the given events; null where an order has fewer lines."""
        product = self.product[line][rows]
        text = _joined(
            '{"sku":"',
            _skus(product),
            '","name":"',
            _PRODUCT_NAMES.take(pa.array(product % len(_PRODUCT_NAMES))),
            '","quantity":',
            _digits(self.quantity[line][rows]),
            ',"price":',
            _money(self.cents[line][rows]),
            "}",
        )
        return _only(text, self.count[rows] > line)


def _digits(values: NDArray[np.int64]) -> pa.Array:
    return pa.array(values).cast(pa.string())


def _money(cents: NDArray[np.int64]) -> pa.Array:
    return _joined(_digits(cents // 100), _CENTS.take(pa.array(cents % 100)))


def _joined(*parts: pa.Array | str) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")


def _bodies(
    draw: np.random.Generator,
    types: NDArray[np.int64],
    columns: dict[str, pa.Array],
    lines: _Lines,
    city: pa.Array,
) -> pa.Array:
    """JSON texts: first the fields of all events, then the fields of their type."""
    term = _picked(draw, _TERMS)
    hits = draw.integers(0, 400, BLOCK_EVENTS)
    pieces: list[pa.Array] = []
    order: list[NDArray[np.intp]] = []
    for number, event_type in enumerate(EVENT_TYPES):
        rows = np.flatnonzero(types == number)
        here = pa.array(rows)
        shared = (
            f'{{"event":"{event_type}","customer":',
            columns["customer_id"].take(here).cast(pa.string()),
            ',"city":"',
            city.take(here),
            '"',
        )
        if number >= _FIRST_ORDER_TYPE:
            details: tuple[pa.Array | str, ...] = (
                ',"order":{"currency":"',
                columns["currency"].take(here),
                '","total":',
                _money(lines.total_cents()[rows]),
                ',"lines":[',
                pc.binary_join_element_wise(
                    *(lines.json(line, rows) for line in range(_MOST_LINES)), ",", null_handling="skip"
                ),
                "]}}",
            )
        elif event_type in ("product.view", "cart.add", "cart.remove"):
            details = (',"product":', lines.json(0, rows), "}")
        elif event_type == "search.run":
            details = (',"term":"', term.take(here), '","hits":', _digits(hits[rows]), "}")
        elif event_type == "review.submitted":
            details = (',"stars":', columns["stars"].take(here).cast(pa.string()), ',"text":"très bien"}')
        else:
            details = (',"device":"', columns["device"].take(here), '"}')
        pieces.append(_joined(*shared, *details))
        order.append(rows)
    back = np.empty(BLOCK_EVENTS, dtype=np.int64)
    back[np.concatenate(order)] = np.arange(BLOCK_EVENTS)
    return pa.concat_arrays(pieces).take(pa.array(back))
