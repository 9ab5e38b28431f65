"""CreateTopics, DeleteTopics, CreatePartitions: calls of the control plane, and answers."""

import pytest

from pyrklog.config.entry import ConfigEntry, OptionType, Source
from pyrklog.errors import ApiError, ErrorCode
from pyrklog.handlers.service import (
    DeletedTopic,
    NamedResult,
    PartitionsSpec,
    TopicRef,
    TopicResult,
    TopicSpec,
)
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
from tests.unit.handlers.fake_service import FakeService, ask

CREATE, DELETE, PARTITIONS = 19, 20, 37
ID = bytes(range(16))


async def test_a_topic_is_created_and_described() -> None:
    entry = ConfigEntry(
        "retention.ms", "1000", False, Source.TOPIC, False, (), OptionType.LONG, None
    )
    secret = ConfigEntry("secret", None, True, Source.TOPIC, True, (), OptionType.LONG, None)
    created = TopicResult("a", ErrorCode.NONE, None, ID, 3, 1, [entry, secret])
    fake = FakeService(create_topics=[created])
    asked = CreatableTopic("a", 3, 1, [], [CreatableTopicConfig("retention.ms", "1000")])
    response = await ask(fake, CREATE, 7, CreateTopicsRequest([asked], 1500, True))
    assert fake.asked("create_topics") == [TopicSpec("a", 3, 1, None, {"retention.ms": "1000"})]
    assert fake.options("create_topics") == {"validate_only": True, "timeout_ms": 1500}
    (topic,) = response.topics
    assert (topic.topic_id, topic.num_partitions, topic.replication_factor) == (ID, 3, 1)
    assert (topic.error_code, topic.error_message) == (0, None)
    shown = [(c.name, c.value, c.read_only, c.config_source, c.is_sensitive) for c in topic.configs]
    assert shown == [("retention.ms", "1000", False, 1, False), ("secret", None, True, 1, True)]


async def test_an_assignment_and_a_null_option_reach_the_control_plane() -> None:
    fake = FakeService(create_topics=[TopicResult("a", ErrorCode.NONE)])
    assignment = [CreatableReplicaAssignment(1, [2, 1]), CreatableReplicaAssignment(0, [1])]
    asked = CreatableTopic("a", -1, -1, assignment, [CreatableTopicConfig("x", None)])
    await ask(fake, CREATE, 4, CreateTopicsRequest([asked]))
    spec = TopicSpec("a", -1, -1, {1: [2, 1], 0: [1]}, {"x": None})
    assert fake.asked("create_topics") == [spec]


async def test_a_topic_named_twice_gets_one_result() -> None:
    twice = TopicResult("a", ErrorCode.INVALID_REQUEST, "twice")
    fake = FakeService(create_topics=[twice, TopicResult("b", ErrorCode.NONE), twice])
    topics = [CreatableTopic(name, 1, 1) for name in ("a", "b", "a")]
    response = await ask(fake, CREATE, 5, CreateTopicsRequest(topics))
    shown = [(t.name, t.error_code, t.error_message) for t in response.topics]
    assert shown == [("a", 42, "twice"), ("b", 0, None)]
    assert response.topics[0].configs == []


@pytest.mark.parametrize(("key", "version"), [(CREATE, 2), (CREATE, 7), (PARTITIONS, 3)])
async def test_not_the_controller_is_said_of_each_topic(key: int, version: int) -> None:
    error = ApiError(ErrorCode.NOT_CONTROLLER, "Ask broker 2.")
    fake = FakeService(create_topics=error, create_partitions=error)
    if key == CREATE:
        message = CreateTopicsRequest([CreatableTopic(name) for name in ("a", "b", "a")])
        results = (await ask(fake, key, version, message)).topics
    else:
        parts = CreatePartitionsRequest([CreatePartitionsTopic(name, 2) for name in ("a", "b")])
        results = (await ask(fake, key, version, parts)).results
    assert [(one.name, one.error_code) for one in results] == [("a", 41), ("b", 41)]
    assert {one.error_message for one in results} == {"Ask broker 2."}


