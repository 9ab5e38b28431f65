"""Ranges that not every partition has."""

from typing import Any

import pytest
from confluent_kafka import KafkaError

from pyrklog.cli import assigned_consumer
from pyrklog.cli.assigned_consumer import AssignedConsumer
from pyrklog.cli.failures import CliError, Exit
from pyrklog.cli.offsets import RangeError, parse_range
from pyrklog.cli.options import Settings

ENDS = {("t", 0): 0, ("t", 1): 2, ("t", 2): 5}


class Message:
    """A record, or (without a value) the end of a partition."""

    def __init__(self, partition: int, offset: int, *, is_end: bool = False) -> None:
        self._at = (partition, offset)
        self._is_end = is_end

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return self._at[0]

    def offset(self) -> int:
        return self._at[1]

    def error(self) -> KafkaError | None:
        return KafkaError(KafkaError._PARTITION_EOF) if self._is_end else None


class Log:
    """Gives the records of each assigned partition, once, and its end."""

    def __init__(self) -> None:
        self.assigned: dict[int, int] = {}
        self.next: list[Message] = []

    def assign(self, places: list[Any]) -> None:
        self.assigned = {place.partition: place.offset for place in places}
        for partition, start in self.assigned.items():
            end = ENDS["t", partition]
            self.next += [Message(partition, offset) for offset in range(start, end)]
            self.next.append(Message(partition, end, is_end=True))

    def pause(self, places: list[Any]) -> None:
        paused = {place.partition for place in places}
        self.next = [one for one in self.next if one.partition() not in paused]

    def consume(self, _limit: int, _wait_s: float) -> list[Message]:
        return [self.next.pop(0)] if self.next else []


class Connection:
    is_cut_off = False

    def cause(self, _topics: object) -> None:
        return None


class Reader(AssignedConsumer):
    def _connect(self) -> None:
        connection: Any = Connection()
        self._connection = connection

    def _existing_topics(self) -> dict[str, list[int]]:
        return {"t": [partition for _, partition in ENDS]}

    def _make_consumer(self, **_more: Any) -> None:
        self._consumer = Log()


@pytest.fixture(autouse=True)
def offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([dict.fromkeys(ENDS, 0), dict(ENDS)])
    monkeypatch.setattr(assigned_consumer, "query_offsets", lambda *_args, **_more: next(answers))


def reader(text: str, *, ends_now: bool = False, partitions: tuple[int, ...] = ()) -> Reader:
    settings = Settings(bootstrap="nowhere:1", timeout_s=0.0)
    wanted = parse_range([text], 0)
    return Reader(settings, ["t"], partitions, wanted, read_committed=False, ends_now=ends_now)


def read_all(reading: Reader) -> list[tuple[int, int]]:
    found = []
    while reading._consumer.next:
        found += [(one.partition(), one.offset()) for one in reading.read(100, 0.0)]
    return found


def test_shorter_partitions_are_told_and_read_from_the_start_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    reading = reader("3")
    reading.start()
    assert capsys.readouterr().err.splitlines() == [
        "note: t [0]: offset 3 is past the end of the log, which is 0",
        "note: t [1]: offset 3 is past the end of the log, which is 2",
    ]
    assert reading._consumer.assigned == {0: 0, 1: 2, 2: 3}
    assert read_all(reading) == [(2, 3), (2, 4)]
    assert reading.finished(True)
    # What is written later is printed from the start on.
    reading._consumer.next = [Message(1, 2), Message(1, 3), Message(0, 0)]
    assert read_all(reading) == [(1, 3)]


def test_a_start_past_all_ends_is_an_error() -> None:
    reading = reader("6")
    with pytest.raises(RangeError) as caught:
        reading.start()
    assert str(caught.value) == ", ".join(
        f"t [{index}]: offset 6 is past the end of the log, which is {end}"
        for (_, index), end in ENDS.items()
    )


def test_a_copy_leaves_shorter_partitions_out() -> None:
    reading = reader("2:4", ends_now=True)
    reading.start()
    assert reading.ranges() == {("t", 0): (0, 0), ("t", 1): (2, 2), ("t", 2): (2, 4)}
    assert read_all(reading) == [(2, 2), (2, 3)]
    assert reading.finished(False)
    assert reading.awaited() == {}


def test_an_end_past_the_log_is_waited_for() -> None:
    reading = reader(":3")
    reading.start()
    assert reading.awaited() == {("t", 0): (0, 3), ("t", 1): (2, 3)}
    with pytest.raises(CliError, match="t \\[0\\], t \\[1\\], t \\[2\\] was not read") as caught:
        reading.check_progress()
    assert caught.value.code is Exit.TIMED_OUT
    assert read_all(reading) == [(1, 0), (1, 1), (2, 0), (2, 1), (2, 2)]
    assert not reading.finished(False)
    assert reading.finished(True)
    reading.check_progress()  # nothing that exists is missing, so it may take any time
    reading._consumer.next = [Message(0, 0), Message(1, 2), Message(0, 1), Message(0, 2)]
    assert read_all(reading) == [(0, 0), (1, 2), (0, 1), (0, 2)]
    assert reading.finished(False)


def test_a_log_that_keeps_growing_ends_where_it_ended_at_the_start() -> None:
    reading = reader("start")
    reading.start()
    reading._consumer.next = [Message(0, 0), *(Message(1, at) for at in range(7))]
    reading._consumer.next += [Message(2, at) for at in range(4)]
    read_all(reading)
    assert not reading.finished(True)
    reading._consumer.next = [Message(2, 4)]
    read_all(reading)
    assert reading.finished(True)
    assert not reading.finished(False)
