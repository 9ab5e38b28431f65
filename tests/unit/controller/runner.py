"""Runs the controller's machine without clock, store or network, and writes down what it does.

The store is a dictionary; requests to brokers are collected. :meth:`Runner.run` returns the
effects as short lines, so that a scenario reads like a script.
"""

from collections.abc import Iterable, Mapping

from pyrklog.controller.effects import (
    DeleteTopicNodes,
    ForgetUnclean,
    ReadStates,
    ReadUnclean,
    Send,
    Snapshot,
    StateChange,
    Steps,
    UnmarkDeletion,
    WriteStates,
)
from pyrklog.controller.machine import Controller
from pyrklog.controller.requests import (
    ControlRequest,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    PartitionInfo,
    StopReplicaRequest,
    StopReplicaResponse,
    TopicPartition,
    UpdateMetadataRequest,
)
from pyrklog.controller.state import LiveBroker
from pyrklog.errors import ErrorCode
from pyrklog.image import BrokerImage
from pyrklog.metastore.znodes import Leadership, TopicAssignment

CONTROLLER = 1
EPOCH = 7


def assignment(*replicas: Iterable[int], topic_id: bytes = b"i" * 16) -> TopicAssignment:
    """A topic whose partition p has ``replicas[p]``."""
    return TopicAssignment(
        topic_id, {index: tuple(brokers) for index, brokers in enumerate(replicas)}, {}, {}
    )


def live(*ids: int, epoch: int = 100) -> dict[int, LiveBroker]:
    """Registered brokers; broker b has epoch ``epoch + b``."""
    return {
        b: LiveBroker(BrokerImage(b, None, [("PLAINTEXT", f"host{b}", 9092)]), epoch + b)
        for b in ids
    }


class Runner:
    """A controller with its surroundings."""

    def __init__(self, *, delete_topic_enable: bool = True, unclean: Iterable[str] = ()) -> None:
        self.controller = Controller(CONTROLLER, EPOCH, delete_topic_enable=delete_topic_enable)
        self.states: dict[TopicPartition, tuple[Leadership, int]] = {}
        self.unclean = frozenset(unclean)
        self.sent: list[tuple[int, ControlRequest]] = []
        self.deleted: list[str] = []

    def start(
        self,
        brokers: Mapping[int, LiveBroker],
        topics: Mapping[str, TopicAssignment] | None = None,
        to_delete: Iterable[str] = (),
    ) -> list[str]:
        """The controller takes over what ``self.states`` holds."""
        snapshot = Snapshot(topics or {}, dict(self.states), list(to_delete))
        return self.run(self.controller.start(brokers, snapshot))

    def run(self, steps: Steps) -> list[str]:
        """Runs a procedure to its end; one line an effect."""
        lines: list[str] = []
        result: object = None
        while True:
            try:
                effect = steps.send(result)
            except StopIteration:
                return lines
            result = None
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
                case Send(broker, request):
                    self.sent.append((broker, request))
                    lines.append(f"{broker} <- {request_line(request)}")
                case DeleteTopicNodes(topics):
                    self.deleted += topics
                    self.states = {k: v for k, v in self.states.items() if k[0] not in topics}
                    lines.append(f"delete nodes {' '.join(topics)}")
                case ForgetUnclean(brokers):
                    lines.append(f"forget unclean {' '.join(map(str, brokers))}")
                case UnmarkDeletion(topics):
                    lines.append(f"unmark {' '.join(topics)}")
                case StateChange(event, fields):
                    if event.endswith("_failed"):
                        lines.append(f"failed {fields['topic']}-{fields['partition']}")

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

    def stop_answered(self, broker: int, error: ErrorCode = ErrorCode.NONE) -> list[str]:
        """The broker answers its last StopReplica, every replica with ``error``."""
        request = self.last(broker, StopReplicaRequest)
        assert isinstance(request, StopReplicaRequest)
        errors = {(r.topic, r.partition): error for r in request.replicas}
        response = StopReplicaResponse(ErrorCode.NONE, errors)
        return self.run(self.controller.stop_replica_answered(broker, response))

    def leadership(self, topic: str, partition: int) -> str:
        """What the store holds of a partition."""
        return shown(self.states[(topic, partition)][0])


def name(key: TopicPartition) -> str:
    return f"{key[0]}-{key[1]}"


def shown(state: Leadership) -> str:
    isr = ",".join(map(str, state.isr))
    recovering = " recovering" if state.recovery_state else ""
    return f"leader {state.leader} epoch {state.leader_epoch} isr {isr}{recovering}"


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
