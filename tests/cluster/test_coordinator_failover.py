"""A group's coordinator is killed, and another broker takes the group over.

The brokers advertise proxies, so that a test sees the traffic of clients and can kill in the middle
of it.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, NamedTuple

import pytest
from confluent_kafka import (
    ConsumerGroupState,
    ElectionType,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from pyrklog.errors import ErrorCode
from pyrklog.groups.partitioner import OFFSETS_TOPIC, partition_for
from pyrklog.protocol.api import Api
from pyrklog.protocol.coordinators import FIND_COORDINATOR, FindCoordinatorRequest
from pyrklog.protocol.group_records import (
    OffsetKey,
    OffsetValue,
    encode_offset_key,
    encode_offset_value,
)
from pyrklog.protocol.groups import HEARTBEAT, JOIN_GROUP, HeartbeatRequest
from pyrklog.protocol.offsets import OFFSET_FETCH, OffsetFetchRequest, OffsetFetchRequestTopic
from pyrklog.testing.broker import free_port
from tests.support.cluster import BrokerCluster
from tests.support.cluster_clients import create, in_sync, leaders
from tests.support.generations import check_generations
from tests.support.groups import ConfluentMember, Crew, KafkaPythonMember, Member, fill
from tests.support.raw_client import RawClient
from tests.support.rebalance_phases import PHASES, Condition, Phase
from tests.support.waiting import PATIENCE_S, wait_until
from tests.support.watching_proxy import Passing, WatchingProxy
from tests.support.zookeeper_server import ZooKeeperServer

pytestmark = pytest.mark.jvm

ALL = {1, 2, 3}
OFFSETS_PARTITIONS = 3
PARTITIONS = 6
EACH = 10
OFFSETS_LOADED = 1_500_000
WRITTEN_S = 150.0
"""A busy machine takes long for so many records in three replicas."""
OPTIONS: dict[str, Any] = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": OFFSETS_PARTITIONS,
    # A read for each batch makes a load that can be watched.
    "offsets.load.buffer.size": 1,
}


class Watched:
    """A cluster whose clients go through proxies; ``on_frame`` sees every frame."""

    def __init__(self, cluster: BrokerCluster) -> None:
        self.cluster = cluster
        self.on_frame: list[Callable[[int, Passing], None]] = []
        self._dead: set[int] = set()
        self._ports = {number: free_port() for number in cluster.brokers}
        self._proxies: dict[int, WatchingProxy] = {}
        for number, port in self._ports.items():
            advertised = f"PLAINTEXT://127.0.0.1:{port}"
            cluster.brokers[number].options["advertised.listeners"] = advertised
            self._open(number)
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in self._ports.values())
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap})

    def _open(self, number: int) -> None:
        target = self.cluster.brokers[number].bootstrap
        watch = partial(self._passes, number)
        self._proxies[number] = WatchingProxy(target, self._ports[number], watch)
        self._proxies[number].__enter__()

    def close(self) -> None:
        for proxy in self._proxies.values():
            proxy.__exit__()
        self.cluster.close()

    def kill(self, number: int) -> None:
        """Kills a broker; its address then refuses connections, as a dead broker's does."""
        self._dead.add(number)
        self.cluster.brokers[number].kill()
        self._proxies[number].stop()

    def _passes(self, broker: int, passing: Passing) -> None:
        for watch in list(self.on_frame):
            watch(broker, passing)

    def coordinator(self, group: str) -> int:
        """The leader of the group's partition, once all replicas are in sync."""
        wait_until(self._is_whole, "not every replica is in sync")
        return leaders(self.admin, OFFSETS_TOPIC)[partition_for(group, OFFSETS_PARTITIONS)]

    def heir(self, group: str, victim: int) -> int:
        """Who leads the group's partition instead of a dead broker: not everybody hears of it at
        the same moment."""
        place = partition_for(group, OFFSETS_PARTITIONS)

        def other() -> int | None:
            leader = leaders(self.admin, OFFSETS_TOPIC)[place]
            return leader if leader in ALL - {victim} else None

        return wait_until(other, "nobody is told as its heir")

    def _is_whole(self) -> bool:
        found = in_sync(self.admin, OFFSETS_TOPIC)
        return len(found) == OFFSETS_PARTITIONS and all(isr == ALL for isr in found.values())

    def create(self, topic: str) -> None:
        create(self.cluster, topic, PARTITIONS, 3, bootstrap=self.bootstrap)
        fill(self.bootstrap, topic, PARTITIONS, EACH)

    def start_again(self) -> None:
        """Starts killed brokers; each leads a partition of the offsets again."""
        if not self._dead:
            return
        for number in self._dead:
            self._proxies[number].__exit__()
            self._open(number)
            self.cluster.brokers[number].start()
        self._dead.clear()
        wait_until(self._is_whole, "it does not come back")
        places = [TopicPartition(OFFSETS_TOPIC, p) for p in range(OFFSETS_PARTITIONS)]

        def is_spread() -> bool:
            # The controller may have been killed, and librdkafka finds another one later.
            with suppress(KafkaException):
                self.admin.elect_leaders(ElectionType.PREFERRED, places).result(30)
            return set(leaders(self.admin, OFFSETS_TOPIC).values()) == ALL

        wait_until(is_spread, "the preferred leaders do not lead")


