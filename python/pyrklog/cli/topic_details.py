"""``topic list``, ``topic describe`` and ``topic alter``."""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pyrklog.cli.connection import Connection, missing_topic
from pyrklog.cli.failures import CliError, Exit, cli_error, exit_code, worst
from pyrklog.cli.option_advice import advice, like_or_listed
from pyrklog.cli.options import OutputFormat
from pyrklog.cli.output import Listing, columns, plain_table, print_listing
from pyrklog.errors import ErrorCode

LIST_COLUMNS = columns(
    "name, partitions>, replication_factor> RF, under_replicated> UNDER-REP, offline>*, internal*"
)
PARTITION_COLUMNS = columns(
    "partition>, leader>, replicas, isr, start_offset> START, end_offset> END"
)
CONFIG_COLUMNS = columns("name OPTION, value, source")
_LEADER_MOVES = (
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.OFFSET_NOT_AVAILABLE,
)
_ASKED_AGAIN_SECONDS = 0.1
FLAT_COLUMNS = (*columns("name"), *PARTITION_COLUMNS)


def list_topics(connection: Connection, names: list[str], wanted: Callable[[str], bool]) -> Listing:
    metadata = connection.metadata()
    for name in names:
        if name not in metadata.topics:
            raise missing_topic(name, list(metadata.topics))
    items = [_listed(topic) for name, topic in sorted(metadata.topics.items()) if wanted(name)]
    return Listing("pyrklog.topics/1", LIST_COLUMNS, items, metadata.cluster_id)


def _listed(topic: Any) -> dict[str, Any]:
    partitions = topic.partitions.values()
    return {
        "name": topic.topic,
        "partitions": len(topic.partitions),
        "replication_factor": max((len(one.replicas) for one in partitions), default=0),
        "under_replicated": sum(len(one.isrs) < len(one.replicas) for one in partitions),
        "offline": sum(one.leader < 0 for one in partitions),
        "internal": topic.topic.startswith("__"),
    }


def describe_topics(connection: Connection, names: list[str], configs: bool) -> Listing:
    metadata = connection.metadata()
    connection.topic_partitions(names)
    ids = _topic_ids(connection, names)
    offsets = _offsets(connection, {name: metadata.topics[name] for name in names})
    options = describe_configs(connection, names) if configs else {}
    items: list[dict[str, Any]] = []
    for name in names:
        partitions = [
            {
                "partition": one.id,
                "leader": one.leader,
                "replicas": list(one.replicas),
                "isr": list(one.isrs),
                "start_offset": offsets.get((name, one.id), (None, None))[0],
                "end_offset": offsets.get((name, one.id), (None, None))[1],
            }
            for one in sorted(metadata.topics[name].partitions.values(), key=lambda one: one.id)
        ]
        item: dict[str, Any] = {"name": name, "topic_id": ids.get(name), "partitions": partitions}
        if configs:
            item["configs"] = options[name]
        items.append(item)
    return Listing("pyrklog.topic-details/1", FLAT_COLUMNS, items, metadata.cluster_id)


def print_described(listing: Listing, output: OutputFormat) -> None:
    """Tables for people; in ``csv`` a row for each partition, with the options as JSON."""
    if output in (OutputFormat.CSV, OutputFormat.NAME):
        key = "partitions" if output is OutputFormat.CSV else None
        rows = [
            {"name": item["name"], **partition, **_flat_options(item)}
            for item in listing.items
            for partition in (item[key] if key else [{}])
        ]
        with_options = any("configs" in row for row in rows)
        added = columns("configs OPTIONS") if with_options else ()
        flat = replace(listing, columns=(*listing.columns, *added), items=rows)
        print_listing(flat, output)
    elif output in (OutputFormat.TABLE, OutputFormat.WIDE):
        sys.stdout.write("\n".join(_page(item) for item in listing.items))
    else:
        print_listing(listing, output)


