"""A group's partition of ``__consumer_offsets``, by Java's hash of its name."""

from __future__ import annotations

from pyrklog.groups import core_types

OFFSETS_TOPIC = "__consumer_offsets"
INT_MIN = -(2**31)


def java_hash(text: str) -> int:
    """``String.hashCode``: over UTF-16 units, as a signed 32-bit number."""
    return core_types.java_hash(text.encode("utf-16-be", "surrogatepass"))


def partition_for(group_id: str, partition_count: int) -> int:
    """Kafka takes the absolute value, and 0 for the one number without it."""
    value = java_hash(group_id)
    return (0 if value == INT_MIN else abs(value)) % partition_count
