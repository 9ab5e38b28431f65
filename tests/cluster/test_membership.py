"""Brokers that share a ZooKeeper: they find each other, lead apart, and outlive sessions."""

import signal
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from pyrklog.cli.cluster_reading import read_state
from pyrklog.cli.connection import Connection
from pyrklog.cli.options import Settings
from pyrklog.errors import ErrorCode
from pyrklog.observability.health_rules import examine, told_of
from pyrklog.testing import BrokerExited, TestBroker
from tests.support.cluster import BrokerCluster
from tests.support.cluster_clients import consume, create, leaders, produce
from tests.support.faults.driver import FaultDriver
from tests.support.knowing import wait_until_each
from tests.support.waiting import PATIENCE_S, wait_until
from tests.support.zookeeper_server import ZooKeeperServer

pytestmark = pytest.mark.jvm


def test_three_brokers_are_one_cluster(cluster: BrokerCluster, topic: str) -> None:
    admin = create(cluster, topic, 6)
    metadata = admin.list_topics(timeout=30)
    assert set(metadata.brokers) == {1, 2, 3}
    assert metadata.controller_id == cluster.controller()
    assert sorted(leaders(admin, topic).values()) == [1, 1, 2, 2, 3, 3]
    for number, broker in cluster.brokers.items():
        one = AdminClient({"bootstrap.servers": broker.bootstrap})
        assert set(one.list_topics(timeout=30).brokers) == {1, 2, 3}, number
        assert leaders(one, topic) == leaders(admin, topic), number
    produce(cluster, topic, 6, [b"a", b"b"])
    assert sorted(consume(cluster, topic, 12, "g")) == [b"a"] * 6 + [b"b"] * 6
    admin.delete_topics([topic])[topic].result(30)
    wait_until(
        lambda: topic not in admin.list_topics(timeout=30).topics, "the topic is still there"
    )
    wait_until(lambda: cluster.store.exists(f"/brokers/topics/{topic}") is None, "its node stays")


def test_any_broker_creates_the_topic_that_a_producer_names(
    cluster: BrokerCluster, topic: str
) -> None:
    for number, broker in cluster.brokers.items():
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        name = f"{topic}-{number}"
        producer.produce(name, b"v")
        assert producer.flush(30) == 0, "it is still to be delivered"


def test_a_killed_broker_comes_back_with_its_records(cluster: BrokerCluster, topic: str) -> None:
    admin = create(cluster, topic, 3)
    produce(cluster, topic, 3, [b"before"])
    victim = next(n for n in cluster.brokers if n != cluster.controller())
    cluster.brokers[victim].kill()
    wait_until(lambda: victim not in cluster.registered(), "its session does not end")
    wait_until(lambda: -1 in leaders(admin, topic).values(), "its partition is still led")
    cluster.brokers[victim].start()
    wait_until(lambda: -1 not in leaders(admin, topic).values(), "its partition is not led")
    produce(cluster, topic, 3, [b"after"])
    assert sorted(consume(cluster, topic, 6, "g")) == [b"after"] * 3 + [b"before"] * 3


def test_data_of_a_cluster_and_of_one_alone_are_kept_apart(
    cluster: BrokerCluster, new_broker: Callable[..., TestBroker], topic: str
) -> None:
    """Records that it acknowledged alone would be lost when it follows again."""
    create(cluster, topic, 1)
    victim = next(n for n in cluster.brokers if n != cluster.controller())
    member = cluster.brokers[victim]
    assert member.stop() == 0
    with pytest.raises(BrokerExited, match="in a cluster"):
        new_broker(member.data).start()
    member.start()
    wait_until(partial(cluster.is_registered, victim), "it does not come back")
    alone = new_broker().start()
    assert alone.stop() == 0
    options = {"zookeeper.connect": cluster.zookeeper, "broker.id": 77}
    with pytest.raises(BrokerExited, match="broker that is alone"):
        new_broker(alone.data, options=options).start()
    alone.start()


def test_a_broker_that_is_back_at_once_waits_for_the_end_of_its_session(
    new_cluster: Callable[..., BrokerCluster], topic: str
) -> None:
    # Long enough for the old registration to outlast a slow start on a busy machine.
    long = {"zookeeper.session.timeout.ms": 15_000}
    cluster = new_cluster(**long, **{"pyrklog.failover.watchdog": False}).start()
    create(cluster, topic, 3)
    victim = next(n for n in cluster.brokers if n != cluster.controller())
    (epoch,) = [cluster.store.exists(f"/brokers/ids/{victim}").czxid]
    cluster.brokers[victim].kill()
    cluster.brokers[victim].start(timeout_s=PATIENCE_S)
    assert any("registration_waits" in line for line in list(cluster.brokers[victim].log))
    assert cluster.store.exists(f"/brokers/ids/{victim}").czxid > epoch
    produce(cluster, topic, 3, [b"v"])


def test_another_broker_takes_over_when_the_controller_is_killed(
    cluster: BrokerCluster, topic: str
) -> None:
    first = cluster.controller()
    epoch = int(cluster.store.get("/controller_epoch")[0])
    cluster.brokers[first].kill()
    wait_until(lambda: cluster.json("/controller").get("brokerid") not in (None, first), "nobody")
    assert int(cluster.store.get("/controller_epoch")[0]) == epoch + 1
    second = cluster.controller()
    bootstrap = cluster.brokers[second].bootstrap
    # librdkafka would ask the dead one until the request times out.
    wait_until_each(bootstrap, lambda told: told.controller_id == second, "it does not say so")
    admin = create(cluster, topic, 4, bootstrap=bootstrap)
    assert set(leaders(admin, topic).values()) == set(cluster.brokers) - {first}
    cluster.brokers[first].start()
    wait_until(lambda: set(admin.list_topics(timeout=30).brokers) == {1, 2, 3}, "it is not back")


