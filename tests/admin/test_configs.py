"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs over the wire.

The expected codes are those of Apache Kafka 3.9.1; ``--against HOST:PORT`` runs the tests there.
"""

import time
from collections.abc import Iterator

import pytest

from pyrklog.protocol.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalConfig,
)
from pyrklog.protocol.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from tests.admin.conftest import Ask

CREATE, DESCRIBE, ALTER, INCREMENTAL = 19, 32, 33, 44
TOPIC, BROKER, LOGGER = 2, 4, 8
SET, RESET, APPEND, SUBTRACT = range(4)
OK, UNKNOWN, INVALID_TOPIC, BAD_CONFIG, INVALID = 0, 3, 17, 40, 42
OF_TOPIC, OF_BROKER, OF_ALL_BROKERS, DEFAULT, OF_LOGGER = 1, 2, 3, 5, 6
SETTLES_S = 10.0

Described = tuple[str | None, int]
"""Value and source of an option."""


@pytest.fixture
def made(ask: Ask, topic: str) -> str:
    """A topic with two options of its own."""
    options = [CreatableTopicConfig("retention.ms", "1000")]
    options.append(CreatableTopicConfig("cleanup.policy", "delete"))
    response = ask(CREATE, 7, CreateTopicsRequest([CreatableTopic(topic, 1, 1, [], options)]))
    assert response.topics[0].error_code == OK
    assert becomes(ask, topic, "retention.ms", ("1000", OF_TOPIC))
    return topic


def values(ask: Ask, name: str, type_: int = TOPIC) -> dict[str, Described]:
    """Value and source of a resource's options; empty while Kafka does not know it yet."""
    request = DescribeConfigsRequest([DescribeConfigsResource(type_, name)])
    (result,) = ask(DESCRIBE, 4, request).results
    assert result.error_code in (OK, UNKNOWN)
    return {one.name: (one.value, one.config_source) for one in result.configs}


def change(ask: Ask, name: str, *changes: tuple[str, int, str | None], type_: int = TOPIC) -> int:
    """Alters single options; returns the error code."""
    configs = [IncrementalConfig(*one) for one in changes]
    resource = IncrementalAlterConfigsResource(type_, name, configs)
    response = ask(INCREMENTAL, 1, IncrementalAlterConfigsRequest([resource]))
    (result,) = response.responses
    return int(result.error_code)


def becomes(ask: Ask, name: str, option: str, expected: Described, type_: int = TOPIC) -> bool:
    """Polls for this value; Kafka answers a change before it shows."""
    deadline = time.monotonic() + SETTLES_S
    while values(ask, name, type_).get(option) != expected:
        if time.monotonic() > deadline:
            return False
    return True


@pytest.mark.parametrize("version", range(5))
def test_describing_a_topic(ask: Ask, made: str, version: int) -> None:
    resources = [DescribeConfigsResource(TOPIC, made, ["retention.ms", "segment.bytes", "nope"])]
    request = DescribeConfigsRequest(resources, version >= 1, version >= 3)
    (result,) = ask(DESCRIBE, version, request).results
    assert (result.error_code, result.resource_type, result.resource_name) == (OK, TOPIC, made)
    options = {one.name: one for one in result.configs}
    assert set(options) == {"retention.ms", "segment.bytes"}
    own, inherited = options["retention.ms"], options["segment.bytes"]
    assert (own.value, own.read_only, own.is_sensitive) == ("1000", False, False)
    assert inherited.value == "1073741824"
    if version == 0:
        return  # Kafka never fills this version's is_default.
    assert (own.config_source, inherited.config_source) == (OF_TOPIC, DEFAULT)
    assert own.synonyms[0].name == "retention.ms"
    assert [(one.name, one.source) for one in inherited.synonyms] == [
        ("log.segment.bytes", DEFAULT)
    ]
    if version >= 3:
        assert (own.config_type, inherited.config_type) == (5, 3)
        assert own.documentation
        assert inherited.documentation


@pytest.mark.parametrize("keys", [None, []])
def test_null_and_nothing_ask_for_every_option(ask: Ask, made: str, keys: list[str] | None) -> None:
    request = DescribeConfigsRequest([DescribeConfigsResource(TOPIC, made, keys)])
    (result,) = ask(DESCRIBE, 4, request).results
    names = {one.name for one in result.configs}
    assert len(names) > 25
    assert {"cleanup.policy", "max.message.bytes", "message.timestamp.type"} <= names
    assert all(one.synonyms == [] and one.documentation is None for one in result.configs)


