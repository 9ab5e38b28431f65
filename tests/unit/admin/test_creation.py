from collections.abc import Mapping

import pytest

from pyrklog.admin.creation import (
    PARTITIONS_PER_REQUEST_MAX,
    assign_added_partitions,
    assign_new_topic,
    check_new_topic,
)
from pyrklog.cluster.topic_names import TopicNames
from pyrklog.config.broker import BrokerConfig
from pyrklog.config.topic import TopicDefaults
from pyrklog.errors import ApiError, ErrorCode
from pyrklog.handlers.service import PartitionsSpec, TopicSpec

DEFAULTS = TopicDefaults(BrokerConfig({}))
THREE: Mapping[int, str | None] = {1: None, 2: None, 3: None}


def assign(spec: TopicSpec, racks: Mapping[int, str | None] = THREE) -> object:
    return assign_new_topic(spec, racks, default_partitions=4, default_replicas=2, start=0, shift=0)


def test_counts_of_minus_one_are_the_brokers_defaults() -> None:
    assert assign(TopicSpec("t")) == {0: (1, 2), 1: (2, 3), 2: (3, 1), 3: (1, 3)}
    assert assign(TopicSpec("t", 1, -1)) == {0: (1, 2)}
    assert assign(TopicSpec("t", -1, 1)) == {0: (1,), 1: (2,), 2: (3,), 3: (1,)}


def test_brokers_that_are_about_to_end_get_replicas_where_there_are_no_others() -> None:
    def placed(replicas: int, *leaving: int) -> set[int]:
        assigned = assign_new_topic(
            TopicSpec("t", 6, replicas),
            THREE,
            leaving=leaving,
            default_partitions=1,
            default_replicas=1,
            start=0,
            shift=0,
        )
        grown = assign_added_partitions(PartitionsSpec("t", 12), assigned, THREE, leaving)
        return {broker for part in (assigned, grown) for some in part.values() for broker in some}

    assert placed(2, 3) == {1, 2}
    assert placed(2, 1) == {2, 3}
    assert placed(1, 1, 2) == {3}
    assert placed(3, 3) == {1, 2, 3}
    assert placed(1, 1, 2, 3) == {1, 2, 3}


def test_a_manual_assignment_is_kept() -> None:
    spec = TopicSpec("t", assignments={1: [3, 1], 0: [2, 3]})
    assert assign(spec) == {0: (2, 3), 1: (3, 1)}


