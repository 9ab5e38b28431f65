"""Levels of loggers as BROKER_LOGGER resources (KIP-412), through ``ClusterService``."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pyrklog.admin import broker_loggers
from pyrklog.base import logs
from pyrklog.config.entry import Source
from pyrklog.errors import ApiError, ErrorCode
from pyrklog.handlers.service import (
    OP_APPEND,
    OP_DELETE,
    OP_SET,
    OP_SUBTRACT,
    RESOURCE_BROKER_LOGGER,
    ConfigAlteration,
    ConfigResource,
)
from tests.unit.broker.harness import Running, running_broker

LOGGERS = ConfigResource(RESOURCE_BROKER_LOGGER, "1")
NAME = "configs"


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Levels are the process's: later tests are not to see them."""
    monkeypatch.setattr(logs._sink, "minimum", logs.LEVELS["info"])
    monkeypatch.setattr(logs._sink, "own_minimums", {})


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    async with running_broker(tmp_path) as broker:
        yield broker


async def levels(running: Running) -> dict[str, str | None]:
    (found,) = await running.service.describe_configs([(LOGGERS, None)])
    assert found.error is ErrorCode.NONE, found.message
    return {entry.name: entry.value for entry in found.entries}


async def change(
    running: Running, *operations: tuple[int, str, str | None], validate_only: bool = False
) -> tuple[ErrorCode, str | None]:
    items = [ConfigAlteration(*operation) for operation in operations]
    (result,) = await running.service.incremental_alter_configs(
        [(LOGGERS, items)], validate_only=validate_only
    )
    return result.error, result.message


async def test_every_logger_follows_the_root_until_it_has_a_level(running: Running) -> None:
    before = await levels(running)
    assert {"root", "broker", NAME, "controller"} <= before.keys()
    assert set(before.values()) == {"INFO"}
    assert await change(running, (OP_SET, NAME, "DEBUG")) == (ErrorCode.NONE, None)
    assert await change(running, (OP_SET, "root", "ERROR")) == (ErrorCode.NONE, None)
    after = await levels(running)
    assert (after["root"], after["broker"], after[NAME]) == ("ERROR", "ERROR", "DEBUG")
    assert await change(running, (OP_DELETE, NAME, None)) == (ErrorCode.NONE, None)
    assert (await levels(running))[NAME] == "ERROR"


async def test_a_description_names_its_source_and_only_what_was_asked(running: Running) -> None:
    (found,) = await running.service.describe_configs([(LOGGERS, {NAME, "nope"})])
    (entry,) = found.entries
    assert (entry.name, entry.source, entry.read_only, entry.sensitive) == (
        NAME,
        Source.DYNAMIC_BROKER_LOGGER,
        False,
        False,
    )
    assert list(entry.synonyms) == []


async def test_levels_act_at_once(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr(
        logs, "_emit", lambda _at, _name, _level, event, _fields: lines.append(event)
    )
    monkeypatch.setattr(logs._sink, "bound", object())
    log = logs.get_logger(NAME)
    log.debug("at info")
    await change(running, (OP_SET, NAME, "TRACE"))
    log.debug("at trace")
    await change(running, (OP_SET, NAME, "FATAL"))
    log.error("at fatal")
    await change(running, (OP_DELETE, NAME, None))
    log.info("at info again")
    own = [line for line in lines if line.startswith("at ")]
    assert own == ["at trace", "at info again"]


async def test_validation_changes_no_level(running: Running) -> None:
    code, _ = await change(running, (OP_SET, NAME, "DEBUG"), validate_only=True)
    assert code is ErrorCode.NONE
    assert (await levels(running))[NAME] == "INFO"


@pytest.mark.parametrize(
    ("operations", "code", "message"),
    [
        (
            [(OP_SET, "nope", "DEBUG")],
            ErrorCode.INVALID_CONFIG,
            "Logger nope does not exist!",
        ),
        (
            [(OP_DELETE, "nope", None)],
            ErrorCode.INVALID_CONFIG,
            "Logger nope does not exist!",
        ),
        (
            [(OP_SET, NAME, "LOUD")],
            ErrorCode.INVALID_CONFIG,
            "Cannot set the log level of configs to LOUD as it is not a supported log level. "
            "Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN",
        ),
        (
            [(OP_SET, NAME, "DEBUG"), (OP_SET, "broker", "debug")],
            ErrorCode.INVALID_CONFIG,
            "Cannot set the log level of broker to debug as it is not a supported log level. "
            "Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN",
        ),
        (
            [(OP_DELETE, "root", None)],
            ErrorCode.INVALID_REQUEST,
            "Removing the log level of the root logger is not allowed",
        ),
        (
            [(OP_APPEND, NAME, "DEBUG")],
            ErrorCode.INVALID_REQUEST,
            "APPEND operation is not allowed for the BROKER_LOGGER resource",
        ),
        (
            [(OP_SUBTRACT, NAME, "DEBUG")],
            ErrorCode.INVALID_REQUEST,
            "SUBTRACT operation is not allowed for the BROKER_LOGGER resource",
        ),
        (
            [(9, NAME, "DEBUG")],
            ErrorCode.INVALID_REQUEST,
            "Unknown operation type 9 is not allowed for the BROKER_LOGGER resource",
        ),
        (
            [(OP_SET, NAME, None), (OP_SET, "broker", None)],
            ErrorCode.INVALID_REQUEST,
            "Null value not supported for : configs, broker",
        ),
        (
            [(OP_SET, NAME, "DEBUG"), (OP_DELETE, NAME, None)],
            ErrorCode.INVALID_REQUEST,
            "Error due to duplicate config keys",
        ),
    ],
)
async def test_refused_changes_leave_all_levels(
    running: Running,
    operations: list[tuple[int, str, str | None]],
    code: ErrorCode,
    message: str,
) -> None:
    assert await change(running, *operations) == (code, message)
    assert set((await levels(running)).values()) == {"INFO"}


@pytest.mark.parametrize("name", ["", "2", "one"])
async def test_loggers_of_other_brokers_are_refused(running: Running, name: str) -> None:
    other = ConfigResource(RESOURCE_BROKER_LOGGER, name)
    (described,) = await running.service.describe_configs([(other, None)])
    assert described.error is ErrorCode.INVALID_REQUEST
    (altered,) = await running.service.incremental_alter_configs(
        [(other, [ConfigAlteration(OP_SET, NAME, "DEBUG")])], validate_only=False
    )
    assert altered.error is ErrorCode.INVALID_REQUEST
    assert (await levels(running))[NAME] == "INFO"


async def test_alter_configs_does_not_know_loggers(running: Running) -> None:
    (result,) = await running.service.alter_configs(
        [(LOGGERS, {NAME: "DEBUG"})], validate_only=False
    )
    assert (result.error, result.message) == (
        ErrorCode.INVALID_REQUEST,
        "Unknown resource type 8",
    )


def test_messages_name_the_broker_as_kafka_does() -> None:
    said = {}
    for name in ("2", "x"):
        with pytest.raises(ApiError) as described:
            broker_loggers.describe(1, name, None)
        with pytest.raises(ApiError) as altered:
            broker_loggers.alter(1, name, [], validate_only=True)
        said[name] = (described.value.message, altered.value.message)
    assert said == {
        "2": (
            "Unexpected broker id, expected 1 but received 2",
            "Unexpected node id. Expected 1, but received 2",
        ),
        "x": (
            "Broker id must be an integer, but it is: x",
            "Node id must be an integer, but it is: x",
        ),
    }