def test_undescribable_resources_are_refused(ask: Ask, topic: str) -> None:
    resources = [
        DescribeConfigsResource(TOPIC, topic),
        DescribeConfigsResource(TOPIC, "a/b"),
        DescribeConfigsResource(BROKER, "9"),
        DescribeConfigsResource(BROKER, "x"),
    ]
    results = ask(DESCRIBE, 4, DescribeConfigsRequest(resources)).results
    codes = {(one.resource_type, one.resource_name): one.error_code for one in results}
    assert codes == {
        (TOPIC, topic): UNKNOWN,
        (TOPIC, "a/b"): INVALID_TOPIC,
        (BROKER, "9"): INVALID,
        (BROKER, "x"): INVALID,
    }


def test_an_unknown_kind_of_resource_fails_all(ask: Ask, made: str) -> None:
    resources = [DescribeConfigsResource(TOPIC, made), DescribeConfigsResource(77, "x")]
    results = ask(DESCRIBE, 4, DescribeConfigsRequest(resources)).results
    assert {one.error_code for one in results} == {INVALID}


def test_single_options_are_changed_and_the_others_stay(ask: Ask, made: str) -> None:
    assert change(ask, made, ("segment.ms", SET, "7000"), ("retention.ms", SET, "5")) == OK
    assert becomes(ask, made, "segment.ms", ("7000", OF_TOPIC))
    assert becomes(ask, made, "retention.ms", ("5", OF_TOPIC))
    assert becomes(ask, made, "cleanup.policy", ("delete", OF_TOPIC))
    assert change(ask, made, ("retention.ms", RESET, None)) == OK
    assert becomes(ask, made, "retention.ms", ("604800000", DEFAULT))
    assert change(ask, made, ("max.message.bytes", RESET, None)) == OK


def test_lists_are_appended_to_and_subtracted_from(ask: Ask, made: str) -> None:
    for _ in range(2):
        assert change(ask, made, ("cleanup.policy", APPEND, "compact")) == OK
        assert becomes(ask, made, "cleanup.policy", ("delete,compact", OF_TOPIC))
    assert change(ask, made, ("cleanup.policy", SUBTRACT, "delete")) == OK
    assert becomes(ask, made, "cleanup.policy", ("compact", OF_TOPIC))
    assert change(ask, made, ("cleanup.policy", SUBTRACT, "burn")) == OK
    assert becomes(ask, made, "cleanup.policy", ("compact", OF_TOPIC))


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([("retention.ms", APPEND, "5")], BAD_CONFIG),
        ([("retention.ms", SET, None)], INVALID),
        ([("retention.ms", SET, "5"), ("retention.ms", SET, "6")], INVALID),
        ([("retention.ms", SET, "soon")], BAD_CONFIG),
        ([("segment.ms", SET, "77"), ("retention.ms", SET, "soon")], BAD_CONFIG),
        ([("nope", SET, "5")], BAD_CONFIG),
        ([("cleanup.policy", APPEND, "burn")], BAD_CONFIG),
    ],
)
def test_changes_that_are_refused_leave_everything(
    ask: Ask, made: str, changes: list[tuple[str, int, str | None]], code: int
) -> None:
    before = values(ask, made)
    assert change(ask, made, *changes) == code
    assert values(ask, made) == before


@pytest.mark.parametrize("version", range(2))
def test_changes_are_only_checked(ask: Ask, made: str, version: int) -> None:
    resource = IncrementalAlterConfigsResource(
        TOPIC, made, [IncrementalConfig("retention.ms", SET, "99")]
    )
    request = IncrementalAlterConfigsRequest([resource], True)
    assert [one.error_code for one in ask(INCREMENTAL, version, request).responses] == [OK]
    assert becomes(ask, made, "retention.ms", ("1000", OF_TOPIC))


def test_every_resource_has_a_result_of_its_own(ask: Ask, made: str) -> None:
    option = [IncrementalConfig("retention.ms", SET, "98")]
    resources = [
        IncrementalAlterConfigsResource(type_, name, option)
        for type_, name in ((TOPIC, made), (TOPIC, made + "-nope"), (BROKER, "x"), (77, "x"))
    ]
    response = ask(INCREMENTAL, 1, IncrementalAlterConfigsRequest(resources))
    codes = {(one.resource_type, one.resource_name): one.error_code for one in response.responses}
    assert codes == {
        (TOPIC, made): OK,
        (TOPIC, made + "-nope"): UNKNOWN,
        (BROKER, "x"): INVALID,
        (77, "x"): INVALID,
    }
    assert becomes(ask, made, "retention.ms", ("98", OF_TOPIC))


