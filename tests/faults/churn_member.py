"""A member of a consumer group in a process of its own, which reports what it does.

``churn_member.py CLIENT BOOTSTRAP GROUP TOPIC STRATEGY``. It prints the JSON lines of Kafka's
VerifiableConsumer: ``records_consumed`` before a commit, ``offsets_committed`` after it. SIGTERM
makes it leave the group.
"""

import contextlib
import json
import signal
import sys
from collections.abc import Iterator, Mapping
from typing import Any

SESSION_TIMEOUT_MS = 6000
POLL_S = 0.1
RECORDS_MAX = 100

Ranges = Mapping[int, tuple[int, int]]
"""First and last offset by partition."""


def say(name: str, **fields: Any) -> None:
    print(json.dumps({"name": name, **fields}), flush=True)


def consumed(ranges: Ranges) -> None:
    partitions = [
        {"partition": partition, "minOffset": first, "maxOffset": last}
        for partition, (first, last) in ranges.items()
    ]
    say("records_consumed", partitions=partitions)


def committed(offsets: Mapping[int, int], error: str | None) -> None:
    places = [{"partition": p, "offset": offset} for p, offset in offsets.items()]
    say("offsets_committed", offsets=places, success=error is None, error=error)


def ranges_of(places: Iterator[tuple[int, int]]) -> dict[int, tuple[int, int]]:
    """The range of each partition among (partition, offset) pairs in order."""
    found: dict[int, tuple[int, int]] = {}
    for partition, offset in places:
        first, last = found.get(partition, (offset, offset - 1))
        assert offset == last + 1, f"partition {partition}: {offset} follows {last}"
        found[partition] = (first, offset)
    return found


def run_confluent(bootstrap: str, group: str, topic: str, strategy: str) -> None:
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "partition.assignment.strategy": strategy,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": 500,
            "reconnect.backoff.max.ms": 500,
        }
    )
    consumer.subscribe([topic])
    try:
        while True:
            messages = [one for one in consumer.consume(RECORDS_MAX, POLL_S) if not one.error()]
            if not messages:
                continue
            ranges = ranges_of((one.partition(), one.offset()) for one in messages)
            consumed(ranges)
            offsets = {partition: last + 1 for partition, (_, last) in ranges.items()}
            places = [TopicPartition(topic, p, offset) for p, offset in offsets.items()]
            try:
                done = consumer.commit(offsets=places, asynchronous=False)
            except KafkaException as error:
                committed(offsets, str(error))
            else:
                good = {one.partition: one.offset for one in done if one.error is None}
                committed(good, None)
    finally:
        consumer.close()


def run_kafka_python(bootstrap: str, group: str, topic: str, strategy: str) -> None:
    import kafka
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.errors import KafkaError
    from kafka.structs import OffsetAndMetadata

    assert strategy == "range"

    class Forgetting(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
        """kafka-python 3.0 keeps an OffsetFetch answer that outlasted a poll and uses it in a later
        generation, when others have committed more. It also keeps the position of a partition that
        it had before and gets again, although another member had it in a generation between. Java's
        eager protocol drops both."""

        def on_partitions_revoked(self, revoked: Any) -> None:
            """The answers are dropped when partitions are assigned."""

        def on_partitions_assigned(self, assigned: Any) -> None:
            consumer._coordinator._offset_fetch_futures.clear()
            for state in consumer._subscription.assignment.values():
                state._position = None

    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        partition_assignment_strategy=[RangePartitionAssignor],
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=500,
        reconnect_backoff_max_ms=500,
        max_poll_records=RECORDS_MAX,
    )
    consumer.subscribe([topic], listener=Forgetting())
    try:
        while True:
            polled = consumer.poll(timeout_ms=int(POLL_S * 1000))
            places = ((r.partition, r.offset) for records in polled.values() for r in records)
            ranges = ranges_of(places)
            if not ranges:
                continue
            consumed(ranges)
            offsets = {partition: last + 1 for partition, (_, last) in ranges.items()}
            try:
                consumer.commit(
                    {
                        kafka.TopicPartition(topic, p): OffsetAndMetadata(offset, "", -1)
                        for p, offset in offsets.items()
                    },
                    timeout_ms=10_000,
                )
            except KafkaError as error:
                committed(offsets, str(error))
            else:
                committed(offsets, None)
    finally:
        consumer.close(autocommit=False)


def main() -> None:
    client, *arguments = sys.argv[1:]
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    run = {"confluent": run_confluent, "kafka-python": run_kafka_python}[client]
    with contextlib.suppress(KeyboardInterrupt):
        run(*arguments)


if __name__ == "__main__":
    main()
