"""``topic list``: topics with their sizes, rates and groups, sorted and selected."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from pyrklog.base.internal_topics import is_internal
from pyrklog.base.problems import Problem
from pyrklog.cli.connection import Connection, PartitionKey, missing_topic
from pyrklog.cli.failures import CliError
from pyrklog.cli.in_parallel import in_parallel
from pyrklog.cli.output import Item, Listing, columns
from pyrklog.cli.topic_measures import (
    PartitionPlace,
    Rate,
    Sizes,
    TopicStates,
    group_offsets,
    is_plain,
    offsets_at,
    rates,
    read_topics,
    sizes,
)

COLUMNS = columns(
    "name, partitions>, replication_factor>, under_replicated>, offline>, internal, size>, "
    "bytes_per_second>, records_per_second>, groups>, skew>"
)
"""Of ``csv``, which only gains columns at the end."""
SHOWN_COLUMNS = columns(
    "name, partitions> PARTS, replication_factor> RF, size>, bytes_per_second> IN/S, groups>, "
    "under_replicated> UNDER-REP, records_per_second>* RECORDS/S, skew>*, offline>*, internal*"
)
RATES_PARTITIONS_MAX = 5_000
GROUPS_MAX = 1_000
"""Above these IN/S and GROUPS are measured only where they are asked for: they cost a request for
each some hundred."""


class Sort(StrEnum):
    """Names ascend, the others descend."""

    NAME = "name"
    SIZE = "size"
    RATE = "rate"
    SKEW = "skew"


@dataclass(frozen=True)
class Selection:
    """``names`` must exist. ``stale_s``: only topics without a record for so long. ``measured``:
    whether sizes, rates and groups are shown; ``full``: in a large cluster, too."""

    names: Sequence[str] = ()
    matches: Callable[[str], bool] = lambda _: True
    sort: Sort = Sort.NAME
    limit: int | None = None
    stale_s: float | None = None
    measured: bool = True
    full: bool = False


@dataclass
class Measures:
    """None: not measured."""

    sizes: Sizes | None = None
    rates: Mapping[PartitionKey, Rate] | None = None
    groups: Mapping[str, int] | None = None
    """How many have offsets in a topic."""
    notes: list[str] = field(default_factory=list)


def list_topics(connection: Connection, wanted: Selection) -> tuple[Listing, list[str]]:
    """The topics, and notes about what could not be measured. Raises :class:`CliError`."""
    states = read_topics(connection)
    for name in wanted.names:
        if name not in states.topics:
            raise missing_topic(name, list(states.topics))
    chosen = [name for name in states.topics if wanted.matches(name)]
    if wanted.stale_s is not None:
        chosen = _stale(connection, states, chosen, wanted.stale_s)
    if wanted.sort is Sort.NAME:
        chosen = chosen[: wanted.limit]
    measures = _measure(connection, states, chosen, wanted)
    items = [_item(name, states.topics[name], measures) for name in chosen]
    if not is_plain(connection) and any(one["under_replicated"] for one in items):
        measures.notes.append(
            "UNDER-REP counts replicas that a reassignment adds, too: over TLS or with "
            "authentication it is not known which these are"
        )
    if wanted.sort is not Sort.NAME:
        key = {Sort.SIZE: "size", Sort.RATE: "bytes_per_second", Sort.SKEW: "skew"}[wanted.sort]
        items.sort(key=lambda one: (-(one[key] or 0), one["name"]))
    listing = Listing("pyrklog.topics/1", COLUMNS, items[: wanted.limit], states.cluster_id)
    return listing, measures.notes


def _stale(
    connection: Connection, states: TopicStates, topics: Sequence[str], stale_s: float
) -> list[str]:
    """Topics all of whose partitions tell that they have no younger record."""
    since_ms = max(0, round((time.time() - stale_s) * 1000))
    found = offsets_at(connection, states, states.led(topics), since_ms)
    return [
        name
        for name in topics
        if states.topics[name]
        and all(found.get((name, one.partition)) == -1 for one in states.topics[name])
    ]


def _measure(
    connection: Connection, states: TopicStates, topics: Sequence[str], wanted: Selection
) -> Measures:
    measures = Measures()
    if not topics or not (wanted.measured or wanted.sort is not Sort.NAME):
        return measures
    leaders = states.led(topics)

    def measure_sizes() -> None:
        is_all = len(topics) == len(states.topics)
        measures.sizes = sizes(connection, states, None if is_all else topics)

    def measure_rates() -> None:
        if len(leaders) <= RATES_PARTITIONS_MAX or wanted.full or wanted.sort is Sort.RATE:
            measures.rates = rates(connection, states, leaders)
        else:
            measures.notes.append(f"{len(leaders)} partitions: IN/S is measured with --full")

    def measure_groups() -> None:
        most = None if wanted.full else GROUPS_MAX
        try:
            offsets = group_offsets(connection, states.brokers, most=most)
        except CliError as error:
            measures.notes.append(f"GROUPS is unknown: {error.what}")
            return
        if offsets is None:
            measures.notes.append(f"more than {most} groups: GROUPS is measured with --full")
            return
        measures.groups = Counter(
            topic for keys in offsets.values() for topic in {topic for topic, _ in keys}
        )

    in_parallel(lambda measure: measure(), [measure_sizes, measure_rates, measure_groups])
    if measures.sizes is None and wanted.sort is not Sort.NAME:
        what = f"--sort {wanted.sort.value} needs a plain-text connection"
        raise CliError(Problem.PLAIN_TEXT_ONLY, what, "sort by name")
    if measures.sizes is not None and measures.sizes.silent:
        told = ", ".join(map(str, measures.sizes.silent))
        measures.notes.append(f"without an answer about bytes: broker {told}")
    return measures


def _item(name: str, partitions: Sequence[PartitionPlace], measures: Measures) -> dict[str, Any]:
    from pyrklog.balance.model import ratio

    keys = [(name, one.partition) for one in partitions]
    size = skew = None
    if measures.sizes is not None:
        known = [measures.sizes.partitions.get(key) for key in keys]
        told = [one for one in known if one is not None]
        if len(told) == len(known):
            size, skew = sum(told), round(ratio(told), 4) if told else 1.0
    records_per_s, bytes_per_s = _rate(keys, measures)
    return {
        "name": name,
        "partitions": len(partitions),
        "replication_factor": max((len(one.replicas) for one in partitions), default=0),
        "under_replicated": sum(one.is_under_replicated for one in partitions),
        "offline": sum(one.leader < 0 for one in partitions),
        "internal": is_internal(name),
        "size": size,
        "skew": skew,
        "records_per_second": records_per_s,
        "bytes_per_second": bytes_per_s,
        "groups": None if measures.groups is None else measures.groups.get(name, 0),
    }


def for_people(listing: Listing) -> Listing:
    """The same with short columns, and with amounts in units."""
    from pyrklog.cli.reassign_plan import amount

    def shown(item: Item) -> Item:
        size, rate = item["size"], item["bytes_per_second"]
        return {
            **item,
            "size": None if size is None else amount(size),
            "bytes_per_second": None if rate is None else f"{amount(rate)}/s",
        }

    return replace(listing, columns=SHOWN_COLUMNS, items=[shown(one) for one in listing.items])


def _rate(keys: Sequence[PartitionKey], measures: Measures) -> tuple[float | None, float | None]:
    """Records and bytes a second; None where a partition's are not known."""
    if measures.rates is None or any(key not in measures.rates for key in keys):
        return None, None
    found = {key: measures.rates[key] for key in keys}
    records = round(sum(one.records_per_s for one in found.values()), 3)
    if measures.sizes is None or any(key not in measures.sizes.partitions for key in keys):
        return records, None
    partition_bytes = measures.sizes.partitions
    told = sum(one.bytes_per_s(partition_bytes[key]) for key, one in found.items())
    return records, round(told)