@pytest.mark.parametrize(
    ("spec", "code", "said"),
    [
        (TopicSpec("t", 0, 1), ErrorCode.INVALID_PARTITIONS, "invalid non-positive value"),
        (TopicSpec("t", -2, 1), ErrorCode.INVALID_PARTITIONS, "invalid non-positive value"),
        (TopicSpec("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR, "larger than 0, or -1"),
        (TopicSpec("t", 0, 0), ErrorCode.INVALID_REPLICATION_FACTOR, "larger than 0, or -1"),
        (
            TopicSpec("t", 1, 4),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Unable to replicate the partition 4 time(s): The target replication factor of 4 "
            "cannot be reached because only 3 broker(s) are registered.",
        ),
        (
            TopicSpec("t", PARTITIONS_PER_REQUEST_MAX + 1, 1),
            ErrorCode.POLICY_VIOLATION,
            str(PARTITIONS_PER_REQUEST_MAX),
        ),
        (TopicSpec("t", 2, -1, {0: [1]}), ErrorCode.INVALID_REQUEST, "numPartitions was not set"),
        (TopicSpec("t", 2, 1, {0: [1]}), ErrorCode.INVALID_REQUEST, "replication factor was not"),
        (
            TopicSpec("t", assignments={0: [1], 2: [1]}),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "consecutive",
        ),
        (
            TopicSpec("t", assignments={0: [1, 1]}),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "includes the broker 1 more than once.",
        ),
        (
            TopicSpec("t", assignments={0: [1]}, assigned_twice=0),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "multiple manual partition assignments for partition 0",
        ),
        (
            TopicSpec("t", assignments={0: [1, 9]}),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "includes broker 9, but no such broker is registered.",
        ),
        (
            TopicSpec("t", assignments={0: []}),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "includes an empty replica list.",
        ),
        (
            TopicSpec("t", assignments={0: [1], 1: [1, 2]}),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "a partition with 2 replica(s), but this is not consistent with previous partitions, "
            "which have 1 replica(s).",
        ),
    ],
)
def test_refused_assignments(spec: TopicSpec, code: ErrorCode, said: str) -> None:
    with pytest.raises(ApiError) as refused:
        assign(spec)
    assert refused.value.code is code
    assert said in (refused.value.message or "")


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        (TopicSpec("there"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (TopicSpec("the.re"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TopicSpec("no/slash"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TopicSpec("t", configs={"retention.ms": "x"}), ErrorCode.INVALID_CONFIG),
        (TopicSpec("t", configs={"retention": "1"}), ErrorCode.INVALID_CONFIG),
        (TopicSpec("t", configs={"retention.ms": None}), ErrorCode.INVALID_CONFIG),
    ],
)
def test_refused_topics(spec: TopicSpec, code: ErrorCode) -> None:
    with pytest.raises(ApiError) as refused:
        check_new_topic(spec, DEFAULTS, TopicNames(["there", "the_re"]))
    assert refused.value.code is code


def test_a_name_like_others_collides_with_one_of_them() -> None:
    with pytest.raises(ApiError, match=r"'a\.b_c' collides with existing topic: a\.b\.c$"):
        check_new_topic(TopicSpec("a.b_c"), DEFAULTS, TopicNames(["a_b.c", "a.b.c"]))


def test_options_of_a_new_topic_go_with_the_brokers() -> None:
    config = BrokerConfig({}).with_dynamic(
        default={}, broker={"log.cleaner.min.compaction.lag.ms": "9"}
    )
    defaults = TopicDefaults(config)
    check_new_topic(TopicSpec("t", configs={"max.compaction.lag.ms": "9"}), defaults)
    with pytest.raises(ApiError, match="conflict topic config setting") as refused:
        check_new_topic(TopicSpec("t", configs={"max.compaction.lag.ms": "8"}), defaults)
    assert refused.value.code is ErrorCode.INVALID_CONFIG


CURRENT = {0: (2, 3), 1: (3, 1)}


def test_partitions_are_added_in_the_topics_own_round() -> None:
    added = assign_added_partitions(PartitionsSpec("t", 4), CURRENT, THREE)
    assert sorted(added) == [2, 3]
    assert added[2][0] == 1, "partition 0 began at broker 2, so partition 2 is broker 1's"
    assert all(len(set(brokers)) == 2 for brokers in added.values())
    manual = PartitionsSpec("t", 3, [[1, 3]])
    assert assign_added_partitions(manual, CURRENT, THREE) == {2: (1, 3)}


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        (PartitionsSpec("t", 2), ErrorCode.INVALID_PARTITIONS),
        (PartitionsSpec("t", -1), ErrorCode.INVALID_PARTITIONS),
        (PartitionsSpec("t", 10**9), ErrorCode.POLICY_VIOLATION),
        (PartitionsSpec("t", 4, [[1, 2]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (PartitionsSpec("t", 3, [[1]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (PartitionsSpec("t", 3, [[1, 7]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_refused_growth(spec: PartitionsSpec, code: ErrorCode) -> None:
    with pytest.raises(ApiError) as refused:
        assign_added_partitions(spec, CURRENT, THREE)
    assert refused.value.code is code


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (
            PartitionsSpec("t", 1),
            "The topic t currently has 2 partition(s); 1 would not be an increase.",
        ),
        (
            PartitionsSpec("t", 4, [[1, 2]]),
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
    ],
)
def test_what_is_said_of_growth(spec: PartitionsSpec, said: str) -> None:
    with pytest.raises(ApiError) as refused:
        assign_added_partitions(spec, CURRENT, THREE)
    assert refused.value.message == said


def test_cluster_metadata_log_cannot_be_created_as_a_topic() -> None:
    with pytest.raises(ApiError, match="internal topic __cluster_metadata") as caught:
        check_new_topic(TopicSpec("__cluster_metadata"), DEFAULTS)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
