"""Records at their own offsets: what is sent, what is noted after it, and what ends a session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pytest

from pyrklog.mirror import Pace
from pyrklog.mirror.copy import COLUMNS
from pyrklog.mirror.errors import MovedError
from pyrklog.mirror.kept_copy import KeptCopier, Same
from pyrklog.mirror.names import Offsets
from pyrklog.mirror.state import Origin, Partition, Progress, check_origin, origin_row, read_state
from pyrklog.producing import LogEndMovedError, TransactionFencedError
from tests.unit.mirror.test_copy import FOREVER, NAMES, Clock, Scan, Target


class Logs:
    """The target's partitions: an append has to say where they end. ``events`` has what was done
    by either producer."""

    def __init__(self, events: list[str]) -> None:
        self.ends: dict[Partition, int] = {}
        self.offsets: dict[Partition, list[int]] = {}
        self._expected: dict[Partition, int] = {}
        self._waiting: list[tuple[Partition, int]] = []
        self._events = events

    def follow(self, topic: str, partition: int, end: int) -> None:
        self._expected[topic, partition] = end
        self.ends.setdefault((topic, partition), end)

    def send(self, batch: pa.RecordBatch) -> None:
        assert tuple(batch.schema.names) == COLUMNS
        columns = (batch.column(name).to_pylist() for name in ("topic", "partition", "offset"))
        self._waiting += [
            ((topic, number), offset) for topic, number, offset in zip(*columns, strict=True)
        ]
        self._events.append("send")

    def flush(self) -> None:
        for partition, offset in self._waiting:
            if self.ends[partition] != self._expected[partition]:
                raise LogEndMovedError(f"it ends at {self.ends[partition]}")
            assert offset >= self.ends[partition]
            self.offsets.setdefault(partition, []).append(offset)
            self.ends[partition] = self._expected[partition] = offset + 1
        self._waiting.clear()
        self._events.append("flush")


class Noting(Target):
    """The topic of progress. ``is_fenced``: another process has begun."""

    def __init__(self, events: list[str]) -> None:
        super().__init__()
        self._events = events
        self.is_fenced = False

    def commit(self) -> None:
        if self.is_fenced:
            raise TransactionFencedError("fenced")
        super().commit()
        self._events.append("commit")


class World:
    def __init__(self, begins: Mapping[int, int], *, starts: int = 0) -> None:
        """Partitions of ``t`` whose copies begin there; the target's logs are empty."""
        self.events: list[str] = []
        self.logs, self.noted = Logs(self.events), Noting(self.events)
        self.trimmed: list[dict[Partition, int]] = []
        clock = Clock()
        self.copier = KeptCopier(
            NAMES,
            self.noted,
            self.logs,
            lambda before: self.trimmed.append(dict(before)),
            Pace(),
            clock=clock,
            sleep=clock.sleep,
        )
        self.copier.add_target({("east.t", number): starts for number in begins}, {})
        positions = {("t", number): begin for number, begin in begins.items()}
        self.copier.begin_at(positions, {"t": "id"}, [])
        for number in begins:
            self.copier.follow(("t", number), starts, starts)
        self.events.clear()


def test_records_are_written_at_their_offsets_and_then_noted() -> None:
    world = World({0: 0, 1: 0})
    scan = Scan([(0, [3, 4, 9]), (1, [0])], {0: 12, 1: 1})
    assert world.copier.copy(scan, FOREVER)
    assert world.logs.offsets == {("east.t", 0): [3, 4, 9], ("east.t", 1): [0]}
    assert world.events == ["send", "send", "flush", "commit"]
    assert world.noted.records() == [[], []], "only the topic of progress is in a transaction"
    found = world.noted.progress()["t", 0]
    assert (found.position, found.target_end, found.epoch, found.records) == (12, 10, 3, 3)
    assert found.span is None
    assert world.noted.spans() == []
    # A gap at the end moves the position only.
    scan = Scan([], {0: 20, 1: 1}, starts={0: 12, 1: 1})
    assert world.copier.copy(scan, FOREVER)
    found = world.noted.progress()["t", 0]
    assert (found.position, found.target_end) == (20, 10)
    assert world.events[4:] == ["commit"]


