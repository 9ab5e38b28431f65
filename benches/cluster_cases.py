"""Three brokers: replicated produce, latency, and the cost of a broker's end."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka.admin import AdminClient, NewTopic

from benches import loadgen, topics
from benches.brokers import BenchError, Broker
from benches.cluster import BROKERS, Cluster
from benches.cluster_probe import Probe
from benches.effort import Effort, Row
from benches.meter import Meter, latencies
from benches.produce_cases import IN_FLIGHT, row_of

PARTITIONS = 6
FILL_BYTES = 1_500_000_000
"""Of one replica; the cgroup holds three."""
MANY_PARTITIONS = 1_000
CROWD = 10_000
_TAIL_RATE = 500
_ADMIN_S = 180.0
_PATIENCE_S = 120.0
_SETTLE_S = 3.0
_QUIET_S = 65.0
"""Observers are patient after delays within the last minute, and their own stall counts as one."""


@dataclass(frozen=True)
class ClusterCase:
    """A named measurement of a running cluster whose memory is warm."""

    name: str
    title: str
    measure: Callable[[Cluster, Effort], Row]
    shown: tuple[str, ...]
    quick: bool = False
    only_ours: bool = False
    """Without Apache Kafka, which would take many minutes."""
    delayed: bool = False
    """ZooKeeper is a millisecond away, and the cluster is the case's own."""


