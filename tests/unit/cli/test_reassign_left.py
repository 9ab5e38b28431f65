"""What a command leaves: a throttle that somebody has to take away, a plan that was cancelled, and
moves that copy nothing."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from pyrklog.balance.model import PartitionKey, Replicas
from pyrklog.balance.prediction import Batch, Prediction
from pyrklog.balance.progress import Seen, There, progress
from pyrklog.balance.record import Record, begun, cancelled, from_json, to_json
from pyrklog.cli import (
    reassign_apply,
    reassign_cancel,
    reassign_progress,
    reassign_rate,
    reassign_record,
    reassign_run,
)
from pyrklog.cli import throttles as throttles_module
from pyrklog.cli.app import app
from pyrklog.cli.expansion import BACK_FILL, RETENTION, Backlog
from pyrklog.cli.reassign_plan import render_plan
from pyrklog.protocol.errors import ErrorCode
from tests.unit.cli.reassigning import NO_CONNECTION, FakeAdmin, FakeThrottles

A, B = ("t", 0), ("t", 1)
PLACED: dict[PartitionKey, Replicas] = {A: (1, 2), B: (2, 1)}


class KafkasAdmin(FakeAdmin):
    """A cancelled move leaves the order of its target, as with Kafka's controllers."""

    def alter(
        self,
        wanted: Mapping[PartitionKey, Iterable[int] | None],
        at_end: Collection[PartitionKey] = (),
    ) -> dict[PartitionKey, tuple[ErrorCode, str | None]]:
        for key, target in wanted.items():
            if target is None and key in self.targets:
                self.placed[key] = cancelled(self.placed[key], self.targets[key])
        return super().alter(wanted, at_end)


@pytest.fixture
def admin() -> KafkasAdmin:
    return KafkasAdmin(PLACED)


@pytest.fixture
def throttles(admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch) -> FakeThrottles:
    found = FakeThrottles(admin)
    for module in (reassign_run, reassign_rate, reassign_cancel, reassign_apply, throttles_module):
        monkeypatch.setattr(module, "Throttles", lambda *_: found)
    return found


Call = Callable[..., Result]


