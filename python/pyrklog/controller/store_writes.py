"""The controller's writes to the metadata store, in large fenced transactions.

Each transaction begins with a check of /controller_epoch's version. Many partitions share one;
where one is refused, the partitions of that transaction are written one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pyrklog.base.logs import get_logger
from pyrklog.cluster.assignment import PartitionAssignment
from pyrklog.cluster.requests import TopicPartition
from pyrklog.controller.effects import StateWrite
from pyrklog.errors import ErrorCode
from pyrklog.metastore import znodes
from pyrklog.metastore.interface import (
    BadVersionError,
    Check,
    Create,
    Delete,
    Metastore,
    NodeExistsError,
    NoNodeError,
    Operation,
    OperationResult,
    Outcome,
    Set,
    Stat,
    TooLargeError,
    descendants_of,
)
from pyrklog.metastore.sizes import TRANSACTION_BYTES_MAX, transaction_bytes

OPERATIONS_PER_TRANSACTION_MAX = 500
TRANSACTION_BYTES_TARGET = TRANSACTION_BYTES_MAX // 2
"""A transaction of this size gets no more partitions."""

log = get_logger("controller")


class ControllerMovedError(Exception):
    """Another broker is the controller now."""


class Term(NamedTuple):
    """A controller's term: its epoch, and the version of /controller_epoch that fences it."""

    epoch: int
    epoch_version: int
    deposed: int | None = None
    """The deposed controller before, which may be dead."""

    def check(self) -> Check:
        """Fails when a later controller was elected."""
        return Check(znodes.CONTROLLER_EPOCH, self.epoch_version)


async def run_fenced(
    store: Metastore, term: Term, transactions: Sequence[Sequence[Operation]]
) -> list[Outcome]:
    """Runs transactions with the fence in front; results and indexes are without it."""
    outcomes = await store.multis([[term.check(), *operations] for operations in transactions])
    shown: list[Outcome] = []
    for outcome in outcomes:
        if isinstance(outcome, list):
            shown.append(outcome[1:])
            continue
        refused = isinstance(outcome, BadVersionError | NoNodeError)
        if refused and outcome.path == znodes.CONTROLLER_EPOCH:
            raise ControllerMovedError
        if not refused and not isinstance(outcome, NodeExistsError | TooLargeError):
            raise outcome
        shown.append(outcome)
    return shown


async def write_states(
    store: Metastore, term: Term, writes: Sequence[StateWrite]
) -> dict[TopicPartition, int | None]:
    """None where a write was refused."""
    written: dict[TopicPartition, int | None] = {}
    groups = [
        *await _creations(store, term, [w for w in writes if w.expected_version < 0]),
        *_chunks(await _changes(store, [w for w in writes if w.expected_version >= 0])),
    ]
    outcomes = await run_fenced(store, term, [_operations(group) for group in groups])
    alone: list[StateWrite] = []
    for group, outcome in zip(groups, outcomes, strict=True):
        if isinstance(outcome, list):
            _collect(group, outcome, written)
        else:
            alone += [write for write, _ in group]
    for write in alone:
        written[write.key] = await _write_alone(store, term, write)
    return written


_Group = list[tuple[StateWrite, list[Operation]]]


def _set(write: StateWrite) -> Operation:
    data = znodes.encode_state(write.leadership)
    return Set(znodes.state_path(*write.key), data, write.expected_version)


async def _changes(store: Metastore, writes: Sequence[StateWrite]) -> _Group:
    """The state comes last of a write's operations."""
    topics = dict.fromkeys(w.key[0] for w in writes if _has_eligible(w) and not w.had_eligible)
    paths = [znodes.eligible_topic_path(topic) for topic in topics]
    parents = await store.get_many(paths) if paths else []
    missing = {topic for topic, node in zip(topics, parents, strict=True) if node is None}
    items: _Group = []
    for write in writes:
        operations = _set_eligible(write, is_there=write.had_eligible)
        if operations and write.key[0] in missing:
            missing.discard(write.key[0])
            operations.insert(0, Create(znodes.eligible_topic_path(write.key[0])))
        items.append((write, [*operations, _set(write)]))
    return items


def _has_eligible(write: StateWrite) -> bool:
    return bool(write.leadership.eligible or write.leadership.unclean)


def _set_eligible(write: StateWrite, *, is_there: bool) -> list[Operation]:
    path = znodes.eligible_path(*write.key)
    if not _has_eligible(write):
        return [Delete(path)] if is_there else []
    data = znodes.encode_eligible(write.leadership, write.expected_version + 1)
    return [Set(path, data) if is_there else Create(path, data)]