def _flat_options(item: Any) -> dict[str, Any]:
    if "configs" not in item:
        return {}
    return {"configs": {entry["name"]: entry["value"] for entry in item["configs"]}}


def _page(item: Any) -> str:
    partitions = item["partitions"]
    factor = max((len(one["replicas"]) for one in partitions), default=0)
    count = "1 partition" if len(partitions) == 1 else f"{len(partitions)} partitions"
    head = f"{item['name']}  {count}  replication factor {factor}"
    head += f"  id {item['topic_id']}" if item["topic_id"] else ""
    page = f"{head}\n{plain_table(PARTITION_COLUMNS, partitions)}"
    if "configs" in item:
        page += f"\n{plain_table(CONFIG_COLUMNS, item['configs'])}"
    return page


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


def url_safe(uuid: str) -> str:
    """A topic's id as in Kafka's tools and ``partition.metadata`` (RFC 4648, section 5)."""
    return uuid.replace("+", "-").replace("/", "_").rstrip("=")


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


def query_offsets(
    connection: Connection, places: Sequence[tuple[str, int]], spec: Any, *, committed: bool = False
) -> dict[tuple[str, int], int]:
    """The offset of ``spec`` in each partition; -1 if no record is at or after a time.

    Retries while leaders move, which librdkafka does not.
    """
    from confluent_kafka import IsolationLevel, KafkaException, TopicPartition

    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    deadline = time.monotonic() + connection.settings.timeout_s
    found: dict[tuple[str, int], int] = {}
    while missing := [place for place in places if place not in found]:
        futures = connection.admin.list_offsets(
            {TopicPartition(*place): spec for place in missing},
            isolation_level=level,
            request_timeout=connection.settings.timeout_s,
        )
        for place, future in futures.items():
            try:
                found[place.topic, place.partition] = future.result().offset
            except KafkaException as error:
                if error.args[0].code() in _LEADER_MOVES and time.monotonic() < deadline:
                    continue
                about = f"offsets of {place.topic} [{place.partition}]"
                raise connection.explain(error.args[0], about) from None
        if len(found) < len(set(places)):
            time.sleep(_ASKED_AGAIN_SECONDS)
    return found


def describe_configs(
    connection: Connection, names: list[str], *, skips_missing: bool = False
) -> dict[str, list[dict[str, Any]]]:
    """Options of each topic by name: value, source, whether hidden or read-only.

    A missing topic is an error, unless ``skips_missing``.
    """
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import ConfigResource, ConfigSource, ResourceType

    futures = connection.admin.describe_configs(
        [ConfigResource(ResourceType.TOPIC, name) for name in names],
        request_timeout=connection.settings.timeout_s,
    )
    found: dict[str, list[dict[str, Any]]] = {}
    for resource, future in futures.items():
        try:
            entries = future.result()
        except KafkaException as error:
            if skips_missing and exit_code(error.args[0]) is Exit.NOT_FOUND:
                continue
            raise connection.explain(error.args[0], f"topic {resource.name}") from None
        found[resource.name] = [
            {
                "name": entry.name,
                "value": entry.value,
                "source": _source(ConfigSource(entry.source).name),
                "sensitive": bool(entry.is_sensitive),
                "read_only": bool(entry.is_read_only),
            }
            for entry in sorted(entries.values(), key=lambda entry: str(entry.name))
        ]
    return found


def _source(name: str) -> str:
    """``DYNAMIC_TOPIC_CONFIG`` -> ``topic``, and so on."""
    words = name.removesuffix("_CONFIG").lower().split("_")
    return "topic" if "topic" in words else "-".join(words)


UNCONFIRMED = "pyrklog.adopted.unconfirmed"
_CENTURY_MS = "3155760000000"
_KEPT_BY_ADOPTION = {
    "cleanup.policy": "delete",
    "delete.retention.ms": _CENTURY_MS,
    "min.compaction.lag.ms": _CENTURY_MS,
    "retention.bytes": "-1",
    "retention.ms": "-1",
}
"""Values of adopted topics for options that are not known, until they are confirmed."""