async def test_topics_are_deleted_by_name() -> None:
    done = [
        DeletedTopic("a", ID, ErrorCode.NONE),
        DeletedTopic("b", bytes(16), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    fake = FakeService(delete_topics=done)
    request = DeleteTopicsRequest(topic_names=["a", "b"], timeout_ms=7)
    response = await ask(fake, DELETE, 5, request)
    assert fake.asked("delete_topics") == [TopicRef("a"), TopicRef("b")]
    assert fake.options("delete_topics") == {"timeout_ms": 7}
    first, second = response.responses
    assert (first.name, first.error_code, first.error_message) == ("a", 0, None)
    assert (second.name, second.error_code) == ("b", 3)
    assert second.error_message == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.message


async def test_topics_are_deleted_by_id() -> None:
    done = [
        DeletedTopic("a", ID, ErrorCode.NONE),
        DeletedTopic(None, bytes(15) + b"x", ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    fake = FakeService(delete_topics=done)
    states = [DeleteTopicState(None, ID), DeleteTopicState(None, bytes(15) + b"x")]
    response = await ask(fake, DELETE, 6, DeleteTopicsRequest(topics=states))
    assert fake.asked("delete_topics") == [TopicRef(None, one.topic_id) for one in states]
    shown = [(one.name, one.topic_id, one.error_code) for one in response.responses]
    assert shown == [("a", ID, 0), (None, bytes(15) + b"x", 100)]


async def test_topics_that_are_given_wrongly_are_refused_and_the_others_deleted() -> None:
    fake = FakeService(delete_topics=[DeletedTopic("a", ID, ErrorCode.NONE)])
    states = [
        DeleteTopicState("b", ID),
        DeleteTopicState(),
        DeleteTopicState("twice"),
        DeleteTopicState("a"),
        DeleteTopicState("twice"),
        DeleteTopicState(None, b"t" * 16),
        DeleteTopicState(None, b"t" * 16),
    ]
    response = await ask(fake, DELETE, 6, DeleteTopicsRequest(topics=states))
    assert fake.asked("delete_topics") == [TopicRef("a")]
    shown = [(one.name, one.topic_id, one.error_code) for one in response.responses]
    assert shown == [
        ("a", ID, 0),
        ("b", ID, 42),
        (None, bytes(16), 42),
        ("twice", bytes(16), 42),
        (None, b"t" * 16, 42),
    ]
    assert all(one.error_message for one in response.responses[1:])


async def test_a_name_given_twice_is_refused_in_old_versions_too() -> None:
    response = await ask(FakeService(), DELETE, 1, DeleteTopicsRequest(topic_names=["a", "a"]))
    assert [(one.name, one.error_code) for one in response.responses] == [("a", 42)]


@pytest.mark.parametrize(("version", "code"), [(1, 42), (2, 42), (3, 73), (6, 73)])
async def test_disabled_deletion_is_told_in_a_code_that_the_client_knows(
    version: int, code: int
) -> None:
    disabled = DeletedTopic("a", bytes(16), ErrorCode.TOPIC_DELETION_DISABLED)
    fake = FakeService(delete_topics=[disabled])
    request = DeleteTopicsRequest(topics=[DeleteTopicState("a")], topic_names=["a"])
    response = await ask(fake, DELETE, version, request)
    assert [one.error_code for one in response.responses] == [code]


async def test_partitions_are_added() -> None:
    done = [NamedResult("a", ErrorCode.NONE), NamedResult("b", ErrorCode.INVALID_PARTITIONS, "no")]
    fake = FakeService(create_partitions=[*done, done[1]])
    topics = [
        CreatePartitionsTopic("a", 4),
        CreatePartitionsTopic("b", 2, [CreatePartitionsAssignment([1, 2])]),
        CreatePartitionsTopic("b", 3, []),
    ]
    response = await ask(fake, PARTITIONS, 2, CreatePartitionsRequest(topics, 9, True))
    assert fake.asked("create_partitions") == [
        PartitionsSpec("a", 4, None),
        PartitionsSpec("b", 2, [[1, 2]]),
        PartitionsSpec("b", 3, []),
    ]
    assert fake.options("create_partitions") == {"validate_only": True, "timeout_ms": 9}
    shown = [(one.name, one.error_code, one.error_message) for one in response.results]
    assert shown == [("a", 0, None), ("b", 37, "no")]
