"""Runs the controller's machine without clock, store or network, and records its effects.

The store is a dictionary; requests to brokers are collected. :meth:`Runner.run` returns the effects
as short lines, so that a scenario reads like a script.
"""

from collections.abc import Iterable, Mapping

from pyrklog.cluster.assignment import PartitionAssignment
from pyrklog.cluster.requests import (
    ControlRequest,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LiveBroker,
    LogEnd,
    StopReplicaRequest,
    StopReplicaResponse,
    TopicPartition,
    UpdateMetadataRequest,
)
from pyrklog.controller.effects import (
    DeleteNodes,
    DeleteTopicNodes,
    Pause,
    ReadMinimums,
    ReadStates,
    ReadUnclean,
    Send,
    Snapshot,
    StateChange,
    Steps,
    UnmarkReassignments,
    WaitForOthers,
    WriteAssignments,
    WritePartialReplicas,
    WriteStates,
)
from pyrklog.controller.machine import Controller
from pyrklog.errors import ErrorCode
from pyrklog.metastore.znodes import Leadership, TopicAssignment
from pyrklog.plane.values import BrokerImage
from pyrklog.protocol.inter_broker import PartitionInfo

CONTROLLER = 1
EPOCH = 7


def assignment(*replicas: Iterable[int], topic_id: bytes = b"i" * 16) -> TopicAssignment:
    """A topic whose partition p has ``replicas[p]``."""
    return TopicAssignment(
        topic_id, {index: tuple(brokers) for index, brokers in enumerate(replicas)}, {}, {}
    )


def live(*ids: int, epoch: int = 100, knowing: Iterable[int] = ()) -> dict[int, LiveBroker]:
    """Registered brokers; broker b has epoch ``epoch + b``. ``knowing`` know partial replicas."""
    known = frozenset(knowing)
    return {
        b: LiveBroker(
            BrokerImage(b, None, [("PLAINTEXT", f"host{b}", 9092)]),
            epoch + b,
            knows_partial=b in known,
        )
        for b in ids
    }


class CrashedError(Exception):
    """The controller crashes in the middle of a procedure."""


