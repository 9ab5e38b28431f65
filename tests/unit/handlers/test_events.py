"""An exception in the handling of an event ends only that event."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from pyrklog.errors import ApiError, ErrorCode
from pyrklog.handlers.client_table import ClientTable
from pyrklog.handlers.events import EventHandler
from pyrklog.metastore.interface import StoreFailedError
from pyrklog.protocol.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pyrklog.protocol.registry import find_api
from pyrklog.testing.fake_plane import FakePlane, FakeRequest
from tests.unit.handlers.fake_service import FakeService, make_handlers

COMMIT = 8


class Broken:
    def __init__(self, failing: dict[str, Exception]) -> None:
        self.asked: list[str] = []
        self._failing = failing
        self._real = make_handlers(FakeService())

    def __getattr__(self, name: str) -> Any:
        def ask(*arguments: Any) -> Any:
            self.asked.append(name)
            if name in self._failing:
                raise self._failing[name]
            return getattr(self._real, name)(*arguments)

        return ask


class BrokenReplication:
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


def handler_of(
    plane: FakePlane,
    handlers: Any,
    nursery: trio.Nursery,
    *,
    is_loaded: bool = True,
    store: Any = None,
    clients: ClientTable | None = None,
) -> EventHandler:
    nothing: Any = None
    replication: Any = BrokenReplication()
    events = EventHandler(
        node_id=1,
        plane=plane,
        store=store,
        service=nothing,
        replication=replication,
        load_handlers=lambda: handlers,
        log_dir_count=2,
        on_all_log_dirs_failed=lambda: None,
        nursery=nursery,
        clients=clients,
    )
    if is_loaded:
        events.preload()
    return events


def commit_request() -> Any:
    offsets = [OffsetCommitRequestTopic("t", [OffsetCommitRequestPartition(0, 7)])]
    body = find_api(COMMIT).encode_request(OffsetCommitRequest("g", topics=offsets), 2)
    return FakeRequest(5, COMMIT, 2, body)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RuntimeError("half of it has happened"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (
            ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the group is set aside"),
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ),
    ],
)
@pytest.mark.parametrize("is_loaded", [True, False])
async def test_commit_that_raises_in_the_fast_path_is_not_rerun(
    error: Exception, code: ErrorCode, is_loaded: bool
) -> None:
    handlers = Broken({"commit_as_member": error})
    async with trio.open_nursery() as nursery:
        plane = FakePlane()
        events = handler_of(plane, handlers, nursery, is_loaded=is_loaded)
        events.on_offset_commit(commit_request())
    assert handlers.asked == ["commit_as_member", "error_reply"]
    answer = find_api(COMMIT).decode_response(plane.replies[5], 2)
    assert answer.topics[0].partitions[0].error_code == code


@pytest.mark.parametrize("is_loaded", [True, False])
async def test_heartbeat_that_raises_in_the_fast_path_is_not_rerun(is_loaded: bool) -> None:
    handlers = Broken({"heartbeat": RuntimeError("half of it has happened")})
    async with trio.open_nursery() as nursery:
        plane = FakePlane()
        events = handler_of(plane, handlers, nursery, is_loaded=is_loaded)
        events.on_heartbeat(commit_request())
    assert handlers.asked == ["heartbeat", "error_reply"]
    assert list(plane.replies) == [5]


async def test_commit_declined_by_the_fast_path_runs_in_the_general_path_once() -> None:
    handlers: Any = Broken({})
    handlers.commit_as_member = lambda commit: False
    async with trio.open_nursery() as nursery:
        plane = FakePlane()
        handler_of(plane, handlers, nursery).on_offset_commit(commit_request())
    assert handlers.asked.count("begin") == 1
    assert list(plane.replies) == [5]


async def test_exception_in_an_event_handler_does_not_end_the_broker() -> None:
    failure = RuntimeError("a bug")
    handlers = Broken(dict.fromkeys(("begin", "heartbeat", "error_reply"), failure))
    async with trio.open_nursery() as nursery:
        plane = FakePlane()
        events = handler_of(plane, handlers, nursery)
        events.on_request(commit_request())
        assert plane.closed == [5]
        events.on_heartbeat(commit_request())
        assert plane.closed == [5, 5]
        events.on_topics_missing(6, ["t"], commit_request().session)
        events.on_follower_caught_up("t", 0, 1, 2, 3)
        events.on_log_dir_failed("/a", "Input/output error", [("t", 0)])
        events.on_partition_failed("t", bytes(16), 1, "its leader epoch fell")
        await trio.testing.wait_all_tasks_blocked()
        assert plane.resumed == {6: {"t": ErrorCode.UNKNOWN_SERVER_ERROR}}
        assert len(events._waiting) == 0
        nursery.cancel_scope.cancel()  # without a store, failures are announced again and again


class FailingStore:
    """Refuses the first nodes."""

    def __init__(self, refusals: list[Exception]) -> None:
        self.refusals = refusals
        self.created = 0

    async def create(self, path: str, data: bytes, *, sequence: bool) -> str:
        await trio.lowlevel.checkpoint()
        if self.refusals:
            raise self.refusals.pop(0)
        self.created += 1
        return path


async def test_failure_is_announced_until_the_store_takes_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    store = FailingStore([StoreFailedError("the disk is full"), RuntimeError("a bug")])
    async with trio.open_nursery() as nursery:
        events = handler_of(FakePlane(), Broken({}), nursery, store=store)
        events.on_log_dir_failed("/a", "Input/output error", [("t", 0)])
        await trio.testing.wait_all_tasks_blocked()
        assert store.created == 0
        events.on_partition_failed("t", bytes(16), 1, "its leader epoch fell")
        await trio.sleep(2.9)
        assert (len(store.refusals), store.created) == (0, 0), "at a bounded pace"
    assert store.created == 1, "one announcement tells of both"


async def test_failure_during_an_announcement_is_announced_too() -> None:
    store = FailingStore([])
    async with trio.open_nursery() as nursery:
        events = handler_of(FakePlane(), Broken({}), nursery, store=store)
        events.on_partition_failed("t", bytes(16), 0, "its leader epoch fell")
        events.on_partition_failed("t", bytes(16), 1, "its leader epoch fell")
        while not store.created:
            await trio.lowlevel.checkpoint()
        events.on_partition_failed("t", bytes(16), 2, "its leader epoch fell")
    assert store.created == 2


async def test_numbers_of_notices_are_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, str, dict[str, Any]]] = []

    class Log:
        def log(self, level: str, event: str, fields: dict[str, Any]) -> None:
            told.append((level, event, fields))

    monkeypatch.setattr("pyrklog.handlers.events.plane_log", Log())
    fields = {"topic": "7", "partition": "2", "scanned_bytes": "4096", "note": "1", "from": "/a"}
    async with trio.open_nursery() as nursery:
        events = handler_of(FakePlane(), Broken({}), nursery)
        events.on_notice("log_recovered", fields, "info")
    known = {"topic": "7", "partition": 2, "scanned_bytes": 4096, "note": "1", "from": "/a"}
    assert told == [("info", "log_recovered", known)]


async def test_clients_are_noted_and_their_software_is_not_logged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logged: list[str] = []

    class Log:
        def log(self, _level: str, event: str, _fields: object) -> None:
            logged.append(event)

    monkeypatch.setattr("pyrklog.handlers.events.plane_log", Log())
    clients = ClientTable(lambda: {COMMIT: "OffsetCommit"})
    async with trio.open_nursery() as nursery:
        events = handler_of(FakePlane(), Broken({}), nursery, clients=clients)
        of_client = {"client_id": "a", "host": "10.0.0.1"}
        seen = {"software_name": "librdkafka", "software_version": "2.5.0"}
        events.on_notice("client_seen", {**of_client, **seen}, "warning")
        events.on_notice("old_client", {**of_client, "request": "Fetch v1"}, "warning")
        events.on_request(commit_request())
    assert logged == ["old_client"]
    asking, one = clients.clients()
    assert (one.software, one.oldest) == (("librdkafka", "2.5.0"), {"Fetch": 1})
    assert asking.oldest == {"OffsetCommit": 2}
