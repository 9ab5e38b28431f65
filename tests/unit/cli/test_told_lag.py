"""Lag in seconds by the command line: what coordinators tell, and what is shown of it."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from pyrklog.cli.broker_healths import OF_OURS
from pyrklog.cli.group_state import ConsumerGroup, GroupLag, GroupMember, PartitionLag
from pyrklog.cli.group_tables import print_described
from pyrklog.cli.options import OutputFormat
from pyrklog.cli.told_lag import ToldLag, told_group, told_groups
from pyrklog.protocol import lag as messages
from pyrklog.protocol.configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from pyrklog.protocol.errors import ErrorCode
from pyrklog.protocol.lag import GROUP_LAG, GroupLagRequest, GroupLagResponse, Trend

Answer = Callable[[GroupLagRequest], GroupLagResponse | None]


class FakeBroker:
    """Answers DescribeConfigs as one of ours or of Apache's, and GroupLag by a function; None
    closes the connection."""

    def __init__(self, answer: Answer, *, is_ours: bool = True) -> None:
        self.asked: list[GroupLagRequest] = []
        self._answer = answer
        self._is_ours = is_ours
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            with connection:
                while size := connection.recv(4, socket.MSG_WAITALL):
                    (wanted,) = struct.unpack(">i", size)
                    frame = connection.recv(wanted, socket.MSG_WAITALL)
                    body = self._body(frame)
                    if body is None:
                        break
                    answer = frame[4:8] + body
                    connection.sendall(struct.pack(">i", len(answer)) + answer)

    def _body(self, frame: bytes) -> bytes | None:
        key, version = struct.unpack_from(">hh", frame)
        if key == DESCRIBE_CONFIGS.key:
            own = [DescribeConfigsResourceResult(OF_OURS, "/d", False)] if self._is_ours else []
            result = DescribeConfigsResult(0, None, 4, "1", own)
            response = DescribeConfigsResponse(results=[result])
            return DESCRIBE_CONFIGS.encode_response(response, version)
        assert key == GROUP_LAG.key
        (length,) = struct.unpack_from(">h", frame, 8)
        request = GROUP_LAG.decode_request(frame[10 + length + 1 :], version)
        self.asked.append(request)
        found = self._answer(request)
        return None if found is None else b"\0" + GROUP_LAG.encode_response(found, version)

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join()


@pytest.fixture
def start() -> Iterator[Callable[..., FakeBroker]]:
    brokers: list[FakeBroker] = []

    def begin(answer: Answer, *, is_ours: bool = True) -> FakeBroker:
        brokers.append(FakeBroker(answer, is_ours=is_ours))
        return brokers[-1]

    yield begin
    for broker in brokers:
        broker.close()


def connected(*brokers: FakeBroker, protocol: str = "plaintext") -> Any:
    """Brokers 1, 2 ..."""
    known = {
        number: SimpleNamespace(id=number, host="127.0.0.1", port=one.port)
        for number, one in enumerate(brokers, 1)
    }
    settings = SimpleNamespace(security_protocol=protocol, timeout_s=10.0, quiet=False)
    return SimpleNamespace(settings=settings, metadata=lambda: SimpleNamespace(brokers=known))


def group(name: str, **fields: Any) -> messages.GroupLag:
    return messages.GroupLag(name, **fields)


def test_a_coordinator_tells(start: Callable[..., FakeBroker]) -> None:
    rows = [
        messages.PartitionLag("t", 0, 5, 15, 10, 41_500, False, 3, Trend.UP),
        messages.PartitionLag("t", 1, 5),
    ]
    sums: dict[str, Any] = {"lag": 10, "lag_ms": 41_500, "is_least": True, "lost": 3, "ahead": 7}
    told = group("g", members=2, partitions=rows, **sums)
    found = told_group(connected(start(lambda _: GroupLagResponse(groups=[told]))), 1, "g")
    assert found is not None
    assert (found.members, found.lag, found.ahead) == (2, 10, 7)
    assert found.whole == ToldLag(41.5, True, 3)
    assert found.partitions == {("t", 0): ToldLag(41.5, False, 3, "up"), ("t", 1): ToldLag()}


def test_who_does_not_tell_leaves_it_unknown(start: Callable[..., FakeBroker]) -> None:
    def refuse(_: GroupLagRequest) -> GroupLagResponse:
        return GroupLagResponse(groups=[group("g", error_code=ErrorCode.NOT_COORDINATOR)])

    def whole(_: GroupLagRequest) -> GroupLagResponse:
        return GroupLagResponse(groups=[group("g")])

    other = start(whole, is_ours=False)
    assert told_group(connected(other), 1, "g") is None
    assert other.asked == []
    assert told_group(connected(start(lambda _: None)), 1, "g") is None
    assert told_group(connected(start(refuse)), 1, "g") is None
    assert told_group(connected(start(whole)), 7, "g") is None
    assert told_group(connected(start(whole)), None, "g") is None
    assert told_group(connected(start(whole), protocol="ssl"), 1, "g") is None


def test_pages_of_all_coordinators_are_put_together(start: Callable[..., FakeBroker]) -> None:
    def paged(request: GroupLagRequest) -> GroupLagResponse:
        if not request.after:
            return GroupLagResponse(groups=[group("a", lag=7)], after="a", left_out=3)
        return GroupLagResponse(groups=[group("b", lag=8)], left_out=3)

    first, second = start(paged), start(lambda _: GroupLagResponse(groups=[group("c")]))
    third = start(lambda _: GroupLagResponse(), is_ours=False)
    found = told_groups(connected(first, second, third), 5, 1.5)
    assert {name: one.lag for name, one in found.groups.items()} == {"a": 7, "b": 8, "c": None}
    assert (found.silent, found.left_out) == ([3], 3)
    assert [one.after for one in first.asked] == ["", "a"]
    assert {(one.over_records, one.over_ms) for one in first.asked} == {(5, 1500)}


def test_a_coordinator_that_is_not_ready_is_asked_again(start: Callable[..., FakeBroker]) -> None:
    answers = [
        GroupLagResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE),
        GroupLagResponse(error_code=ErrorCode.THROTTLING_QUOTA_EXCEEDED),
        GroupLagResponse(is_whole=False),
        GroupLagResponse(groups=[group("g")]),
    ]
    broker = start(lambda _: answers.pop(0))
    assert list(told_groups(connected(broker), None, None).groups) == ["g"]
    assert len(broker.asked) == 4


def test_a_coordinator_that_takes_long_tells_what_it_has(
    start: Callable[..., FakeBroker],
) -> None:
    connection = connected(
        start(lambda _: GroupLagResponse(groups=[group("g")], is_whole=False)),
        start(lambda _: GroupLagResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)),
    )
    connection.settings.timeout_s = 0.2
    found = told_groups(connection, None, None)
    assert (list(found.groups), found.unfinished, found.silent) == (["g"], [1], [2])


def shown(capsys: pytest.CaptureFixture[str], told: ToldLag, *rows: PartitionLag) -> list[str]:
    members = [GroupMember("m-1", None, "app-1", "/10.0.0.5", [("orders", 0)])]
    found = GroupLag(ConsumerGroup("billing", "Stable", "range", 2, members), rows, told)
    print_described([found], [], OutputFormat.TABLE, "c")
    return capsys.readouterr().out.splitlines()


def test_a_described_group(capsys: pytest.CaptureFixture[str]) -> None:
    first = PartitionLag(
        "orders", 0, 9_120_447, 9_138_101, told=ToldLag(41.2, False, 0, "up"), member="app-1@h"
    )
    second = PartitionLag("orders", 1, 100, 650, told=ToldLag(1500.4, True, 20, "flat"))
    lines = shown(capsys, ToldLag(1500.4, True, 20, "up"), first, second)
    assert lines[0] == (
        "billing  Stable  1 member  coordinator 2  lag 18,204 / >1,500 s  rising  "
        "lost 20 to retention"
    )
    rows = [line.split() for line in lines[1:]]
    assert rows == [
        ["TOPIC", "PART", "COMMITTED", "END", "LAG", "LAG_S", "TREND", "MEMBER"],
        ["orders", "0", "9,120,447", "9,138,101", "17,654", "41", "up", "app-1@h"],
        ["orders", "1", "100", "650", "550", ">1,500", "flat", "-"],
        ["orders", "total", "18,204", ">1,500"],
    ]


def test_a_commit_beyond_the_log_end_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    rows = PartitionLag("orders", 0, 5, 15), PartitionLag("orders", 1, 4_000, 10)
    lines = shown(capsys, ToldLag(2.0, trend="flat"), *rows)
    assert lines[0].endswith("coordinator 2  lag 10 / 2 s  steady  ahead 3,990 of the log end")
    lags = [line.split()[4] for line in lines[2:4]]
    assert (lags, lines[4].split()) == (["10", "-3,990"], ["orders", "total", "10", "-"])


def test_without_seconds_there_are_records(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, ToldLag(), PartitionLag("orders", 0, 5, 15))
    assert lines[0].endswith("coordinator 2  lag 10")
    assert lines[2].split() == ["orders", "0", "5", "15", "10", "-", "-", "-"]
