"""The offsets that a group member still has to commit."""

from types import SimpleNamespace
from typing import Any

from pyrklog.cli.group_consumer import GroupConsumer
from pyrklog.cli.offsets import BEGINNING
from pyrklog.cli.options import Settings


class _Consumer:
    def __init__(self) -> None:
        self.committed: list[dict[tuple[str, int], int]] = []

    def commit(self, *, offsets: list[Any], asynchronous: bool) -> None:
        self.committed.append({(one.topic, one.partition): one.offset for one in offsets})

    def close(self) -> None:
        self.committed.append({})


def _reading() -> tuple[GroupConsumer, _Consumer]:
    reading = GroupConsumer(Settings(quiet=True), ["t"], "g", BEGINNING, read_committed=False)
    consumer = reading._consumer = _Consumer()
    connection: Any = SimpleNamespace(check_cut_off=lambda: False)
    reading._connection = connection
    reading._on_assign(None, [_place(0, 0), _place(1, 0)])
    return reading, consumer


def _place(partition: int, offset: int, error: object = None) -> Any:
    return SimpleNamespace(topic="t", partition=partition, offset=offset, error=error)


def _message(partition: int, offset: int) -> Any:
    return SimpleNamespace(topic=lambda: "t", partition=lambda: partition, offset=lambda: offset)


def test_only_printed_records_are_committed() -> None:
    reading, consumer = _reading()
    reading.written([_message(0, 4), _message(0, 5), _message(7, 9)])
    reading.close()
    assert consumer.committed == [{("t", 0): 6}, {}]


def test_failed_commit_is_retried_at_close() -> None:
    reading, consumer = _reading()
    reading.written([_message(0, 4), _message(1, 8)])
    reading._commit(reading._next, wait=False)
    reading.written([_message(1, 9)])
    reading._on_commit(None, [_place(0, 5, "refused"), _place(1, 9, "refused"), _place(2, 1, "x")])
    reading.close()
    assert consumer.committed == [{("t", 0): 5, ("t", 1): 9}, {("t", 0): 5, ("t", 1): 10}, {}]


def test_successful_commit_is_not_repeated() -> None:
    reading, consumer = _reading()
    reading.written([_message(0, 4)])
    reading._commit(reading._next, wait=False)
    reading._on_commit(None, [_place(0, 5)])
    reading.close()
    assert consumer.committed == [{("t", 0): 5}, {}]


def test_offsets_of_lost_partitions_are_not_committed() -> None:
    reading, consumer = _reading()
    reading.written([_message(0, 4), _message(1, 4)])
    reading._on_lost(None, [_place(0, 0)])
    reading._on_revoke(None, [_place(1, 0)])
    reading._on_commit("error", [_place(1, 5)])
    reading.close()
    assert consumer.committed == [{("t", 1): 5}, {}]


def test_close_without_a_broker_commits_nothing() -> None:
    reading, consumer = _reading()
    connection: Any = SimpleNamespace(check_cut_off=lambda: True)
    reading._connection = connection
    reading.written([_message(0, 4)])
    reading._commit(reading._next, wait=False)
    reading.close()
    assert consumer.committed == []
