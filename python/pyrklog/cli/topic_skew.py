"""``topic skew``: how evenly topics load brokers, and how evenly their partitions are filled."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pyrklog.balance.model import ratio
from pyrklog.base.problems import Problem
from pyrklog.cli.cluster_requests import Address, ClusterRequests
from pyrklog.cli.cluster_views import is_plain
from pyrklog.cli.connection import Connection, missing_topic
from pyrklog.cli.failures import CliError
from pyrklog.cli.output import Listing, cell, columns, plain_table
from pyrklog.cli.reassign_plan import amount
from pyrklog.cli.replica_sizes import ReplicaBytes, replica_bytes

COLUMNS = columns("broker>, leaders>, replicas>, bytes>, rate>")
BAR_WIDTH = 20
LARGEST = 3


class By(StrEnum):
    """What is compared."""

    LEADERS = "leaders"
    REPLICAS = "replicas"
    BYTES = "bytes"
    RATE = "rate"


@dataclass
class Load:
    """What a broker has of the topics; ``bytes`` and ``rate`` (bytes a second) if it tells."""

    leaders: int = 0
    replicas: int = 0
    bytes: int | None = None
    rate: float | None = None

    def value(self, by: By) -> float | None:
        found: float | None = getattr(self, by.value)
        return found


@dataclass
class Skew:
    cluster_id: str | None
    by: By
    brokers: dict[int, Load] = field(default_factory=dict)
    partitions: dict[tuple[str, int], int] = field(default_factory=dict)
    """Bytes of each partition's largest replica."""
    silent: list[int] = field(default_factory=list)

    def ratios(self) -> dict[str, float]:
        """Max/mean of brokers, for what is known of all of them."""
        found = {}
        for by in By:
            values = [one.value(by) for one in self.brokers.values()]
            known = [value for value in values if value is not None]
            if known and len(known) == len(values):
                found[by.value] = ratio(known)
        return found


def measure(connection: Connection, topics: Sequence[str], by: By | None, over_s: float) -> Skew:
    """The load of topics (empty: all). Raises :class:`CliError`.

    Without ``by``: bytes if the brokers tell them, else leaders.
    """
    metadata = connection.metadata()
    for name in topics:
        if name not in metadata.topics:
            raise missing_topic(name, list(metadata.topics))
    chosen = {name: metadata.topics[name] for name in topics or sorted(metadata.topics)}
    plain = is_plain(connection.settings)
    if by in (By.BYTES, By.RATE) and not plain:
        what = f"--by {by.value} needs a plain-text connection"
        raise CliError(Problem.PLAIN_TEXT_ONLY, what, "compare --by leaders or --by replicas")
    skew = Skew(metadata.cluster_id, by or (By.BYTES if plain else By.LEADERS))
    skew.brokers = {number: Load() for number in sorted(metadata.brokers)}
    for topic in chosen.values():
        for one in topic.partitions.values():
            for number in one.replicas:
                skew.brokers.setdefault(number, Load()).replicas += 1
            if one.leader >= 0:
                skew.brokers.setdefault(one.leader, Load()).leaders += 1
    if plain and chosen:
        wanted = {name: sorted(topic.partitions) for name, topic in chosen.items()}
        asked = wanted if topics else None
        addresses = {number: (one.host, one.port) for number, one in metadata.brokers.items()}
        _weigh(connection, skew, addresses, asked, over_s)
    if by is None and not any(one.bytes is not None for one in skew.brokers.values()):
        skew.by = By.LEADERS
    return skew


def _weigh(
    connection: Connection,
    skew: Skew,
    addresses: Mapping[int, Address],
    wanted: Mapping[str, Sequence[int]] | None,
    over_s: float,
) -> None:
    with ClusterRequests(connection.settings) as requests:
        before, skew.silent = replica_bytes(requests, addresses, wanted)
        _count(skew, before, addresses)
        if skew.by is By.RATE:
            started = time.monotonic()
            time.sleep(over_s)
            after, silent = replica_bytes(requests, addresses, wanted)
            skew.silent = sorted({*skew.silent, *silent})
            elapsed_s = time.monotonic() - started
            for number in addresses:
                if number not in skew.silent:
                    skew.brokers[number].rate = _growth(before, after, number) / elapsed_s


