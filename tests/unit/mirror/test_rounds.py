"""What becomes of a session that fails."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from pyrklog.mirror import (
    Cluster,
    Kind,
    Mirror,
    MirrorError,
    Names,
    Offsets,
    Options,
    Pace,
    Patterns,
    Policy,
)
from pyrklog.mirror.cluster import Logs
from pyrklog.mirror.copy import Copier
from pyrklog.mirror.errors import AwayError, MovedError, SlowError
from pyrklog.mirror.run import MOVED_MAX, MOVED_WAIT_S, WAIT_MAX_S, starts
from pyrklog.mirror.state import Progress, read_state
from pyrklog.mirror.target_logs import MARKERS_S, TargetLogs
from pyrklog.mirror.topics import Plan
from pyrklog.producing import ClusterUnavailableError, RecordTooLargeError
from pyrklog.scanning import (
    BatchTooLargeError,
    CorruptBatchError,
    LeftOut,
    LogTruncatedError,
    OffsetOutOfRangeError,
    PartitionProgress,
    ScanError,
)
from tests.unit.mirror.test_kept_copy import World

SOURCE, TARGET = Cluster("east", "h:1"), Cluster("west", "h:2")
NAMES = Names("east", "west", Policy.PREFIX, "m")


class Notes:
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def began(self, _plan: object, _progress: Mapping[Any, Any]) -> None:
        raise AssertionError("there is no session")

    def copied(self, _progress: Mapping[Any, Any]) -> None:
        raise AssertionError("there is no session")


def mirror(told: Notes, *, once: bool = False) -> Mirror:
    patterns = Patterns(["t"], "--topics")
    return Mirror(Options(SOURCE, TARGET, NAMES, patterns, patterns, once=once), told)


def fail_with(one: Mirror, monkeypatch: pytest.MonkeyPatch, *failures: Exception) -> list[float]:
    """Sessions fail so, and then all is done. How long it is waited between them."""
    left, waited = list(failures), list[float]()

    def session() -> bool:
        if left:
            raise left.pop(0)
        return True

    monkeypatch.setattr(one, "_session", session)
    monkeypatch.setattr(time, "sleep", waited.append)
    return waited


@pytest.mark.parametrize("once", [True, False])
def test_a_target_that_is_too_slow_is_tried_again_at_once(
    monkeypatch: pytest.MonkeyPatch, once: bool
) -> None:
    told = Notes()
    one = mirror(told, once=once)
    waited = fail_with(one, monkeypatch, SlowError("slow"), SlowError("slow"))
    one.run()
    assert (told.notes, waited) == (["slow", "slow"], [])


def test_a_target_that_is_away_ends_a_mirror_that_copies_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = mirror(Notes(), once=True)
    fail_with(one, monkeypatch, AwayError("away"))
    with pytest.raises(MirrorError, match="away") as ended:
        one.run()
    assert ended.value.kind is Kind.UNREACHABLE


@pytest.mark.parametrize("has_begun", [True, False])
def test_a_target_whose_followers_hang_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, has_begun: bool
) -> None:
    """Sessions end at once while the log there ends behind what readers see."""
    told = Notes()
    one = mirror(told)
    one._has_begun = has_begun
    count = MOVED_MAX + 3
    waited = fail_with(one, monkeypatch, *(MovedError("it ends at 5") for _ in range(count)))
    if not has_begun:
        with pytest.raises(MirrorError, match="it ends at 5"):
            one.run()
        return
    one.run()
    assert waited == [MOVED_WAIT_S] * MOVED_MAX + [WAIT_MAX_S] * 3
    assert told.notes == ["it ends at 5; trying again"]


class Open(NamedTuple):
    """A copier with an open transaction."""

    sent_bytes: int


LATE = ClusterUnavailableError("not written within 45.0 s")


def test_what_was_given_up_makes_the_next_transaction_smaller() -> None:
    one = mirror(Notes())
    copier: Any = Open(40 << 20)
    slow = one._too_slow(copier, LATE, is_ended=False)
    assert isinstance(slow, SlowError)
    assert slow.what == (
        "a transaction at west took too long: not written within 45.0 s; "
        "going on with at most 20480 KiB in 60 s"
    )


def test_a_target_that_does_not_take_the_smallest_counts_as_away() -> None:
    one = mirror(Notes())
    copier: Any = Open(100)
    assert isinstance(one._too_slow(copier, LATE, is_ended=False), SlowError)
    away = one._too_slow(copier, LATE, is_ended=False)
    assert isinstance(away, AwayError)
    assert away.what == str(LATE)


def test_a_process_that_is_fenced_is_told_what_why_and_what_to_do() -> None:
    fenced = mirror(Notes())._fenced()
    assert "another process that mirrors as m has begun" in fenced.what
    assert "transactional id, pyrklog-mirror/m, so west fenced this one" in fenced.what
    assert fenced.fix is not None
    assert "run one process for each mirror" in fenced.fix


def test_a_record_that_is_too_large_is_told_with_the_option(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = mirror(Notes())

    def session() -> bool:
        raise RecordTooLargeError("topic east.t takes no record so large (max.message.bytes)")

    monkeypatch.setattr(one, "_session", session)
    with pytest.raises(MirrorError, match=r"topic east\.t takes no record so large") as told:
        one.run()
    assert told.value.fix is not None
    assert told.value.fix.startswith("raise max.message.bytes of the topic at west; at east if")


@pytest.mark.parametrize("kind", [CorruptBatchError, BatchTooLargeError])
def test_a_batch_that_cannot_be_read_is_told_with_what_the_other_topics_need(
    monkeypatch: pytest.MonkeyPatch, kind: type[ScanError]
) -> None:
    one = mirror(Notes())
    fail_with(one, monkeypatch, kind("partition t-3 at offset 17: bad"))
    with pytest.raises(MirrorError, match="partition t-3 at offset 17") as ended:
        one.run()
    assert ended.value.fix is not None
    assert "leave its topic out, with --topics" in ended.value.fix
    assert "--missing skip" in ended.value.fix


class Written:
    """What a producer has written, by transaction."""

    acknowledged_bytes = 0

    def __init__(self) -> None:
        self.open: list[tuple[bytes, bytes]] = []
        self.transactions: list[list[tuple[bytes, bytes]]] = []

    def send(self, batch: Any) -> None:
        rows = (batch.column(name).to_pylist() for name in ("key", "value"))
        self.open += zip(*rows, strict=True)

    def commit(self) -> None:
        self.transactions.append(self.open)
        self.open = []


def test_where_a_mirror_from_the_end_begins_is_written_before_it_copies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else a topic that is created while it is away would be taken for one that was there."""
    patterns = Patterns(["t", "u", "v"], "--topics")
    one = Mirror(Options(SOURCE, TARGET, NAMES, patterns, patterns, start="latest"), Notes())
    one._first = frozenset({"t", "u", "v"})
    one._whole = {"u"}
    asked: list[Mapping[str, Any]] = []

    def logs(partitions: Mapping[str, Any], isolation: str, *, leaves: bool) -> Logs:
        asked.append(partitions)
        assert (isolation, leaves) == ("read_committed", True)
        return Logs({}, {("t", 0): 7, ("t", 1): 0}, {"t": "id"})

    monkeypatch.setattr(one._source, "logs", logs)
    written, known = Written(), Progress("east.v", 5, 1, 5)
    ends = {("east.t", 0): 3, ("east.t", 1): 0}
    copier = Copier(NAMES, written, {("v", 0): known}, ends, Pace(), target_ids={"east.t": "B"})
    one._begin_at_ends(copier, Plan({"t": 2, "u": 1, "v": 2, "later": 1}))
    assert asked == [{"t": [0, 1]}]
    (rows,) = written.transactions
    state = read_state(NAMES.state_topic, rows)
    assert state.patterns == ["t", "u", "v"]
    first = state.partitions["t", 0]._replace(at_ms=0)
    assert first == Progress(
        "east.t", 7, -1, 3, target_begin=3, begin=7, topic_id="id", target_id="B"
    )
    assert copier.progress.keys() == {("t", 0), ("t", 1), ("v", 0)}
    begins = starts({"t": [0, 1]}, copier.progress, "latest", ())
    assert begins == {"t": {0: (7, -1), 1: (0, -1)}}


