"""A cluster of hundreds of brokers in a time of its own: the real controller's decisions, and
replicas that copy at a known rate."""

import random
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from pyrklog.balance.model import Broker, Cluster, Partition, PartitionKey, Replicas
from pyrklog.cli.connection import Connection
from pyrklog.cli.reassign_cluster import ReassignmentAdmin
from pyrklog.cluster.requests import (
    AlterPartitionRequest,
    ControlRequest,
    IsrChange,
    IsrChangeResult,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LiveBroker,
    Refusal,
    StopReplicaRequest,
    StopReplicaResponse,
    TopicPartition,
)
from pyrklog.controller.effects import (
    ReadMinimums,
    ReadStates,
    ReadUnclean,
    Send,
    Snapshot,
    Steps,
    WriteAssignments,
    WriteStates,
)
from pyrklog.controller.machine import Controller
from pyrklog.errors import ErrorCode
from pyrklog.metastore.znodes import Leadership, TopicAssignment
from pyrklog.plane.values import BrokerImage
from pyrklog.protocol.reassignments import OngoingPartitionReassignment

PARTITIONS_A_TOPIC = 100
RACKS = 10
REPLICAS = 3
STEP_S = 0.5
START_S = 1.0
"""From the begin of a move to its first bytes."""
SHARING_ROUNDS = 6
"""Rounds in which brokers offer what others have not taken."""
CATCH_UP_S = 10.0
"""From a broker's return until its replicas are in sync again."""
SEED = 27


@dataclass(frozen=True)
class Scale:
    """``rate_bytes``: what each broker takes, and gives, a second for copies."""

    brokers: int = 200
    added: int = 20
    partitions: int = 10_000
    mean_bytes: float = 0.4e9
    rate_bytes: int = 80_000_000
    written_bytes: float = 20_000.0
    """A second, to each partition."""
    dead_s: float = 30.0


@dataclass
class Spent:
    """Of the controller. ``longest_s``: one event."""

    cpu_s: float = 0.0
    longest_s: float = 0.0
    events: int = 0
    requests: int = 0


class Store:
    """Carries out the controller's steps; brokers obey at once."""

    def __init__(self) -> None:
        self.controller = Controller(1, 7, delete_topic_enable=True)
        self.topics: dict[str, TopicAssignment] = {}
        self.states: dict[TopicPartition, tuple[Leadership, int]] = {}
        self.spent = Spent()
        self._sent: list[tuple[int, ControlRequest]] = []

    def run(self, steps: Steps) -> None:
        """All steps, and those of the brokers' answers."""
        begun = time.process_time()
        self._run(steps)
        while self._sent:
            sent, self._sent = self._sent, []
            self.spent.requests += len(sent)
            for broker, request in sent:
                self._answer(broker, request)
        lasted = time.process_time() - begun
        self.spent.cpu_s += lasted
        self.spent.longest_s = max(self.spent.longest_s, lasted)
        self.spent.events += 1

    def _answer(self, broker: int, request: ControlRequest) -> None:
        if isinstance(request, LeaderAndIsrRequest):
            led = {
                (topic.topic, one.partition): ErrorCode.NONE
                for topic in request.topics
                for one in topic.partitions
            }
            told = LeaderAndIsrResponse(ErrorCode.NONE, led)
            self._run(self.controller.leader_and_isr_answered(broker, told))
        elif isinstance(request, StopReplicaRequest):
            stopped = {(one.topic, one.partition): ErrorCode.NONE for one in request.replicas}
            answer = StopReplicaResponse(ErrorCode.NONE, stopped)
            self._run(self.controller.stop_replica_answered(broker, answer))

    def _run(self, steps: Steps) -> None:
        result: object = None
        while True:
            try:
                effect = steps.send(result)
            except StopIteration:
                return
            match effect:
                case WriteStates(writes):
                    result = {write.key: self._write(write) for write in writes}
                case ReadStates(keys):
                    result = {key: self.states[key] for key in keys if key in self.states}
                case ReadUnclean(_):
                    result = frozenset()
                case ReadMinimums(topics):
                    result = dict.fromkeys(topics, 1)
                case WriteAssignments(topic, assignments):
                    result = self._assign(topic, assignments)
                case Send(broker, request):
                    self._sent.append((broker, request))
                    result = None
                case _:
                    result = None

    def _write(self, write: Any) -> int | None:
        current = self.states.get(write.key)
        version = -1 if current is None else current[1]
        if version != write.expected_version:
            return None
        self.states[write.key] = (write.leadership, version + 1)
        return version + 1

    def _assign(self, topic: str, assignments: Mapping[int, Any]) -> ErrorCode:
        node = self.topics[topic]
        adding = {key: one for key, one in node.adding.items() if key not in assignments}
        removing = {key: one for key, one in node.removing.items() if key not in assignments}
        self.topics[topic] = TopicAssignment(
            node.topic_id,
            {**node.replicas, **{key: one.replicas for key, one in assignments.items()}},
            adding | {key: one.adding for key, one in assignments.items() if one.adding},
            removing | {key: one.removing for key, one in assignments.items() if one.removing},
        )
        return ErrorCode.NONE


