"""A cluster for tests, with a real ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from pyrklog.testing import TestCluster
from tests.support.own_pytest import OwnPytest
from tests.support.waiting import wait_until

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.jvm


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestCluster]:
    with TestCluster(3, data=tmp_path_factory.mktemp("cluster")) as running:
        yield running


def send(cluster: TestCluster, topic: str, value: str) -> bool:
    client = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    told = []
    client.produce(topic, value, on_delivery=lambda error, _: told.append(error is None))
    return client.flush(60) == 0 and told == [True]


def test_a_leader_moves_where_it_is_told_to(cluster: TestCluster) -> None:
    topic = cluster.create_topic(partitions=2)
    for to in (1, 2, 3, 3):
        cluster.move_leader(topic, 1, to)
        assert cluster.leader(topic, 1) == to
        assert send(cluster, topic, f"led by {to}")
    assert len(topic.wait_for(4)) == 4
    with pytest.raises(LookupError):
        cluster.move_leader(topic, 7, 1)
    lone = cluster.create_topic(replicas=1)
    others = set(cluster.brokers) - {cluster.leader(lone)}
    with pytest.raises(ValueError, match="no replica in sync"):
        cluster.move_leader(lone, 0, others.pop())


def test_faults_meet_clients_and_not_the_brokers(cluster: TestCluster) -> None:
    topic = cluster.create_topic()
    faults = cluster.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER")
    fetches = cluster.fail_next("Fetch", "NOT_LEADER_OR_FOLLOWER", times=50)
    assert len(faults) == 3
    assert send(cluster, topic, "a")  # with the acknowledgements of all followers
    assert sum(one.fired for one in faults) == 1
    assert sum(one.fired for one in fetches) == 0
    cluster.clear_faults()


def test_another_broker_leads_when_one_is_killed_and_it_comes_back(cluster: TestCluster) -> None:
    topic = cluster.create_topic()
    leader = cluster.leader(topic)
    cluster.brokers[leader].kill()
    wait_until(lambda: cluster.leader(topic) not in (leader, -1), "nobody leads")
    assert send(cluster, topic, "without it")
    cluster.start()
    assert sorted(cluster.running) == [1, 2, 3]
    assert len(topic.wait_for(1)) == 1


def test_a_wrong_size_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="1 to 9 brokers"):
        TestCluster(0, data=tmp_path)


def test_tests_share_a_cluster_that_is_whole_again_after_kills(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = OwnPytest(pytester, monkeypatch)(
        """
        import pytest

        pytestmark = pytest.mark.pyrklog(brokers=2, config={"min.insync.replicas": 1})

        def test_kills(pyrklog_cluster):
            topic = pyrklog_cluster.create_topic()
            leader = pyrklog_cluster.brokers[pyrklog_cluster.leader(topic)]
            leader.fail_next("Produce", "MESSAGE_TOO_LARGE", times=100)
            assert send(leader.bootstrap, topic, "a") == ["MSG_SIZE_TOO_LARGE"]
            pyrklog_cluster.brokers[2].kill()
            pyrklog_cluster.zookeeper.pause()

        def test_it_is_whole_again(pyrklog_cluster):
            assert sorted(pyrklog_cluster.running) == [1, 2]
            topic = pyrklog_cluster.create_topic(replicas=2)
            assert send(pyrklog_cluster.bootstrap, topic, "a") == [None]

        def test_fails(pyrklog_cluster):
            raise AssertionError
        """
    )
    result.assert_outcomes(passed=2, failed=1)
    assert result.stdout.str().count("- pyrklog: broker") == 2
