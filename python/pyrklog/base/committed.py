"""What a group has committed, asked by a consumer that does not join the group.

``AdminClient.list_consumer_group_offsets`` needs no list of partitions, but must not be called: it
ends the process with a segmentation fault when the coordinator answers NOT_COORDINATOR, as it does
while it loads or moves (https://github.com/confluentinc/librdkafka/issues/5040). librdkafka then
tells its consumer group to look for the coordinator, and an admin client has none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from confluent_kafka import Consumer, TopicPartition

_PASSING = ("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR")
_RETRY_S = 0.1
_SHORTEST_S = 0.001
"""librdkafka waits without end for a time below zero."""
_OF_MEMBERS = ("group.", "session.", "heartbeat.", "partition.assignment.", "max.poll.", "fetch.")
"""How properties begin that concern members only. Their values may be refused for a consumer."""

Make = Callable[[Any, dict[str, Any]], Any]
"""Makes a handle of a class with a configuration."""


def _make(kind: Any, configuration: dict[str, Any]) -> Any:
    return kind(configuration)


def committed_partitions(
    configuration: Mapping[str, Any],
    group: str,
    partitions: Iterable[tuple[str, int]],
    timeout_s: float,
    make: Make = _make,
) -> list[TopicPartition]:
    """Those of the partitions that the group has committed, with offset and metadata.

    Offsets of open transactions do not count. Waits while the coordinator loads or moves. Raises
    KafkaException, and what ``make`` raises.
    """
    from confluent_kafka import Consumer, TopicPartition

    asked = [TopicPartition(*one) for one in partitions]
    # The binding aborts the process for a consumer of a group without a name.
    if not group or not asked:
        return []
    of_all = {key: one for key, one in configuration.items() if not key.startswith(_OF_MEMBERS)}
    consumer = make(
        Consumer,
        {
            **of_all,
            "group.id": group,
            "enable.auto.commit": False,
            # A consumer of committed records would wait for the end of open transactions.
            "isolation.level": "read_uncommitted",
        },
    )
    try:
        found = _patiently(consumer, asked, timeout_s)
    finally:
        consumer.close()
    return [one for one in found if one.error is None and one.offset >= 0]


def _patiently(
    consumer: Consumer, asked: list[TopicPartition], timeout_s: float
) -> list[TopicPartition]:
    from confluent_kafka import KafkaError, KafkaException

    deadline = time.monotonic() + timeout_s
    while True:
        left_s = max(_SHORTEST_S, deadline - time.monotonic())
        try:
            found: list[TopicPartition] = consumer.committed(asked, timeout=left_s)
        except KafkaException as error:
            failed = error.args[0]
        else:
            return found
        if failed.code() == KafkaError._TIMED_OUT:
            # A broker's refusal to name the coordinator comes as a message.
            message = consumer.poll(0)
            cause = None if message is None else message.error()
            raise KafkaException(failed if cause is None else cause)
        if failed.name() not in _PASSING or time.monotonic() > deadline:
            raise KafkaException(failed)
        time.sleep(_RETRY_S)