async def _creations(store: Metastore, term: Term, writes: Sequence[StateWrite]) -> list[_Group]:
    topics = dict.fromkeys(write.key[0] for write in writes)
    paths = [znodes.partitions_path(topic) for topic in topics]
    parents = await store.get_many(paths)
    missing = {topic for topic, node in zip(topics, parents, strict=True) if node is None}
    if missing:
        # Left by a topic of the same name whose nodes were removed by hand.
        leftovers = await _own_nodes_of(store, sorted(missing))
        await run_fenced(store, term, [[Delete(path)] for path in leftovers])
    items: _Group = []
    for write in writes:
        topic, partition = write.key
        operations: list[Operation] = []
        if topic in missing:
            missing.discard(topic)
            operations.append(Create(znodes.partitions_path(topic)))
        operations.append(Create(znodes.partition_path(topic, partition)))
        operations.append(_create_state(write))
        items.append((write, operations))
    return _chunks(items)


def _create_state(write: StateWrite) -> Operation:
    return Create(znodes.state_path(*write.key), znodes.encode_state(write.leadership))


def _chunks(items: _Group) -> list[_Group]:
    groups: list[_Group] = []
    room = room_bytes = 0
    for item in items:
        size, size_bytes = len(item[1]), transaction_bytes(item[1])
        if size > room or size_bytes > room_bytes:
            groups.append([])
            room, room_bytes = OPERATIONS_PER_TRANSACTION_MAX, TRANSACTION_BYTES_TARGET
        groups[-1].append(item)
        room -= size
        room_bytes -= size_bytes
    return groups


def _operations(group: _Group) -> list[Operation]:
    return [operation for _, operations in group for operation in operations]


def _collect(
    group: _Group, results: list[OperationResult], written: dict[TopicPartition, int | None]
) -> None:
    position = 0
    for write, operations in group:
        position += len(operations)
        result = results[position - 1]
        written[write.key] = result.version if isinstance(result, Stat) else 0


async def _write_alone(store: Metastore, term: Term, write: StateWrite) -> int | None:
    """Writes one partition; parents may exist (a crash may have left some)."""
    topic, partition = write.key
    operations: list[Operation] = []
    if write.expected_version >= 0:
        operations += await _eligible_alone(store, write)
        operations.append(_set(write))
    else:
        for path in (znodes.partitions_path(topic), znodes.partition_path(topic, partition)):
            if await store.exists(path) is None:
                operations.append(Create(path))
        operations.append(_create_state(write))
    (outcome,) = await run_fenced(store, term, [operations])
    if not isinstance(outcome, list):
        if isinstance(outcome, TooLargeError):
            log.error("state_too_large", topic=topic, partition=partition, reason=outcome.reason)
        return None
    result = outcome[-1]
    return result.version if isinstance(result, Stat) else 0


async def _eligible_alone(store: Metastore, write: StateWrite) -> list[Operation]:
    parent, path = znodes.eligible_topic_path(write.key[0]), znodes.eligible_path(*write.key)
    nodes = await store.get_many([parent, path])
    operations = _set_eligible(write, is_there=nodes[1] is not None)
    if operations and nodes[0] is None:
        operations.insert(0, Create(parent))
    return operations


async def write_partial(
    store: Metastore, term: Term, partial: Mapping[TopicPartition, znodes.PartialReplicas]
) -> None:
    """Only controllers write these nodes: a refused write is one that a fallen one had made."""
    left = dict(partial)
    while left:
        keys = list(left)
        paths = [znodes.expansion_path(*key) for key in keys]
        parents = list(dict.fromkeys(znodes.expansion_topic_path(topic) for topic, _ in keys))
        nodes = await store.get_many([*parents, *paths])
        missing = [p for p, node in zip(parents, nodes, strict=False) if node is None]
        operations: list[list[Operation]] = []
        for key, path, node in zip(keys, paths, nodes[len(parents) :], strict=True):
            operations.append([])
            if not left[key].replicas:
                operations[-1] += [Delete(path)] if node is not None else []
                continue
            parent = znodes.expansion_topic_path(key[0])
            if parent in missing:
                missing.remove(parent)
                operations[-1].append(Create(parent))
            data = znodes.encode_partial(left[key])
            operations[-1].append(Create(path, data) if node is None else Set(path, data))
        due = [(key, one) for key, one in zip(keys, operations, strict=True) if one]
        outcomes = await run_fenced(store, term, [one for _, one in due])
        refused = [key for (key, _), out in zip(due, outcomes, strict=True) if _is_refused(out)]
        left = {key: left[key] for key in refused}


def _is_refused(outcome: Outcome) -> bool:
    return not isinstance(outcome, list)


async def delete_nodes(store: Metastore, term: Term, paths: Sequence[str]) -> None:
    """Nodes may be gone already."""
    await run_fenced(store, term, [[Delete(path)] for path in paths])