def test_a_topic_without_a_leader_at_the_beginning_is_copied_whole_when_it_has_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else what is written to it before the next round would be skipped."""
    patterns = Patterns(["t", "u"], "--topics")
    one = Mirror(Options(SOURCE, TARGET, NAMES, patterns, patterns, start="latest"), Notes())
    one._first = frozenset({"t", "u"})
    monkeypatch.setattr(
        one._source, "logs", lambda *_, leaves: Logs({}, {("t", 0): 7}, {"t": "id"})
    )
    copier: Any = Copier(NAMES, Written(), {}, {("east.t", 0): 3}, Pace())
    one._begin_at_ends(copier, Plan({"t": 1, "u": 1}))
    places: list[Mapping[str, Any]] = []

    def scan(_partitions: object, *, start: Mapping[str, Any], **_others: Any) -> NoReading:
        places.append(start)
        return NoReading()

    monkeypatch.setattr("pyrklog.mirror.run.scan", scan)
    monkeypatch.setattr(copier, "copy", lambda *_: True)
    assert one._round(copier, Plan({"t": 1, "u": 1}), time.monotonic() + 60)
    assert places == [{"t": {0: (7, -1)}, "u": {0: "earliest"}}]


class NoReading:
    """A scan that has nothing to read, and a partition whose leader does not answer."""

    topic_ids: Mapping[str, str] = {}
    has_ended = True

    def __enter__(self) -> NoReading:
        return self

    def __exit__(self, *_raised: object) -> None:
        """Nothing is open."""

    @property
    def left_out(self) -> list[LeftOut]:
        return [LeftOut("t", 1, "no answer")]

    def progress(self) -> list[PartitionProgress]:
        return []

    def next_batch(self, _timeout_s: float) -> None:
        return None


@pytest.mark.parametrize("once", [False, True])
def test_partitions_whose_leaders_do_not_answer_are_left_out_of_the_next_rounds(
    monkeypatch: pytest.MonkeyPatch, once: bool
) -> None:
    one = mirror(told := Notes(), once=once)
    asked: list[tuple[Mapping[str, Any], str]] = []

    def scan(partitions: Mapping[str, Any], *, unanswered: str, **_others: Any) -> NoReading:
        asked.append((partitions, unanswered))
        return NoReading()

    monkeypatch.setattr("pyrklog.mirror.run.scan", scan)
    one._logs._silent.add([LeftOut("t", 2, "no answer")])
    copier = Copier(NAMES, Written(), {}, {}, Pace())
    plan = Plan({"t": 3, "u": 1})
    for _ in range(2):
        assert one._round(copier, plan, until=0.0)
    what = "fail" if once else "leave"
    assert asked == [({"t": [0, 1], "u": [0]}, what), ({"t": [0], "u": [0]}, what)]
    assert len(told.notes) == 2


@pytest.mark.parametrize("offsets", list(Offsets))
@pytest.mark.parametrize("failure", [OffsetOutOfRangeError, LogTruncatedError])
def test_a_topic_that_was_created_anew_is_not_told_as_lost_records(
    monkeypatch: pytest.MonkeyPatch, offsets: Offsets, failure: type[ScanError]
) -> None:
    patterns = Patterns(["t"], "--topics")
    one = Mirror(Options(SOURCE, TARGET, NAMES, patterns, patterns, offsets=offsets), Notes())
    keeps = offsets is Offsets.KEEP

    def scan(*_given: Any, **_others: Any) -> None:
        raise failure("partition t-0 ends at offset 0, before 10")

    ids = ["id"]
    monkeypatch.setattr("pyrklog.mirror.run.scan", scan)
    monkeypatch.setattr(
        one._source, "logs", lambda *_given, leaves: Logs({}, {}, {"t": ids[0]} if leaves else {})
    )
    known = {("t", 0): Progress("east.t", 10, 0, 10, topic_id="id")}
    copier = Copier(NAMES, Written(), known, {("east.t", 0): 10}, Pace())
    if keeps:
        kept = World({})
        kept.copier.progress.update(known)
        kept.copier.follow(("t", 0), 0, 10)
        copier = kept.copier
    fail_with(one, monkeypatch)
    monkeypatch.setattr(one, "_session", lambda: one._round(copier, Plan({"t": 1}), until=0.0))
    with pytest.raises(MirrorError, match="partition t-0 ends at offset 0, before 10") as ended:
        one.run()
    assert ("delete topic east.TOPIC at the target" in (ended.value.fix or "")) == keeps
    assert "--again TOPIC" in (ended.value.fix or "")
    ids[0] = "other"
    with pytest.raises(MirrorError) as ended:
        one.run()
    assert ended.value.what == "topic t was deleted and created anew at east"
    assert ended.value.fix == copier.how_again("t")


def test_the_target_is_not_asked_again_for_partitions_that_do_not_answer() -> None:
    names = Names("east", "west", Policy.PREFIX, "m")
    asked: list[Mapping[str, Any]] = []

    class Target:
        def logs(self, partitions: Mapping[str, Any], _isolation: str, *, leaves: bool) -> Logs:
            asked.append(partitions)
            assert leaves
            left_out = [LeftOut("east.t", 1, "no answer")] if 1 in partitions["east.t"] else []
            return Logs({}, {("east.t", 0): 5}, {}, left_out)

        def ends(self, topics: Mapping[str, int], isolation: str) -> dict[tuple[str, int], int]:
            raise AssertionError((topics, isolation))

        def silent(self, partitions: Mapping[str, Any]) -> list[tuple[str, int]]:
            assert partitions == {"east.t": [1]}
            return [("east.t", 1)]

    notes: list[str] = []
    logs = TargetLogs(names, Target(), notes.append)
    assert logs.settled(Plan({"t": 2}), {}).ends == {("east.t", 0): 5}
    assert asked == [{"east.t": [0, 1]}, {"east.t": [0]}, {"east.t": [0]}]
    assert logs.without_silent({"t": [0, 1]}) == {"t": [0]}
    assert logs._still_silent({"t": [1]}) == [("t", 1)]
    assert len(notes) == 1


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_new_leader_that_shows_less_for_a_moment_has_lost_nothing(
    monkeypatch: pytest.MonkeyPatch, is_lost: bool
) -> None:
    """With --offsets keep, in which what the target has lost is copied again."""
    ends = iter([3, 3, 5])

    class Target:
        def logs(self, _partitions: Any, _isolation: str, *, leaves: bool) -> Logs:
            assert leaves
            return Logs({}, {("t", 0): 3 if is_lost else next(ends)}, {}, [])

        def ends(self, topics: Mapping[str, int], isolation: str) -> dict[tuple[str, int], int]:
            raise AssertionError((topics, isolation))

        def silent(self, partitions: Mapping[str, Any]) -> list[tuple[str, int]]:
            raise AssertionError(partitions)

    now, notes = [0.0], list[str]()
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: now.append(now.pop() + seconds))
    names = Names("east", "west", Policy.IDENTITY, "m")
    logs = TargetLogs(names, Target(), notes.append, recopies=True)
    known = {("t", 0): Progress("t", 5, 0, 5)}
    found = logs.intact(Plan({"t": 1}), known).ends["t", 0]
    assert found == (3 if is_lost else 5)
    assert (now[0] > MARKERS_S) == is_lost
