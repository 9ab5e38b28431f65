"""How the others learn that a broker is gone, and what each way must not do.

Sessions last ten minutes here, so their end explains nothing that is noticed.
"""

import logging
import os
import signal
import time
from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from pyrklog.peers.silence import LIMIT_MIN_SECONDS
from tests.support.cluster import BrokerCluster
from tests.support.cluster_clients import consume, create, in_sync, leaders, produce, survivor_of
from tests.support.faults.driver import FaultDriver
from tests.support.processes import children, is_running
from tests.support.waiting import wait_until

pytestmark = pytest.mark.jvm

LONG = {"zookeeper.session.timeout.ms": 600_000}
NO_WATCHDOG = {"pyrklog.failover.watchdog": False}
NO_SUSPICION = {"pyrklog.failover.suspicion": False}


def watchdog_of(cluster: BrokerCluster, number: int) -> int:
    (found,) = children(cluster.brokers[number].pid)
    return found


def test_a_killed_broker_is_gone_at_once(
    new_cluster: Callable[..., BrokerCluster], topic: str
) -> None:
    """Killed in turn, controllers included; each returns without waiting for a session."""
    cluster = new_cluster(**LONG, **NO_SUSPICION).start()
    admin = create(cluster, topic, 6, 3)
    for number in cluster.brokers:
        cluster.brokers[number].kill()
        wait_until(lambda n=number: cluster.is_gone(n), "its session does not end")  # type: ignore[misc]
        wait_until(
            lambda n=number: not {-1, n} & set(leaders(admin, topic).values()),  # type: ignore[misc]
            "not all are led",
        )
        produce(cluster, topic, 6, [b"v"])
        cluster.brokers[number].start()
        wait_until(
            lambda: all(isr == {1, 2, 3} for isr in in_sync(admin, topic).values()),
            "not all are in sync",
        )
    assert consume(cluster, topic, 18, "g") == [b"v"] * 18


def test_stalled_broker_keeps_its_session(
    new_cluster: Callable[..., BrokerCluster],
) -> None:
    """A watchdog closes the session of a process that has ended, and of no other."""
    cluster = new_cluster(**LONG, **NO_SUSPICION).start()
    still, dead = sorted(set(cluster.brokers) - {cluster.controller()})
    with FaultDriver(cluster).fault("pause", still):
        cluster.brokers[dead].kill()
        wait_until(lambda: cluster.is_gone(dead), "its session does not end")
        assert cluster.is_registered(still)


def test_an_orderly_end_needs_no_watchdog_and_leaves_none(
    new_cluster: Callable[..., BrokerCluster],
) -> None:
    cluster = new_cluster(**LONG).start()
    watchdog = watchdog_of(cluster, 2)
    assert cluster.brokers[2].stop() == 0
    wait_until(lambda: cluster.is_gone(2), "its session does not end")
    wait_until(lambda: not is_running(watchdog), "its watchdog stays")


def test_a_watchdog_that_was_killed_is_replaced(
    new_cluster: Callable[..., BrokerCluster],
) -> None:
    cluster = new_cluster(**LONG, **NO_SUSPICION).start()
    first = watchdog_of(cluster, 2)
    os.kill(first, signal.SIGKILL)
    broker = cluster.brokers[2].pid
    wait_until(lambda: bool(set(children(broker)) - {first}), "no other watchdog")
    assert cluster.is_registered(2)
    cluster.brokers[2].kill()
    wait_until(lambda: cluster.is_gone(2), "its session does not end")


