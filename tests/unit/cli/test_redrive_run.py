"""A redrive between a made-up reader and writer."""

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from pyrklog.base.problems import Problem
from pyrklog.cli.connection import PartitionKey
from pyrklog.cli.failures import CliError, Exit
from pyrklog.cli.interrupts import Terminated, held, taken_over
from pyrklog.cli.options import OutputFormat
from pyrklog.cli.output import render
from pyrklog.cli.pace import Pace
from pyrklog.cli.redrive_consumer import Seen
from pyrklog.cli.redrive_progress import Progress, parse_progress
from pyrklog.cli.redrive_rules import Moved, Reason, Rules
from pyrklog.cli.redrive_run import ROWS_MAX, Fate, Redrive, Tally, listing
from pyrklog.cli.redrive_writer import Sent

TOPIC = b"__connect.errors.topic"
BROKER_BYTES_MAX = 4096
"""``offset.metadata.max.bytes``."""


class Message:
    def __init__(self, offset: int, target: bytes) -> None:
        self._offset = offset
        self._headers = [(TOPIC.decode(), target)] if target else []

    def topic(self) -> str:
        return "dlq"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes:
        return b"k"

    def value(self) -> bytes:
        return b"%d" % self._offset

    def headers(self) -> list[tuple[str, bytes | None]]:
        return list(self._headers)

    def timestamp(self) -> tuple[int, int]:
        return (1, 77)

    def leader_epoch(self) -> int:
        return 0


class Reader:
    """Keeps ``committed`` from run to run, as a group does, and takes as much metadata as one. A
    target of None: an offset without a record."""

    def __init__(self, targets: Sequence[bytes | None], committed: Progress) -> None:
        self.committed = committed
        self._progress = parse_progress(committed.next, committed.metadata())
        self._messages = [
            None if target is None else Message(at, target) for at, target in enumerate(targets)
        ]
        self._at = 0
        self.limits: list[int] = []
        self.seen = Seen()
        self.fails_to_commit = False
        self.is_dry = False
        self._done: list[int] = []
        self._holes: list[int] = []
        self.commits = 0

    def finished(self) -> bool:
        return self._at >= len(self._messages)

    def read(self, limit: int, _wait_s: float) -> list[Message]:
        self.limits.append(limit)
        found: list[Message] = []
        began = self._at
        self._holes.clear()
        while len(found) < limit and not self.finished():
            message = self._messages[self._at]
            self._at += 1
            if message is None:
                self._holes.append(self._at - 1)
            elif not self._progress.covers(message.offset()):
                found.append(message)
        self.seen = Seen(self._at - began, 0)
        return found

    def check_progress(self) -> None:
        """Nothing is waited for."""

    def wait_anew(self) -> None:
        """Time does not count here."""

    def has_room(self, _key: PartitionKey, offset: int) -> bool:
        return self._progress.has_room(offset)

    def expect(self, _key: PartitionKey, offset: int) -> None:
        self._progress.expect(offset)

    def is_expecting(self, _key: PartitionKey) -> bool:
        return self._progress.is_expecting

    def done(self, _key: PartitionKey, offset: int) -> None:
        self._done.append(offset)
        self._progress.add(offset, offset + 1)

    def commit(self) -> None:
        self._progress.settle()
        for hole in self._holes:
            self._progress.bridge(hole, hole + 1)
        if self.is_dry:
            return
        if self.fails_to_commit:
            raise CliError(Problem.NO_BROKER, "not kept")
        if len(self._progress.metadata()) > BROKER_BYTES_MAX:
            raise CliError(Problem.BROKER_REFUSED, "OFFSET_METADATA_TOO_LARGE")
        self.commits += 1
        for offset in self._done:
            self.committed.add(offset, offset + 1)
        for hole in self._holes:
            self.committed.bridge(hole, hole + 1)


class Error:
    def __init__(self, name: str) -> None:
        self._name = name

    def name(self) -> str:
        return self._name

    def str(self) -> str:
        return f"because of {self._name}"


FLUSH = -1


class Writer:
    """``errors`` by offset; ``breaks`` runs before an offset is sent, or while it is waited for
    brokers."""

    def __init__(
        self,
        errors: dict[int, Error] | None = None,
        breaks: Mapping[int, Callable[[], None]] | None = None,
    ) -> None:
        self._errors = errors or {}
        self._breaks = breaks or {}
        self._sent: list[Sent] = []
        self.written: list[int] = []

    def send(self, key: PartitionKey, offset: int, moved: Moved) -> None:
        self._breaks.get(offset, bool)()
        error = self._errors.get(offset)
        place = None if error else (moved.topic, 0, offset)
        self._sent.append(Sent(key, offset, moved, place, error))

    def flush(self) -> list[Sent]:
        sent, self._sent = self._sent, []
        with held:
            self._breaks.get(FLUSH, bool)()
        self.written += [one.offset for one in sent if one.error is None]
        return sent

    def explain(self, sent: Sent, about: str) -> CliError:
        return CliError(Problem.NO_ANSWER, f"{about}: {sent.error.str()}", "try again")


