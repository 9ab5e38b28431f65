"""A topic of many gigabytes that takes little disk and little time: batches of zstd, each encoded
once and written again and again."""

from __future__ import annotations

import json
import random
import time
from typing import NamedTuple

import zstandard

from tests.support import wire

VALUE_BYTES = 1000
BATCH_ROWS = 1000
LARGE_BATCH_ROWS = 16_000
"""Of each hundredth batch: more than a task's share for expanded batches, which is 8 MiB."""
LARGE_EVERY = 100
_ZSTD = 4
_CUSTOMERS = 50


class Written(NamedTuple):
    rows: int
    bytes: int
    """Of values."""
    amount: int
    """The sum of this field."""


SCHEMA = "customer string, amount bigint, note string"


def fill(bootstrap: str, topic: str, size_bytes: int) -> Written:
    """Values of ``size_bytes`` at least into partition 0, in batches of a megabyte, some of 16.
    Each is JSON of 1,000 bytes with the fields of ``SCHEMA``."""
    kinds = [_batch(BATCH_ROWS), _batch(LARGE_BATCH_ROWS)]
    rows = size = amount = number = 0
    with wire.Connection(bootstrap) as connection:
        while size < size_bytes:
            number += 1
            records, of_batch = kinds[number % LARGE_EVERY == 0]
            assert wire.produce(connection, topic, records).error == 0
            rows, size = rows + of_batch.rows, size + of_batch.bytes
            amount += of_batch.amount
    return Written(rows, size, amount)


def _batch(rows: int) -> tuple[bytes, Written]:
    chance = random.Random(rows)
    values = [_value(chance, number) for number in range(rows)]
    payload = b"".join(wire.record(at, None, value) for at, value in enumerate(values))
    records = wire.record_batch(
        values,
        attributes=_ZSTD,
        payload=zstandard.ZstdCompressor(3).compress(payload),
        timestamp_ms=time.time_ns() // 1_000_000,
    )
    total = sum(number % 7 for number in range(rows))
    return records, Written(rows, sum(map(len, values)), total)


def _value(chance: random.Random, number: int) -> bytes:
    """About a thirtieth of it does not compress."""
    fields = {"customer": f"c{number % _CUSTOMERS}", "amount": number % 7}
    start = json.dumps(fields)[:-1] + ', "note": "' + f"{chance.getrandbits(256):064x}"
    return start.ljust(VALUE_BYTES - 2, "-").encode() + b'"}'
