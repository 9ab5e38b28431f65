"""A directory of Kafka in ZooKeeper mode, with its ZooKeeper and without."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from pyrklog.testing import TestBroker
from pyrklog.testing.broker import BrokerExited
from tests.clients.test_adoption import events, options
from tests.clients.test_kafka_round_trip import (
    RETENTION,
    committed,
    facts,
    produce,
    read_on,
    set_for_all,
)
from tests.support import zookeeper_kafka
from tests.support.zookeeper_kafka import NODE_ID

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(240)]

PATIENCE_S = 60


def test_options_come_from_zookeeper_or_wait_for_a_word(
    new_broker: Callable[..., TestBroker], topic: str, tmp_path: Path
) -> None:
    with zookeeper_kafka.zookeeper(tmp_path) as address:
        with zookeeper_kafka.kafka(tmp_path, address) as kafka:
            admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
            new = NewTopic(topic, 1, 1, config={"retention.ms": RETENTION})
            admin.create_topics([new])[topic].result(PATIENCE_S)
            set_for_all(kafka.bootstrap, "log.retention.bytes", "7654321")
            produce(kafka.bootstrap, topic, "kafka")
            assert len(read_on(kafka.bootstrap, topic, 4)) == 4
            known = facts(kafka.bootstrap, topic)
        assert "version=0" in (kafka.data / "meta.properties").read_text()
        alone = tmp_path / "alone"
        shutil.copytree(kafka.data, alone)
        elsewhere = ["--adopt-zookeeper", address.replace("/kafka", "/elsewhere")]
        with pytest.raises(BrokerExited, match=r"(?s)exit code 78.*zookeeper\.connect"):
            new_broker(kafka.data, arguments=elsewhere).start()

        ours = new_broker(kafka.data, arguments=["--adopt-zookeeper", address]).start()
        assert facts(ours.bootstrap, topic) == known
        assert known[1] == RETENTION
        assert "pyrklog.adopted.unconfirmed" not in options(ours, topic)
        assert options(ours, topic)["retention.bytes"] == "7654321"
        assert events(ours, "producer_ids_continued")[0]["first"] == 1000  # the block, not the id
        assert committed(ours.bootstrap, topic) == 4
        produce(ours.bootstrap, topic, "ours")
        assert read_on(ours.bootstrap, topic, 7)[-1] == b"ours 0"
        assert ours.stop() == 0

    ours.start()  # ZooKeeper is gone and no longer needed
    assert committed(ours.bootstrap, topic) == 11
    unsure = new_broker(alone).start()
    assert facts(unsure.bootstrap, topic) == (known[0], "-1")
    assert "retention.ms" in options(unsure, topic)["pyrklog.adopted.unconfirmed"].split(",")
    assert options(unsure, topic)["retention.bytes"] == "-1"
    assert committed(unsure.bootstrap, topic) == 4
    brokers = AdminClient({"bootstrap.servers": unsure.bootstrap}).list_topics(timeout=PATIENCE_S)
    assert list(brokers.brokers) == [NODE_ID]