async def delete_topics(store: Metastore, term: Term, topics: Sequence[str]) -> None:
    """Deletes topics' nodes: what lies below a topic first, then each topic as a whole.

    Topic, options and mark go in one transaction. Kafka deletes them one by one in this order: a
    topic of the same name may be created in between and lose its options.
    """
    below = await _own_nodes_of(store, topics)
    below += await descendants_of(store, [znodes.topic_path(topic) for topic in topics])
    size = OPERATIONS_PER_TRANSACTION_MAX
    groups = [below[first : first + size] for first in range(0, len(below), size)]
    deletions = [[Delete(path) for path in group] for group in groups]
    outcomes = await run_fenced(store, term, deletions)
    for group, outcome in zip(groups, outcomes, strict=True):
        if isinstance(outcome, TooLargeError):
            await delete_nodes(store, term, group)
    left = list(topics)
    while left:
        found = await _nodes_of(store, left)
        outcomes = await run_fenced(store, term, [[Delete(p) for p in paths] for paths in found])
        # Another client has deleted a node meanwhile.
        left = [
            topic
            for topic, outcome in zip(left, outcomes, strict=True)
            if not isinstance(outcome, list)
        ]


async def _nodes_of(store: Metastore, topics: Sequence[str]) -> list[list[str]]:
    """Each topic's own existing nodes; its mark last."""
    kinds = (znodes.topic_path, znodes.topic_config_path, znodes.delete_topic_path)
    paths = [[path(topic) for path in kinds] for topic in topics]
    nodes = iter(await store.get_many([path for group in paths for path in group]))
    return [[path for path in group if next(nodes) is not None] for group in paths]


async def _own_nodes_of(store: Metastore, topics: Sequence[str]) -> list[str]:
    """Nodes of the topics' eligible and partial replicas, in the order to delete them in."""
    kinds = (znodes.eligible_topic_path, znodes.expansion_topic_path)
    paths = [path(topic) for topic in topics for path in kinds]
    nodes = await store.get_many(paths)
    there = [path for path, node in zip(paths, nodes, strict=True) if node is not None]
    return [*await descendants_of(store, there), *there]


async def write_assignments(
    store: Metastore, term: Term, topic: str, assignments: Mapping[int, PartitionAssignment]
) -> ErrorCode:
    """Writes new replicas of partitions; keeps partitions that are added meanwhile.

    UNKNOWN_TOPIC_OR_PARTITION where the topic is gone or unreadable; INVALID_REPLICA_ASSIGNMENT
    where its node would be too large for the store.
    """
    path = znodes.topic_path(topic)
    while True:
        try:
            node = await store.get(path)
            before = znodes.decode_topic(path, node.data)
        except NoNodeError:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        except znodes.ZnodeError as error:
            log.error("bad_znode", reason=str(error))
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        moving = {i: item for i, item in assignments.items() if item.is_moving}
        after = znodes.TopicAssignment(
            before.topic_id,
            {**before.replicas, **{i: item.replicas for i, item in assignments.items()}},
            _with(before.adding, assignments, {i: item.adding for i, item in moving.items()}),
            _with(before.removing, assignments, {i: item.removing for i, item in moving.items()}),
        )
        operation = Set(path, znodes.encode_topic(after), node.stat.version)
        (outcome,) = await run_fenced(store, term, [[operation]])
        if isinstance(outcome, list):
            return ErrorCode.NONE
        if isinstance(outcome, TooLargeError):
            log.error("assignment_too_large", topic=topic, reason=outcome.reason)
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT


def _with(
    before: Mapping[int, tuple[int, ...]],
    changed: Mapping[int, PartitionAssignment],
    found: Mapping[int, tuple[int, ...]],
) -> dict[int, tuple[int, ...]]:
    kept = {index: brokers for index, brokers in before.items() if index not in changed}
    return kept | {index: brokers for index, brokers in found.items() if brokers}


async def unmark_reassignments(
    store: Metastore, term: Term, wanted: Mapping[TopicPartition, tuple[int, ...] | None]
) -> None:
    """Removes partitions from /admin/reassign_partitions where it wants these replicas (None =
    any).

    The node goes with its last partition. An unreadable node stays.
    """
    while True:
        try:
            node = await store.get(znodes.REASSIGN_PARTITIONS)
            before = znodes.decode_reassignments(node.data)
        except (NoNodeError, znodes.ZnodeError):
            return
        after = {
            key: replicas
            for key, replicas in before.items()
            if key not in wanted or wanted[key] not in (None, replicas)
        }
        if after and len(after) == len(before):
            return
        path, version = znodes.REASSIGN_PARTITIONS, node.stat.version
        operation: Operation = Delete(path, version)
        if after:
            operation = Set(path, znodes.encode_reassignments(after), version)
        (outcome,) = await run_fenced(store, term, [[operation]])
        if isinstance(outcome, TooLargeError):
            log.error("reassignments_too_large", reason=outcome.reason)
            return
        if isinstance(outcome, list):
            return