def test_a_port_that_refuses_moves_leaders_and_nothing_else(
    new_cluster: Callable[..., BrokerCluster], topic: str
) -> None:
    """Suspicion alone: clean elections only, and the registration stays."""
    cluster = new_cluster(**LONG, **NO_WATCHDOG).start()
    admin = create(cluster, topic, 6, 3)
    lone = f"{topic}-lone"
    create(cluster, lone, 3, 1, options={"unclean.leader.election.enable": "true"})
    before = leaders(admin, lone)
    victim = next(n for n in cluster.brokers if n != cluster.controller())
    cluster.brokers[victim].kill()
    survivor = survivor_of(cluster.brokers[cluster.controller()].bootstrap)
    wait_until(
        lambda: not {victim, -1} & set(leaders(survivor, topic).values()), "it is not suspected"
    )
    wait_until(
        lambda: all(victim not in isr for isr in in_sync(survivor, topic).values()),
        "it stays in sync",
    )
    assert cluster.is_registered(victim)
    # A broker hides a leader that has just gone until the controller names the leader again.
    wait_until(lambda: leaders(survivor, lone) == before, "a suspicion is no proof")
    check_service_without(cluster, topic, victim, survivor)


def check_service_without(
    cluster: BrokerCluster, topic: str, victim: int, survivor: AdminClient
) -> None:
    """Records are accepted without the victim; it returns, and all of them are there."""
    produce(cluster, topic, 6, [b"v"])
    # Its own session blocks its next start, as in Kafka.
    cluster.store.delete(f"/brokers/ids/{victim}")
    cluster.brokers[victim].start()
    wait_until(
        lambda: all(isr == {1, 2, 3} for isr in in_sync(survivor, topic).values()),
        "not all are in sync",
    )
    assert consume(cluster, topic, 6, "g") == [b"v"] * 6


def die_with_watchdog(cluster: BrokerCluster, number: int) -> None:
    """Like a vanished container: nobody ends the broker's session."""
    watchdog = watchdog_of(cluster, number)
    os.kill(watchdog, signal.SIGSTOP)
    cluster.brokers[number].kill()
    os.kill(watchdog, signal.SIGKILL)


def die_without_watchdog(cluster: BrokerCluster, number: int) -> None:
    """It never had one."""
    cluster.brokers[number].kill()


@pytest.mark.parametrize(
    ("options", "die"),
    [({}, die_with_watchdog), (NO_WATCHDOG, die_without_watchdog)],
    ids=["its watchdog dies with it", "no watchdog"],
)
def test_a_controller_whose_port_refuses_is_deposed(
    new_cluster: Callable[..., BrokerCluster],
    topic: str,
    options: dict[str, object],
    die: Callable[[BrokerCluster, int], None],
) -> None:
    """Another broker leads its partitions; it stays registered, and is an ordinary suspect."""
    cluster = new_cluster(**LONG, **options).start()
    admin = create(cluster, topic, 6, 3)
    lone = f"{topic}-lone"
    create(cluster, lone, 3, 1, options={"unclean.leader.election.enable": "true"})
    before = leaders(admin, lone)
    victim = cluster.controller()
    assert victim in leaders(admin, topic).values()
    epoch = int(cluster.store.get("/controller_epoch")[0])
    die(cluster, victim)
    wait_until(lambda: cluster.controller() != victim, "it is not deposed")
    survivor = survivor_of(cluster.brokers[cluster.controller()].bootstrap)
    wait_until(lambda: not {victim, -1} & set(leaders(survivor, topic).values()), "not all are led")
    wait_until(
        lambda: all(victim not in isr for isr in in_sync(survivor, topic).values()),
        "it stays in sync",
    )
    assert cluster.is_registered(victim), "a suspicion is no proof"
    wait_until(lambda: leaders(survivor, lone) == before, "not all is named")
    assert int(cluster.store.get("/controller_epoch")[0]) == epoch + 1
    record = cluster.json("/pyrklog/deposed")
    assert (record["broker"], record["by"]) == (victim, cluster.controller())
    check_service_without(cluster, topic, victim, survivor)


