"""A group's partition of ``__consumer_offsets``, by Java's hash of its name."""

from __future__ import annotations

from functools import lru_cache

OFFSETS_TOPIC = "__consumer_offsets"
INT_MIN = -(2**31)
HASHES_KEPT_MAX = 4096


@lru_cache(maxsize=HASHES_KEPT_MAX)
def java_hash(text: str) -> int:
    """``String.hashCode``: over UTF-16 units, as a signed 32-bit number."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for position in range(0, len(units), 2):
        value = (31 * value + (units[position] << 8 | units[position + 1])) & 0xFFFF_FFFF
    return value - 2**32 if value >= 2**31 else value


def partition_for(group_id: str, partition_count: int) -> int:
    """Kafka takes the absolute value, and 0 for the one number without it."""
    value = java_hash(group_id)
    return (0 if value == INT_MIN else abs(value)) % partition_count