RULES = Rules("dlq", {"orders": 1, "payments": 1})
ALL = [b"orders"] * 30


def redrive(reader: Reader, writer: Writer | None, **more: Any) -> Redrive:
    reader.is_dry = writer is None
    run = Redrive(reader, RULES, **more)  # type: ignore[arg-type]
    run.run(writer)  # type: ignore[arg-type]
    return run


def test_a_second_run_has_nothing_to_do() -> None:
    kept, writer = Progress(0), Writer()
    assert redrive(Reader(ALL, kept), writer).tally.moved == len(ALL)
    assert writer.written == list(range(len(ALL)))
    assert (kept.next, kept.metadata()) == (len(ALL), "")
    second = redrive(Reader(ALL, kept), writer)
    assert (second.tally.moved, second.tally.stuck, len(writer.written)) == (0, 0, len(ALL))


def test_a_dry_run_changes_nothing() -> None:
    reader = Reader(ALL, Progress(0))
    assert redrive(reader, None).tally.moved == len(ALL)
    assert reader.committed.next == 0


def test_a_dry_run_tells_what_the_run_tells() -> None:
    """Bytes, too: headers are added, and those about the error are left out."""
    targets = [b"payments", b"orders", b"", b"gone", b"orders"]
    dry, run = (redrive(Reader(targets, Progress(0)), writer) for writer in (None, Writer()))
    assert dry.tally.counts == run.tally.counts


def test_the_limit_is_of_moved_records() -> None:
    targets = [b"", *ALL]
    kept, writer = Progress(0), Writer()
    run = redrive(Reader(targets, kept), writer, limit=12)
    assert (run.tally.moved, run.tally.stuck) == (12, 1)
    assert writer.written == list(range(1, 13))
    assert (kept.next, kept.metadata()) == (0, "redrive/1 1+12")
    rest = redrive(Reader(targets, kept), writer)
    assert writer.written == list(range(1, 31))
    with pytest.raises(CliError) as caught:
        rest.tally.check()
    assert (caught.value.code, caught.value.what) == (Exit.PARTIAL, "1 record cannot be redriven")


def test_nothing_but_what_cannot_be_moved() -> None:
    run = redrive(Reader([b"", b"gone", b"dlq"], Progress(0)), Writer())
    with pytest.raises(CliError) as caught:
        run.tally.check()
    assert caught.value.code is Exit.FAILED


def test_a_refused_record_stays_and_others_go() -> None:
    kept, writer = Progress(0), Writer({3: Error("MSG_SIZE_TOO_LARGE")})
    run = redrive(Reader(ALL, kept), writer)
    assert run.tally.counts[
        Fate("orders", Reason.REFUSED, "because of MSG_SIZE_TOO_LARGE")
    ].first == ("dlq:0@3")
    assert (kept.next, kept.metadata()) == (3, "redrive/1 1+26")


def test_a_broker_that_goes_away_ends_it() -> None:
    kept, writer = Progress(0), Writer({12: Error("_MSG_TIMED_OUT")})
    with pytest.raises(CliError) as caught:
        redrive(Reader(ALL, kept), writer)
    assert caught.value.code is Exit.PARTIAL
    assert "dlq:0@12 was not written to orders: because of _MSG_TIMED_OUT" in caught.value.what
    assert f"{len(writer.written)} records before were redriven" in caught.value.what
    second = Writer()
    redrive(Reader(ALL, kept), second)
    assert sorted(writer.written + second.written) == list(range(len(ALL)))


def test_ctrl_c_keeps_what_was_written() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    kept, writer = Progress(0), Writer(breaks={15: interrupt})
    with pytest.raises(KeyboardInterrupt):
        redrive(Reader(ALL, kept), writer)
    assert (writer.written, kept.next) == (list(range(15)), 15)


@pytest.mark.parametrize(
    ("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)]
)
def test_ctrl_c_during_the_wait_for_brokers_keeps_what_was_written(
    number: signal.Signals, raised: type[KeyboardInterrupt]
) -> None:
    """Else a second run moves the batch again."""
    came: list[int] = []

    def interrupt() -> None:
        if not came:
            came.append(number)
            os.kill(os.getpid(), number)

    defaults: dict[signal.Signals, Any] = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
    }
    before = {one: signal.signal(one, default) for one, default in defaults.items()}
    kept, writer = Progress(0), Writer(breaks={FLUSH: interrupt})
    run = Redrive(Reader(ALL, kept), RULES)  # type: ignore[arg-type]
    try:
        with pytest.raises(raised), taken_over():
            run.run(writer)  # type: ignore[arg-type]
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
    assert writer.written
    assert kept.next == len(writer.written) == run.tally.moved
    redrive(Reader(ALL, kept), writer)
    assert writer.written == list(range(len(ALL)))