def test_stalled_controller_is_deposed(
    new_cluster: Callable[..., BrokerCluster], topic: str
) -> None:
    """Two of three get no answer, and others lead its partitions. Resumed, it is an ordinary
    broker."""
    cluster = new_cluster(**LONG, **NO_WATCHDOG).start()
    admin = create(cluster, topic, 6, 3)
    victim = cluster.controller()
    assert victim in leaders(admin, topic).values()
    epoch = int(cluster.store.get("/controller_epoch")[0])
    with FaultDriver(cluster).fault("pause", victim):
        wait_until(lambda: cluster.controller() != victim, "it is not deposed")
        survivor = survivor_of(cluster.brokers[cluster.controller()].bootstrap)
        check_led_around(cluster, topic, victim, survivor)
        assert int(cluster.store.get("/controller_epoch")[0]) == epoch + 1
    check_back(cluster, topic, survivor)
    assert cluster.controller() != victim


def test_leaders_move_away_from_a_stalled_broker(
    new_cluster: Callable[..., BrokerCluster], topic: str
) -> None:
    """The controller and the third broker get no answer. A partition without other
    replicas waits."""
    cluster = new_cluster(**LONG, **NO_WATCHDOG).start()
    admin = create(cluster, topic, 6, 3)
    lone = f"{topic}-lone"
    create(cluster, lone, 3, 1, options={"unclean.leader.election.enable": "true"})
    before = leaders(admin, lone)
    victim = next(n for n in cluster.brokers if n != cluster.controller())
    survivor = survivor_of(cluster.brokers[cluster.controller()].bootstrap)
    with FaultDriver(cluster).fault("pause", victim):
        check_led_around(cluster, topic, victim, survivor)
        wait_until(lambda: leaders(survivor, lone) == before, "a suspicion is no proof")
    check_back(cluster, topic, survivor)


def test_producer_of_a_leader_that_hangs_repeats_nothing(
    new_cluster: Callable[..., BrokerCluster], topic: str
) -> None:
    """All batches come again in the producer's first epoch: a new epoch repeats what is in the
    log."""
    cluster = new_cluster(**LONG, **NO_WATCHDOG).start()
    admin = create(cluster, topic, 1, 3)
    victim = leaders(admin, topic)[0]
    other = next(number for number in cluster.brokers if number != victim)
    survivor = survivor_of(cluster.brokers[other].bootstrap)
    log = EpochLog()
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 0,
            "topic.metadata.refresh.interval.ms": 100,
            "debug": "eos",
        },
        logger=log.logger,
    )
    values = [b"%d" % number for number in range(8)]
    producer.produce(topic, values[0])
    assert producer.flush(60) == 0
    with FaultDriver(cluster).fault("pause", victim):
        producer.produce(topic, values[1])
        wait_until(lambda: leaders(survivor, topic)[0] not in {victim, -1}, "it is not led")
        for value in values[2:]:
            producer.produce(topic, value)
            producer.poll(0.3)
    assert producer.flush(60) == 0
    assert consume(cluster, topic, len(values), "g") == values
    assert not log.bumps, log.bumps


class EpochLog(logging.Handler):
    """What librdkafka says about new epochs of its producer."""

    def __init__(self) -> None:
        super().__init__()
        self.bumps: list[str] = []
        self.logger = logging.getLogger("tests.librdkafka.epochs")
        self.logger.setLevel(logging.DEBUG)
        self.logger.handlers = [self]
        self.logger.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        if "epoch bump" in record.getMessage().lower():
            self.bumps.append(record.getMessage())


def check_led_around(
    cluster: BrokerCluster, topic: str, victim: int, survivor: AdminClient
) -> None:
    """The others lead and accept records while the paused broker's session lives."""
    wait_until(lambda: not {victim, -1} & set(leaders(survivor, topic).values()), "not all are led")
    wait_until(
        lambda: all(victim not in isr for isr in in_sync(survivor, topic).values()),
        "it stays in sync",
    )
    assert cluster.is_registered(victim)
    produce(cluster, topic, 6, [b"v"])