def to_confirm(
    connection: Connection, names: list[str], changes: dict[str, str], unset: list[str]
) -> list[tuple[list[str], list[str]]]:
    """Topics and the options to reset so that they get ``changes`` and else the defaults.

    Values set since stay. Raises :class:`CliError` for a topic that waits for no confirmation.
    """
    connection.topic_partitions(names)
    options = {
        name: {entry["name"]: entry["value"] for entry in entries}
        for name, entries in describe_configs(connection, names).items()
    }
    for name in names:
        if UNCONFIRMED not in options[name]:
            raise CliError(
                Exit.USAGE,
                f"topic {name} waits for no confirmation",
                "only topics taken over without their options do (see `topic describe --configs`)",
            )
    groups: dict[tuple[str, ...], list[str]] = {}
    for name in names:
        wanted = [*unset, *_untouched(options[name]), UNCONFIRMED]
        gone = tuple(option for option in dict.fromkeys(wanted) if option not in changes)
        groups.setdefault(gone, []).append(name)
    return [(some, list(gone)) for gone, some in groups.items()]


def _untouched(options: dict[str, Any]) -> list[str]:
    """Options that still have the values of the adoption."""
    marked = str(options[UNCONFIRMED]).split(",")
    given = {**_KEPT_BY_ADOPTION}
    # Not above the topic's largest.
    given["min.compaction.lag.ms"] = str(
        min(int(_CENTURY_MS), int(options["max.compaction.lag.ms"]))
    )
    return [option for option in given if option in marked and options[option] == given[option]]


def alter_configs(
    connection: Connection,
    names: list[str],
    changes: dict[str, str],
    unset: list[str],
    dry_run: bool,
) -> list[str]:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    connection.topic_partitions(names)
    before = describe_configs(connection, names)
    for name in names:
        _refuse_unknown(name, unset, [entry["name"] for entry in before[name]])
    operations: list[tuple[str, str | None, Any]] = [
        (name, value, AlterConfigOpType.SET) for name, value in changes.items()
    ]
    operations += [(name, None, AlterConfigOpType.DELETE) for name in unset]
    resources = [
        ConfigResource(
            ResourceType.TOPIC,
            name,
            incremental_configs=[
                ConfigEntry(option, value, incremental_operation=operation)
                for option, value, operation in operations
            ],
        )
        for name in names
    ]
    futures = connection.admin.incremental_alter_configs(
        resources, validate_only=dry_run, request_timeout=connection.settings.timeout_s
    )
    codes: list[Exit] = []
    errors: list[CliError] = []
    for resource, future in futures.items():
        try:
            future.result()
            codes.append(Exit.OK)
        except KafkaException as error:
            codes.append(exit_code(error.args[0]))
            known = [entry["name"] for entry in before[resource.name]]
            fix = advice(str(error.args[0].str()), changes, known)
            errors.append(cli_error(error.args[0], f"topic {resource.name}", fix))
    if errors:
        raise CliError(worst(codes), "; ".join(error.what for error in errors), errors[0].fix)
    touched = [option for option, _, _ in operations]
    if dry_run:
        return [f"{name}: {', '.join(touched)} would be changed" for name in names]
    after = describe_configs(connection, names)
    return [
        f"{name}: {option} {_value(before[name], option)} -> {_value(after[name], option)}"
        for name in names
        for option in touched
    ]


def _refuse_unknown(topic: str, options: Sequence[str], known: Sequence[str]) -> None:
    """Refuses to reset unknown options, which the broker would silently accept."""
    for option in options:
        if option not in known:
            what = f"topic {topic} has no option {option}"
            raise CliError(Exit.FAILED, what, like_or_listed(option, known, "topic", topic))


def _value(entries: list[dict[str, Any]], option: str) -> str:
    for entry in entries:
        if entry["name"] == option:
            return "(hidden)" if entry["sensitive"] else str(entry["value"])
    return "(none)"
