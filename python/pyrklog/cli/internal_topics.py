"""What becomes of Kafka's internal topics, whose records brokers write. Pure."""

from collections.abc import Iterable

from pyrklog.base.internal_topics import OF_KAFKA

TAKES_NO_RECORDS = "an internal topic takes no records of clients"


def internal_of(names: Iterable[str]) -> list[str]:
    return [name for name in names if name in OF_KAFKA]


def renumbered(name: str) -> str:
    """What more partitions do."""
    what = f"what {name} holds ({OF_KAFKA[name]}) is found by its number of partitions"
    return f"{what}: with more of them it is lost"


def deleted(name: str) -> str:
    """What a deletion does."""
    return f"deleting {name} loses {OF_KAFKA[name]}"
