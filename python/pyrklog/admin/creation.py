"""Checks topics to create or enlarge, and assigns their replicas. Pure.

Messages and codes follow Kafka 3.9. A check raises :class:`ApiError`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pyrklog.cluster.image import KRAFT_TOPIC
from pyrklog.cluster.topic_names import TopicNames, wrong_with_name
from pyrklog.config.option import InvalidValueError
from pyrklog.config.topic import TopicDefaults, check_topic_options
from pyrklog.controller.placement import PlacementError, place_replicas
from pyrklog.errors import ApiError, ErrorCode
from pyrklog.handlers.service import PartitionsSpec, TopicSpec

PARTITIONS_PER_REQUEST_MAX = 20_000
"""A larger request is refused: it would block others for seconds."""

Assignment = Mapping[int, tuple[int, ...]]


def check_new_topic(spec: TopicSpec, defaults: TopicDefaults, *taken: TopicNames) -> None:
    if any(spec.name in names for names in taken):
        raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{spec.name}' already exists.")
    wrong = wrong_with_name(spec.name)
    if wrong is not None:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, wrong)
    if spec.name == KRAFT_TOPIC:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"Creation of internal topic {spec.name} is prohibited."
        )
    collisions = {name for names in taken for name in names.colliding(spec.name)}
    if collisions:
        raise ApiError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{spec.name}' collides with existing topic: {min(collisions)}",
        )
    if not spec.configs:
        return
    try:
        check_topic_options(spec.configs, defaults)
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
    if spec.assignments:
        for count, name in (
            (spec.replication_factor, "replication factor"),
            (spec.partition_count, "numPartitions"),
        ):
            if count != -1:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST,
                    f"A manual partition assignment was specified, but {name} was not set to -1.",
                )
        if spec.assigned_twice is not None:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {spec.assigned_twice}",
            )
        return _check_manual(spec.assignments, racks)
    partitions = default_partitions if spec.partition_count == -1 else spec.partition_count
    replicas = default_replicas if spec.replication_factor == -1 else spec.replication_factor
    if replicas <= 0:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if partitions <= 0:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        )
    check_partition_count(partitions)
    try:
        staying = _staying(racks, leaving, replicas)
        return place_replicas(staying, partitions, replicas, start=start, shift=shift)
    except PlacementError as error:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replicas} time(s): {error}",
        ) from None


def check_partition_count(partitions: int) -> None:
    if partitions > PARTITIONS_PER_REQUEST_MAX:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"At most {PARTITIONS_PER_REQUEST_MAX} partitions may be created by one request.",
        )


def _check_manual(
    assignments: Mapping[int, Sequence[int]], racks: Mapping[int, str | None]
) -> Assignment:
    check_partition_count(len(assignments))
    given = list(assignments.values())
    _check_replicas(given, len(given[0]), racks)
    if sorted(assignments) != list(range(len(assignments))):
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )
    return {partition: tuple(brokers) for partition, brokers in sorted(assignments.items())}


def _check_replicas(
    assignments: Sequence[Sequence[int]], replication_factor: int, racks: Collection[int]
) -> None:
    def refuse(includes: str) -> ApiError:
        return ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"The manual partition assignment includes {includes}",
        )

    for brokers in assignments:
        if not brokers:
            raise refuse("an empty replica list.")
        ordered = sorted(brokers)
        for index, broker in enumerate(ordered):
            if broker not in racks:
                raise refuse(f"broker {broker}, but no such broker is registered.")
            if index > 0 and broker == ordered[index - 1]:
                raise refuse(f"the broker {broker} more than once.")
        if len(brokers) != replication_factor:
            raise refuse(
                f"a partition with {len(brokers)} replica(s), but this is not consistent with "
                f"previous partitions, which have {replication_factor} replica(s)."
            )


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
            f"The topic {spec.name} currently has {count} partition(s); {spec.total} would not be "
            "an increase.",
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
                f"Attempted to add {added} additional partition(s), but only "
                f"{len(spec.assignments)} assignment(s) were specified.",
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