@pytest.mark.parametrize("version", range(3))
def test_replacing_options_resets_those_not_named(ask: Ask, made: str, version: int) -> None:
    def replace(*options: tuple[str, str | None], validate: bool = False) -> int:
        configs = [AlterableConfig(*one) for one in options]
        resource = AlterConfigsResource(TOPIC, made, configs)
        response = ask(ALTER, version, AlterConfigsRequest([resource], validate))
        (result,) = response.responses
        return int(result.error_code)

    assert replace(("segment.ms", "7000")) == OK
    assert becomes(ask, made, "segment.ms", ("7000", OF_TOPIC))
    assert becomes(ask, made, "retention.ms", ("604800000", DEFAULT))
    after = values(ask, made)
    assert replace(("retention.ms", "1"), validate=True) == OK
    assert replace(("retention.ms", None)) == INVALID
    assert replace(("retention.ms", "5"), ("retention.ms", "6")) == INVALID
    assert replace(("nope", "5")) == BAD_CONFIG
    assert values(ask, made) == after
    assert replace() == OK
    assert becomes(ask, made, "segment.ms", ("604800000", DEFAULT))


@pytest.fixture
def broker_id(ask: Ask) -> Iterator[str]:
    """The broker's id; resets its dynamic retention after the test."""
    request = DescribeConfigsRequest([DescribeConfigsResource(BROKER, "1")])
    assert ask(DESCRIBE, 4, request).results[0].error_code == OK
    yield "1"
    for name in ("1", ""):
        change(ask, name, ("log.retention.ms", RESET, None), type_=BROKER)


def test_options_of_one_broker_win_over_those_of_all(ask: Ask, made: str, broker_id: str) -> None:
    name = "log.retention.ms"
    assert change(ask, "", (name, SET, "96000"), type_=BROKER) == OK
    assert becomes(ask, broker_id, name, ("96000", OF_ALL_BROKERS), BROKER)
    assert values(ask, "", BROKER) == {name: ("96000", OF_ALL_BROKERS)}
    assert change(ask, broker_id, (name, SET, "97000"), type_=BROKER) == OK
    assert becomes(ask, broker_id, name, ("97000", OF_BROKER), BROKER)
    assert change(ask, made, ("retention.ms", RESET, None)) == OK
    assert becomes(ask, made, "retention.ms", ("97000", OF_BROKER))


def test_static_options_of_a_broker_cannot_be_changed(ask: Ask, broker_id: str) -> None:
    assert change(ask, broker_id, ("num.partitions", SET, "9"), type_=BROKER) == INVALID
    assert change(ask, broker_id, ("broker.id", SET, "9"), type_=BROKER) == INVALID


@pytest.fixture
def root_level(ask: Ask, broker_id: str) -> Iterator[str]:
    """The level of the root logger; sets it again after the test."""
    level, source = values(ask, broker_id, LOGGER)["root"]
    assert level is not None
    assert source == OF_LOGGER
    yield level
    assert change(ask, broker_id, ("root", SET, level), type_=LOGGER) == OK


def test_levels_of_loggers_are_changed(ask: Ask, broker_id: str, root_level: str) -> None:
    level = "ERROR" if root_level != "ERROR" else "WARN"
    assert change(ask, broker_id, ("root", SET, level), type_=LOGGER) == OK
    found = values(ask, broker_id, LOGGER)
    assert found["root"] == (level, OF_LOGGER)
    name = next(name for name, (own, _) in found.items() if name != "root" and own == level)
    assert change(ask, broker_id, (name, SET, "FATAL"), type_=LOGGER) == OK
    assert values(ask, broker_id, LOGGER)[name] == ("FATAL", OF_LOGGER)
    assert change(ask, broker_id, (name, RESET, None), type_=LOGGER) == OK
    assert values(ask, broker_id, LOGGER)[name] == (level, OF_LOGGER)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([("nope", SET, "INFO")], BAD_CONFIG),
        ([("nope", RESET, None)], BAD_CONFIG),
        ([("root", SET, "LOUD")], BAD_CONFIG),
        ([("root", SET, "info")], BAD_CONFIG),
        ([("root", SET, None)], INVALID),
        ([("root", RESET, None)], INVALID),
        ([("root", APPEND, "INFO")], INVALID),
        ([("root", SUBTRACT, "INFO")], INVALID),
    ],
)
def test_refused_levels(
    ask: Ask, broker_id: str, changes: list[tuple[str, int, str | None]], code: int
) -> None:
    before = values(ask, broker_id, LOGGER)["root"]
    assert change(ask, broker_id, *changes, type_=LOGGER) == code
    assert values(ask, broker_id, LOGGER)["root"] == before


def test_replacing_does_not_know_loggers(ask: Ask, broker_id: str) -> None:
    resource = AlterConfigsResource(LOGGER, broker_id, [AlterableConfig("root", "INFO")])
    (result,) = ask(ALTER, 2, AlterConfigsRequest([resource], False)).responses
    assert result.error_code == INVALID


@pytest.mark.parametrize("name", ["", "9", "x"])
def test_loggers_of_another_broker(ask: Ask, name: str) -> None:
    (result,) = ask(
        DESCRIBE, 4, DescribeConfigsRequest([DescribeConfigsResource(LOGGER, name)])
    ).results
    assert result.error_code == INVALID
    assert change(ask, name, ("root", SET, "INFO"), type_=LOGGER) == INVALID