@pytest.fixture
def watched(all_tests: Watched) -> Iterator[Watched]:
    """Three running brokers: killed ones are started again, even after a failed test."""
    yield all_tests
    all_tests.on_frame.clear()
    all_tests.start_again()


@pytest.fixture(scope="module")
def all_tests(
    zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Watched]:
    """One cluster for all tests here."""
    folder = tmp_path_factory.mktemp("coordinators")
    cluster = BrokerCluster(f"{zookeeper.address}/coordinators", folder, **OPTIONS)
    running = Watched(cluster)
    try:
        cluster.start()
        with RawClient(cluster.brokers[1].bootstrap) as raw:
            wait_until(lambda: _is_found(raw), "there is no offsets topic")
        yield running
    finally:
        running.close()


def _is_found(raw: RawClient) -> bool:
    """Whether a coordinator is found; the first request creates the topic."""
    found = raw.ask(FIND_COORDINATOR, 2, FindCoordinatorRequest("first"))
    return bool(found.error_code == ErrorCode.NONE)


def member(watched: Watched, group: str, topic: str, **options: Any) -> ConfluentMember:
    settings = {"partition_assignment_strategy": "range", "heartbeat_interval_ms": 300}
    return ConfluentMember(watched.bootstrap, group, topic, **settings | options)


@pytest.mark.parametrize("condition", PHASES)
def test_killed_in_a_phase_of_a_rebalance(
    watched: Watched, topic: str, condition: Condition
) -> None:
    """The two others then share the whole group, with its offsets."""
    watched.create(topic)
    group = topic
    phase = Phase(condition)
    killed = threading.Event()
    members: list[Member] = [
        member(watched, group, topic),
        KafkaPythonMember(watched.bootstrap, group, topic, heartbeat_interval_ms=300),
    ]
    with Crew(*members) as crew:
        crew.poll_until(lambda: crew.owns_all(PARTITIONS), "two share")
        crew.poll_until(lambda: len(crew.seen) >= PARTITIONS * EACH, "everything read")
        mine = crew.members[0].assigned()
        crew.members[0].commit(dict.fromkeys(mine, 4), "before the kill")
        victim = watched.coordinator(group)

        def watch(broker: int, passing: Passing) -> None:
            if broker == victim and not killed.is_set() and phase.is_reached(passing):
                watched.kill(victim)
                killed.set()

        watched.on_frame.append(watch)
        try:
            crew.members.append(member(watched, group, topic))
            crew.poll_until(killed.is_set, "the phase")
            crew.poll_until(lambda: crew.owns_all(PARTITIONS), "three share")
        finally:
            watched.on_frame.remove(watch)
        fill(watched.bootstrap, topic, PARTITIONS, EACH, first=EACH)
        due = {f"{p}:{EACH + n}" for p in range(PARTITIONS) for n in range(EACH)}
        crew.poll_until(lambda: due <= set(crew.seen), "the new ones")
        for partition in mine:
            assert crew.members[2].committed(partition) == (4, "before the kill")
        crew.members[2].commit({crew.members[2].assigned()[0]: 2 * EACH}, "after")
        described: Any = None

        def is_stable() -> bool:
            """A request that nobody answered may make a member join once more."""
            nonlocal described
            with suppress(KafkaException):  # the coordinator may be told as the dead broker still
                described = watched.admin.describe_consumer_groups([group])[group].result(30)
            return described is not None and described.state is ConsumerGroupState.STABLE

        crew.poll_until(is_stable, "the group stands")
        assert len(described.members) == 3
        assert described.coordinator.id != victim
    watched.start_again()
    check_generations(watched.bootstrap, topic, {group: 2}, OFFSETS_PARTITIONS)


