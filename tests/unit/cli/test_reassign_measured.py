"""Plans whose speed nobody knows before they run: on a fake cluster, in a time of its own."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pyrklog.balance.filling import Fill
from pyrklog.balance.model import PartitionKey
from pyrklog.balance.prediction import Limit, RateFrom
from pyrklog.balance.progress import MEASURED_AFTER_S, SURE_AFTER_S, Mark
from pyrklog.balance.throttle import AUTO
from pyrklog.cli import reassign_progress, reassign_record
from pyrklog.cli.expansion import Start
from pyrklog.cli.options import Settings
from pyrklog.cli.reassign_planning import (
    DEFAULT_RATE_BYTES,
    begin_record,
    first_record,
    guess_of,
)
from pyrklog.cli.reassign_run import Run
from pyrklog.cli.reassign_summary import fill_line
from pyrklog.protocol.reassignments import OngoingPartitionReassignment
from tests.unit.cli.reassigning import NO_CONNECTION, FakeAdmin

A, B = ("t", 0), ("t", 1)
NOW_MS = reassign_record.now_ms
MB = 10**6
SIZE = 400 * MB
CLOSE = 0.2


class Timed(FakeAdmin):
    """Broker 3 copies so much a second from half a second on, one partition after the other."""

    def __init__(self, rate: int) -> None:
        super().__init__({A: (1, 2), B: (2, 1)})
        self.rate = rate
        self.now_s = 1_000_000.0
        self.begun_s: float | None = None

    def pass_(self, seconds: float) -> None:
        self.now_s += seconds

    @property
    def now_ms(self) -> int:
        return int(self.now_s * 1000)

    @property
    def copied(self) -> dict[PartitionKey, int]:
        passed_s = 0.0 if self.begun_s is None else max(0.0, self.now_s - self.begun_s - 0.5)
        first = int(min(SIZE, passed_s * self.rate))
        return {A: first, B: int(min(SIZE, max(0.0, passed_s * self.rate - SIZE)))}

    def sizes(self, *, without_silent: bool = False) -> dict[tuple[str, int, int], int]:
        found = {(*key, one): SIZE for key in self.placed for one in (1, 2)}
        return found | {(*key, 3): count for key, count in self.copied.items()}

    def moving(self) -> dict[PartitionKey, OngoingPartitionReassignment]:
        if self.targets and self.begun_s is None:
            self.begun_s = self.now_s
        for key in [key for key in self.targets if self.copied[key] == SIZE]:
            self.end(key)
        return super().moving()


@pytest.fixture
def timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Timed]:
    def make(rate: int) -> Timed:
        found = Timed(rate)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        monkeypatch.setattr("pyrklog.cli.reassign_run.time.sleep", found.pass_)
        for module in (reassign_record, reassign_progress):
            monkeypatch.setattr(module, "now_ms", lambda: found.now_ms)
        monkeypatch.setattr("pyrklog.cli.reassign_planning.add_write_rates", lambda *_: {})
        return found

    return make


def carry_out(admin: Timed, path: Path, throttle: str | None = None) -> None:
    first = first_record(admin, {A: (1, 3), B: (2, 3)}, None)
    record, complete = begin_record(NO_CONNECTION, admin, first, Limit())
    options = Settings("127.0.0.1:1")
    run = Run(NO_CONNECTION, admin, options, record, path, complete=complete)
    run.carry_out(throttle, watch=True)


def test_what_was_assumed_gives_way_to_what_is_measured(
    timed: Callable[[int], Timed], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    admin, path = timed(20 * MB), tmp_path / "progress.json"
    assert guess_of("id", None) == (DEFAULT_RATE_BYTES, RateFrom.ASSUMED)
    carry_out(admin, path)
    out = capsys.readouterr().out
    lines = [line for line in out.splitlines() if " left · about " in line]
    assert lines[0].endswith("about 16 s at 50 MB/s, if the disks allow it")
    assert ", as measured" not in "".join(lines[: int(MEASURED_AFTER_S)])
    assert all(line.endswith(", as measured") for line in lines[int(SURE_AFTER_S) :])
    record = reassign_record.load(path)
    assert record is not None
    assert record.real_s is not None
    assert record.corrected is not None
    assert record.corrected.after_s == pytest.approx(SURE_AFTER_S, abs=1.1)
    assert record.corrected.seconds == pytest.approx(record.real_s, rel=CLOSE)
    assert record.rate_from is RateFrom.ASSUMED
    told = next(line for line in out.splitlines() if line.startswith("predicted"))
    assert told.startswith("predicted 17 s at an assumed 50 MB/s, took 41 s (141 % longer) · by ")
    # The next plan knows.
    rate, rate_from = guess_of("id", None)
    assert rate == pytest.approx(20 * MB, rel=CLOSE)
    assert rate_from is RateFrom.EARLIER


def test_programs_are_told_what_the_time_goes_by(
    timed: Callable[[int], Timed], tmp_path: Path
) -> None:
    admin, path = timed(20 * MB), tmp_path / "progress.json"
    first = first_record(admin, {A: (1, 3), B: (2, 3)}, None)
    record, _ = begin_record(NO_CONNECTION, admin, first, Limit(partitions=2))
    admin.alter({A: (1, 3), B: (2, 3)})
    admin.moving()
    admin.pass_(SURE_AFTER_S + 1)
    moves = reassign_progress.read_moves(admin, None, record)
    assert moves.seen is not None
    assert moves.whole is not None
    known = reassign_record.noticed(path, record, moves.seen, moves.whole)
    told = reassign_progress.listing(moves, "id", known).summary
    assert told is not None
    assert told["rate"]["from"] == "measured"
    assert told["predicted"]["rate_from"] == "assumed"
    assert told["predicted"]["corrected"]["after_s"] == SURE_AFTER_S + 1
    kept = json.loads(path.read_text())["predicted"]["corrected"]
    assert kept == told["predicted"]["corrected"]
    assert guess_of("id", None).rate_from is RateFrom.EARLIER


def test_back_fill_is_predicted_and_its_time_left_is_told(
    timed: Callable[[int], Timed], tmp_path: Path
) -> None:
    admin, path = timed(20 * MB), tmp_path / "progress.json"
    wanted = {A: (1, 3), B: (2, 3)}
    start = Start(frozenset(wanted), {}, {1: 5, 3: 20 * MB}, {"t": {}})
    first = first_record(admin, wanted, None, at_end=start.at_end)
    record, _ = begin_record(NO_CONNECTION, admin, first, Limit(partitions=2), start)
    assert record.fill == Fill(2 * SIZE, 1.0, 41.0, None, {3: 20 * MB})
    assert record.predicted_s == 41.0
    admin.alter(wanted)
    admin.moving()
    admin.pass_(20.5)
    moves = reassign_progress.read_moves(admin, None, record)
    assert moves.whole is not None
    assert reassign_progress.line(moves.whole, record) == (
        "1 of 2 partitions done · 50 % · 400 MB left, all of it back-fill · about 20 s"
    )
    told = reassign_progress.listing(moves, "id", record).summary
    assert told is not None
    assert told["fill"] == {
        "bytes": 2 * SIZE,
        "bytes_left": SIZE,
        "percent": 50.0,
        "has_tail": False,
    }
    assert told["predicted"]["fill"]["rates"] == [{"broker": 3, "bytes": 20 * MB}]
    admin.pass_(30)
    admin.moving()
    done = record.finished(record.begun_ms + 45_100, 0, is_watched=True)
    assert reassign_record.verdict(done) == "predicted 41 s, took 45 s (10 % longer)"
    seen = reassign_progress.read_moves(admin, None, record)
    assert seen.seen is not None
    assert seen.whole is not None
    known = reassign_record.noticed(path, record, seen.seen, seen.whole)
    assert known.real_tail_s == pytest.approx(50.5)
    done = known.finished(record.begun_ms + 45_100, 0, is_watched=True)
    assert reassign_record.verdict(done) == (
        "new records on the new brokers: predicted 1 s, took 50 s · older ones, too: "
        "predicted 41 s, took 45 s (10 % longer)"
    )


def test_clock_that_is_set_changes_no_progress(
    timed: Callable[[int], Timed], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = NOW_MS()
    monkeypatch.setattr("pyrklog.cli.reassign_record.time.time_ns", lambda: 0)
    assert before <= NOW_MS() < before + 60_000
    # Another command's clock may be behind that of the one that began.
    admin = timed(20 * MB)
    first = first_record(admin, {A: (1, 3), B: (2, 3)}, None)
    record, _ = begin_record(NO_CONNECTION, admin, first, Limit(partitions=2))
    admin.alter({A: (1, 3), B: (2, 3)})
    later = replace(record, begun_ms=record.begun_ms + 3_600_000)
    looks = reassign_progress.Looks()
    admin.moving()
    reassign_progress.read_moves(admin, None, later, looks)
    admin.pass_(SURE_AFTER_S + 0.5)
    found = reassign_progress.read_moves(admin, None, later, looks).whole
    assert found is not None
    assert found.rate_from is RateFrom.MEASURED
    assert found.rate_bytes == pytest.approx(20 * MB, rel=CLOSE)
    assert found.left_s == pytest.approx(30, rel=CLOSE)


def test_few_looks_are_kept_however_long_a_plan_takes(
    timed: Callable[[int], Timed],
) -> None:
    first = first_record(timed(20 * MB), {A: (1, 3)}, AUTO)
    looks = reassign_progress.Looks()
    for second in range(3600):
        looks.add(first, Mark(first.begun_ms + 1000 * second, {}, frozenset()))
    assert len(looks.window) == reassign_progress.WINDOW_MS // 1000 + 1
    assert looks.earlier(first) is looks.window[0]
    assert looks.base is not None
    assert looks.base.at_ms == first.begun_ms + reassign_progress.WARM_MS
    assert looks.earlier(replace(first, throttle=None)) is looks.base


@pytest.mark.parametrize(
    ("fill", "told"),
    [
        (Fill(0, 1.0, 0.0, 0.0, {3: 7}), ""),
        (
            Fill(4 * 10**9, 1.0, 200.0, None, {3: 20 * MB, 4: 0}),
            " · 4 GB of older ones follow at 20 MB/s: whole in about 3 min",
        ),
        (
            Fill(4 * 10**9, 1.0, 200.0, None, {3: 20 * MB, 4: 40 * MB}),
            " · 4 GB of older ones follow at 20 MB to 40 MB/s: whole in about 3 min",
        ),
        (
            Fill(4 * 10**9, 1.0, 7 * 86_400.0, 7 * 86_400.0, {3: 0}),
            " · 4 GB of older ones go by retention: whole in about 168 h",
        ),
        (
            Fill(4 * 10**9, 1.0, None, None, {3: 0}),
            " · 4 GB of older ones go by retention: whole never",
        ),
        (
            Fill(4 * 10**9, 1.0, None, None, {3: 0, 4: 20 * MB}),
            " · 4 GB of older ones follow at 20 MB/s: whole never",
        ),
    ],
)
def test_back_fills_in_words(fill: Fill, told: str) -> None:
    assert fill_line(fill) == "new records are on the new brokers in about 1 s" + told
