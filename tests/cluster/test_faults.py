"""One fault after another under load: no acknowledged record is lost, replicas are equal, and
service returns unaided.

The load is an idempotent producer with acks=all on a topic with min.insync.replicas=2. The brokers
are the checker's: their traffic passes pipes that can be cut, their log directories are small disks
where possible (as root), and each has its own clock. One cluster serves all tests, so each also
begins where the earlier ones ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from pyrklog.errors import ErrorCode
from tests.support import wire
from tests.support.cluster import SESSION_TIMEOUT_MS
from tests.support.cluster_clients import create, end_offset, in_sync, leaders, produce
from tests.support.cluster_load import Writer, check
from tests.support.faults.driver import CLOCK_STEP_S, FaultDriver
from tests.support.faults.wired_cluster import WiredCluster, wired_cluster
from tests.support.verifying import assert_replicas_equal
from tests.support.waiting import wait_until

pytestmark = pytest.mark.jvm

STRICT = {"min.insync.replicas": "2"}
PATIENT = {"zookeeper.session.timeout.ms": 30_000, "replica.lag.time.max.ms": 30_000}
PARTITIONS = 3
ALL = {1, 2, 3}
MORE = 200
NOT_ACKNOWLEDGED = {
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
}


@pytest.fixture(scope="module")
def wired(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WiredCluster]:
    with wired_cluster(tmp_path_factory.mktemp("faults"), "faults") as cluster:
        cluster.start()
        yield cluster


@pytest.fixture(scope="module")
def patient(wired: WiredCluster) -> WiredCluster:
    """The same cluster, for the last tests: sessions end and followers lag only after half a
    minute. A busy machine passes for neither, and a clock that is changed by an hour would."""
    for broker in wired.brokers.values():
        broker.options |= PATIENT
    with FaultDriver(wired).fault("kill_all", *wired.brokers):
        pass  # they start with other options
    return wired


class Load:
    def __init__(self, cluster: WiredCluster, topic: str, partitions: int = PARTITIONS) -> None:
        self.cluster = cluster
        self.topic = topic
        self.admin = create(cluster, topic, partitions, 3, options=STRICT)
        self.writer = Writer(cluster, topic, partitions)

    def leader(self, partition: int = 0) -> int:
        return leaders(self.admin, self.topic)[partition]

    def told_by(self, number: int) -> AdminClient:
        """Metadata of one broker, asked once: later the client may ask others."""
        servers = self.cluster.brokers[number].bootstrap
        return AdminClient({"bootstrap.servers": servers, "log_level": 0})

    def wait_until_whole(self) -> None:
        wait_until(lambda: self.cluster.registered() == ALL, "not all are registered")
        wait_until(
            lambda: all(one == ALL for one in in_sync(self.admin, self.topic).values()),
            "not all are in sync",
        )

    def end(self) -> None:
        """What each test has to show."""
        self.writer.go_on(MORE)
        self.wait_until_whole()
        self.writer.go_on(MORE)
        self.writer.stop()
        check(self.cluster, self.topic, self.writer)
        assert_replicas_equal(self.cluster.bootstrap, self.topic, self.writer.count)


@contextmanager
def under_load(cluster: WiredCluster, topic: str, partitions: int = PARTITIONS) -> Iterator[Load]:
    """The caller starts and undoes the fault in the block."""
    load = Load(cluster, topic, partitions)
    try:
        load.writer.go_on(MORE)
        yield load
    except BaseException:
        load.writer.abandon()
        raise
    load.end()


def fault(cluster: WiredCluster, kind: str, *victims: int) -> AbstractContextManager[None]:
    return FaultDriver(cluster).fault(kind, *victims)


def others(number: int) -> list[int]:
    return sorted(ALL - {number})


def says(cluster: WiredCluster, number: int, event: str) -> int:
    """How many lines of that event the broker has logged so far."""
    return sum(f'"event": "{event}"' in line for line in list(cluster.brokers[number].log))


def says_again(cluster: WiredCluster, number: int, event: str) -> Callable[[], bool]:
    """Whether it has logged another one since now."""
    before = says(cluster, number, event)
    return lambda: says(cluster, number, event) > before


# --- processes that stand still ------------------------------------------------------------------


def test_cluster_survives_a_stalled_leader(wired: WiredCluster, topic: str) -> None:
    with under_load(wired, topic) as load:
        leader = next(n for n in (load.leader(p) for p in range(3)) if n != wired.controller())
        survivor = others(leader)[0]
        with fault(wired, "pause", leader):
            wait_until(
                lambda: leader not in leaders(load.told_by(survivor), topic).values(),
                "it leads for ever",
            )
            load.writer.go_on(MORE)


def test_cluster_survives_a_stalled_controller(wired: WiredCluster, topic: str) -> None:
    with under_load(wired, topic) as load:
        old = wired.controller()
        with fault(wired, "pause", old):
            wait_until(
                lambda: wired.json("/controller").get("brokerid", old) != old, "nobody leads"
            )
            load.writer.go_on(MORE)
        wait_until(lambda: wired.controller() in ALL, "no controller")


def test_cluster_survives_a_stalled_zookeeper(wired: WiredCluster, topic: str) -> None:
    """For longer than a session; present leaders do not need it."""
    with under_load(wired, topic) as load, fault(wired, "zookeeper_pause_past_session"):
        end = time.monotonic() + SESSION_TIMEOUT_MS / 1000 * 1.25
        while time.monotonic() < end:
            load.writer.go_on(MORE // 4)


# --- ZooKeeper and sessions ----------------------------------------------------------------------


def test_cluster_survives_a_zookeeper_restart(wired: WiredCluster, topic: str) -> None:
    with under_load(wired, topic) as load:
        with fault(wired, "zookeeper_kill"):
            load.writer.go_on(MORE)
        # The store accepts changes again.
        create(wired, f"{topic}-after", 1, 3)


@pytest.mark.parametrize("role", ["leader", "controller"])
def test_cluster_survives_an_expired_session(wired: WiredCluster, topic: str, role: str) -> None:
    with under_load(wired, topic) as load:
        victim = load.leader() if role == "leader" else wired.controller()
        began = says_again(wired, victim, "session_began")
        with fault(wired, "session_cut", victim):
            wait_until(lambda: wired.is_gone(victim), "its session does not expire")
        wait_until(began, "it gets no other session")


# --- disks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["follower", "leader"])
@pytest.mark.parametrize("kind", ["full_disk", "broken_disk"])
def test_cluster_survives_a_full_disk(
    wired: WiredCluster, topic: str, kind: str, role: str
) -> None:
    """``full_disk`` needs a small disk. Where mounting is impossible it limits the size of files
    instead: the log directory fails, and with it a broker that has no other. Then the disk is
    replaced and the broker started."""
    with under_load(wired, topic, 1) as load:
        leader = load.leader()
        victim = leader if role == "leader" else others(leader)[0]
        is_full = kind == "full_disk" and bool(wired.disks)
        told = says_again(wired, victim, "log_dir_full" if is_full else "log_dir_failed")
        ended = wired.brokers[victim]
        with fault(wired, kind, victim):
            wait_until(lambda: told() or not ended.running, "it goes on as if there was space")
            if role == "follower":
                load.writer.go_on(MORE)


# --- the network ---------------------------------------------------------------------------------


def test_cluster_survives_an_isolated_follower(wired: WiredCluster, topic: str) -> None:
    with under_load(wired, topic, 1) as load:
        victim = next(n for n in others(load.leader()) if n != wired.controller())
        with fault(wired, "isolate", victim):
            survivor = load.leader()
            wait_until(
                lambda: victim not in in_sync(load.told_by(survivor), topic)[0],
                "it stays in sync",
            )
            load.writer.go_on(MORE)


def test_cluster_survives_an_isolated_leader(wired: WiredCluster, topic: str) -> None:
    """From the other brokers and from ZooKeeper. Its clients still reach it; it acknowledges
    nothing that would be lost."""
    with under_load(wired, topic, 1) as load:
        victim = load.leader()
        survivor = others(victim)[0]
        with fault(wired, "isolate", victim), fault(wired, "session_cut", victim):
            wait_until(
                lambda: leaders(load.told_by(survivor), topic)[0] not in (victim, -1),
                "nobody leads",
            )
            # By hand: a stock client would find the new leader through the others.
            with wire.Connection(wired.brokers[victim].bootstrap) as stranger:
                told = wire.produce(stranger, topic, wire.record_batch([b"-1"]))
            assert told.error in NOT_ACKNOWLEDGED


# --- machines ------------------------------------------------------------------------------------


def test_cluster_survives_a_machine_crash_of_a_leader(wired: WiredCluster, topic: str) -> None:
    """What was only in its memory is gone; the others have it."""
    with under_load(wired, topic) as load:
        victim = load.leader()
        unclean = says_again(wired, victim, "unclean_start")
        with fault(wired, "machine_crash", victim):
            wait_until(lambda: wired.is_gone(victim), "its session does not end")
            load.writer.go_on(MORE)
        assert unclean()


def last_timestamp_ms(cluster: WiredCluster, topic: str) -> int:
    """Of the newest record of partition 0."""
    servers = {"bootstrap.servers": cluster.bootstrap, "group.id": topic, "log_level": 0}
    reader = Consumer(servers)
    end = end_offset(reader, TopicPartition(topic, 0))
    reader.assign([TopicPartition(topic, 0, end - 1)])
    message = reader.poll(30)
    reader.close()
    assert message is not None
    assert message.error() is None
    return int(message.timestamp()[1])


@pytest.mark.parametrize("kind", ["clock_step", "clock_step_back"])
@pytest.mark.parametrize("role", ["leader", "controller"])
def test_cluster_survives_a_changed_clock(
    patient: WiredCluster, topic: str, kind: str, role: str
) -> None:
    """By an hour, and back: no session, lag or wait uses the time of day."""
    with under_load(patient, topic) as load:
        victim = load.leader() if role == "leader" else patient.controller()
        stamped = f"{topic}-stamped"
        new = NewTopic(
            stamped,
            1,
            replica_assignment=[[victim, *others(victim)]],
            config={"message.timestamp.type": "LogAppendTime"},
        )
        load.admin.create_topics([new])[stamped].result(30)
        before = says(patient, victim, "session_ended")
        with fault(patient, kind, victim):
            load.writer.go_on(MORE)
            produce(patient, stamped, 1, [b"x"])
            shift_ms = last_timestamp_ms(patient, stamped) - last_timestamp_ms(patient, topic)
            assert abs(shift_ms) > CLOCK_STEP_S * 500
            create(patient, f"{topic}-meanwhile", 1, 3)
        load.writer.go_on(MORE)
        assert says(patient, victim, "session_ended") == before
        assert in_sync(load.admin, topic)[0] == ALL