def test_what_the_group_does_not_keep_is_moved_again() -> None:
    kept, writer = Progress(0), Writer()
    reader = Reader(ALL, kept)
    reader.fails_to_commit = True
    with pytest.raises(CliError, match="not kept"):
        redrive(reader, writer)
    redrive(Reader(ALL, kept), writer)
    assert set(writer.written) == set(range(len(ALL)))


def every_third(count: int) -> list[bytes]:
    """Two of three records stay; batches are as large as they get."""
    return [b"" if at % 3 else b"orders" for at in range(count)]


def test_more_gaps_than_fit() -> None:
    """Records that are written are always kept, however many a batch has."""
    targets, kept, writer = every_third(9_000), Progress(0), Writer()
    reader = Reader(targets, kept)
    run = redrive(reader, writer)
    left = run.tally.counts[Fate("orders", Reason.GAPS)].skipped
    assert len(writer.written) + left == 3_000
    assert left > 0
    assert len(writer.written) > 1_000
    assert reader.commits < 100
    second = redrive(Reader(targets, kept), writer)
    assert second.tally.moved == 0
    assert len(set(writer.written)) == len(writer.written)
    dry = redrive(Reader(targets, Progress(0)), None)
    assert abs(dry.tally.moved - len(writer.written)) < 10
    redrive(Reader([b"orders"] * len(targets), kept), writer)
    assert sorted(writer.written) == list(range(len(targets)))
    assert (kept.next, kept.metadata()) == (len(targets), "")


def test_refused_records_leave_no_more_gaps_than_fit() -> None:
    kept, count = Progress(0), 9_000
    errors = {at: Error("MSG_SIZE_TOO_LARGE") for at in range(0, count, 2)}
    writer = Writer(errors)
    redrive(Reader([b"orders"] * count, kept), writer)
    assert len(writer.written) > 1_000
    assert len(kept.metadata()) <= BROKER_BYTES_MAX


@pytest.mark.parametrize("is_dry", [False, True])
def test_offsets_without_a_record_make_no_gaps(is_dry: bool) -> None:
    """Such as markers of transactions."""
    targets = [None if at % 2 else b"orders" for at in range(8_000)]
    kept, writer = Progress(0), None if is_dry else Writer()
    run = redrive(Reader(targets, kept), writer)
    assert (run.tally.moved, run.tally.stuck) == (4_000, 0)
    assert (kept.next, kept.metadata()) == (0 if is_dry else 8_000, "")


def test_offsets_without_a_record_behind_ones_that_stay_cost_nothing() -> None:
    targets = [None if at % 2 else b"" for at in range(20_000)]
    kept = Progress(0)
    assert redrive(Reader(targets, kept), Writer()).tally.stuck == 10_000
    assert (kept.next, kept.metadata()) == (0, "")


def test_the_pace() -> None:
    now = [100.0]
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    pace = Pace(4.0, lambda: now[0], sleep)
    for _ in range(3):
        pace.wait()
    assert (slept, now) == ([0.25, 0.25], [100.5])
    now[0] += 60  # nothing is made up for
    pace.wait()
    pace.wait()
    assert slept == [0.25, 0.25, 0.25]
    assert list(pace.each("ab")) == ["a", "b"]
    assert slept == [0.25] * 5
    assert (pace.batch, Pace(0.5).batch, Pace(None).batch) == (4, 1, None)


def test_a_paced_batch_is_about_a_second() -> None:
    reader = Reader(ALL, Progress(0))
    redrive(reader, Writer(), pace=Pace(5.0, lambda: 0.0, lambda _: None))
    assert set(reader.limits) == {5}


def test_the_rows_are_bounded() -> None:
    tally = Tally()
    for number in range(3 * ROWS_MAX):
        tally.add(Fate(f"t{number}", Reason.NO_TOPIC), f"dlq:0@{number}", 1)
    assert len(tally.counts) == ROWS_MAX + 1
    assert tally.stuck == 3 * ROWS_MAX


def test_the_listing() -> None:
    run = redrive(Reader([b"payments", b"orders", b"", b"gone", b"orders"], Progress(0)), Writer())
    assert render(listing(run.tally, RULES, None), OutputFormat.TABLE) == (
        "TOPIC     MOVED  SKIPPED  BYTES  WHY\n"
        "orders        2        0    102\n"
        "payments      1        0     51\n"
        "-             0        1      2  no header names a topic: give --to\n"
        "gone          0        1     28  the topic does not exist\n"
    )
