"""``topic copy``: reads partitions up to their present end, and writes the records elsewhere.

Keys, values, headers, timestamps and, unless they are placed by key, partitions stay. However large
the topic, only :data:`QUEUE_BYTES_MAX` twice and one batch are in memory.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import typer

from pyrklog.base.problems import Problem
from pyrklog.cli.assigned_consumer import AssignedConsumer
from pyrklog.cli.connection import Connection, PartitionKey
from pyrklog.cli.failures import CliError, cli_error, counted
from pyrklog.cli.held_back import HeldBack, sentence, where_seen
from pyrklog.cli.interrupts import held
from pyrklog.cli.offsets import OffsetRange, ResolvedRange
from pyrklog.cli.option_advice import advice
from pyrklog.cli.options import Settings
from pyrklog.cli.output import Listing, columns
from pyrklog.cli.producer import RecordProducer
from pyrklog.cli.records import InputRecord, Record, from_message
from pyrklog.cli.topic_details import describe_configs

COLUMNS = columns("topic, partition> PART, from>, to>, records>, bytes>")
QUEUE_BYTES_MAX = 32 * 2**20
"""Of the consumer's and of the producer's queue."""
BATCH_BYTES = 8 * 2**20
BATCH_RECORDS_MAX = 1000
FIRST_BATCH_RECORDS = 10
POLL_S = 0.1
WRITTEN_WITHIN_S = 60.0
"""Time that a record may take to be written, for the slowest target (it waits behind the queue)."""
_CONSUMER = {"queued.max.messages.kbytes": QUEUE_BYTES_MAX // 1024, "fetch.max.bytes": 2**24}
_NO_KEY = (
    "the target is compacted and takes no records without a key: copy to a topic with "
    "cleanup.policy=delete (--create -c cleanup.policy=delete makes one)"
)
_FIXES = {
    "INVALID_RECORD": _NO_KEY,
    "_INVALID_DIFFERENT_RECORD": _NO_KEY,
    "MSG_SIZE_TOO_LARGE": "raise the target's max.message.bytes",
}
# The brokers decide which records are too large, not librdkafka.
_PRODUCER = {"queue.buffering.max.kbytes": QUEUE_BYTES_MAX // 1024, "message.max.bytes": 10**9}


class Target(NamedTuple):
    """Where to copy to, and how to make the topic if it is missing (``create``)."""

    settings: Settings
    topic: str
    create: bool
    configs: Mapping[str, str]


@dataclass
class Copied:
    """What was read of a partition."""

    range: ResolvedRange
    records: int = 0
    bytes: int = 0
    position: int | None = None
    """Behind the last record that was handed to the producer."""


def prepare(
    source: Connection,
    topic: str,
    chosen: Sequence[int],
    target: Target,
    *,
    by_key: bool,
    dry: bool,
) -> None:
    """Makes or checks the target. Raises :class:`CliError` if it cannot take the partitions."""
    partitions = source.topic_partitions([topic])[topic]
    there = Connection(target.settings)
    metadata = there.metadata()
    if metadata.cluster_id == source.metadata().cluster_id and target.topic == topic:
        raise CliError(
            Problem.ARGUMENTS_DISAGREE, f"{topic} cannot be copied to itself", "name another target"
        )
    known = metadata.topics.get(target.topic)
    if known is not None and known.error is not None:
        raise cli_error(known.error, f"topic {target.topic}", topic=target.topic)
    if known is None:
        if not target.create:
            fix = "give --create, or make it with `pyrklog topic create`"
            raise CliError(Problem.TOPIC_NOT_FOUND, f"topic {target.topic} does not exist", fix)
        if not dry:
            _create(source, topic, len(partitions), there, target)
        return
    if target.configs:
        what = f"topic {target.topic} exists and keeps its options: -c is for a target that is made"
        fix = f"leave out -c, or change them with `pyrklog config alter topic {target.topic}`"
        raise CliError(Problem.TOPIC_EXISTS, what, fix)
    missing = [one for one in chosen if one not in known.partitions]
    if missing and not by_key:
        count = counted(len(known.partitions), "partition")
        what = f"topic {target.topic} has {count}, none of number "
        add = f"`pyrklog topic add-partitions {target.topic} --to {max(missing) + 1}`"
        raise CliError(Problem.PARTITION_COUNT, f"{what}{missing[0]}", f"{add}, or --repartition")


def _create(
    source: Connection, topic: str, partitions: int, there: Connection, target: Target
) -> None:
    """With the source's number of partitions and its own options; the cluster's replicas."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import NewTopic

    from pyrklog.config.topic import TOPIC_OPTIONS_BY_NAME

    own = {
        one["name"]: one["value"]
        for one in describe_configs(source, [topic])[topic]
        if one["source"] == "topic" and one["value"] is not None and _is_portable(one["name"])
    }
    wanted = NewTopic(
        target.topic,
        num_partitions=partitions,
        replication_factor=-1,
        config={**own, **target.configs},
    )
    timeout_s = there.settings.timeout_s
    futures = there.admin.create_topics(
        [wanted], operation_timeout=timeout_s, request_timeout=timeout_s + 5.0
    )
    try:
        futures[target.topic].result()
    except KafkaException as error:
        about, why = f"topic {target.topic}", error.args[0]
        fix = advice(str(why.str()), target.configs, list(TOPIC_OPTIONS_BY_NAME))
        raise cli_error(why, about, fix, topic=target.topic) from None


def _is_portable(option: str) -> bool:
    """Throttles name replicas, and our own options mean nothing elsewhere."""
    return "throttled" not in option and not option.startswith("pyrklog.")