def test_a_copy_begins_where_the_source_does() -> None:
    world = World({0: 70})
    begun = world.noted.progress()["t", 0]
    assert (begun.begin, begun.target_begin, begun.position, begun.target_end) == (70, 70, 70, 0)
    assert world.trimmed == [], "nothing is there yet"
    assert world.copier.copy(Scan([(0, [75])], {0: 80}, starts={0: 70}), FOREVER)
    assert world.trimmed == [{("east.t", 0): 70}]
    assert world.copier.copy(Scan([(0, [90])], {0: 91}, starts={0: 80}), FOREVER)
    assert world.trimmed == [{("east.t", 0): 70}], "once"


def test_a_beginning_that_was_not_cut_off_is_at_the_start() -> None:
    world = World({0: 70})
    world.copier.ends["east.t", 0] = 76
    world.copier.follow(("t", 0), 0, 76)
    assert world.trimmed == [{("east.t", 0): 70}]


def test_a_log_that_ends_elsewhere_ends_the_session() -> None:
    world = World({0: 0})
    world.logs.ends["east.t", 0] = 5
    with pytest.raises(MovedError, match="it ends at 5"):
        world.copier.copy(Scan([(0, [0, 1])], {0: 2}), FOREVER)
    assert world.noted.progress()["t", 0].position == 0
    assert world.logs.offsets == {}


def test_a_process_that_is_fenced_ends_when_another_one_has_written() -> None:
    world = World({0: 0})
    world.logs.ends["east.t", 0] = 5
    world.noted.is_fenced = True
    with pytest.raises(TransactionFencedError):
        world.copier.copy(Scan([(0, [0, 1])], {0: 2}), FOREVER)


def test_records_of_others_are_noticed_when_groups_are_looked_at() -> None:
    world = World({0: 0})
    world.copier.copy(Scan([(0, [0, 1])], {0: 2}), FOREVER)
    assert world.copier.forget_foreign({("east.t", 0): 2}) == []
    with pytest.raises(MovedError, match="ends at 3, and not at 2"):
        world.copier.forget_foreign({("east.t", 0): 3})


def test_only_partitions_with_a_known_end_are_copied() -> None:
    world = World({0: 0})
    wanted: Mapping[str, Sequence[int]] = {"t": [0, 1], "u": [0]}
    assert world.copier.copyable(wanted) == {"t": [0], "u": []}


def test_groups_offsets_are_the_same_within_what_is_copied() -> None:
    world = World({0: 10})
    world.copier.copy(Scan([(0, [12, 30])], {0: 40}, starts={0: 10}), FOREVER)
    known = world.copier.places()["t", 0]
    assert known == Same(10, 31)
    for offset, wanted in ((9, None), (10, 10), (12, 12), (20, 20), (31, 31), (40, 31)):
        expected = None if wanted is None else (wanted, wanted)
        assert known.bounds(offset) == expected, offset
    assert Same(10, 0).bounds(12) is None, "nothing is there yet"


def test_how_a_topic_is_copied_anew() -> None:
    assert "delete topic east.t at the target; --again t" in World({}).copier.how_again("t")


def test_the_topic_of_progress_says_which_offsets_a_mirror_gives() -> None:
    kept = Origin("a", "b", "prefix", Offsets.KEEP.value)
    translated = Origin("a", "b", "prefix")
    for one in (kept, translated):
        row = origin_row("s", one)
        assert read_state("s", [(row.key, row.value)]).origin == one
    assert origin_row("s", translated).value == (
        b'{"version":1,"source_id":"a","target_id":"b","policy":"prefix"}'
    ), "as before"
    check_origin("s", kept, kept)
    with pytest.raises(Exception, match="begun with --offsets keep, not translate") as refused:
        check_origin("s", kept, translated)
    assert "--name" in str(getattr(refused.value, "fix", ""))


def test_a_row_of_progress_is_read_again() -> None:
    world = World({0: 7})
    assert world.noted.progress() == {
        ("t", 0): Progress(
            "east.t",
            7,
            -1,
            0,
            target_begin=7,
            begin=7,
            topic_id="id",
            at_ms=world.copier.progress["t", 0].at_ms,
        )
    }
