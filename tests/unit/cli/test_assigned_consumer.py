"""Ranges that not every partition has, and partitions that come later."""

import itertools
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError

from pyrklog.base.problems import Problem
from pyrklog.cli import assigned_consumer
from pyrklog.cli.assigned_consumer import AssignedConsumer
from pyrklog.cli.connection import PartitionKey
from pyrklog.cli.failures import CliError, Exit
from pyrklog.cli.offsets import RangeError, parse_range
from pyrklog.cli.options import Settings

ENDS = {("t", 0): 0, ("t", 1): 2, ("t", 2): 5}
ALL_LED = dict.fromkeys(ENDS, True)


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
        self.told: list[str] = []
        """Topics whose partitions it was told."""
        self.next: list[Message] = []

    def assign(self, places: list[Any]) -> None:
        self.assigned = {place.partition: place.offset for place in places}
        for partition, start in self.assigned.items():
            end = ENDS["t", partition]
            self.next += [Message(partition, offset) for offset in range(start, end)]
            self.next.append(Message(partition, end, is_end=True))

    def list_topics(self, topic: str, timeout: float) -> None:
        self.told.append(topic)

    def incremental_assign(self, places: list[Any]) -> None:
        assert self.told, "librdkafka does not know them"
        self.assigned |= {place.partition: place.offset for place in places}

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

    leaderless: tuple[int, ...] = ()

    def _existing_topics(self) -> dict[str, dict[int, int]]:
        return {
            "t": {partition: -1 if partition in self.leaderless else 1 for _, partition in ENDS}
        }

    def _make_consumer(self, **_more: Any) -> None:
        self._consumer = Log()


@pytest.fixture(autouse=True)
def offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = itertools.cycle([dict.fromkeys(ENDS, 0), dict(ENDS)])

    def query(_connection: object, keys: list[PartitionKey], *_: object) -> dict[PartitionKey, int]:
        found = next(answers)
        return {key: found[key] for key in keys}

    monkeypatch.setattr(assigned_consumer, "query_offsets", query)


def reader(
    text: str,
    *,
    ends_now: bool = False,
    partitions: tuple[int, ...] = (),
    leaderless: tuple[int, ...] = (),
    timeout_s: float = 0.0,
) -> Reader:
    settings = Settings(bootstrap="nowhere:1", timeout_s=timeout_s)
    wanted = parse_range([text], 0)
    found = Reader(settings, ["t"], partitions, wanted, read_committed=False, ends_now=ends_now)
    found.leaderless = leaderless
    return found


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


def test_new_partitions_are_read_from_their_beginning(capsys: pytest.CaptureFixture[str]) -> None:
    reading = reader("end")
    reading.start()
    read_all(reading)
    reading._on_look(ALL_LED)
    assert capsys.readouterr().err == ""
    reading._on_look({**ALL_LED, ("t", 3): True, ("t", 4): False})
    assert capsys.readouterr().err == "note: 2 new partitions: t [3], t [4]\n"
    assert reading._consumer.assigned == {
        0: 0,
        1: 2,
        2: 5,
        3: OFFSET_BEGINNING,
        4: OFFSET_BEGINNING,
    }
    assert not reading.finished(True), "their records were not read"
    reading._consumer.next = [Message(3, 0), Message(3, 1, is_end=True), Message(4, 0, is_end=True)]
    assert read_all(reading) == [(3, 0)]
    assert reading.finished(True)
    reading._on_look({**ALL_LED, ("t", 3): True, ("t", 4): True})
    assert capsys.readouterr().err == "", "they are no longer new"


def test_a_start_offset_holds_for_new_partitions() -> None:
    reading = reader("1")
    reading.start()
    read_all(reading)
    reading._on_look({**ALL_LED, ("t", 3): True})
    reading._consumer.next = [Message(3, 0), Message(3, 1)]
    assert read_all(reading) == [(3, 1)]


@pytest.mark.parametrize(("text", "partitions"), [(":2", ()), ("start", (1, 2))])
def test_chosen_partitions_and_a_stop_leave_new_ones_out(
    capsys: pytest.CaptureFixture[str], text: str, partitions: tuple[int, ...]
) -> None:
    reading = reader(text, partitions=partitions)
    reading.start()
    assigned = dict(reading._consumer.assigned)
    for _ in range(2):
        reading._on_look({**ALL_LED, ("t", 3): True})
    assert capsys.readouterr().err == "note: 1 new partition left out: t [3]\n"
    assert reading._consumer.assigned == assigned


def test_partitions_without_a_leader_are_read_once_they_have_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    reading = reader("1", leaderless=(0, 2))
    reading.start()
    assert capsys.readouterr().err == "note: t [0], t [2]: left out, without a leader\n"
    assert reading._consumer.assigned == {1: 1}
    assert read_all(reading) == [(1, 1)]
    assert not reading.finished(False)
    reading._on_look({**ALL_LED, ("t", 0): False})
    assert capsys.readouterr().err == "note: t [2]: read now, as there is a leader\n"
    assert reading._consumer.assigned == {1: 1, 2: 1}
    with pytest.raises(CliError, match="t \\[0\\] was not read: there is no leader"):
        reading.check_whole()
    reading._on_look(ALL_LED)
    reading.check_whole()


def test_a_reader_that_ends_waits_for_leaders_as_long_as_they_may_move() -> None:
    patient = reader(":2", leaderless=(0,), timeout_s=60.0)
    patient.start()
    assert read_all(patient) == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert not patient.finished(False)
    assert not patient.finished(True)
    reading = reader(":2", leaderless=(0,))
    reading.start()
    read_all(reading)
    assert reading.finished(False)
    with pytest.raises(CliError) as left:
        reading.check_whole()
    assert left.value.code is Exit.PARTIAL


def test_nothing_but_partitions_without_a_leader_is_awaited() -> None:
    reading = reader("start", leaderless=(0, 1, 2))
    reading.start()
    assert not reading.finished(False)
    assert reading.finished(True)
    with pytest.raises(CliError) as left:
        reading.check_whole()
    assert left.value.problem is Problem.NO_LEADER


def test_a_copy_leaves_no_partition_out() -> None:
    reading = reader("start", ends_now=True, leaderless=(0,))
    reading.start()
    assert sorted(reading.ranges()) == sorted(ENDS), "the query of offsets fails for it"
