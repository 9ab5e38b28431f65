"""Compaction does not exist yet: the broker's log says so to those who ask for it."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from pyrklog.admin.uncompacted import SHOWN_MAX
from pyrklog.base import logs
from pyrklog.handlers.service import (
    OP_DELETE,
    OP_SET,
    RESOURCE_BROKER,
    RESOURCE_TOPIC,
    ConfigAlteration,
    ConfigResource,
    TopicSpec,
)
from tests.unit.broker.harness import Running, running_broker

T = ConfigResource(RESOURCE_TOPIC, "t")


@pytest.fixture
def output(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    monkeypatch.setattr(logs, "_sink", logs._Sink())
    out = io.StringIO()
    logs.configure(out)
    return out


def told(output: io.StringIO) -> list[list[str]]:
    lines: list[dict[str, Any]] = [json.loads(line) for line in output.getvalue().splitlines()]
    output.seek(0)
    output.truncate()
    found = [line for line in lines if line["event"] == "topics_not_compacted"]
    assert all(line["level"] == "warning" for line in found)
    return [line["topics"] for line in found]


async def alter(running: Running, operation: int, name: str, value: str | None) -> None:
    items = [ConfigAlteration(operation, name, value)]
    await running.service.incremental_alter_configs([(T, items)], validate_only=False)


async def test_creating_compacted_topics_logs_one_notice(
    tmp_path: Path, output: io.StringIO
) -> None:
    async with running_broker(tmp_path) as running:
        compact = {"cleanup.policy": "compact"}
        await running.create(TopicSpec("b", 1, configs=compact), TopicSpec("plain", 1))
        assert told(output) == [["b"]]
        await running.service.create_topics(
            [TopicSpec("none", 1, configs=compact)], validate_only=True, timeout_ms=0
        )
        await running.create(TopicSpec("b", 1, configs=compact))  # it exists
        await running.create(TopicSpec("__consumer_offsets", 1, configs=compact))
        assert told(output) == []


async def test_auto_created_topic_with_a_compacting_default_logs_a_notice(
    tmp_path: Path, output: io.StringIO
) -> None:
    async with running_broker(tmp_path, "log.cleanup.policy=compact") as running:
        await running.service.auto_create_topics(["a"])
        await running.created("deletes", cleanup_policy="delete")
        assert told(output) == [["a"]]


async def test_setting_a_compacting_policy_logs_a_notice(
    tmp_path: Path, output: io.StringIO
) -> None:
    async with running_broker(tmp_path) as running:
        await running.created("t")
        await alter(running, OP_SET, "cleanup.policy", "compact")
        assert told(output) == [["t"]]
        await alter(running, OP_SET, "retention.ms", "1000")
        await alter(running, OP_DELETE, "cleanup.policy", None)
        assert told(output) == []
        options = {"cleanup.policy": "compact,delete"}
        await running.service.alter_configs([(T, options)], validate_only=False)
        assert told(output) == [["t"]]


async def test_setting_a_compacting_default_logs_a_notice_once(
    tmp_path: Path, output: io.StringIO
) -> None:
    brokers = ConfigResource(RESOURCE_BROKER, "")
    async with running_broker(tmp_path) as running:
        for value, lines in (("compact", 1), ("compact", 0), ("delete", 0)):
            items = [ConfigAlteration(OP_SET, "log.cleanup.policy", value)]
            await running.service.incremental_alter_configs([(brokers, items)], validate_only=False)
            assert output.getvalue().count('"option": "log.cleanup.policy"') == lines
            output.seek(0)
            output.truncate()


async def test_start_names_some_uncompacted_topics_in_one_line(
    tmp_path: Path, output: io.StringIO
) -> None:
    compact = {"cleanup.policy": "compact"}
    names = [f"t{number:02}" for number in range(SHOWN_MAX + 3)]
    async with running_broker(tmp_path) as running:
        await running.create(*(TopicSpec(name, 1, configs=compact) for name in names))
        await running.created("plain")
        await running.create(TopicSpec("__consumer_offsets", 1, configs=compact))
    told(output)
    async with running_broker(tmp_path):
        (line,) = [one for one in output.getvalue().splitlines() if "topics_not_compacted" in one]
        assert json.loads(line)["count"] == len(names)
        assert told(output) == [names[:SHOWN_MAX]]
