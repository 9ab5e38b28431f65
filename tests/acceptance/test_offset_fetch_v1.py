"""Row 36: OffsetFetch version 1, which cannot carry a group's error (KAFKA-19439).

While the coordinator is absent Apache Kafka answers "no offset", and an old consumer then begins at
the end or the beginning of everything. Ours puts the code on each partition.
"""

from collections.abc import Iterator

import kafka
import pytest
from kafka.structs import OffsetAndMetadata

from pyrklog.protocol.errors import ErrorCode
from pyrklog.protocol.offsets import (
    OFFSET_COMMIT,
    OFFSET_FETCH,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from pyrklog.testing import TestBroker
from tests.support.groups import create_topic
from tests.support.raw_client import RawClient
from tests.support.waiting import wait_until

TOPIC, GROUP = "t", "old-consumers"
COMMITS = 3_000
PARTITIONS = 10
LIVES = 20
"""One is enough, unless the machine is busy with something else just when it loads."""
PASSING = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}


@pytest.fixture
def broker() -> Iterator[TestBroker]:
    with TestBroker(options={"offsets.topic.num.partitions": 1}) as broker:
        create_topic(broker.bootstrap, TOPIC, PARTITIONS)
        yield broker


def test_row_36_a_coordinator_that_loads_never_answers_no_offset(broker: TestBroker) -> None:
    places = [OffsetCommitRequestPartition(index, 42) for index in range(PARTITIONS)]
    request = OffsetCommitRequest(GROUP, topics=[OffsetCommitRequestTopic(TOPIC, places)])
    with RawClient(broker.bootstrap) as client:
        client.await_coordinator(GROUP)
        for _ in range(COMMITS):
            answer = client.ask(OFFSET_COMMIT, 8, request)
        assert {one.error_code for one in answer.topics[0].partitions} == {0}
    seen: set[ErrorCode] = set()
    for _ in range(LIVES):
        broker.kill()
        broker.start()
        seen |= codes_of_a_load(broker)
        if seen != {ErrorCode.NONE}:
            break  # Somebody asked while it loaded.
    assert seen - {ErrorCode.NONE} <= PASSING
    assert seen - {ErrorCode.NONE}, "it was always loaded before anybody could ask"


def codes_of_a_load(broker: TestBroker) -> set[ErrorCode]:
    """Its answers until it has loaded; never an uncommitted offset, or none."""
    wanted = OffsetFetchRequest(GROUP, [OffsetFetchRequestTopic(TOPIC, list(range(PARTITIONS)))])
    seen: set[ErrorCode] = set()
    with RawClient(broker.bootstrap) as client:

        def has_loaded() -> bool:
            for one in client.ask(OFFSET_FETCH, 1, wanted).topics[0].partitions:
                seen.add(ErrorCode(one.error_code))
                offset = 42 if one.error_code == ErrorCode.NONE else -1
                assert one.committed_offset == offset
            return ErrorCode.NONE in seen

        wait_until(has_loaded, lambda: f"told {seen}")
    return seen


def test_row_36_kafka_python_as_of_then(broker: TestBroker) -> None:
    """It uses version 1 with old brokers, and continues where it stopped."""
    with RawClient(broker.bootstrap) as client:
        client.await_coordinator(GROUP)

    def consumer() -> kafka.KafkaConsumer:
        return kafka.KafkaConsumer(
            bootstrap_servers=broker.bootstrap,
            group_id=GROUP,
            enable_auto_commit=False,
            api_version=(0, 10, 1),
        )

    place = kafka.TopicPartition(TOPIC, 3)
    first = consumer()
    first.assign([place])
    first.commit({place: OffsetAndMetadata(7, "note", -1)})
    first.close()
    broker.restart()
    second = consumer()
    assert second.committed(place) == 7
    assert second.committed(kafka.TopicPartition(TOPIC, 4)) is None
    second.close()