def _growth(before: ReplicaBytes, after: ReplicaBytes, broker: int) -> int:
    """Retention that deletes meanwhile counts as no growth."""
    return sum(
        max(0, size - before.get(key, size)) for key, size in after.items() if key[2] == broker
    )


def _count(skew: Skew, sizes: ReplicaBytes, addresses: Mapping[int, Address]) -> None:
    for number in addresses:
        if number not in skew.silent:
            skew.brokers[number].bytes = 0
    for (topic, partition, number), size in sizes.items():
        load = skew.brokers[number]
        load.bytes = (load.bytes or 0) + size
        key = (topic, partition)
        skew.partitions[key] = max(size, skew.partitions.get(key, 0))


def largest(skew: Skew) -> list[dict[str, Any]]:
    found = sorted(skew.partitions.items(), key=lambda one: (-one[1], one[0]))[:LARGEST]
    return [{"topic": key[0], "partition": key[1], "bytes": size} for key, size in found]


def rows(skew: Skew) -> list[dict[str, Any]]:
    return [
        {
            "broker": number,
            "leaders": one.leaders,
            "replicas": one.replicas,
            "bytes": one.bytes,
            "rate": None if one.rate is None else round(one.rate),
        }
        for number, one in sorted(skew.brokers.items())
    ]


def listing(skew: Skew) -> Listing:
    """One item for programs."""
    item = {
        "by": skew.by.value,
        "brokers": rows(skew),
        "max_over_mean": {name: round(value, 4) for name, value in skew.ratios().items()},
        "partitions_max_over_mean": (
            round(ratio(list(skew.partitions.values())), 4) if skew.partitions else None
        ),
        "largest": largest(skew),
        "silent": skew.silent,
    }
    return Listing("pyrklog.topic-skew/1", columns("by"), [item], skew.cluster_id)


def flat_listing(skew: Skew) -> Listing:
    """A row for each broker."""
    return Listing("pyrklog.topic-skew/1", COLUMNS, rows(skew), skew.cluster_id)


def page(skew: Skew) -> str:
    """A row with a bar for each broker, and how far the largest is above the mean."""
    values = [one.value(skew.by) or 0 for one in skew.brokers.values()]
    most = max(values, default=0)
    shown = []
    for row in rows(skew):
        value = row[skew.by.value] or 0
        bar = "█" * round(BAR_WIDTH * value / most) if most else ""
        shown.append(
            {**row, "bytes": _amount(row["bytes"]), "rate": _rate(row["rate"]), "bar": bar}
        )
    names = "broker>, leaders>, replicas>, bytes>"
    names += ", rate>" if skew.by is By.RATE else ""
    (bar_column,) = columns("bar")
    table = plain_table((*columns(names), bar_column), shown)
    heading, rest = table.split("\n", 1)
    ratios = " · ".join(f"{name} {value:.2f}" for name, value in skew.ratios().items())
    lines = [heading.removesuffix("BAR").rstrip(), rest + f"{ratios} (max/mean of brokers)"]
    if skew.partitions:
        found = ratio(list(skew.partitions.values()))
        names = ", ".join(
            f"{cell(one['topic'])}-{one['partition']} {amount(one['bytes'])}"
            for one in largest(skew)
        )
        lines.append(f"partitions by bytes {found:.2f} (max/mean) · largest {names}")
    if skew.silent:
        told = ", ".join(map(str, skew.silent))
        lines.append(f"without an answer about bytes: broker {told}")
    return "".join(f"{line}\n" for line in lines)


def _amount(count: int | None) -> str | None:
    return None if count is None else amount(count)


def _rate(count: int | None) -> str | None:
    return None if count is None else f"{amount(count)}/s"
