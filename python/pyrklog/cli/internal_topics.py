"""Kafka's internal topics, whose records brokers write. Pure."""

from collections.abc import Iterable, Mapping

HELD: Mapping[str, str] = {
    "__consumer_offsets": "the committed offsets of all groups",
    "__transaction_state": "the state of all transactional ids",
    "__share_group_state": "how far all share groups have read",
}
"""What each holds. The partition for a name depends on their number of partitions."""
TAKES_NO_RECORDS = "an internal topic takes no records of clients"


def internal_of(names: Iterable[str]) -> list[str]:
    return [name for name in names if name in HELD]


def renumbered(name: str) -> str:
    """What more partitions do."""
    what = f"what {name} holds ({HELD[name]}) is found by its number of partitions"
    return f"{what}: with more of them it is lost"


def deleted(name: str) -> str:
    """What a deletion does."""
    return f"deleting {name} loses {HELD[name]}"