@dataclass
class World:
    """``there``: bytes of new replicas. ``deaths``: brokers by the time at which they die."""

    scale: Scale
    deaths: Mapping[int, float] = field(default_factory=dict)
    now_s: float = 0.0
    moved_bytes: float = 0.0
    there: dict[tuple[PartitionKey, int], float] = field(default_factory=dict)
    store: Store = field(default_factory=Store)
    begun: dict[PartitionKey, float] = field(default_factory=dict)
    """When moves began."""

    def __post_init__(self) -> None:
        dice = random.Random(SEED)
        brokers, scale = self.scale.brokers, self.scale
        # So that no partition comes around to its first broker.
        steps = min(7, (brokers - 1) // (REPLICAS - 1))
        self.racks = {one: f"rack{one % RACKS}" for one in self.numbers}
        self.sizes: dict[PartitionKey, float] = {}
        self.rates: dict[PartitionKey, float] = {}
        replicas: dict[str, dict[int, Replicas]] = {}
        for index in range(scale.partitions):
            key = f"t{index // PARTITIONS_A_TOPIC}", index % PARTITIONS_A_TOPIC
            first, step = index % brokers, 1 + index // brokers % steps
            members = tuple((first + step * place) % brokers + 1 for place in range(REPLICAS))
            spread = dice.lognormvariate(-0.5, 1)
            self.sizes[key] = scale.mean_bytes * spread
            self.rates[key] = scale.written_bytes * dice.lognormvariate(-0.5, 1)
            replicas.setdefault(key[0], {})[key[1]] = members
            self.store.states[key] = (Leadership(members[0], 1, members, 6), 1)
        for number, (topic, members_of) in enumerate(replicas.items()):
            topic_id = number.to_bytes(16, "big")
            self.store.topics[topic] = TopicAssignment(topic_id, members_of, {}, {})
        self._dead: set[int] = set()
        self._returned: dict[int, float] = {}
        self._epochs = dict.fromkeys(self.numbers, 1)
        snapshot = Snapshot(dict(self.store.topics), dict(self.store.states), [], (), {})
        self.store.run(self.store.controller.start(self._live(), snapshot))
        self.store.spent = Spent()

    @property
    def numbers(self) -> range:
        return range(1, self.scale.brokers + self.scale.added + 1)

    @property
    def fresh(self) -> range:
        return range(self.scale.brokers + 1, self.scale.brokers + self.scale.added + 1)

    def size(self, key: PartitionKey) -> float:
        return self.sizes[key] + self.rates[key] * self.now_s

    def cluster(self) -> Cluster:
        """As a command measures it."""
        partitions = {}
        for topic, node in self.store.topics.items():
            for index, members in node.replicas.items():
                key = topic, index
                leadership = self.store.states[key][0]
                partitions[key] = Partition(
                    members,
                    int(self.size(key)),
                    self.rates[key],
                    leader=leadership.leader,
                    isr=leadership.isr,
                )
        return Cluster({one: Broker(one, self.racks[one]) for one in self.numbers}, partitions)

    def pass_(self, seconds: float) -> None:
        """Time goes on."""
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            step_s = min(STEP_S, until_s - self.now_s)
            self.now_s += step_s
            self._live_and_die()
            moving = self.store.controller.reassignments.list(None)
            if moving:
                self._copy(moving, step_s)
                self._join(moving)

    def _live(self) -> dict[int, LiveBroker]:
        return {
            one: LiveBroker(
                BrokerImage(one, self.racks[one], [("PLAINTEXT", f"host{one}", 9092)]),
                1000 * self._epochs[one] + one,
            )
            for one in self.numbers
            if one not in self._dead
        }

    def _live_and_die(self) -> None:
        dead = {
            broker
            for broker, at_s in self.deaths.items()
            if at_s <= self.now_s < at_s + self.scale.dead_s
        }
        if dead != self._dead:
            for broker in self._dead - dead:
                self._epochs[broker] += 1
                self._returned[broker] = self.now_s
            for broker in dead:
                self._returned.pop(broker, None)
            self._dead = dead
            self.store.run(self.store.controller.brokers_changed(self._live()))
        for broker, at_s in list(self._returned.items()):
            if self.now_s >= at_s + CATCH_UP_S:
                self._propose((key, broker) for key in self._behind(broker))
                # A leader may be away itself.
                if not self._behind(broker):
                    del self._returned[broker]

    def _behind(self, broker: int) -> list[PartitionKey]:
        """Where it has a replica that is not in sync; without those that are being added."""
        return [
            key
            for key, (leadership, _) in self.store.states.items()
            if broker in self.store.topics[key[0]].replicas[key[1]]
            and broker not in leadership.isr
            and broker not in self.store.topics[key[0]].adding.get(key[1], ())
        ]

    def _copy(self, moving: Mapping[PartitionKey, Any], step_s: float) -> None:
        """Each broker shares its rate among those it copies with, and what one does not take is
        offered to the others again."""
        flows: dict[tuple[int, int], list[PartitionKey]] = {}
        for key, one in moving.items():
            leader = self.store.states[key][0].leader
            if self.now_s - self.begun[key] <= START_S:
                continue
            for target in one.adding:
                if leader < 0 or {leader, target} & self._dead:
                    continue
                if self.there.get((key, target), 0.0) < self.size(key):
                    flows.setdefault((leader, target), []).append(key)
        room: dict[tuple[str, int], float] = {}
        for source, target in flows:
            room["out", source] = room["in", target] = self.scale.rate_bytes * step_s
        for _ in range(SHARING_ROUNDS):
            wanted: dict[tuple[str, int], int] = {}
            for source, target in flows:
                for end in (("out", source), ("in", target)):
                    wanted[end] = wanted.get(end, 0) + 1
            shares = {
                pair: min(
                    room["out", pair[0]] / wanted["out", pair[0]],
                    room["in", pair[1]] / wanted["in", pair[1]],
                )
                for pair in flows
            }
            for pair, share in shares.items():
                used = self._take(flows[pair], pair[1], share)
                room["out", pair[0]] -= used
                room["in", pair[1]] -= used
            flows = {pair: keys for pair, keys in flows.items() if keys}

    def _take(self, keys: list[PartitionKey], target: int, share: float) -> float:
        """What has all is no longer among the keys. Returns what was taken."""
        left = share
        while keys and left > 0:
            key = keys[-1]
            there = self.there.get((key, target), 0.0)
            got = min(left, self.size(key) - there)
            self.there[key, target] = there + got
            left -= got
            if there + got >= self.size(key) - 1:
                keys.pop()
        self.moved_bytes += share - left
        return share - left

    def _join(self, moving: Mapping[PartitionKey, Any]) -> None:
        self._propose(
            (key, target)
            for key, one in moving.items()
            for target in one.adding
            if target not in self._dead
            and target not in self.store.states[key][0].isr
            and self.there.get((key, target), 0.0) >= self.size(key) - self.rates[key]
        )

    def _propose(self, joining: Iterable[tuple[PartitionKey, int]]) -> None:
        """Leaders tell the controller that these are in sync."""
        found: dict[int, dict[PartitionKey, list[int]]] = {}
        for key, broker in joining:
            leader = self.store.states[key][0].leader
            if leader >= 0 and leader not in self._dead:
                found.setdefault(leader, {}).setdefault(key, []).append(broker)
        controller = self.store.controller
        for leader, keys in found.items():
            changes = []
            for key, brokers in keys.items():
                partition = controller.state.partition(key)
                assert partition is not None
                assert partition.leadership is not None
                isr = [(one, -1) for one in (*partition.leadership.isr, *brokers)]
                epochs = partition.leadership.leader_epoch, partition.partition_epoch
                changes.append(IsrChange(partition.topic.id, key[1], *epochs, isr, 0))
            results: list[IsrChangeResult] = []
            request = AlterPartitionRequest(leader, -1, changes)
            self.store.run(controller.alter_partitions(request, results))


class WorldAdmin(ReassignmentAdmin):
    """What commands ask brokers, answered by the world."""

    def __init__(self, world: World) -> None:
        self._world = world

    @property
    def _topics(self) -> Mapping[str, TopicAssignment]:
        return self._world.store.topics

    def describe(self) -> Any:
        brokers = [
            SimpleNamespace(broker_id=one, host="h", port=one) for one in self._world.numbers
        ]
        return SimpleNamespace(brokers=brokers, controller_id=1)

    def placement(self) -> tuple[dict[PartitionKey, Replicas], str | None]:
        return {
            (topic, index): members
            for topic, node in self._topics.items()
            for index, members in node.replicas.items()
        }, "simulated"

    def leaders(self) -> dict[PartitionKey, int]:
        return {key: state.leader for key, (state, _) in self._world.store.states.items()}

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        return {topic: self._topics[topic].topic_id.hex() for topic in topics}

    def sizes(self, *, without_silent: bool = False) -> dict[tuple[str, int, int], int]:
        found = {}
        for key in self._world.store.controller.reassignments.list(None):
            for one in self._topics[key[0]].replicas[key[1]]:
                is_new = one in self._topics[key[0]].adding.get(key[1], ())
                size = self._world.there.get((key, one), 0.0) if is_new else self._world.size(key)
                found[*key, one] = int(size)
        for key, target in self._world.there:
            found.setdefault((*key, target), int(self._world.size(key)))
        return found

    def moving(self) -> dict[PartitionKey, OngoingPartitionReassignment]:
        return {
            key: OngoingPartitionReassignment(
                key[1], list(one.replicas), list(one.adding), list(one.removing)
            )
            for key, one in self._world.store.controller.reassignments.list(None).items()
        }

    def ask_each(self, api: Any, version: int, requests: Mapping[int, Any]) -> dict[int, Any]:
        return {}

    def alter(
        self,
        wanted: Mapping[PartitionKey, Iterable[int] | None],
        at_end: Collection[PartitionKey] = (),
    ) -> dict[PartitionKey, tuple[ErrorCode, str | None]]:
        assert not at_end
        asked = {key: None if one is None else tuple(one) for key, one in wanted.items()}
        results: dict[TopicPartition, Refusal] = {}
        store = self._world.store
        self._world.begun.update(dict.fromkeys(wanted, self._world.now_s))
        store.run(store.controller.reassignments.alter(asked, results))
        return {key: (one.error, None) for key, one in results.items()}


NO_CONNECTION = cast(Connection, SimpleNamespace(settings=SimpleNamespace(timeout_s=1.0)))
