"""What open transactions hold back from readers of committed records."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pyrklog.cli.connection import PartitionKey

SHOWN_MAX = 3


class HeldBack(NamedTuple):
    """A partition that was not read up to ``wanted``: an open transaction begins at ``at``."""

    at: int
    wanted: int


def sentence(held: Mapping[PartitionKey, HeldBack], verb: str = "stopped") -> str:
    shown = [
        f"{topic} [{partition}] {verb} at {one.at} of {one.wanted}"
        for (topic, partition), one in sorted(held.items())[:SHOWN_MAX]
    ]
    more = len(held) - len(shown)
    shown += [f"{more} more"] if more else []
    one = "an open transaction begins" if len(held) == 1 else "open transactions begin"
    return f"{', '.join(shown)}: {one} there"


def where_seen(held: Iterable[PartitionKey]) -> str:
    topics = dict.fromkeys(topic for topic, _ in sorted(held))
    return f"see `pyrklog cluster txns producers {' '.join(topics)}`"