@pytest.fixture
def reassign(admin: FakeAdmin, throttles: FakeThrottles, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Runs `cluster reassign`."""
    for name in ("WATCH_INTERVAL_S", "SETTLED_S", "SETTLED_PAUSE_S"):
        monkeypatch.setattr(reassign_run, name, 0.0)
    monkeypatch.setattr("pyrklog.cli.reassign.connect", lambda _: NO_CONNECTION)
    for module in (reassign_apply, reassign_cancel):
        monkeypatch.setattr(module, "connect", lambda _: NO_CONNECTION)
        monkeypatch.setattr(module, "ReassignmentAdmin", lambda _: admin)
    monkeypatch.setattr("pyrklog.cli.reassign_cluster.ReassignmentAdmin", lambda _: admin)
    monkeypatch.setattr("pyrklog.cli.reassign_planning.add_write_rates", lambda *_: {})

    def call(*arguments: str, text: str | None = None) -> Result:
        command = ["-b", "127.0.0.1:1", "cluster", "reassign", *arguments]
        return CliRunner().invoke(app, command, input=text, catch_exceptions=False)

    return call


def plan(folder: Path, after: Mapping[PartitionKey, Replicas]) -> str:
    file = folder / "plan.json"
    file.write_text(render_plan(dict(after)))
    return str(file)


def record(after: Mapping[PartitionKey, Replicas], **copied: int) -> Record:
    parts = [Batch(tuple(after), 0, 1.0)]
    sizes = {key: copied.get(f"{key[0]}{key[1]}", 0) for key in after}
    return begun("id", 0, PLACED, after, Prediction(1, parts), sizes, None)


# --- throttles -----------------------------------------------------------------------------------


def test_a_throttle_that_nobody_waits_for_has_its_line(
    admin: FakeAdmin, reassign: Call, tmp_path: Path
) -> None:
    file = plan(tmp_path, {A: (1, 3)})
    follow = "shows how far it is, and takes the throttle away at the end\n"
    told = reassign("apply", file, "--throttle", "1MB/s")
    assert told.stdout.endswith(f"`pyrklog cluster reassign status {file}` {follow}")
    other = str(tmp_path / "own file.json")
    told = reassign("apply", file, "--throttle", "1MB/s", "--progress", other)
    assert f"status {file} --progress '{other}'` {follow}" in told.stdout
    admin.is_quick = True
    assert "reassign status" not in reassign("apply", file, "--throttle", "1MB/s", "-w").stdout


def test_one_of_a_plan_from_a_pipe_is_taken_away_with_all(reassign: Call) -> None:
    told = reassign("apply", "-", "--throttle", "1MB/s", text=render_plan({A: (1, 3)}))
    assert told.exit_code == 0
    assert "`pyrklog cluster reassign cancel --all` takes the throttle away" in told.stdout
    assert "reassign status" not in told.stdout
    told = reassign("apply", "-", text=render_plan({B: (1, 3)}))
    assert "takes the throttle away" not in told.stdout


# --- cancelled plans -----------------------------------------------------------------------------


def test_a_cancelled_plan_leaves_the_order_of_before_and_begins_anew(
    admin: FakeAdmin, reassign: Call, tmp_path: Path
) -> None:
    after = {A: (3, 2), B: (3, 4)}
    file = plan(tmp_path, after)
    path = reassign_record.path_of(file)
    assert reassign("apply", file).exit_code == 0
    admin.end(B)
    first = reassign_record.load(path)
    assert first is not None
    reassign_record.save(path, replace(first, begun_ms=1))
    told = reassign("cancel", file)
    assert told.stdout == "t-0: cancelled\n"
    # Of its move 2 and 1 are left, in this order.
    assert admin.altered[-1] == {A: (1, 2)}
    admin.end()
    assert admin.placed == {A: (1, 2), B: (3, 4)}
    kept = reassign_record.load(path)
    assert kept is not None
    assert kept.cancelled_ms is not None
    assert kept.before == PLACED, "a rollback knows what B was"

    told = reassign("status", file)
    assert told.exit_code == 8
    line = "1 of 2 partitions done · 67 % · 1 kB left · cancelled: `apply` begins the rest again\n"
    assert told.stdout.endswith(line)
    assert "batches" not in told.stderr
    told = reassign("apply", file)
    assert told.stdout.endswith("t-0: 1,2 -> 3,2\n")
    again = reassign_record.load(path)
    assert again is not None
    assert (again.cancelled_ms, again.before) == (None, PLACED)
    assert again.begun_ms > 1, "the time in between is not the plan's"


def test_a_handover_stays_where_its_move_is_cancelled(
    admin: FakeAdmin, reassign: Call, tmp_path: Path
) -> None:
    """What is done stays: a drain has handed leadership over before it moved anything."""
    file = plan(tmp_path, {A: (3, 2)})
    known = replace(record({A: (3, 2)}), handed_over={A: (2, 1)})
    reassign_record.save(reassign_record.path_of(file), known)
    admin.placed[A] = (2, 1)
    admin.targets[A] = (3, 2)
    assert reassign("cancel", file).exit_code == 0
    assert admin.placed[A] == (2, 1)
    assert admin.altered == [{A: None}], "its order is that of the handover"


def test_cancelled_is_kept() -> None:
    one = record({A: (1, 3)}).marked_cancelled(7)
    assert from_json(to_json(one)) == one
    assert one.begun_again(9) == replace(one, cancelled_ms=None, begun_ms=9)


def test_cancel_of_all_ends_throttled_back_fills(
    admin: FakeAdmin, throttles: FakeThrottles, reassign: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin.targets[A] = (1, 3)
    throttles.set_fill_rate({3, 4}, 1_000)
    monkeypatch.setattr(
        reassign_cancel, "rates_at_run_time", lambda _, brokers: dict.fromkeys(brokers, "1000")
    )
    assert reassign("cancel", "--all").exit_code == 0
    assert throttles.fill_rates == {"4": "1000"}, "nothing of it was for broker 4"


# --- moves that copy nothing ---------------------------------------------------------------------


def test_progress_of_what_starts_at_the_end_is_in_partitions() -> None:
    found = replace(record({A: (1, 3), B: (2, 3)}), at_end=frozenset({A, B}))
    half = progress(found, Seen(60_000, {A}))
    assert half.left_s is None, "back-fill or retention ends it"
    told = reassign_progress.line(half, found)
    assert told == (
        "1 of 2 partitions done · what starts at its leader's end copies nothing, and waits for "
        "back-fill or retention"
    )
    assert "%" not in told
    mixed = replace(record({A: (1, 3), B: (2, 3)}, t1=4_000_000), at_end=frozenset({A}))
    moving = {A: There(0, {3: 0}), B: There(4_000_000, {3: 1_000_000})}
    told = reassign_progress.line(progress(mixed, Seen(61_000, frozenset(), moving)), mixed)
    assert told.startswith("0 of 2 partitions done · 25 % · 3 MB left · what starts at its ")
    whole = progress(mixed, Seen(61_000, {A}, moving))
    assert whole.left_s is not None, "the rest is copied"


@pytest.mark.parametrize(("by", "percent"), [(RETENTION, None), (None, None), (BACK_FILL, 0)])
def test_no_percents_where_nothing_is_copied(
    admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch, by: str | None, percent: int | None
) -> None:
    admin.targets[A] = (1, 3)

    def told(_: object, moving: Mapping[PartitionKey, Any]) -> Any:
        return {key: [Backlog(3, 10, 0, by)] for key in moving}

    monkeypatch.setattr("pyrklog.cli.expansion.backlogs", told)
    (item,) = reassign_progress.read_moves(admin, None).items
    assert item["percent"] == percent
    monkeypatch.setattr("pyrklog.cli.expansion.backlogs", lambda *_: {A: [Backlog(3, 0, 0, by)]})
    (item,) = reassign_progress.read_moves(admin, None).items
    assert item["percent"] == 0, "it copies"