def create(cluster: Cluster, topic: str, partitions: int = PARTITIONS) -> None:
    """A topic with three replicas; returns when all are in sync everywhere."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    new = NewTopic(topic, partitions, BROKERS)
    try:
        admin.create_topics([new], operation_timeout=_ADMIN_S)[topic].result(_ADMIN_S)
    except Exception as error:
        raise BenchError(f"{cluster.name} did not create {topic}: {error}") from error
    probes = [Probe(broker.port) for broker in cluster.brokers]
    wait(lambda: all(_is_whole(probe, topic, partitions) for probe in probes), "replicas in sync")
    for probe in probes:
        probe.close()


def _is_whole(probe: Probe, topic: str, partitions: int) -> bool:
    found = probe.partitions(topic)
    return len(found) == partitions and all(len(item.isr) == BROKERS for item in found.values())


def wait(condition: Callable[[], bool], what: str) -> float:
    """Polls without pause; returns the monotonic time when the condition held."""
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise BenchError(f"no {what} after {_PATIENCE_S:.0f} s")
        time.sleep(0.002)
    return time.monotonic()


def fill(cluster: Cluster, most_bytes: int) -> None:
    create(cluster, "fill")
    _load(cluster, "fill", 131_072, BROKERS, most_bytes, 120.0).result()


def _load(
    cluster: Cluster,
    topic: str,
    batch_bytes: int,
    connections: int,
    most_bytes: int,
    seconds: float,
) -> loadgen.Running:
    return loadgen.Running(
        "produce",
        cluster.bootstrap,
        topic,
        batch_bytes=batch_bytes,
        connections=connections,
        in_flight=IN_FLIGHT,
        acks="all",
        seconds=seconds,
        bytes=most_bytes,
        announce=True,
    )


def produce(batch_bytes: int, connections_per_leader: int) -> Callable[[Cluster, Effort], Row]:
    """acks=all; clock and CPU count stop when every byte of every replica is in its file."""

    def measure(cluster: Cluster, effort: Effort) -> Row:
        topic = f"replicated-{batch_bytes}-{connections_per_leader}"
        connections = BROKERS * connections_per_leader
        create(cluster, topic)
        warm = _load(
            cluster, topic, batch_bytes, connections, effort.warm_bytes // 2, effort.warm_seconds
        )
        sent = warm.result().bytes
        _wait_for_files(cluster, topic, sent)
        with _load(
            *(cluster, topic, batch_bytes, connections),
            *(effort.measure_bytes // 2, effort.measure_seconds),
        ) as running:
            running.wait_until_started()
            meter = Meter(*cluster.brokers)
            done = running.result()
        written = _wait_for_files(cluster, topic, sent + done.bytes)
        return row_of(done, written, meter)

    return measure


def _wait_for_files(cluster: Cluster, topic: str, each: int) -> float:
    return max(topics.wait_for_files(broker, topic, each, PARTITIONS) for broker in cluster.brokers)


def end_to_end(cluster: Cluster, effort: Effort) -> Row:
    """Single records at a fixed rate, acks=all, to a reader at the end of the log."""
    topic = "replicated-tail"
    create(cluster, topic, 1)

    def load(seconds: float) -> loadgen.Load:
        return loadgen.run(
            "end-to-end",
            cluster.bootstrap,
            topic,
            acks="all",
            rate=_TAIL_RATE,
            seconds=seconds,
        )

    load(effort.warm_seconds)
    meter = Meter(*cluster.brokers)
    done = load(effort.measure_seconds)
    return {**latencies(done), **meter.figures(done.seconds, done.bytes)}


# --- the end of a broker ------------------------------------------------------------------------


class _Topic:
    """A topic with very many partitions, and connections to all brokers but one."""

    def __init__(self, cluster: Cluster, name: str, without: Broker) -> None:
        self._name = name
        self._gone = cluster.brokers.index(without) + 1
        self._probes = {
            number: Probe(broker.port)
            for number, broker in enumerate(cluster.brokers, start=1)
            if broker is not without
        }

    def is_led_by_others(self) -> bool:
        """Whether every survivor names other leaders, and these serve."""
        led: dict[int, list[int]] = {}
        for probe in self._probes.values():
            led = {}
            for index, partition in probe.partitions(self._name).items():
                if partition.leader in (-1, self._gone):
                    return False
                led.setdefault(partition.leader, []).append(index)
        return all(self._probes[leader].leads(self._name, own) for leader, own in led.items())

    def is_whole(self) -> bool:
        """Whether every replica of every partition is in sync, for every survivor."""
        return all(
            len(partition.isr) == BROKERS
            for probe in self._probes.values()
            for partition in probe.partitions(self._name).values()
        )

    def close(self) -> None:
        for probe in self._probes.values():
            probe.close()


def _controller(cluster: Cluster) -> Broker:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    number = int(admin.describe_cluster(request_timeout=30).result().controller.id)
    return cluster.brokers[number - 1]


def _victim(cluster: Cluster, topic: str) -> Broker:
    """The broker that leads most, except the controller."""
    controller = _controller(cluster)
    probe = Probe(controller.port)
    leaders = [partition.leader for partition in probe.partitions(topic).values()]
    probe.close()
    candidates = [
        number for number, broker in enumerate(cluster.brokers, start=1) if broker is not controller
    ]
    return cluster.brokers[max(candidates, key=leaders.count) - 1]


def failover(cluster: Cluster, effort: Effort) -> Row:
    """1,000 partitions: a broker other than the controller is killed, started, and shut down.

    ``led_s``: until survivors name other leaders for all partitions, and these serve;
    ``in_sync_s``: from the start of the process until every replica is in sync; ``moved_s`` and
    ``gone_s``: from SIGTERM until others lead, and until the process has ended. Medians of several
    rounds.
    """
    topic = "failover"
    create(cluster, topic, MANY_PARTITIONS)
    rounds = [_round(cluster, topic) for _ in range(3 if effort.pairs > 1 else 1)]
    return {
        name: statistics.median(one[name] for one in rounds)
        for name in ("led_s", "in_sync_s", "moved_s", "gone_s")
    } | {"partitions": MANY_PARTITIONS}


def _round(cluster: Cluster, name: str) -> Row:
    killed = _victim(cluster, name)
    topic = _Topic(cluster, name, killed)
    time.sleep(_SETTLE_S)
    began = time.monotonic()
    killed.kill_alone()
    led = wait(topic.is_led_by_others, "leaders") - began
    time.sleep(_SETTLE_S)
    began = time.monotonic()
    cluster.start_one(killed)
    in_sync = wait(topic.is_whole, "replicas in sync") - began
    topic.close()
    time.sleep(_SETTLE_S)
    return {"led_s": led, "in_sync_s": in_sync, **_end_in_order(cluster, name)}


def _end_in_order(cluster: Cluster, name: str) -> Row:
    leaving = _victim(cluster, name)
    topic = _Topic(cluster, name, leaving)
    began = time.monotonic()
    leaving.ask_to_stop()
    moved = wait(topic.is_led_by_others, "leaders") - began
    leaving.stop()
    gone = time.monotonic() - began
    cluster.start_one(leaving)
    wait(topic.is_whole, "replicas in sync")
    topic.close()
    return {"moved_s": moved, "gone_s": gone}


def silence(cluster: Cluster, effort: Effort) -> Row:
    """1,000 partitions, default sessions: a broker stands still (SIGSTOP), then the controller.

    ``led_s`` and ``controller_led_s``: until survivors name other leaders for all partitions, and
    these serve; ``in_sync_s``: from SIGCONT until every replica is in sync. Medians of several
    rounds.
    """
    topic = "silence"
    create(cluster, topic, MANY_PARTITIONS)
    rounds = []
    time.sleep(_QUIET_S)
    for _ in range(3 if effort.pairs > 1 else 1):
        led, in_sync = _stand_still(cluster, topic, _victim(cluster, topic))
        controller_led, _ = _stand_still(cluster, topic, _controller(cluster))
        rounds.append({"led_s": led, "controller_led_s": controller_led, "in_sync_s": in_sync})
    return {
        name: statistics.median(one[name] for one in rounds)
        for name in ("led_s", "controller_led_s", "in_sync_s")
    } | {"partitions": MANY_PARTITIONS}


def _stand_still(cluster: Cluster, name: str, victim: Broker) -> tuple[float, float]:
    """Seconds until others lead, and from SIGCONT until all are in sync."""
    topic = _Topic(cluster, name, victim)
    time.sleep(_SETTLE_S)
    began = time.monotonic()
    victim.pause()
    try:
        led = wait(topic.is_led_by_others, "leaders") - began
    finally:
        began = time.monotonic()
        victim.go_on()
    in_sync = wait(topic.is_whole, "replicas in sync") - began
    topic.close()
    # The next round starts like this one: trusted, and without recent delays.
    time.sleep(_QUIET_S)
    return led, in_sync


def controller_failover(cluster: Cluster, effort: Effort) -> Row:
    """10,000 partitions, ZooKeeper a millisecond away: the controller itself is killed."""
    topic = "crowd"
    create(cluster, topic, CROWD)
    led = []
    for _ in range(3 if effort.pairs > 1 else 1):
        controller = _controller(cluster)
        seen = _Topic(cluster, topic, controller)
        time.sleep(_SETTLE_S)
        began = time.monotonic()
        controller.kill_alone()
        led.append(wait(seen.is_led_by_others, "leaders") - began)
        time.sleep(_SETTLE_S)
        cluster.start_one(controller)
        wait(seen.is_whole, "replicas in sync")
        seen.close()
    return {"led_s": statistics.median(led), "partitions": CROWD}


def _produced(short: str, batch_bytes: int, connections: int) -> ClusterCase:
    size = f"{batch_bytes // 1024} KB"
    plural = "" if connections == 1 else "s"
    return ClusterCase(
        f"cluster-{short}-{connections}",
        f"three replicas, acks=all, {size}, {connections} connection{plural} a leader",
        produce(batch_bytes, connections),
        shown=("mb_per_s", "cpu_s_per_gb", "p99_ms"),
        quick=short == "16k" and connections == 1,
    )


CLUSTER_CASES = (
    _produced("16k", 16_384, 1),
    _produced("16k", 16_384, 3),
    _produced("128k", 131_072, 1),
    ClusterCase(
        "cluster-tail",
        "three replicas, acks=all, end to end at 500/s",
        end_to_end,
        shown=("p50_ms", "p99_ms", "p99.9_ms", "cpu_percent"),
    ),
    ClusterCase(
        "cluster-failover",
        "a broker of three is killed, started, ended; 1,000 partitions",
        failover,
        shown=("led_s", "in_sync_s", "moved_s", "gone_s"),
    ),
    ClusterCase(
        "cluster-silence",
        "a broker of three stands still, then the controller; 1,000 partitions",
        silence,
        shown=("led_s", "controller_led_s", "in_sync_s"),
        only_ours=True,
    ),
    ClusterCase(
        "cluster-controller",
        "the controller is killed; 10,000 partitions, ZooKeeper 1 ms away",
        controller_failover,
        shown=("led_s",),
        only_ours=True,
        delayed=True,
    ),
)
