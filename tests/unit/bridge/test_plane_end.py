"""The plane's ports, and calls to an ending plane, which wait to be cancelled and break nothing."""

import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import trio
import trio.testing

from pyrklog import _core
from pyrklog.config.load import load_config
from pyrklog.errors import TemporaryError
from pyrklog.plane.core_plane import Plane
from pyrklog.plane.plane_settings import plane_settings
from pyrklog.plane.seam import Request, Session, VerifyTransaction
from pyrklog.plane.start_errors import refuse_taken_port


class Listener:
    def __init__(self) -> None:
        self.notices: list[str] = []

    def on_request(self, request: Request) -> None:
        raise AssertionError(request)

    def on_heartbeat(self, heartbeat: _core.Heartbeat) -> None:
        raise AssertionError(heartbeat)

    def on_offset_commit(self, commit: _core.OffsetCommit) -> None:
        raise AssertionError(commit)

    def on_topics_missing(self, request_id: int, topics: Sequence[str], session: Session) -> None:
        raise AssertionError(topics)

    def on_client_gone(self, request_id: int) -> None:
        raise AssertionError(request_id)

    def on_follower_caught_up(
        self, topic: str, partition: int, leader_epoch: int, broker: int, broker_epoch: int
    ) -> None:
        raise AssertionError(topic)

    def on_verify_transaction(self, asked: VerifyTransaction) -> None:
        raise AssertionError(asked)

    def on_follower_log_start(self, topic: str, partition: int) -> None:
        raise AssertionError(topic)

    def on_partition_failed(self, topic: str, topic_id: bytes, partition: int, reason: str) -> None:
        raise AssertionError(reason)

    def on_log_dir_failed(
        self, path: str, reason: str, partitions: Sequence[tuple[str, int]]
    ) -> None:
        raise AssertionError(reason)

    def on_notice(self, event: str, fields: Mapping[str, str], level: str) -> None:
        self.notices.append(event)


async def test_a_command_after_the_shutdown_never_completes(tmp_path: Path) -> None:
    config = load_config(flags={"pyrklog.data.dir": str(tmp_path)})
    plane = Plane(plane_settings(config, 1, "cluster"))
    completed = []

    async def ask() -> None:
        completed.append(await plane.stop_partitions([("t", 0, True)]))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(plane.run, Listener())
        with trio.fail_after(60):
            assert await plane.stop_partitions([("t", 0, True)])
            assert await plane.shutdown(1000)
        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert completed == []


def test_a_taken_port_is_known_before_anybody_can_connect() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(
            TemporaryError, match=f"127.0.0.1:{port} is taken by .*pid {os.getpid()}"
        ):
            refuse_taken_port("PLAINTEXT", "127.0.0.1", port)
    refuse_taken_port("PLAINTEXT", "127.0.0.1", port)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port)).close()
    # What only listening tells is left to it.
    refuse_taken_port("PLAINTEXT", "no.such.host.invalid", port)
