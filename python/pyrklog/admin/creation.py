"""Checks topics to create or enlarge, and assigns their replicas. Pure.

Messages and codes follow Kafka 3.9. A check raises :class:`ApiError`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pyrklog.cluster.image import KRAFT_TOPIC
from pyrklog.cluster.topic_names import TopicNames, wrong_with_name
from pyrklog.config.option import InvalidValueError
from pyrklog.config.topic import check_topic_options
from pyrklog.controller.placement import PlacementError, place_replicas
from pyrklog.errors import ApiError, ErrorCode
from pyrklog.handlers.service import PartitionsSpec, TopicSpec

PARTITIONS_PER_REQUEST_MAX = 20_000
"""A larger request is refused: it would block others for seconds."""

Assignment = Mapping[int, tuple[int, ...]]


def check_new_topic(spec: TopicSpec, *taken: TopicNames) -> None:
    if any(spec.name in names for names in taken):
        raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{spec.name}' already exists.")
    wrong = wrong_with_name(spec.name)
    if wrong is not None:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, wrong)
    if spec.name == KRAFT_TOPIC:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"Creation of internal topic {spec.name} is prohibited."
        )
    collisions = sorted({name for names in taken for name in names.colliding(spec.name)})
    if collisions:
        raise ApiError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{spec.name}' collides with existing topics: {', '.join(collisions)}",
        )
    try:
        check_topic_options(spec.configs or {})
    except InvalidValueError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None


def assign_new_topic(
    spec: TopicSpec,
    racks: Mapping[int, str | None],
    *,
    leaving: Collection[int] = (),
    default_partitions: int,
    default_replicas: int,
    start: int,
    shift: int,
) -> Assignment:
    """Replicas of every partition: the client's assignment, or ours.

    ``leaving`` brokers get replicas only if there are too few others.
    """
    counts_given = spec.partition_count != -1 or spec.replication_factor != -1
    if spec.assignments:
        if counts_given:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                "Both numPartitions or replicationFactor and replicasAssignments were set. "
                "Both cannot be used at the same time.",
            )
        if spec.assigned_twice is not None:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {spec.assigned_twice}",
            )
        return _check_manual(spec.assignments, racks)
    partitions = default_partitions if spec.partition_count == -1 else spec.partition_count
    replicas = default_replicas if spec.replication_factor == -1 else spec.replication_factor
    if partitions <= 0:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
    check_partition_count(partitions)
    if replicas <= 0:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0."
        )
    if replicas > len(racks):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor: {replicas} larger than available brokers: {len(racks)}.",
        )
    try:
        staying = _staying(racks, leaving, replicas)
        return place_replicas(staying, partitions, replicas, start=start, shift=shift)
    except PlacementError as error:
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, str(error)) from None


def check_partition_count(partitions: int) -> None:
    if partitions > PARTITIONS_PER_REQUEST_MAX:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"At most {PARTITIONS_PER_REQUEST_MAX} partitions may be created by one request.",
        )


def _check_manual(
    assignments: Mapping[int, Sequence[int]], racks: Mapping[int, str | None]
) -> Assignment:
    if sorted(assignments) != list(range(len(assignments))):
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )
    check_partition_count(len(assignments))
    _check_replicas(list(assignments.values()), len(assignments[0]), racks)
    return {partition: tuple(brokers) for partition, brokers in sorted(assignments.items())}


def _check_replicas(
    assignments: Sequence[Sequence[int]], replication_factor: int, racks: Collection[int]
) -> None:
    def refuse(why: str) -> ApiError:
        return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)

    for brokers in assignments:
        if not brokers:
            raise refuse("Cannot have replication factor of 0 for a partition.")
        if len(set(brokers)) != len(brokers):
            listed = ", ".join(map(str, brokers))
            raise refuse(f"Duplicate brokers not allowed in replica assignment: {listed}.")
        unknown = sorted(set(brokers) - set(racks))
        if unknown:
            listed = ", ".join(map(str, unknown))
            raise refuse(f"Unknown broker(s) in replica assignment: {listed}.")
        if len(brokers) != replication_factor:
            raise refuse("All partitions should have the same number of replicas.")


def _staying(
    racks: Mapping[int, str | None], leaving: Collection[int], replicas: int
) -> Mapping[int, str | None]:
    staying = {broker: rack for broker, rack in racks.items() if broker not in leaving}
    return staying if len(staying) >= replicas else racks


def assign_added_partitions(
    spec: PartitionsSpec,
    current: Assignment,
    racks: Mapping[int, str | None],
    leaving: Collection[int] = (),
) -> Assignment:
    """Replicas of the partitions to add; ``leaving`` as in :func:`assign_new_topic`."""
    count = len(current)
    if spec.total < count:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"Topic currently has {count} partitions, which is higher than the requested "
            f"{spec.total}.",
        )
    added = spec.total - count
    if added == 0:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {count} partition(s).")
    check_partition_count(added)
    replication_factor = len(current[0])
    if spec.assignments is not None:
        if len(spec.assignments) != added:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Increasing the number of partitions by {added} but {len(spec.assignments)} "
                "assignments provided.",
            )
        _check_replicas(spec.assignments, replication_factor, racks)
        return {count + i: tuple(brokers) for i, brokers in enumerate(spec.assignments)}
    staying = _staying(racks, leaving, replication_factor)
    brokers = sorted(staying)
    # Partition 0 shows where the topic's round began.
    behind = [index for index, broker in enumerate(brokers) if broker >= current[0][0]]
    start = behind[0] if behind else 0
    try:
        return place_replicas(
            staying, added, replication_factor, start=start, shift=start, first_partition=count
        )
    except PlacementError as error:
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, str(error)) from None