class Runner:
    def __init__(
        self,
        *,
        delete_topic_enable: bool = True,
        unclean: Iterable[str] = (),
        epoch: int = EPOCH,
    ) -> None:
        self.controller = Controller(CONTROLLER, epoch, delete_topic_enable=delete_topic_enable)
        self.topics: dict[str, TopicAssignment] = {}
        """The topics' znodes, for tests that check them."""
        self.to_reassign: dict[TopicPartition, tuple[int, ...]] | None = None
        self.actions_left: int | None = None
        """Writes and requests until the controller crashes; None = never."""
        self.states: dict[TopicPartition, tuple[Leadership, int]] = {}
        self.partial: dict[TopicPartition, tuple[int, ...]] = {}
        self.unclean = frozenset(unclean)
        self.minimums: dict[str, int] = {}
        """``min.insync.replicas`` where it is not 1."""
        self.sent: list[tuple[int, ControlRequest]] = []
        self.deleted: list[str] = []
        self.too_large: set[str] = set()
        """Topics whose znode is at the store's limit."""
        self.waits: list[int] = []
        """Of unclean brokers for others."""

    def start(
        self,
        brokers: Mapping[int, LiveBroker],
        topics: Mapping[str, TopicAssignment] | None = None,
        to_delete: Iterable[str] = (),
    ) -> list[str]:
        self.topics.update(topics or {})
        snapshot = Snapshot(
            dict(self.topics), dict(self.states), list(to_delete), (), dict(self.partial)
        )
        return self.run(self.controller.start(brokers, snapshot))

    def successor(self) -> "Runner":
        """The next controller, not yet started, over what this one has written."""
        runner = Runner(unclean=self.unclean, epoch=self.controller.state.epoch + 1)
        runner.topics, runner.states = self.topics, self.states
        runner.to_reassign, runner.minimums = self.to_reassign, self.minimums
        runner.partial = self.partial
        return runner

    def _act(self) -> None:
        if self.actions_left is not None:
            if not self.actions_left:
                raise CrashedError
            self.actions_left -= 1

    def run(self, steps: Steps) -> list[str]:
        lines: list[str] = []
        result: object = None
        while True:
            try:
                effect = steps.send(result)
            except StopIteration:
                return lines
            result = None
            if isinstance(effect, Pause):
                continue
            if not isinstance(effect, StateChange):
                self._act()
            match effect:
                case WriteStates(writes):
                    written: dict[TopicPartition, int | None] = {}
                    for write in writes:
                        current = self.states.get(write.key)
                        version = current[1] if current else -1
                        if version != write.expected_version:
                            written[write.key] = None
                            lines.append(f"refused {name(write.key)}")
                            continue
                        self.states[write.key] = (write.leadership, version + 1)
                        written[write.key] = version + 1
                        lines.append(f"write {name(write.key)} {shown(write.leadership)}")
                    result = written
                case ReadStates(keys):
                    result = {key: self.states[key] for key in keys if key in self.states}
                    lines += [f"read {name(key)}" for key in keys]
                case ReadUnclean(topics):
                    result = self.unclean & set(topics)
                case ReadMinimums(topics):
                    result = {topic: self.minimums.get(topic, 1) for topic in topics}
                case WriteAssignments(topic, assignments):
                    result = self._write_assignments(topic, assignments)
                    lines += [
                        f"assign {name((topic, index))} {assigned(item)}"
                        for index, item in assignments.items()
                        if result is ErrorCode.NONE
                    ]
                case WritePartialReplicas(partial):
                    for key, (_, replicas) in partial.items():
                        self.partial[key] = replicas
                        if not replicas:
                            del self.partial[key]
                        brokers = ",".join(map(str, replicas))
                        lines.append(f"partial {name(key)} {brokers}".rstrip())
                case UnmarkReassignments(wanted):
                    lines += self._unmark_reassignments(wanted)
                case Send(broker, request):
                    self.sent.append((broker, request))
                    lines.append(f"{broker} <- {request_line(request)}")
                case DeleteTopicNodes(topics):
                    self.deleted += topics
                    self.states = {k: v for k, v in self.states.items() if k[0] not in topics}
                    lines.append(f"delete nodes {' '.join(topics)}")
                case DeleteNodes(paths):
                    lines.append(f"delete {' '.join(paths)}")
                case WaitForOthers(number, _):
                    self.waits.append(number)
                    lines.append(f"wait {number}")
                case StateChange(event, fields):
                    if event.endswith("_failed"):
                        lines.append(f"failed {fields['topic']}-{fields['partition']}")

    def _write_assignments(
        self, topic: str, assignments: Mapping[int, PartitionAssignment]
    ) -> ErrorCode:
        node = self.topics.get(topic)
        if node is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic in self.too_large:
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT
        kept = {i: b for i, b in node.adding.items() if i not in assignments}
        kept_removing = {i: b for i, b in node.removing.items() if i not in assignments}
        self.topics[topic] = TopicAssignment(
            node.topic_id,
            {**node.replicas, **{i: item.replicas for i, item in assignments.items()}},
            kept | {i: item.adding for i, item in assignments.items() if item.adding},
            kept_removing | {i: item.removing for i, item in assignments.items() if item.removing},
        )
        return ErrorCode.NONE

    def _unmark_reassignments(
        self, wanted: Mapping[TopicPartition, tuple[int, ...] | None]
    ) -> list[str]:
        before = self.to_reassign
        if before is None:
            return []
        gone = [key for key in wanted if key in before and wanted[key] in (None, before[key])]
        self.to_reassign = {key: b for key, b in before.items() if key not in gone} or None
        return [f"unmark reassignment {name(key)}" for key in gone]

    def last(self, broker: int, kind: type) -> ControlRequest:
        """The last request of a kind sent to a broker."""
        return [r for b, r in self.sent if b == broker and isinstance(r, kind)][-1]

    def lead_answered(self, broker: int, error: ErrorCode = ErrorCode.NONE) -> list[str]:
        """The broker answers its last LeaderAndIsr, every partition with ``error``."""
        request = self.last(broker, LeaderAndIsrRequest)
        assert isinstance(request, LeaderAndIsrRequest)
        errors = {(t.topic, p.partition): error for t in request.topics for p in t.partitions}
        response = LeaderAndIsrResponse(ErrorCode.NONE, errors)
        return self.run(self.controller.leader_and_isr_answered(broker, response))

    def ends_answered(self, broker: int, last_epoch: int, offset: int) -> list[str]:
        """The broker answers its last LeaderAndIsr with its log ends; nobody leads."""
        request = self.last(broker, LeaderAndIsrRequest)
        assert isinstance(request, LeaderAndIsrRequest)
        infos = {(t.topic, p.partition): p for t in request.topics for p in t.partitions}
        errors = dict.fromkeys(infos, ErrorCode.NONE)
        ends = {
            key: LogEnd(info.leader_epoch, last_epoch, offset)
            for key, info in infos.items()
            if info.leader < 0
        }
        response = LeaderAndIsrResponse(ErrorCode.NONE, errors, ends)
        return self.run(self.controller.leader_and_isr_answered(broker, response))

    def wait_over(self) -> list[str]:
        return self.run(self.controller.unclean.wait_over(self.waits[-1]))

    def stop_answered(self, broker: int, error: ErrorCode = ErrorCode.NONE) -> list[str]:
        """The broker answers its last StopReplica, every replica with ``error``."""
        request = self.last(broker, StopReplicaRequest)
        assert isinstance(request, StopReplicaRequest)
        errors = {(r.topic, r.partition): error for r in request.replicas}
        response = StopReplicaResponse(ErrorCode.NONE, errors)
        return self.run(self.controller.stop_replica_answered(broker, response))

    def leadership(self, topic: str, partition: int) -> str:
        return shown(self.states[(topic, partition)][0])


