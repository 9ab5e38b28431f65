"""Calls about options that tests of options share."""

from collections.abc import Mapping

from pyrklog.config.entry import ConfigEntry
from pyrklog.errors import ErrorCode
from pyrklog.handlers.service import (
    RESOURCE_BROKER,
    RESOURCE_TOPIC,
    ConfigAlteration,
    ConfigResource,
)
from tests.unit.broker.harness import Running

T = ConfigResource(RESOURCE_TOPIC, "t")
ALL_BROKERS = ConfigResource(RESOURCE_BROKER, "")
BROKER = ConfigResource(RESOURCE_BROKER, "1")


async def entries(running: Running, resource: ConfigResource) -> Mapping[str, ConfigEntry]:
    (found,) = await running.service.describe_configs([(resource, None)])
    assert found.error is ErrorCode.NONE, found.message
    return {entry.name: entry for entry in found.entries}


async def alter(
    running: Running, resource: ConfigResource, *operations: tuple[int, str, str | None]
) -> ErrorCode:
    items = [ConfigAlteration(*operation) for operation in operations]
    (result,) = await running.service.incremental_alter_configs(
        [(resource, items)], validate_only=False
    )
    return result.error
