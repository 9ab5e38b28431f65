"""Options of client metrics, over a whole broker with a fake plane and the embedded store."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pyrklog.config.entry import OptionType, Source, Synonym
from pyrklog.errors import ErrorCode
from pyrklog.handlers.service import (
    OP_APPEND,
    OP_DELETE,
    OP_SET,
    OP_SUBTRACT,
    RESOURCE_CLIENT_METRICS,
    ConfigAlteration,
    ConfigResource,
)
from pyrklog.telemetry.subscriptions import RESOURCES_MAX
from tests.unit.admin.option_calls import alter, entries
from tests.unit.broker.harness import Running, running_broker

STRANGE = "a/b .. %2F ä<default>"
BAD = ErrorCode.INVALID_REQUEST


def resource(name: str = "s") -> ConfigResource:
    return ConfigResource(RESOURCE_CLIENT_METRICS, name)


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    async with running_broker(tmp_path) as broker:
        yield broker


def names(running: Running) -> list[str]:
    return running.service.client_metrics.resources


async def message(running: Running, name: str, *operations: tuple[int, str, str | None]) -> str:
    """Of a refusal."""
    items = [ConfigAlteration(*operation) for operation in operations]
    (result,) = await running.service.incremental_alter_configs(
        [(resource(name), items)], validate_only=False
    )
    assert result.error is not ErrorCode.NONE
    return str(result.message)


async def test_what_does_not_exist_has_defaults(running: Running) -> None:
    found = await entries(running, resource())
    assert {name: one.value for name, one in found.items()} == {
        "metrics": "",
        "interval.ms": "300000",
        "match": "",
    }
    assert {one.source for one in found.values()} == {Source.DEFAULT}
    assert not any(one.read_only or one.sensitive or one.synonyms for one in found.values())
    types = [OptionType.LIST, OptionType.INT, OptionType.LIST]
    assert [one.type for one in found.values()] == types
    assert names(running) == []


@pytest.mark.parametrize("name", ["s", STRANGE, ".", ".."])
async def test_a_subscription_is_made_changed_and_deleted(running: Running, name: str) -> None:
    first = (OP_SET, "metrics", "org.apache. , other."), (OP_SET, "interval.ms", "1000")
    assert await alter(running, resource(name), *first) is ErrorCode.NONE
    assert names(running) == [name], "in effect before the answer"
    found = await entries(running, resource(name))
    assert found["metrics"].value == "org.apache.,other."
    assert found["metrics"].source == Source.CLIENT_METRICS
    assert found["interval.ms"].synonyms == [Synonym("interval.ms", "1000", Source.CLIENT_METRICS)]
    assert found["match"].source == Source.DEFAULT
    more = (OP_APPEND, "metrics", "more."), (OP_APPEND, "match", "client_id=a")
    assert await alter(running, resource(name), *more) is ErrorCode.NONE
    assert await alter(running, resource(name), (OP_SUBTRACT, "metrics", "other.")) == 0
    found = await entries(running, resource(name))
    assert found["metrics"].value == "org.apache.,more."
    assert found["match"].value == "client_id=a"
    gone = [(OP_DELETE, option, None) for option in ("metrics", "interval.ms", "match")]
    assert await alter(running, resource(name), *gone) is ErrorCode.NONE
    assert names(running) == []
    assert await alter(running, resource(name), *gone) is ErrorCode.NONE, "again"


async def test_all_options_are_replaced(running: Running) -> None:
    await alter(running, resource(), (OP_SET, "metrics", "a."), (OP_SET, "interval.ms", "500"))
    options: dict[str, str | None] = {"metrics": "b."}
    (result,) = await running.service.alter_configs([(resource(), options)], validate_only=False)
    assert result.error is ErrorCode.NONE
    found = await entries(running, resource())
    assert (found["metrics"].value, found["interval.ms"].value) == ("b.", "300000")
    (result,) = await running.service.alter_configs([(resource(), {})], validate_only=False)
    assert result.error is ErrorCode.NONE
    assert names(running) == []


@pytest.mark.parametrize(
    ("name", "option", "value", "code", "text"),
    [
        ("", "metrics", "a", BAD, "Subscription name can't be empty"),
        ("s", "metric", "a", BAD, "Unknown client metrics configuration: metric"),
        ("s", "interval.ms", "99", BAD, "interval must be between 100 and 3600000 (1 hour)"),
        ("s", "interval.ms", "x", ErrorCode.INVALID_CONFIG, "Not a number of type INT"),
        ("s", "match", "a=b", ErrorCode.INVALID_CONFIG, "Illegal client matching pattern: a=b"),
    ],
)
async def test_wrong_options_are_refused(
    running: Running, name: str, option: str, value: str, code: ErrorCode, text: str
) -> None:
    assert await alter(running, resource(name), (OP_SET, option, value)) is code
    assert text in await message(running, name, (OP_SET, option, value))
    assert names(running) == []


async def test_an_empty_name_is_not_described(running: Running) -> None:
    (found,) = await running.service.describe_configs([(resource(""), None)])
    assert found.error is BAD
    assert found.message == "Client metrics subscription name must not be empty"


async def test_a_number_is_not_appended_to(running: Running) -> None:
    refused = await message(running, "s", (OP_APPEND, "interval.ms", "5"))
    assert refused == "Config value append is not allowed for config key: interval.ms"


async def test_a_validated_change_is_not_made(running: Running) -> None:
    items = [ConfigAlteration(OP_SET, "metrics", "a.")]
    (result,) = await running.service.incremental_alter_configs(
        [(resource(), items)], validate_only=True
    )
    assert result.error is ErrorCode.NONE
    assert names(running) == []


async def test_the_number_of_subscriptions_is_bounded(running: Running) -> None:
    changes = [
        (resource(f"s{number}"), [ConfigAlteration(OP_SET, "metrics", "a.")])
        for number in range(RESOURCES_MAX + 1)
    ]
    results = await running.service.incremental_alter_configs(changes, validate_only=False)
    assert [one.error for one in results] == [ErrorCode.NONE] * RESOURCES_MAX + [BAD]
    assert "as many as may be" in str(results[-1].message)
    assert await alter(running, resource("s0"), (OP_SET, "metrics", "b.")) is ErrorCode.NONE


async def test_subscriptions_are_bounded_together(running: Running) -> None:
    largest = (OP_SET, "match", "client_id=(?:a?){100}a*")
    codes = [await alter(running, resource(f"s{n}"), largest) for n in range(9)]
    assert codes == [ErrorCode.NONE] * 8 + [BAD]
    assert "All subscriptions together" in await message(running, "s8", largest)
    assert await alter(running, resource("s0"), (OP_DELETE, "match", None)) is ErrorCode.NONE
    assert await alter(running, resource("s8"), largest) is ErrorCode.NONE


async def test_subscriptions_outlive_a_restart(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as first:
        assert await alter(first, resource(STRANGE), (OP_SET, "metrics", "a.")) is ErrorCode.NONE
    async with running_broker(tmp_path) as second:
        assert names(second) == [STRANGE]
