"""``topic trim``: deletes the beginning of partitions (DeleteRecords, KIP-107)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyrklog.base.problems import Problem
from pyrklog.cli.connection import Connection, PartitionKey
from pyrklog.cli.failures import CliError, Exit, cli_error, exit_code
from pyrklog.cli.group_seek import select
from pyrklog.cli.offsets import OffsetPosition
from pyrklog.cli.output import Listing, columns
from pyrklog.cli.topic_details import query_offsets

COLUMNS = columns(
    "topic, partition> PART, start_before> START, start_after> NEW START, end> END, records>, "
    "bytes>, remark"
)
SHOWN_MAX = 3
_FIXES = {
    "POLICY_VIOLATION": "its cleanup.policy has no delete: only such logs can be trimmed",
    "UNSUPPORTED_VERSION": "the cluster is older than Kafka 0.11",
}


@dataclass(frozen=True)
class Trim:
    """A partition's log, and where it begins afterwards. ``size``: bytes, None if unknown."""

    key: PartitionKey
    start: int
    end: int
    new_start: int
    remark: str = ""
    size: int | None = None

    @property
    def records(self) -> int:
        """At most: a compacted log or transactions have fewer."""
        return self.new_start - self.start

    @property
    def bytes_estimated(self) -> int | None:
        """Of one replica, if records are about equally long."""
        if self.size is None or self.end <= self.start:
            return None if self.size is None else 0
        return self.size * self.records // (self.end - self.start)

    def item(self) -> dict[str, Any]:
        topic, partition = self.key
        return {
            "topic": topic,
            "partition": partition,
            "start_before": self.start,
            "start_after": self.new_start,
            "end": self.end,
            "records": self.records,
            "bytes": self.bytes_estimated,
            "remark": self.remark,
        }


def plan(connection: Connection, places: Sequence[str], before: OffsetPosition) -> list[Trim]:
    """What to delete of partitions (``TOPIC``, ``TOPIC:0,3``). Raises :class:`CliError`, also if
    one of them ends before the wanted offset."""
    from confluent_kafka.admin import OffsetSpec

    keys = list(dict.fromkeys(select(connection, places, (), "trim")))
    starts = query_offsets(connection, keys, OffsetSpec.earliest())
    ends = query_offsets(connection, keys, OffsetSpec.latest())
    at_time: Mapping[PartitionKey, int] = {}
    if before.kind == "time":
        at_time = query_offsets(connection, keys, OffsetSpec.for_timestamp(before.value))
    _refuse_past_end(before, ends)
    return [_trim(key, starts[key], ends[key], before, at_time.get(key, -1)) for key in keys]


def _refuse_past_end(before: OffsetPosition, ends: Mapping[PartitionKey, int]) -> None:
    """As brokers do: such an offset is most often that of another partition."""
    past = [key for key, end in ends.items() if before.kind == "offset" and before.value > end]
    if past:
        shown = [f"{topic} [{index}] ends at {ends[topic, index]}" for topic, index in past]
        listed = ", ".join([*shown[:SHOWN_MAX], "..."] if len(shown) > SHOWN_MAX else shown)
        what = f"{listed}, before {before.value}; nothing was deleted"
        raise CliError(
            Problem.OUTSIDE_THE_LOG, what, "name partitions as TOPIC:P, or give --before end"
        )


def _trim(key: PartitionKey, start: int, end: int, before: OffsetPosition, at_time: int) -> Trim:
    match before.kind:
        case "beginning":
            wanted = start
        case "end":
            wanted = end
        case "tail":
            wanted = max(start, end - before.value)
        case "time":
            wanted = end if at_time < 0 else at_time
        case _:
            wanted = before.value
    new_start = min(max(wanted, start), end)
    remark = "" if new_start == wanted else f"the log starts behind {wanted} already"
    return Trim(key, start, end, new_start, remark)


def with_sizes(connection: Connection, plans: Sequence[Trim]) -> list[Trim]:
    """The same with the leaders' bytes, where the connection and the brokers tell them."""
    from pyrklog.cli.cluster_requests import ClusterRequests
    from pyrklog.cli.cluster_views import is_plain
    from pyrklog.cli.replica_sizes import replica_bytes

    if not is_plain(connection.settings):
        return list(plans)
    metadata = connection.metadata()
    leaders = {
        one.key: metadata.topics[one.key[0]].partitions[one.key[1]].leader
        for one in plans
        if one.key[0] in metadata.topics and one.key[1] in metadata.topics[one.key[0]].partitions
    }
    brokers = {
        number: (one.host, one.port)
        for number, one in metadata.brokers.items()
        if number in leaders.values()
    }
    wanted: dict[str, list[int]] = {}
    for topic, partition in leaders:
        wanted.setdefault(topic, []).append(partition)
    with ClusterRequests(connection.settings) as requests:
        sizes, _ = replica_bytes(requests, brokers, wanted)
    return [replace(one, size=sizes.get((*one.key, leaders.get(one.key, -1)))) for one in plans]


def apply(
    connection: Connection, plans: Sequence[Trim]
) -> tuple[list[Trim], list[tuple[Exit, CliError | None]]]:
    """Deletes; returns what was deleted, and each partition's result."""
    from confluent_kafka import KafkaException, TopicPartition

    timeout_s = connection.settings.timeout_s
    futures = connection.admin.delete_records(
        [TopicPartition(*one.key, one.new_start) for one in plans],
        operation_timeout=timeout_s,
        request_timeout=timeout_s + 5.0,
    )
    by_key = {(place.topic, place.partition): future for place, future in futures.items()}
    done: list[Trim] = []
    results: list[tuple[Exit, CliError | None]] = []
    for one in plans:
        try:
            low = by_key[one.key].result().low_watermark
        except KafkaException as error:
            kafka_error = error.args[0]
            about = f"{one.key[0]} [{one.key[1]}]"
            fix = _FIXES.get(kafka_error.name())
            results.append((exit_code(kafka_error), cli_error(kafka_error, about, fix)))
            continue
        # Retention may have deleted more meanwhile.
        done.append(replace(one, new_start=max(low, one.new_start)))
        results.append((Exit.OK, None))
    return done, results


def listing(found: Iterable[Trim], cluster_id: str | None) -> Listing:
    return Listing("pyrklog.trims/1", COLUMNS, [one.item() for one in found], cluster_id)
