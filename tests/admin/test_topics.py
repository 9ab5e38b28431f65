"""CreateTopics, DeleteTopics, CreatePartitions over the wire, in every version.

The expected codes are those of Apache Kafka 3.9.1; ``--against HOST:PORT`` runs the tests there.
"""

import pytest

from pyrklog.protocol.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from tests.admin.conftest import Ask

CREATE, DELETE, PARTITIONS = 19, 20, 37
CREATE_VERSIONS = range(8)
OK, UNKNOWN, INVALID_TOPIC, EXISTS = 0, 3, 17, 36
BAD_PARTITIONS, BAD_FACTOR, BAD_ASSIGNMENT, BAD_CONFIG, INVALID, UNKNOWN_ID = (
    37,
    38,
    39,
    40,
    42,
    100,
)
NO_ID = bytes(16)


def create(ask: Ask, version: int, *topics: CreatableTopic, validate: bool = False) -> list[int]:
    """Creates topics; returns their error codes."""
    request = CreateTopicsRequest(list(topics), validate_only=validate)
    return [one.error_code for one in ask(CREATE, version, request).topics]


@pytest.mark.parametrize("version", CREATE_VERSIONS)
def test_a_topic_is_created_once(ask: Ask, topic: str, version: int) -> None:
    config = [CreatableTopicConfig("retention.ms", "1000")]
    request = CreateTopicsRequest([CreatableTopic(topic, 3, 1, [], config)])
    (created,) = ask(CREATE, version, request).topics
    assert (created.name, created.error_code, created.error_message) == (topic, OK, None)
    if version >= 5:
        assert (created.num_partitions, created.replication_factor) == (3, 1)
        configs = {one.name: one for one in created.configs}
        retention, cleanup = configs["retention.ms"], configs["cleanup.policy"]
        assert (retention.value, retention.config_source) == ("1000", 1)
        assert (cleanup.value, cleanup.config_source, cleanup.read_only) == ("delete", 5, False)
    assert (created.topic_id != NO_ID) == (version >= 7)
    (again,) = ask(CREATE, version, request).topics
    assert again.error_code == EXISTS
    assert bool(again.error_message) == (version >= 1)


@pytest.mark.parametrize("version", [4, 7])
def test_counts_left_open_are_the_broker_s(ask: Ask, topic: str, version: int) -> None:
    assert create(ask, version, CreatableTopic(topic)) == [OK]


@pytest.mark.parametrize("version", CREATE_VERSIONS[1:])
def test_checking_creates_nothing(ask: Ask, topic: str, version: int) -> None:
    for _ in range(2):
        assert create(ask, version, CreatableTopic(topic, 1, 1), validate=True) == [OK]
    assert create(ask, version, CreatableTopic(topic, 1, 1)) == [OK]


def test_a_name_given_twice_gets_one_refusal(ask: Ask, topic: str) -> None:
    topics = [CreatableTopic(topic, 1, 1), CreatableTopic(topic + "-b", 1, 1)]
    request = CreateTopicsRequest([topics[0], *topics])
    found = {one.name: one.error_code for one in ask(CREATE, 7, request).topics}
    assert found == {topic: INVALID, topic + "-b": OK}


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "é", "x" * 250])
def test_names_that_no_topic_may_have(ask: Ask, name: str) -> None:
    assert create(ask, 7, CreatableTopic(name, 1, 1)) == [INVALID_TOPIC]


def test_names_that_differ_only_in_dots_and_underscores_collide(ask: Ask, topic: str) -> None:
    assert create(ask, 7, CreatableTopic(topic + "a.b_c", 1, 1)) == [OK]
    assert create(ask, 7, CreatableTopic(topic + "a_b.c", 1, 1)) == [INVALID_TOPIC]


@pytest.mark.parametrize(
    ("partitions", "factor", "code"),
    [(0, 1, BAD_PARTITIONS), (-2, 1, BAD_PARTITIONS), (1, 0, BAD_FACTOR), (1, 9, BAD_FACTOR)],
)
def test_impossible_counts_are_refused(
    ask: Ask, topic: str, partitions: int, factor: int, code: int
) -> None:
    assert create(ask, 7, CreatableTopic(topic, partitions, factor)) == [code]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("nope", "1"),
        ("retention.ms", "soon"),
        ("retention.ms", None),
        ("min.insync.replicas", "0"),
        ("cleanup.policy", "burn"),
        ("compression.type", "rar"),
    ],
)
def test_impossible_options_are_refused(ask: Ask, topic: str, name: str, value: str | None) -> None:
    asked = CreatableTopic(topic, 1, 1, [], [CreatableTopicConfig(name, value)])
    assert create(ask, 7, asked) == [BAD_CONFIG]
    assert create(ask, 7, CreatableTopic(topic, 1, 1)) == [OK]


