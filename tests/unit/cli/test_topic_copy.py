"""A copy between a made-up reader and writer."""

import signal
from collections.abc import Sequence
from typing import Any

import confluent_kafka
import pytest

from pyrklog.base.problems import Problem
from pyrklog.cli import topic_copy
from pyrklog.cli.failures import CliError, Exit
from pyrklog.cli.interrupts import held
from pyrklog.cli.offsets import ResolvedRange
from pyrklog.cli.records import InputRecord


@pytest.mark.parametrize(
    ("records", "size", "expected"),
    [
        (10, 100, topic_copy.BATCH_RECORDS_MAX),
        (1, 0, topic_copy.BATCH_RECORDS_MAX),
        (10, 10 * 2**20, 8),
        (10, 10 * 2**30, 1),
    ],
)
def test_batches_are_as_large_as_memory_allows(records: int, size: int, expected: int) -> None:
    assert topic_copy.next_limit(records, size) == expected


class Message:
    def __init__(self, partition: int, offset: int, value: bytes) -> None:
        self._at = (partition, offset, value)

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return self._at[0]

    def offset(self) -> int:
        return self._at[1]

    def value(self) -> bytes:
        return self._at[2]

    def key(self) -> bytes:
        return b"k"

    def headers(self) -> list[tuple[str, bytes | None]]:
        return [("né", None)]

    def timestamp(self) -> tuple[int, int]:
        return (1, 77)

    def leader_epoch(self) -> int:
        return 0


class Reader:
    """Gives ``messages`` in batches, and nothing in between."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._left = list(messages)
        self.limits: list[int] = []
        self.checked = 0

    def ranges(self) -> dict[tuple[str, int], ResolvedRange]:
        return {("t", 0): ResolvedRange(0, 3), ("t", 1): ResolvedRange(5, 5)}

    def finished(self, at_end: bool) -> bool:
        assert not at_end
        return not self._left

    def read(self, limit: int, _wait_s: float) -> list[Message]:
        self.limits.append(limit)
        if len(self.limits) % 2:
            return []
        found, self._left = self._left[:limit], self._left[limit:]
        return found

    def wait_anew(self) -> None:
        self.checked = 0

    def check_progress(self) -> None:
        self.checked += 1
        assert self.checked < 3


class TrimmedReader(Reader):
    """What is behind its messages was deleted meanwhile."""

    def finished(self, at_end: bool) -> bool:
        if super().finished(at_end):
            raise CliError(Problem.BROKER_REFUSED, "gone")
        return False


class Writer:
    def __init__(self, fails_at: int | None = None, raises: BaseException | None = None) -> None:
        self.sent: list[InputRecord] = []
        self.is_finished = False
        self._fails_at = fails_at
        self._raises = raises

    def send(self, record: InputRecord) -> None:
        if self._raises is not None:
            raise self._raises
        self.sent.append(record)

    def finish(self) -> None:
        self.is_finished = True

    def failure(self) -> CliError | None:
        failed = self._fails_at is not None and len(self.sent) >= self._fails_at
        return CliError(Problem.PARTLY_DONE, "refused") if failed else None

    def with_written(self, problem: CliError) -> CliError:
        return problem


def run(reader: Any, writer: Any, *, by_key: bool = False, quiet: bool = False) -> Any:
    return topic_copy.copy(reader, writer, by_key=by_key, quiet=quiet)


def test_everything_is_counted_and_kept() -> None:
    writer = Writer()
    done = run(Reader([Message(0, at, b"vv") for at in range(3)]), writer)
    assert (done["t", 0].records, done["t", 0].bytes) == (3, 3 * 6)
    assert (done["t", 1].records, done["t", 1].bytes) == (0, 0)
    assert writer.sent == [InputRecord(b"k", b"vv", (("né", None),), 0, 77)] * 3
    assert writer.is_finished


def test_the_bytes_of_a_plan_are_unknown() -> None:
    done = {("t", 0): topic_copy.Copied(ResolvedRange(0, 7), records=7)}
    (planned,) = topic_copy.listing(done, None, dry=True).items
    assert (planned["records"], planned["bytes"]) == (7, None)
    (copied,) = topic_copy.listing(done, None).items
    assert copied["bytes"] == 0


def test_records_are_placed_by_key() -> None:
    writer = Writer()
    run(Reader([Message(0, 0, b"v")]), writer, by_key=True)
    assert writer.sent[0].partition is None


def test_large_records_are_read_in_small_batches() -> None:
    reader = Reader([Message(0, at, bytes(2**22)) for at in range(20)])
    run(reader, Writer())
    assert reader.limits[1] == topic_copy.FIRST_BATCH_RECORDS
    assert max(reader.limits[2:]) == 1


def test_a_refused_record_ends_the_copy() -> None:
    writer = Writer(fails_at=1)
    with pytest.raises(CliError, match="refused"):
        run(Reader([Message(0, at, b"v") for at in range(1000)]), writer)
    assert len(writer.sent) == topic_copy.FIRST_BATCH_RECORDS
    assert writer.is_finished


def test_a_record_that_librdkafka_refuses() -> None:
    error = confluent_kafka.KafkaException(
        confluent_kafka.KafkaError(confluent_kafka.KafkaError._UNKNOWN_PARTITION)
    )
    writer = Writer(raises=error)
    with pytest.raises(CliError, match="a record was not written") as caught:
        run(Reader([Message(0, 0, b"v")]), writer)
    assert caught.value.code is Exit.NOT_FOUND
    assert writer.is_finished


def test_ctrl_c_ends_after_what_was_read_is_written() -> None:
    writer = Writer(raises=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        run(Reader([Message(0, 0, b"v")]), writer)
    assert writer.is_finished


class SlowWriter(Writer):
    """Ctrl-C comes while the third record is sent."""

    def send(self, record: InputRecord) -> None:
        super().send(record)
        if len(self.sent) == 3:
            held.interrupt(signal.SIGINT, None)


def messages() -> list[Message]:
    return [Message(1, 5, b"v"), *(Message(0, at, b"v") for at in range(7))]


def test_a_copy_that_was_stopped_says_how_far_it_came(capsys: pytest.CaptureFixture[str]) -> None:
    writer = SlowWriter()
    with pytest.raises(KeyboardInterrupt):
        run(Reader(messages()), writer)
    assert len(writer.sent) == 3
    assert capsys.readouterr().err == (
        "note: copied 3 records: t [0] before 2, t [1] before 6; the target has them, and a second "
        "copy begins anew; to go on, give each partition its offset: -p P --from OFFSET\n"
    )
    with pytest.raises(CliError, match="gone"):
        run(TrimmedReader(messages()), Writer())
    assert "copied 8 records: t [0] before 7, t [1] before 6;" in capsys.readouterr().err
    with pytest.raises(CliError, match="gone"):
        run(TrimmedReader(messages()), Writer(), quiet=True)
    with pytest.raises(CliError, match="gone"):
        run(TrimmedReader([]), Writer())
    assert capsys.readouterr().err == ""


def test_a_refused_record_leaves_the_reached_offsets_open(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(CliError, match="refused"):
        run(Reader(messages()), Writer(fails_at=1))
    told = "note: the target may have a part of the records; a second copy begins anew\n"
    assert capsys.readouterr().err == told