def reader(
    settings: Settings,
    topic: str,
    partitions: Sequence[int],
    wanted: OffsetRange,
    *,
    read_committed: bool,
) -> AssignedConsumer:
    """Reads up to ``wanted``'s stop, at most to the present end."""
    return AssignedConsumer(
        settings,
        [topic],
        partitions,
        wanted,
        read_committed=read_committed,
        ends_now=True,
        more=_CONSUMER,
    )


def writer(target: Target, codec: str) -> RecordProducer:
    return RecordProducer(
        target.settings,
        target.topic,
        codec=codec,
        acks="all",
        idempotent=True,
        more={
            **_PRODUCER,
            "message.timeout.ms": round(max(WRITTEN_WITHIN_S, target.settings.timeout_s) * 1000),
        },
        fixes=_FIXES,
    )


def copy(
    reading: AssignedConsumer, writing: RecordProducer, *, by_key: bool, quiet: bool = False
) -> dict[PartitionKey, Copied]:
    """Copies everything that ``reading`` has been started for.

    Raises :class:`CliError`, also if a record is refused; earlier ones are there then. Ctrl-C
    leaves once the records that were read are written. Both tell how far it came, unless ``quiet``.
    """
    done = {key: Copied(one) for key, one in reading.ranges().items()}
    try:
        _copy_and_finish(reading, writing, done, by_key=by_key)
    except (CliError, KeyboardInterrupt):
        told = stopped(done, is_written=writing.failure() is None)
        if told and not quiet:
            typer.echo(f"note: {told}", err=True)
        raise
    return done


def stopped(done: Mapping[PartitionKey, Copied], *, is_written: bool) -> str:
    """How far a copy came that did not end, and what to do; empty if it wrote nothing.
    ``is_written``: all that was sent."""
    reached = {key: one.position for key, one in sorted(done.items()) if one.position is not None}
    if not reached:
        return ""
    again = "a second copy begins anew"
    if not is_written:
        return f"the target may have a part of the records; {again}"
    shown = [f"{topic} [{partition}] before {at}" for (topic, partition), at in reached.items()]
    return (
        f"copied {total(done)}: {', '.join(shown)}; the target has them, and {again}; "
        "to go on, give each partition its offset: -p P --from OFFSET"
    )


def _copy_and_finish(
    reading: AssignedConsumer,
    writing: RecordProducer,
    done: Mapping[PartitionKey, Copied],
    *,
    by_key: bool,
) -> None:
    from confluent_kafka import KafkaException

    try:
        _copy(reading, writing, done, by_key=by_key)
    except KafkaException as error:
        why = error.args[0]
        refused = cli_error(why, "a record was not written", _FIXES.get(why.name()))
        raise writing.with_written(refused) from None
    finally:
        writing.finish()
    failure = writing.failure()
    if failure is not None:
        raise failure


def refuse_held_back(waiting: Mapping[PartitionKey, HeldBack], verb: str) -> None:
    """Raises :class:`CliError` if an open transaction held something back."""
    if waiting:
        fix = f"{where_seen(waiting)}, and copy the rest once it has ended"
        raise CliError(Problem.PARTLY_DONE, sentence(waiting, verb), fix)


def expected(reading: AssignedConsumer) -> dict[PartitionKey, Copied]:
    """What would be read: the most records that its offsets allow."""
    return {
        key: Copied(one, records=max(0, (one.stop or 0) - one.start))
        for key, one in reading.ranges().items()
    }


def total(done: Mapping[PartitionKey, Copied]) -> str:
    count = sum(one.records for one in done.values())
    return counted(count, "record")


def _copy(
    reading: AssignedConsumer,
    writing: RecordProducer,
    done: Mapping[PartitionKey, Copied],
    *,
    by_key: bool,
) -> None:
    limit = FIRST_BATCH_RECORDS
    while not reading.finished(False) and writing.failure() is None:
        messages = reading.read(limit, POLL_S)
        if not messages:
            reading.check_progress()
            continue
        size = 0
        for message in messages:
            record = from_message(message)
            with held:  # what is sent is counted
                writing.send(_input(record, by_key=by_key))
                size += _count(record, done[record.topic, record.partition])
        reading.wait_anew()  # the target may have been slow
        limit = next_limit(len(messages), size)


def next_limit(records: int, size: int) -> int:
    """Records of the next batch, so that it has about :data:`BATCH_BYTES` at most."""
    return max(1, min(BATCH_RECORDS_MAX, BATCH_BYTES * records // max(1, size)))


def _input(record: Record, *, by_key: bool) -> InputRecord:
    return InputRecord(
        key=record.key,
        value=record.value,
        headers=record.headers,
        partition=None if by_key else record.partition,
        timestamp_ms=record.timestamp_ms,
    )


def _count(record: Record, copied: Copied) -> int:
    size = len(record.key or b"") + len(record.value or b"")
    size += sum(len(name.encode()) + len(value or b"") for name, value in record.headers)
    copied.records += 1
    copied.position = record.offset + 1
    copied.bytes += size
    return size


def listing(
    done: Mapping[PartitionKey, Copied], cluster_id: str | None, *, dry: bool = False
) -> Listing:
    """``dry``: nothing was read, so the bytes are unknown."""
    items = [
        {
            "topic": topic,
            "partition": partition,
            "from": one.range.start,
            "to": one.range.stop,
            "records": one.records,
            "bytes": None if dry else one.bytes,
        }
        for (topic, partition), one in sorted(done.items())
    ]
    return Listing("pyrklog.topic-copy/1", COLUMNS, items, cluster_id)
