from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiokafka
import pytest
import trio

from pyrklog.testing import AsyncTestBroker, BrokerExited, TestBroker

Loop = Callable[[Callable[[], Awaitable[None]]], None]


def on_asyncio(use: Callable[[], Any]) -> None:
    asyncio.run(use())


@pytest.fixture(params=["asyncio", "trio"])
def loop(request: pytest.FixtureRequest) -> Loop:
    return on_asyncio if request.param == "asyncio" else trio.run


def test_a_broker_lives_as_long_as_its_block(loop: Loop, tmp_path: Path) -> None:
    async def use() -> None:
        async with TestBroker(tmp_path / "data", faults=True) as broker:
            assert isinstance(broker, AsyncTestBroker)
            topic = await broker.create_topic(partitions=3)
            assert await broker.records(topic) == []
            pid = broker.pid
            await broker.restart()
            assert broker.pid == broker.sync.pid != pid
            assert (broker.port, broker.data) == (broker.sync.port, tmp_path / "data")
            assert await broker.records(topic) == []
            assert await broker.tail(topic, 1) == []
            await broker.note("a word of the test")
            assert "a word of the test" in "".join(broker.log)
            assert broker.running
            assert broker.events()
            broker.signal(0)
            await broker.delete_topic(topic)
            with pytest.raises(LookupError):
                await broker.records(topic)
        assert not broker.sync.running

    loop(use)


def test_a_broker_that_cannot_start_says_why(loop: Loop, tmp_path: Path) -> None:
    async def use() -> None:
        options = {"log.retention.ms": "never"}
        with pytest.raises(BrokerExited, match=r"log\.retention\.ms"):
            async with AsyncTestBroker(data=tmp_path / "data", options=options):
                raise AssertionError("it started")

    loop(use)


def test_others_go_on_while_a_test_waits_for_records(own: TestBroker) -> None:
    async def use() -> list[bytes | None]:
        broker = AsyncTestBroker(own)
        topic = await broker.create_topic()
        client = aiokafka.AIOKafkaProducer(bootstrap_servers=broker.bootstrap)
        await client.start()
        try:
            waiting = asyncio.create_task(broker.wait_for(topic, 2))
            fault = broker.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER")
            for value in (b"a", b"b"):
                await client.send_and_wait(topic, value)
            found = await waiting
            assert fault.fired == 1
        finally:
            await client.stop()
        broker.clear_faults()
        return [record.value for record in found]

    assert asyncio.run(use()) == [b"a", b"b"]


def test_a_broker_that_is_there_takes_no_arguments(own: TestBroker) -> None:
    with pytest.raises(TypeError):
        AsyncTestBroker(own, port=1)
