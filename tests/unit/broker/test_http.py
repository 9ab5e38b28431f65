"""HTTP of a whole broker in this process; only the plane is fake."""

import json
import socket
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from pyrklog import broker as module
from pyrklog.base.problems import Problem
from pyrklog.broker import Broker
from pyrklog.config.broker import BrokerConfig
from pyrklog.config.load import load_config
from pyrklog.errors import TemporaryError
from pyrklog.start.failed_start import start_error_in
from pyrklog.testing.broker import free_port
from tests.unit.broker.harness import Running, running_broker

ANY_PORT = "pyrklog.http.listener=127.0.0.1:0"


@asynccontextmanager
async def running(directory: Path, *overrides: str) -> AsyncIterator[Running]:
    async with running_broker(directory, ANY_PORT, *overrides) as broker:
        with trio.fail_after(60):
            yield broker


async def ask(broker: Running, path: str) -> tuple[int, str]:
    address = broker.broker.http_address
    assert address is not None
    async with await trio.open_tcp_stream(*address) as stream:
        await stream.send_all(
            f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode()
        )
        answer = b"".join([piece async for piece in stream])
    heading, _, body = answer.partition(b"\r\n\r\n")
    return int(heading.split()[1]), body.decode()


async def health(broker: Running, name: str) -> tuple[int, dict[str, Any]]:
    status, body = await ask(broker, f"/health/{name}")
    return status, json.loads(body)


async def scrape(broker: Running) -> dict[str, float]:
    """Values of metrics without labels."""
    status, text = await ask(broker, "/metrics")
    assert status == 200
    lines = [line.split() for line in text.splitlines() if line[0] != "#" and "{" not in line]
    return {name: float(value) for name, value in lines}


async def test_counts_follow_the_metadata(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        before = await scrape(broker)
        assert before["kafka_brokers"] == 1
        assert before["kafka_server_replicamanager_partitioncount"] == 0
        assert before["kafka_controller_kafkacontroller_activecontrollercount"] == 1
        assert before["pyrklog_ready"] == before["pyrklog_metadata_store_reachable"] == 1
        await broker.created("a", partitions=3)
        await broker.created("b", partitions=2)
        # Scrapes that come together share what was read.
        with trio.fail_after(30):
            while (after := await scrape(broker))[
                "kafka_controller_kafkacontroller_globaltopiccount"
            ] < 2:
                pass
        assert after["kafka_server_replicamanager_partitioncount"] == 5
        assert after["kafka_server_replicamanager_leadercount"] == 5
        assert after["kafka_server_replicamanager_underreplicatedpartitions"] == 0


async def test_health_of_a_single_broker(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        assert await health(broker, "live") == (200, {"live": True})
        assert await health(broker, "ready") == (200, {"ready": True, "broker": 1, "reasons": []})
        status, told = await health(broker, "cluster")
        assert (status, told["healthy"], told["controller"]) == (200, True, 1)
        assert (await health(broker, "restart-safe"))[0] == 200
        await broker.created("a")
        status, told = await health(broker, "restart-safe")
        assert (status, told["safe"], told["partition_count"]) == (503, False, 1)
        assert [one["kind"] for one in told["reasons"]] == ["alone"]


async def test_a_broker_that_ends_is_not_ready(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        assert (await health(broker, "ready"))[0] == 200
        broker.plane.hold_tickets()
        broker.broker.stop()
        status, told = await health(broker, "ready")
        assert status == 503
        assert [one["kind"] for one in told["reasons"]] == ["ending"]


async def test_a_failed_log_directory_is_named(tmp_path: Path) -> None:
    dirs = [str(tmp_path / name) for name in ("a", "b")]
    async with running(tmp_path, f"log.dirs={','.join(dirs)}") as broker:
        broker.plane.fail_log_dir(dirs[0], [])
        told: list[str] = []
        while not told:
            status, answer = await health(broker, "ready")
            told = [one["what"] for one in answer["reasons"]]
        assert (status, told) == (200, [f"broker 1 has lost its log directory {dirs[0]}"])


async def test_a_topic_in_detail(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.created("a", partitions=2)
        status, text = await ask(broker, "/metrics/detail?topic=a")
        assert status == 200
        assert 'kafka_topic_partitions{topic="a"} 2.0' in text
        assert 'kafka_topic_partition_leader{partition="1",topic="a"} 1.0' in text
        assert (await ask(broker, "/metrics/detail?topic=b"))[0] == 404
        assert (await ask(broker, "/metrics/detail?group=g"))[0] == 404


async def test_an_address_that_was_given_and_is_taken_ends_the_start(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BaseExceptionGroup) as caught:
            async with running_broker(tmp_path, f"pyrklog.http.listener=127.0.0.1:{port}"):
                pass
    refused = start_error_in(caught.value)
    assert isinstance(refused, TemporaryError)
    assert f"127.0.0.1:{port} is taken by" in refused.what


async def test_a_start_listens_from_its_beginning_and_no_longer_once_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = ("127.0.0.1", free_port())
    reached = []

    def no_store(_config: BrokerConfig) -> AbstractAsyncContextManager[object]:
        with socket.create_connection(address, timeout=30):
            reached.append(address)
        raise TemporaryError(Problem.ZOOKEEPER_AWAY, "no store")

    monkeypatch.setattr(module, "store_connection", no_store)
    place = {"pyrklog.http.listener": f"{address[0]}:{address[1]}"}
    broker = Broker(load_config(flags={"pyrklog.data.dir": str(tmp_path), **place}))
    with pytest.raises(TemporaryError, match="no store"):
        await broker.run()
    assert reached
    with socket.create_server(address):
        pass


async def test_none_opens_no_port(tmp_path: Path) -> None:
    async with running_broker(tmp_path, "pyrklog.http.listener=none") as broker:
        assert broker.broker.http_address is None