class Beat(NamedTuple):
    generation: int
    member_id: str


class Beats:
    """A group's heartbeats so far, and its number of JoinGroups."""

    def __init__(self, group: str) -> None:
        self.joins = 0
        self.seen: dict[int, set[Beat]] = {}
        self._group = group

    def watch(self, broker: int, passing: Passing) -> None:
        if not passing.is_request:
            return
        if passing.api_key == JOIN_GROUP.key:
            self.joins += 1
        elif passing.api_key == HEARTBEAT.key:
            request = HEARTBEAT.decode_request(*_body(HEARTBEAT, passing))
            if request.group_id == self._group:
                beat = Beat(request.generation_id, request.member_id)
                self.seen.setdefault(broker, set()).add(beat)


def _body(api: Api[Any, Any], passing: Passing) -> tuple[bytes, int]:
    """A request without its header, and its version."""
    at = 8
    (length,) = struct.unpack_from(">h", passing.payload, at)
    at += 2 + max(length, 0) + (passing.version >= api.flexible_since)
    return passing.payload[at:], passing.version


def test_a_group_is_taken_over_as_it_is(watched: Watched, topic: str) -> None:
    """The same generation and members; nobody joins again, nothing is reassigned."""
    create(watched.cluster, topic, PARTITIONS, 3, bootstrap=watched.bootstrap)
    group = topic
    patient = {"session_timeout_ms": 30_000}
    first, second = (member(watched, group, topic, **patient) for _ in range(2))
    with Crew(first, second) as crew:
        crew.poll_until(lambda: crew.owns_all(PARTITIONS), "two share")
        # Not earlier: if the first member began alone, its records are read again.
        fill(watched.bootstrap, topic, PARTITIONS, EACH)
        crew.poll_until(lambda: len(crew.seen) >= PARTITIONS * EACH, "everything read")
        shares = [one.assigned() for one in (first, second)]
        first.commit(dict.fromkeys(shares[0], 4), "before the kill")
        victim = watched.coordinator(group)
        before = Beats(group)
        watched.on_frame.append(before.watch)
        crew.poll_until(lambda: len(before.seen.get(victim, ())) == 2, "two heartbeats")
        events = [list(first.events), list(second.events)]
        watched.on_frame[:] = [(after := Beats(group)).watch]
        try:
            watched.kill(victim)
            rest = ALL - {victim}
            crew.poll_until(
                lambda: any(len(after.seen.get(one, ())) == 2 for one in rest), "two heartbeats"
            )
            fill(watched.bootstrap, topic, PARTITIONS, EACH, first=EACH)
            crew.poll_until(lambda: len(crew.seen) >= 2 * PARTITIONS * EACH, "the new ones")
        finally:
            watched.on_frame.clear()
        assert set().union(*after.seen.values()) == before.seen[victim]
        assert after.joins == 0
        assert [one.assigned() for one in (first, second)] == shares
        assert [first.events, second.events] == events
        assert len(crew.seen) == 2 * PARTITIONS * EACH, "something was read again"
        assert second.committed(shares[0][0]) == (4, "before the kill")
        (generation,) = {beat.generation for beat in before.seen[victim]}
        heir = watched.heir(group, victim)
        with RawClient(watched.cluster.brokers[heir].bootstrap) as raw:
            for beat in before.seen[victim]:
                request = HeartbeatRequest(group, generation, beat.member_id)
                assert raw.ask(HEARTBEAT, 2, request).error_code == ErrorCode.NONE


