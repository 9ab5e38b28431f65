"""What DescribeConfigs shows, and what is said of wrong topic options."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pyrklog.admin.service import Administration
from pyrklog.config.entry import OptionType, Source, Synonym
from pyrklog.config.kafka_only import INTERNAL, KAFKA_ONLY
from pyrklog.config.load import load_config
from pyrklog.errors import ConfigError, ErrorCode
from pyrklog.handlers.service import OP_SET, RESOURCE_TOPIC, ConfigAlteration, ConfigResource
from pyrklog.metastore import znodes
from tests.unit.admin.option_calls import ALL_BROKERS, BROKER, T, alter, entries
from tests.unit.broker.harness import Running, running_broker


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    async with running_broker(tmp_path) as broker:
        await broker.created("t", 1, retention_ms="1000")
        yield broker


async def test_options_that_another_broker_left_may_be_secret(running: Running) -> None:
    assert isinstance(running.service, Administration)
    path = znodes.broker_config_path(znodes.DEFAULT_ENTITY)
    options = {"of.a.plugin": "x", "sasl.jaas.config": "y", "background.threads": "5"}
    await running.service._topics._store.create(path, znodes.encode_config(options))
    for resource in (ALL_BROKERS, BROKER):
        found = await entries(running, resource)
        secret = {name: (found[name].sensitive, found[name].type) for name in options}
        assert secret == {
            "of.a.plugin": (True, OptionType.UNKNOWN),
            "sasl.jaas.config": (True, OptionType.PASSWORD),
            "background.threads": (False, OptionType.INT),
        }


async def test_options_without_effect_are_described_with_kafkas_defaults(tmp_path: Path) -> None:
    given = ("ssl.key.password=secret", "quota.window.num=7", "of.kafka=x")
    with pytest.raises(ConfigError, match=r"of\.kafka"):
        load_config(overrides=given)
    async with running_broker(tmp_path, *given[:2]) as running:
        found = await entries(running, BROKER)
    shown = {
        name: (one.value, one.source, one.read_only, one.type)
        for name, one in found.items()
        if name in ("quota.window.num", "background.threads", "process.roles", "sasl.login.class")
    }
    assert shown == {
        "quota.window.num": ("7", Source.STATIC_BROKER, True, OptionType.INT),
        "background.threads": ("10", Source.DEFAULT, False, OptionType.INT),
        "process.roles": ("", Source.DEFAULT, True, OptionType.LIST),
        "sasl.login.class": (None, Source.DEFAULT, True, OptionType.CLASS),
    }
    assert list(found["quota.window.num"].synonyms) == [
        Synonym("quota.window.num", "7", Source.STATIC_BROKER),
        Synonym("quota.window.num", "11", Source.DEFAULT),
    ]
    password = found["ssl.key.password"]
    assert (password.sensitive, password.source) == (True, Source.STATIC_BROKER)
    assert all(one.documentation for one in found.values())


async def test_kafkas_internal_options_are_shown_where_they_are_given(tmp_path: Path) -> None:
    given = ("unstable.api.versions.enable", "true")
    async with running_broker(tmp_path, "=".join(given)) as running:
        found = await entries(running, BROKER)
    assert INTERNAL & found.keys() == {given[0]}
    shown = found[given[0]]
    assert (shown.value, shown.source) == (given[1], Source.STATIC_BROKER)
    assert KAFKA_ONLY.keys() - found.keys() == INTERNAL - {given[0]}


async def test_a_wrong_option_of_a_topic_is_told_in_kafkas_words(running: Running) -> None:
    said = {
        "segment.bytes": "Invalid value 3 for configuration segment.bytes: "
        "Value must be at least 14",
        "nonsense": "Unknown topic config name: nonsense",
    }
    for name, message in said.items():
        item = ConfigAlteration(OP_SET, name, "3")
        (one,) = await running.service.incremental_alter_configs([(T, [item])], validate_only=False)
        (other,) = await running.service.alter_configs([(T, {name: "3"})], validate_only=False)
        for result in (one, other):
            assert (result.error, result.message) == (ErrorCode.INVALID_CONFIG, message)


async def test_a_topics_compaction_lag_goes_with_the_brokers(running: Running) -> None:
    least, most = "min.compaction.lag.ms", "max.compaction.lag.ms"
    of_all = (OP_SET, f"log.cleaner.{most}", "50")
    assert await alter(running, ALL_BROKERS, of_all) is ErrorCode.NONE
    assert await alter(running, T, (OP_SET, least, "51")) is ErrorCode.INVALID_CONFIG
    assert await alter(running, T, (OP_SET, least, "50")) is ErrorCode.NONE


async def test_a_brokers_options(running: Running) -> None:
    found = await entries(running, BROKER)
    assert found["num.partitions"].read_only
    assert not found["log.retention.ms"].read_only
    assert "listeners" in found
    (unknown, some) = await running.service.describe_configs(
        [(ConfigResource(RESOURCE_TOPIC, "none"), None), (T, {"segment.ms", "none"})],
    )
    assert unknown.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [(entry.name, bool(entry.documentation)) for entry in some.entries] == [
        ("segment.ms", True)
    ]
