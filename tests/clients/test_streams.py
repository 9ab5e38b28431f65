"""Kafka Streams, unmodified: a word count exactly once whose application is killed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from pyrklog.testing import TestBroker
from tests.support.compacting import EAGER_BROKER, record_count
from tests.support.streams import PARTITIONS, WordCount, counting
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(300)]

OPTIONS = {
    **EAGER_BROKER,
    "group.min.session.timeout.ms": 1000,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
}
EACH = 500
"""Counts between two kills."""


def option(admin: AdminClient, topic: str, name: str) -> Any:
    resource = ConfigResource("topic", topic)
    return admin.describe_configs([resource])[resource].result(PATIENCE_S)[name].value


def is_purged(bootstrap: str, topic: str) -> bool:
    """Whether records were deleted from every partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none"})
    places = [TopicPartition(topic, part) for part in range(PARTITIONS)]
    firsts = [consumer.get_watermark_offsets(place, PATIENCE_S)[0] for place in places]
    consumer.close()
    return all(first > 0 for first in firsts)


def test_words_are_counted_exactly_once(
    new_broker: Callable[..., TestBroker], topic: str, tmp_path: Path
) -> None:
    """Twice the application is killed and its disk is lost: the state comes from the changelog,
    which has been compacted meanwhile."""
    broker = new_broker(options=OPTIONS).start()
    app = WordCount(broker.bootstrap, topic, tmp_path)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    created = [NewTopic(name, PARTITIONS, 1) for name in (app.input, app.output)]
    for done in admin.create_topics(created).values():
        done.result(PATIENCE_S)
    logs = [broker.data / "logs" / f"{app.changelog}-{part}" for part in range(PARTITIONS)]
    with counting(app) as (lines, counts):
        app.wait_for_more(counts, EACH)
        app.kill()
        app.start()
        app.wait_for_more(counts, EACH)
        app.wait_until_restored()
        wait_until(
            lambda: sum(map(record_count, logs)) < counts.total(), "the changelog is not compacted"
        )
        app.kill()
        app.start()
        app.wait_for_more(counts, EACH)
        app.wait_until_restored()
        app.finish(lines, counts)
        wait_until(
            lambda: is_purged(broker.bootstrap, app.repartition), "what was read is not deleted"
        )
    assert option(admin, app.changelog, "cleanup.policy") == "compact"
    assert option(admin, app.repartition, "cleanup.policy") == "delete"
    assert option(admin, app.repartition, "retention.ms") == "-1"
