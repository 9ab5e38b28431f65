"""What a service manager is told, over real sockets."""

import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio
import trio.testing

from pyrklog.start import service_manager
from pyrklog.start.service_manager import EXTEND_SECONDS, ServiceManager
from tests.unit.broker.harness import running_broker


class Listener:
    """A service manager's end; ``name`` is what the variable has."""

    def __init__(self, bound: str, name: str) -> None:
        self.name = name
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.bind(bound)

    def told(self) -> list[list[str]]:
        """Lines of each message so far."""
        found = []
        while True:
            try:
                found.append(self._socket.recv(4096).decode().split("\n"))
            except BlockingIOError:
                return found

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["path", "abstract"])
def listener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Listener]:
    path = str(tmp_path / "notify")
    is_abstract = request.param == "abstract"
    found = Listener(f"\0{path}" if is_abstract else path, f"@{path}" if is_abstract else path)
    yield found
    found.close()


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    told: list[dict[str, str]] = []
    note = lambda event, **fields: told.append({"event": event, **fields})  # noqa: E731
    monkeypatch.setattr(service_manager, "log", SimpleNamespace(warning=note))
    return told


def test_the_messages_are_systemds(listener: Listener, warnings: list[dict[str, str]]) -> None:
    manager = ServiceManager({"NOTIFY_SOCKET": listener.name})
    manager.ready("broker 1 of cluster c")
    manager.stopping()
    assert listener.told() == [
        ["READY=1", "STATUS=broker 1 of cluster c"],
        ["STOPPING=1", "STATUS=ending: hands over its partitions, writes its records"],
    ]
    assert warnings == []


async def test_a_long_start_asks_for_time_again_and_again(
    listener: Listener, autojump_clock: trio.testing.MockClock
) -> None:
    ready = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ServiceManager({"NOTIFY_SOCKET": listener.name}).extend_start, ready)
        await trio.sleep(3.5 * EXTEND_SECONDS)
        ready.set()
    assert listener.told() == [["STATUS=starting", "EXTEND_TIMEOUT_USEC=60000000"]] * 4


async def test_without_a_manager_nothing_is_sent(warnings: list[dict[str, str]]) -> None:
    for environ in ({}, {"NOTIFY_SOCKET": ""}):
        manager = ServiceManager(environ)
        await manager.extend_start(trio.Event())
        manager.ready("")
        manager.stopping()
    assert warnings == []


@pytest.mark.parametrize("name", ["nowhere", "x" * 200])
def test_a_manager_that_cannot_be_told_is_told_of_once(
    name: str, tmp_path: Path, warnings: list[dict[str, str]]
) -> None:
    address = str(tmp_path / name)
    manager = ServiceManager({"NOTIFY_SOCKET": address})
    manager.ready("")
    manager.stopping()
    assert [(one["event"], one["socket"]) for one in warnings] == [
        ("service_manager_not_told", address)
    ]


async def test_a_broker_is_ready_once_it_listens_and_tells_its_end(
    listener: Listener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", listener.name)
    async with running_broker(tmp_path / "data") as running:
        assert running.plane.ports
        cluster_id = running.service.describe_cluster("PLAINTEXT").cluster_id
        told = [line for message in listener.told() for line in message]
        assert told[-2:] == ["READY=1", f"STATUS=broker 1 of cluster {cluster_id}"]
    assert running.exit_code == 0
    assert [message[0] for message in listener.told()] == ["STOPPING=1"]
