"""``topic describe``: partitions, options and readers of topics."""

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pyrklog.cli import topic_measures
from pyrklog.cli.connection import Connection
from pyrklog.cli.options import OutputFormat
from pyrklog.cli.output import Listing, columns, plain_table, print_listing
from pyrklog.cli.topic_details import describe_configs, query_offsets, url_safe

PARTITION_COLUMNS = columns(
    "partition>, leader>, leader_epoch> EPOCH, replicas, isr, start_offset> START, "
    "end_offset> END, size>"
)
FLAT_PARTITION_COLUMNS = columns(
    "partition>, leader>, replicas, isr, start_offset> START, end_offset> END, "
    "leader_epoch> EPOCH, size>"
)
"""Of ``csv``, which only gains columns at the end."""
GROUP_COLUMNS = columns("group, partitions>, lag>")
CONFIG_COLUMNS = columns("name OPTION, value, source")
FLAT_COLUMNS = (*columns("name"), *FLAT_PARTITION_COLUMNS)
ADDED_COLUMNS = columns("configs OPTIONS, groups")


def describe_topics(
    connection: Connection, names: list[str], *, configs: bool, groups: bool
) -> Listing:
    """Sizes and leader epochs are None over TLS or with authentication."""
    metadata = connection.metadata()
    connection.topic_partitions(names)
    states = topic_measures.read_topics(connection)
    ids = _topic_ids(connection, names)
    offsets = _offsets(connection, {name: metadata.topics[name] for name in names})
    known = [name for name in names if name in states.topics]
    sizes = topic_measures.sizes(connection, states, known)
    epochs = {
        (name, one.partition): one.leader_epoch for name in known for one in states.topics[name]
    }
    options = describe_configs(connection, names) if configs else {}
    readers = topic_measures.group_offsets(connection, states.brokers) if groups else None
    items: list[dict[str, Any]] = []
    for name in names:
        described = [
            {
                "partition": one.id,
                "leader": one.leader,
                "replicas": list(one.replicas),
                "isr": list(one.isrs),
                "start_offset": offsets.get((name, one.id), (None, None))[0],
                "end_offset": offsets.get((name, one.id), (None, None))[1],
                "leader_epoch": epochs.get((name, one.id)),
                "size": None if sizes is None else sizes.partitions.get((name, one.id)),
            }
            for one in sorted(metadata.topics[name].partitions.values(), key=lambda one: one.id)
        ]
        item: dict[str, Any] = {"name": name, "topic_id": ids.get(name), "partitions": described}
        if configs:
            item["configs"] = options[name]
        if readers is not None:
            ends = {key: end for key, (_, end) in offsets.items() if key[0] == name}
            item["groups"] = readers_of(name, ends, readers)
        items.append(item)
    return Listing("pyrklog.topic-details/1", FLAT_COLUMNS, items, metadata.cluster_id)


def readers_of(
    topic: str,
    ends: Mapping[tuple[str, int], int],
    readers: Mapping[str, Mapping[tuple[str, int], int]],
) -> list[dict[str, Any]]:
    """Groups with offsets in the topic, and their lag in the partitions whose ends are known."""
    found = []
    for group, offsets in sorted(readers.items()):
        mine = {key: offset for key, offset in offsets.items() if key[0] == topic}
        if mine:
            lags = [max(0, ends[key] - offset) for key, offset in mine.items() if key in ends]
            lag = sum(lags) if lags else None
            found.append({"group": group, "partitions": len(mine), "lag": lag})
    return found


def print_described(listing: Listing, output: OutputFormat) -> None:
    """Tables for people; in ``csv`` a row for each partition, with the options as JSON."""
    if output in (OutputFormat.CSV, OutputFormat.NAME):
        key = "partitions" if output is OutputFormat.CSV else None
        rows = [
            {"name": item["name"], **partition, **_flat(item)}
            for item in listing.items
            for partition in (item[key] if key else [{}])
        ]
        added = [one for one in ADDED_COLUMNS if any(one.key in row for row in rows)]
        flat = replace(listing, columns=(*listing.columns, *added), items=rows)
        print_listing(flat, output)
    elif output in (OutputFormat.TABLE, OutputFormat.WIDE):
        sys.stdout.write("\n".join(_page(item) for item in listing.items))
    else:
        print_listing(listing, output)


def _flat(item: Any) -> dict[str, Any]:
    """What single columns hold as JSON."""
    found: dict[str, Any] = {}
    if "configs" in item:
        found["configs"] = {entry["name"]: entry["value"] for entry in item["configs"]}
    if "groups" in item:
        found["groups"] = {one["group"]: one["lag"] for one in item["groups"]}
    return found


def _page(item: Any) -> str:
    partitions = item["partitions"]
    factor = max((len(one["replicas"]) for one in partitions), default=0)
    count = "1 partition" if len(partitions) == 1 else f"{len(partitions)} partitions"
    head = f"{item['name']}  {count}  replication factor {factor}"
    head += f"  id {item['topic_id']}" if item["topic_id"] else ""
    shown = [{**one, "size": _amount(one["size"])} for one in partitions]
    page = f"{head}\n{plain_table(PARTITION_COLUMNS, shown)}"
    if "configs" in item:
        page += f"\n{plain_table(CONFIG_COLUMNS, item['configs'])}"
    if "groups" in item:
        page += f"\n{plain_table(GROUP_COLUMNS, item['groups'])}"
    return page


def _amount(size: int | None) -> str | None:
    from pyrklog.cli.reassign_plan import amount

    return None if size is None else amount(size)


def _topic_ids(connection: Connection, names: list[str]) -> dict[str, str]:
    from confluent_kafka import KafkaException, TopicCollection

    futures = connection.admin.describe_topics(
        TopicCollection(names), request_timeout=connection.settings.timeout_s
    )
    found: dict[str, str] = {}
    for name, future in futures.items():
        try:
            found[name] = url_safe(str(future.result().topic_id))
        except KafkaException as error:
            raise connection.explain(error.args[0], f"topic {name}") from None
    return found


def _offsets(
    connection: Connection, topics: dict[str, Any]
) -> dict[tuple[str, int], tuple[int, int]]:
    """(start, end) of each partition with a leader."""
    from confluent_kafka.admin import OffsetSpec

    places = [
        (name, one.id)
        for name, topic in topics.items()
        for one in topic.partitions.values()
        if one.leader >= 0
    ]
    starts = query_offsets(connection, places, OffsetSpec.earliest())
    ends = query_offsets(connection, places, OffsetSpec.latest())
    return {place: (starts[place], ends[place]) for place in places}