def test_a_broker_whose_session_ended_registers_again_and_goes_on(
    cluster: BrokerCluster, topic: str
) -> None:
    admin = create(cluster, topic, 3)
    for number in (cluster.controller(), next(n for n in cluster.brokers)):
        epoch = cluster.store.exists(f"/brokers/ids/{number}").czxid
        with FaultDriver(cluster).fault("pause", number):
            wait_until(partial(cluster.is_gone, number), "its session lives")
        wait_until(partial(cluster.is_registered, number), "it does not come back")
        assert cluster.store.exists(f"/brokers/ids/{number}").czxid > epoch
        wait_until(lambda: -1 not in leaders(admin, topic).values(), "not all is led")
        produce(cluster, topic, 3, [b"v"])


def test_a_zookeeper_that_starts_again_ends_nothing(
    new_cluster: Callable[..., BrokerCluster], own_zookeeper: ZooKeeperServer, topic: str
) -> None:
    cluster = new_cluster(own_zookeeper.address).start()
    admin = create(cluster, topic, 3)
    # The leader reads its topic's options from ZooKeeper, but the test waited only for the
    # controller.
    produce(cluster, topic, 3, [b"before"], idempotent=False)
    own_zookeeper.kill()
    # Automatic creation has to wait; the request's sender does not.
    asked = Producer({"bootstrap.servers": cluster.bootstrap}).list_topics("none", timeout=30)
    assert asked.topics["none"].error.code() == ErrorCode.LEADER_NOT_AVAILABLE
    # Only producer ids come from ZooKeeper here.
    produce(cluster, topic, 3, [b"without"], idempotent=False)
    own_zookeeper.start()
    produce(cluster, topic, 3, [b"with"])
    wait_until(lambda: cluster.registered() == {1, 2, 3}, "not all are registered")
    create(cluster, f"{topic}-later", 3)
    wait_until(lambda: -1 not in leaders(admin, topic).values(), "not all are led")


def test_health_tells_of_a_zookeeper_that_is_away(
    new_cluster: Callable[..., BrokerCluster], own_zookeeper: ZooKeeperServer, topic: str
) -> None:
    cluster = new_cluster(own_zookeeper.address).start()
    create(cluster, topic, 3)
    connection = Connection(Settings(cluster.bootstrap))

    def kinds() -> set[str]:
        """Without those that need nobody: a leader that a slow start put elsewhere is one. Other
        processes may fill the disk."""
        found = told_of(examine(read_state(connection, log_dirs=True)))
        return {reason.kind for reason in found} - {"disk_filling"}

    wait_until(lambda: not kinds(), lambda: f"it is not well at first: {kinds()}")
    own_zookeeper.kill()
    wait_until(
        lambda: kinds() == {"zookeeper_lost"},
        lambda: f"nobody says that ZooKeeper is away: {kinds()}",
    )
    own_zookeeper.start()
    wait_until(lambda: not kinds(), lambda: f"it is not well again: {kinds()}")


def test_a_number_of_its_own_for_a_broker_without_one(
    zookeeper: ZooKeeperServer, tmp_path: Path, topic: str
) -> None:
    address = f"{zookeeper.address}/{topic}"
    numbers = []
    for name in ("a", "b"):
        with TestBroker(tmp_path / name, arguments=["--zookeeper", address]) as broker:
            admin = AdminClient({"bootstrap.servers": broker.bootstrap})
            numbers.append(admin.list_topics(timeout=30).controller_id)
    assert numbers == [1001, 1002]
    with TestBroker(tmp_path / "a", arguments=["--zookeeper", address]) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        assert admin.list_topics(timeout=30).controller_id == 1001, "it kept its number"


def test_a_broker_joins_neither_apaches_cluster_nor_a_second_one(
    cluster: BrokerCluster, zookeeper: ZooKeeperServer, tmp_path: Path, topic: str
) -> None:
    cluster.store.create("/apache/cluster/id", b'{"version":"1","id":"x"}', makepath=True)
    address = cluster.zookeeper + "/apache"
    with pytest.raises(BrokerExited, match=r"(?s)exit code 78.*an Apache Kafka cluster"):
        TestBroker(tmp_path / "new", arguments=["--zookeeper", address]).start()
    cluster.brokers[1].stop()
    other = ["--zookeeper", f"{zookeeper.address}/{topic}-other", "--broker-id", "1"]
    with TestBroker(tmp_path / "first", arguments=other):
        pass
    with pytest.raises(BrokerExited, match=r"(?s)exit code 78.*cluster"):
        TestBroker(cluster.brokers[1].data, arguments=other).start()


def test_a_start_that_waits_for_a_controller_ends_at_the_first_signal(
    new_cluster: Callable[..., BrokerCluster],
) -> None:
    """Somebody holds the controller's node without answering."""
    cluster = new_cluster(count=1).start()
    broker = cluster.brokers[1]
    assert broker.stop() == 0
    cluster.store.create(
        "/controller",
        b'{"version":2,"brokerid":9,"timestamp":"1","kraftControllerEpoch":-1}',
        None,
        True,
    )
    starter = threading.Thread(target=_start, args=(broker,))
    starter.start()
    wait_until(lambda: cluster.is_registered(1), "it does not register")
    broker.signal(signal.SIGTERM)
    starter.join(60)
    assert not starter.is_alive(), "it goes on waiting"
    assert not broker.running


def _start(broker: TestBroker) -> None:
    with pytest.raises(BrokerExited):
        broker.start()