def assigned(item: PartitionAssignment) -> str:
    """An assignment as text: "4,5,1 +4,5 -1"."""
    parts = [",".join(map(str, item.replicas))]
    parts += ["+" + ",".join(map(str, item.adding))] if item.adding else []
    parts += ["-" + ",".join(map(str, item.removing))] if item.removing else []
    return " ".join(parts)


def name(key: TopicPartition) -> str:
    return f"{key[0]}-{key[1]}"


def shown(state: Leadership) -> str:
    isr = ",".join(map(str, state.isr))
    recovering = " recovering" if state.recovery_state else ""
    eligible = f" eligible {','.join(map(str, state.eligible))}" if state.eligible else ""
    unclean = f" unclean {','.join(map(str, state.unclean))}" if state.unclean else ""
    kept = f"isr {isr}{recovering}{eligible}{unclean}"
    return f"leader {state.leader} epoch {state.leader_epoch} {kept}"


def info_line(topic: str, info: PartitionInfo) -> str:
    new = " new" if info.is_new else ""
    offline = f" offline {','.join(map(str, info.offline))}" if info.offline else ""
    return f"{topic}-{info.partition}:{info.leader}@{info.leader_epoch}{new}{offline}"


def request_line(request: ControlRequest) -> str:
    if isinstance(request, StopReplicaRequest):
        items = [
            f"{r.topic}-{r.partition}@{r.leader_epoch}{' delete' if r.delete else ''}"
            for r in request.replicas
        ]
        return " ".join(["stop", *items])
    kind = "metadata" if isinstance(request, UpdateMetadataRequest) else "lead"
    items = [info_line(t.topic, p) for t in request.topics for p in t.partitions]
    if isinstance(request, UpdateMetadataRequest):
        items.append(f"brokers {','.join(str(b.id) for b in request.brokers)}")
    return " ".join([kind, *items])
