"""Kafka Streams on three brokers, of which one is killed."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.cluster import BrokerCluster
from tests.support.cluster_clients import create, leaders
from tests.support.streams import PARTITIONS, WordCount, counting

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(300)]

OPTIONS = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "transaction.state.log.num.partitions": 3,
    "offsets.topic.num.partitions": 3,
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1000,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
}
EACH = 300


def test_words_are_counted_exactly_once_when_a_broker_is_killed(
    new_cluster: Callable[..., BrokerCluster], topic: str, tmp_path: Path
) -> None:
    """The application goes on without it; then it is killed too, and restores its state from the
    changelog's new leader."""
    cluster = new_cluster(**OPTIONS).start()
    app = WordCount(cluster.bootstrap, topic, tmp_path)
    admin = create(cluster, app.input, PARTITIONS, 3)
    create(cluster, app.output, PARTITIONS, 3)
    with counting(app) as (lines, counts):
        app.wait_for_more(counts, EACH)
        victim = leaders(admin, app.changelog)[0]
        cluster.brokers[victim].kill()
        app.wait_for_more(counts, EACH)
        app.kill()
        app.start()
        app.wait_until_restored()
        app.wait_for_more(counts, EACH)
        cluster.brokers[victim].start()
        app.wait_for_more(counts, EACH)
        app.finish(lines, counts)
