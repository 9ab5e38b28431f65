"""What a member of a redrive's group reads and commits, beside a made-up consumer."""

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from pyrklog.base.problems import Problem
from pyrklog.cli import redrive_consumer
from pyrklog.cli.failures import CliError
from pyrklog.cli.options import Settings
from pyrklog.cli.redrive_consumer import RedriveConsumer

KEY = ("dlq", 0)


class Consumer:
    """Gives ``polls`` one after another."""

    def __init__(self) -> None:
        self.polls: list[list[Any]] = []
        self.committed: list[tuple[int, str]] = []

    def consume(self, _limit: int, _wait_s: float) -> list[Any]:
        return self.polls.pop(0) if self.polls else []

    def commit(self, *, offsets: list[Any], asynchronous: bool) -> list[Any]:
        assert not asynchronous
        self.committed += [(one.offset, one.metadata or "") for one in offsets]
        return []


class Message:
    def __init__(self, offset: int, *, is_end: bool = False) -> None:
        self._offset = offset
        self._error = KafkaError(KafkaError._PARTITION_EOF) if is_end else None

    def topic(self) -> str:
        return KEY[0]

    def partition(self) -> int:
        return KEY[1]

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes:
        return b""

    def error(self) -> KafkaError | None:
        return self._error

    def __len__(self) -> int:
        return 0


class Log:
    """What brokers know of the partition and the group."""

    def __init__(self, end: int, committed: tuple[int, str] | None) -> None:
        self.end = end
        self.committed = committed


def _reading(
    monkeypatch: pytest.MonkeyPatch, log: Log, stop: int, *, dry: bool = False
) -> tuple[RedriveConsumer, Consumer]:
    """A member that began when the partition ended at ``stop``, and gets it now."""
    consumer = Consumer()
    reading = RedriveConsumer(Settings(), KEY[0], "g", dry=dry, again=False)
    connection: Any = SimpleNamespace(
        is_cut_off=False, check_cut_off=lambda: False, settings=Settings()
    )
    reading._connection = connection
    reading._consumer = consumer
    reading._starts, reading._stops, reading._ends = {KEY: 0}, {KEY: stop}, {KEY: stop}
    monkeypatch.setattr(
        redrive_consumer,
        "query_offsets",
        lambda _connection, keys, _spec: dict.fromkeys(keys, log.end),
    )
    monkeypatch.setattr(
        redrive_consumer,
        "committed_offsets",
        lambda *_: {} if log.committed is None else {KEY: log.committed},
    )
    reading._on_assign(None, [SimpleNamespace(topic=KEY[0], partition=KEY[1])])
    return reading, consumer


@pytest.mark.parametrize("is_end", [False, True])
def test_what_another_run_has_redriven_beyond_the_stop_is_kept(
    monkeypatch: pytest.MonkeyPatch, is_end: bool
) -> None:
    """Else the group went back to 1000, and the next run moved 500 records again."""
    reading, consumer = _reading(monkeypatch, Log(1500, (1500, "")), 1000)
    consumer.polls = [[Message(1500, is_end=is_end)]]
    assert reading.read(10, 0.0) == []
    reading.commit()
    assert (consumer.committed, reading.finished()) == ([], True)


def test_progress_behind_the_end_stops_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records were lost, or the topic was created anew: all of it would be moved again."""
    reading, consumer = _reading(monkeypatch, Log(800, (1500, "redrive/1 1")), 800)
    consumer.polls = [[Message(0)]]
    with pytest.raises(CliError, match=r"up to 1500, but it ends at 800") as caught:
        reading.read(10, 0.0)
    assert caught.value.problem is Problem.PROGRESS_EXPIRED
    assert "--again" in str(caught.value.fix)
    assert consumer.committed == []


def test_a_dry_run_notes_progress_behind_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reading, consumer = _reading(monkeypatch, Log(800, (1500, "")), 800, dry=True)
    consumer.polls = [[Message(0), Message(1)]]
    assert [one.offset() for one in reading.read(10, 0.0)] == [0, 1]
    assert "but it ends at 800" in capsys.readouterr().err


def test_markers_count_as_done_only_between_records_that_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reading, consumer = _reading(monkeypatch, Log(10, None), 10)
    consumer.polls = [[Message(at) for at in (0, 2, 4, 6, 8)], [Message(10, is_end=True)]]
    found = reading.read(10, 0.0)
    assert [one.offset() for one in found] == [0, 2, 4, 6, 8]
    for offset in (0, 2, 6):
        assert reading.has_room(KEY, offset)
        reading.expect(KEY, offset)
        reading.done(KEY, offset)
    assert reading.is_expecting(KEY)
    reading.commit()
    assert not reading.is_expecting(KEY)
    assert consumer.committed == [(4, "redrive/1 2")]
    reading.read(10, 0.0)
    for offset in (4, 8):
        reading.done(KEY, offset)
    reading.commit()
    assert consumer.committed[1:] == [(5, "redrive/1 1,1")]
    assert reading.finished()


def test_a_member_does_not_end_between_two_assignments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it leaves its share to another run, which may have ended by then."""
    reading, consumer = _reading(monkeypatch, Log(4, None), 4)
    place = SimpleNamespace(topic=KEY[0], partition=KEY[1])
    consumer.polls = [[Message(0)], [], []]
    reading.read(10, 0.0)
    for give_back in (reading._on_revoke, reading._on_lost):
        give_back(None, [place])
        assert not reading.finished()
        reading._on_assign(None, [place])
        reading.read(10, 0.0)
        assert not reading.finished()
    reading._on_revoke(None, [place])
    reading._on_assign(None, [])
    assert reading.finished()