@pytest.mark.parametrize(
    ("assignment", "code"),
    [
        ({0: [1], 1: [1]}, OK),
        ({0: [1], 2: [1]}, BAD_ASSIGNMENT),
        ({0: [7]}, BAD_ASSIGNMENT),
        ({0: [1, 1]}, BAD_ASSIGNMENT),
        ({0: []}, BAD_ASSIGNMENT),
    ],
)
def test_manual_assignment_is_kept_and_bad_ones_are_refused(
    ask: Ask, topic: str, assignment: dict[int, list[int]], code: int
) -> None:
    asked = [CreatableReplicaAssignment(index, ids) for index, ids in assignment.items()]
    assert create(ask, 7, CreatableTopic(topic, -1, -1, asked)) == [code]


def test_an_assignment_excludes_counts(ask: Ask, topic: str) -> None:
    one = [CreatableReplicaAssignment(0, [1])]
    assert create(ask, 7, CreatableTopic(topic, 1, -1, one)) == [INVALID]
    assert create(ask, 7, CreatableTopic(topic, -1, 1, one)) == [INVALID]


@pytest.mark.parametrize("version", range(7))
def test_a_topic_is_deleted_once(ask: Ask, topic: str, version: int) -> None:
    create(ask, 7, CreatableTopic(topic, 2, 1))
    states = [DeleteTopicState(topic), DeleteTopicState(topic + "-nope")]
    names = [state.name for state in states if state.name]
    request = DeleteTopicsRequest(topics=states, topic_names=names)
    found = {one.name: one.error_code for one in ask(DELETE, version, request).responses}
    assert found == {topic: OK, topic + "-nope": UNKNOWN}
    again = {one.name: one.error_code for one in ask(DELETE, version, request).responses}
    assert again == {topic: UNKNOWN, topic + "-nope": UNKNOWN}


def test_a_topic_is_deleted_by_id(ask: Ask, topic: str) -> None:
    (created,) = ask(CREATE, 7, CreateTopicsRequest([CreatableTopic(topic, 1, 1)])).topics
    states = [DeleteTopicState(None, created.topic_id), DeleteTopicState(None, b"?" * 16)]
    responses = ask(DELETE, 6, DeleteTopicsRequest(topics=states)).responses
    found = {one.topic_id: (one.name, one.error_code) for one in responses}
    assert found == {created.topic_id: (topic, OK), b"?" * 16: (None, UNKNOWN_ID)}


def test_topics_to_delete_are_given_by_one_of_both_and_once(ask: Ask, topic: str) -> None:
    create(ask, 7, *(CreatableTopic(topic + end, 1, 1) for end in "ab"))
    states = [
        DeleteTopicState(topic + "a", b"?" * 16),
        DeleteTopicState(),
        DeleteTopicState(topic + "b"),
        DeleteTopicState(topic + "b"),
    ]
    responses = ask(DELETE, 6, DeleteTopicsRequest(topics=states)).responses
    assert {one.error_code for one in responses} == {INVALID}
    assert create(ask, 7, CreatableTopic(topic + "b", 1, 1)) == [EXISTS]


@pytest.mark.parametrize("version", range(4))
def test_partitions_are_added(ask: Ask, topic: str, version: int) -> None:
    create(ask, 7, CreatableTopic(topic, 2, 1))
    topics = [CreatePartitionsTopic(topic, 4), CreatePartitionsTopic(topic + "-nope", 4)]
    results = ask(PARTITIONS, version, CreatePartitionsRequest(topics)).results
    assert {one.name: one.error_code for one in results} == {topic: OK, topic + "-nope": UNKNOWN}


@pytest.mark.parametrize(
    ("total", "assignment", "code"),
    [
        (0, None, BAD_PARTITIONS),
        (1, None, BAD_PARTITIONS),
        (2, None, BAD_PARTITIONS),
        (4, [[1]], BAD_ASSIGNMENT),
        (3, [[9]], BAD_ASSIGNMENT),
        (3, [[1, 1]], BAD_ASSIGNMENT),
        (3, [[]], BAD_ASSIGNMENT),
        (3, [[1]], OK),
    ],
)
def test_totals_and_assignments(
    ask: Ask, topic: str, total: int, assignment: list[list[int]] | None, code: int
) -> None:
    create(ask, 7, CreatableTopic(topic, 2, 1))
    asked = None if assignment is None else [CreatePartitionsAssignment(ids) for ids in assignment]
    request = CreatePartitionsRequest([CreatePartitionsTopic(topic, total, asked)])
    assert [one.error_code for one in ask(PARTITIONS, 3, request).results] == [code]


def test_partitions_are_only_checked(ask: Ask, topic: str) -> None:
    create(ask, 7, CreatableTopic(topic, 2, 1))
    for _ in range(2):
        request = CreatePartitionsRequest([CreatePartitionsTopic(topic, 5)], validate_only=True)
        assert [one.error_code for one in ask(PARTITIONS, 3, request).results] == [OK]


def test_a_topic_with_two_totals_is_refused_once(ask: Ask, topic: str) -> None:
    create(ask, 7, CreatableTopic(topic, 2, 1))
    topics = [CreatePartitionsTopic(topic, total) for total in (3, 4)]
    results = ask(PARTITIONS, 3, CreatePartitionsRequest(topics)).results
    assert [(one.name, one.error_code) for one in results] == [(topic, INVALID)]