def test_loading_coordinator_answers_load_in_progress_and_serves_the_rest(
    watched: Watched, topic: str
) -> None:
    """COORDINATOR_LOAD_IN_PROGRESS for the groups of the partition that it loads; others are served
    meanwhile, and then these, too, with their last offsets."""
    place = partition_for(topic, OFFSETS_PARTITIONS)
    victim = watched.coordinator(topic)
    _commit_many(watched, topic, place)
    heirs = [one for one in sorted(ALL) if one != victim]
    elsewhere = {
        heir: next(
            name
            for name in (f"{topic}-{n}" for n in range(1_000))
            if leaders(watched.admin, OFFSETS_TOPIC)[partition_for(name, OFFSETS_PARTITIONS)]
            == heir
        )
        for heir in heirs
    }
    told: dict[int, list[int]] = {heir: [] for heir in heirs}
    others: set[int] = set()
    offset = -1
    with ExitStack() as closed:
        raw_clients = {
            heir: closed.enter_context(RawClient(watched.cluster.brokers[heir].bootstrap))
            for heir in heirs
        }
        for heir, raw in raw_clients.items():
            # It may have become the leader of that one just now.
            wait_until(partial(_is_served, raw, elsewhere[heir]), f"broker {heir} serves no group")
        watched.kill(victim)
        deadline = time.monotonic() + PATIENCE_S
        while offset < 0:
            # Without a pause: a load is short.
            assert time.monotonic() < deadline, told
            for heir, raw in raw_clients.items():
                error, found = _fetch_offset(raw, topic)
                if error not in (ErrorCode.NOT_COORDINATOR, *told[heir][-1:]):
                    told[heir].append(error)
                if error == ErrorCode.NONE:
                    offset = found
                if error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                    others.add(_fetch_offset(raw, elsewhere[heir])[0])
    assert sorted(told.values()) == [
        [],
        [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE],
    ]
    assert others == {ErrorCode.NONE}
    assert offset == OFFSETS_LOADED - 1


def test_a_coordinator_keeps_its_groups_when_another_broker_dies(
    watched: Watched, topic: str
) -> None:
    """Its partition has a new epoch and a smaller ISR, but the same leader: nothing is loaded
    again, and no commit fails that waits for the dead broker's copy."""
    watched.create(topic)
    coordinator = watched.coordinator(topic)
    victim = min(ALL - {coordinator})
    place = partition_for(topic, OFFSETS_PARTITIONS)
    dead = threading.Event()

    def kill() -> None:
        watched.kill(victim)
        dead.set()

    with Crew(member(watched, topic, topic)) as crew:
        crew.poll_until(lambda: crew.owns_all(PARTITIONS), "one has all")
        unloaded = [_has_unloaded(watched, coordinator, place)]
        killer = threading.Thread(target=kill)
        killer.start()
        done = 0
        while not (dead.is_set() and in_sync(watched.admin, OFFSETS_TOPIC)[place] < ALL):
            for _ in range(20):
                done += 1
                crew.members[0].commit({0: done}, "")
        killer.join()
        assert crew.members[0].committed(0) == (done, "")
        unloaded.append(_has_unloaded(watched, coordinator, place))
    assert unloaded[0] == unloaded[1]


def _has_unloaded(watched: Watched, broker: int, place: int) -> int:
    event = '"event": "offsets_partition_unloaded"'
    log = list(watched.cluster.brokers[broker].log)
    return sum(event in line and f'"partition": {place},' in line for line in log)


def _commit_many(watched: Watched, group: str, place: int) -> None:
    """A long history of a group, written as its coordinator would: faster than by commits."""
    failed: list[object] = []
    # Other clients may not write to internal topics.
    producer = Producer(
        {
            "bootstrap.servers": watched.bootstrap,
            "client.id": "__admin_client",
            "queue.buffering.max.messages": OFFSETS_LOADED,
        }
    )
    key = encode_offset_key(OffsetKey(group, "t", 0))
    now_ms = int(time.time() * 1000)
    for offset in range(OFFSETS_LOADED):
        if offset % 10_000 == 0:
            producer.poll(0)
        producer.produce(
            OFFSETS_TOPIC,
            encode_offset_value(OffsetValue(offset, -1, "", now_ms)),
            key,
            partition=place,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(WRITTEN_S) == 0
    assert not failed


def _is_served(raw: RawClient, group: str) -> bool:
    return _fetch_offset(raw, group)[0] == ErrorCode.NONE


def _fetch_offset(raw: RawClient, group: str) -> tuple[int, int]:
    """Error and committed offset of partition 0 of topic "t"."""
    request = OffsetFetchRequest(group, [OffsetFetchRequestTopic("t", [0])])
    answer = raw.ask(OFFSET_FETCH, 5, request)
    if answer.error_code != ErrorCode.NONE:
        return answer.error_code, -1
    (one,) = answer.topics[0].partitions
    return one.error_code, one.committed_offset