def check_back(cluster: BrokerCluster, topic: str, survivor: AdminClient) -> None:
    """It follows, and all records are there."""
    wait_until(
        lambda: all(isr == {1, 2, 3} for isr in in_sync(survivor, topic).values()),
        "not all are in sync",
    )
    assert consume(cluster, topic, 6, "g") == [b"v"] * 6


@pytest.mark.parametrize("role", ["controller", "broker"])
def test_silence_moves_no_leader_in_a_cluster_of_two(
    new_cluster: Callable[..., BrokerCluster], topic: str, role: str
) -> None:
    """Either may be the one that is cut off. A death then shows that they observe all the time."""
    cluster = new_cluster(count=2, **LONG, **NO_WATCHDOG).start()
    admin = create(cluster, topic, 6, 2)
    controller = cluster.controller()
    other = next(n for n in cluster.brokers if n != controller)
    victim, witness = (controller, other) if role == "controller" else (other, controller)
    client = survivor_of(cluster.brokers[witness].bootstrap)
    before = leaders(admin, topic)
    node, stat = cluster.store.get("/controller")
    with FaultDriver(cluster).fault("pause", victim):
        # Four times as long as it takes to suspect one of three.
        until = time.monotonic() + 16 * LIMIT_MIN_SECONDS
        while time.monotonic() < until:
            assert leaders(client, topic) == before
        assert cluster.store.get("/controller") == (node, stat)
    cluster.brokers[victim].kill()
    wait_until(lambda: cluster.controller() == witness, "it is not deposed when it is dead")
    wait_until(lambda: set(leaders(client, topic).values()) == {witness}, "not all are led")


def test_without_suspicion_a_controller_leads_until_its_session_has_ended(
    new_cluster: Callable[..., BrokerCluster],
) -> None:
    cluster = new_cluster(**NO_WATCHDOG, **NO_SUSPICION).start()
    victim = cluster.controller()
    cluster.brokers[victim].kill()
    wait_until(lambda: cluster.controller() != victim, "no other controller")
    assert cluster.is_gone(victim)
    assert cluster.store.exists("/pyrklog/deposed") is None


def test_stalled_broker_is_not_suspected_without_a_majority(
    new_cluster: Callable[..., BrokerCluster], topic: str
) -> None:
    """Only the controller gets no answer, because the third broker is dead. A timeout is not a
    refusal."""
    cluster = new_cluster(**LONG, **NO_WATCHDOG).start()
    admin = create(cluster, topic, 6, 3)
    controller = cluster.controller()
    still, dead = sorted(set(cluster.brokers) - {controller})
    survivor = survivor_of(cluster.brokers[controller].bootstrap)
    led = [index for index, leader in leaders(admin, topic).items() if leader == still]
    with FaultDriver(cluster).fault("pause", still):
        cluster.brokers[dead].kill()
        wait_until(
            lambda: not {dead, -1} & set(leaders(survivor, topic).values()),
            "the dead one is not suspected",
        )
        found = leaders(survivor, topic)
        assert {found[index] for index in led} == {still}


def test_without_watchdog_and_suspicion_the_session_must_expire(
    new_cluster: Callable[..., BrokerCluster], topic: str
) -> None:
    timeout_s = 6.0
    session = {"zookeeper.session.timeout.ms": round(timeout_s * 1000)}
    cluster = new_cluster(**session, **NO_WATCHDOG, **NO_SUSPICION).start()
    admin = create(cluster, topic, 6, 3)
    victim = next(n for n in cluster.brokers if n != cluster.controller())
    began = time.monotonic()
    cluster.brokers[victim].kill()
    wait_until(lambda: cluster.is_gone(victim), "its session does not end")
    # ZooKeeper's last contact with it may be a third of the timeout old, and older where the
    # machine is busy.
    assert time.monotonic() - began > timeout_s / 4
    wait_until(lambda: not {victim, -1} & set(leaders(admin, topic).values()), "not all are led")
