"""Drains that are given again: they go on, and begin nothing that others have changed since."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from pyrklog.balance.model import Cluster, Partition, PartitionKey, Replicas
from pyrklog.balance.prediction import Batch, Prediction
from pyrklog.balance.record import Record, begun
from pyrklog.cli import (
    cluster_drain,
    drain_record,
    reassign_rate,
    reassign_record,
    reassign_run,
)
from pyrklog.cli import throttles as throttles_module
from pyrklog.cli.app import app
from pyrklog.cli.drain_record import Earlier
from pyrklog.cli.failures import CliError
from pyrklog.cli.options import Settings
from pyrklog.cli.reassign_measure import Measured
from tests.unit.balance.clusters import broker
from tests.unit.cli.reassigning import NO_CONNECTION, FakeAdmin, FakeThrottles

A, B, C = ("t", 0), ("t", 1), ("u", 0)
PLACED: dict[PartitionKey, Replicas] = {A: (1, 2), B: (2, 1), C: (1,)}
OPTIONS = Settings("127.0.0.1:1")


@pytest.fixture
def admin() -> FakeAdmin:
    return FakeAdmin(PLACED)


@pytest.fixture
def throttles(admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch) -> FakeThrottles:
    found = FakeThrottles(admin)
    for module in (reassign_run, reassign_rate, drain_record, throttles_module):
        monkeypatch.setattr(module, "Throttles", lambda *_: found)
    return found


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """What happens while the user is asked."""
    happens: list[Callable[[], None]] = []

    def confirm(*_: object, **__: object) -> None:
        for one in happens:
            one()

    monkeypatch.setattr(cluster_drain, "confirm", confirm)
    return happens


@pytest.fixture
def drain(
    admin: FakeAdmin, throttles: FakeThrottles, asked: object, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Result]:
    """Runs `cluster drain --broker 1`."""
    for name in ("WATCH_INTERVAL_S", "SETTLED_S", "SETTLED_PAUSE_S"):
        monkeypatch.setattr(reassign_run, name, 0.0)
    monkeypatch.setattr(cluster_drain, "HANDOVER_WAIT_S", 0.0)
    monkeypatch.setattr(cluster_drain, "connect", lambda _: NO_CONNECTION)
    monkeypatch.setattr("pyrklog.cli.reassign_cluster.ReassignmentAdmin", lambda _: admin)
    monkeypatch.setattr("pyrklog.cli.reassign_planning.add_write_rates", lambda *_: {})
    monkeypatch.setattr("pyrklog.cli.reassign_measure.measure", lambda *_, **__: measured(admin))
    monkeypatch.setattr(admin, "elect", lambda _: {}, raising=False)

    def call(*arguments: str) -> Result:
        command = ["-b", "127.0.0.1:1", "cluster", "drain", "--broker", "1", *arguments]
        return CliRunner().invoke(app, command, catch_exceptions=False)

    return call


def measured(admin: FakeAdmin) -> Measured:
    partitions = {}
    for key, replicas in admin.placed.items():
        stay = admin.targets.get(key, replicas)
        partitions[key] = Partition(stay, 1_000, leader=replicas[0])
    cluster = Cluster({number: broker(number) for number in admin.brokers}, partitions)
    return Measured(cluster, "id", {}, set(admin.targets))


def record(after: dict[PartitionKey, Replicas], throttle: str | None = None) -> Record:
    parts = [Batch(tuple(after), 0, 1.0)]
    return begun("id", 0, PLACED, after, Prediction(1, parts), {}, throttle)


def plan_of(folder: Path, found: Record) -> str:
    file = str(folder / "d.json")
    reassign_record.save(reassign_record.path_of(file), found)
    return file


def kept_in(file: str) -> Record:
    found = reassign_record.load(reassign_record.path_of(file))
    assert found is not None
    return found


def test_a_drain_that_goes_on_keeps_how_it_began(
    admin: FakeAdmin, drain: Callable[..., Result], tmp_path: Path
) -> None:
    # t-0 has gone, t-1 is on the way, u-0 was not begun.
    file = plan_of(tmp_path, record({A: (3, 2), B: (2, 4)}))
    admin.placed[A] = (3, 2)
    admin.targets[B] = (2, 4)
    told = drain("--plan", file, "--dry-run")
    kept = "an earlier run has moved 2 partitions, 1 of them still on the way: kept as it is\n"
    assert kept in told.stdout
    assert admin.done == []
    told = drain("--plan", file)
    assert kept in told.stdout
    assert [list(one) for one in admin.altered] == [[C]], "nothing of it is begun again"
    found = kept_in(file)
    assert found.before == PLACED, "one rollback undoes both"
    assert found.after == {A: (3, 2), B: (2, 4), C: admin.targets[C]}
    partitions = json.loads(Path(file).read_text())["partitions"]
    assert [tuple(one["replicas"]) for one in partitions] == list(found.after.values())


def test_an_old_plan_is_not_applied_to_what_was_changed_since(
    admin: FakeAdmin, drain: Callable[..., Result], tmp_path: Path
) -> None:
    # Since then t-0 got three replicas elsewhere, t-1 went to others, and u was made anew.
    old = record({A: (3, 2), B: (2, 3), C: (3,)})
    file = plan_of(tmp_path, replace(old, topic_ids={"t": "T", "u": "U"}))
    admin.ids = {"t": "T", "u": "U2"}
    admin.placed.update({A: (2, 3, 4), B: (4, 3), C: (3,), ("v", 0): (1, 2)})
    told = drain("--plan", file, "--dry-run")
    assert "an earlier run" not in told.stdout
    told = drain("--plan", file)
    handed, moved = admin.altered
    assert (handed, list(moved)) == ({("v", 0): (2, 1)}, [("v", 0)])
    assert kept_in(file).before == {("v", 0): (1, 2)}, "a rollback leaves the others alone, too"


def test_what_was_handed_over_only_goes_back_to_its_leader(
    admin: FakeAdmin, drain: Callable[..., Result], tmp_path: Path
) -> None:
    file = str(tmp_path / "d.json")
    altered = admin.alter

    def killed(wanted: object, at_end: object = ()) -> object:
        if all(1 in replicas for replicas in wanted.values()):  # type: ignore[attr-defined]
            return altered(wanted)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    admin.is_quick = True
    admin.alter = killed  # type: ignore[method-assign, assignment]
    assert drain("--plan", file).exit_code == 130
    assert admin.placed[A] == (2, 1), "t-0 is led by 2 now"
    assert kept_in(file).handed_over == {A: (2, 1)}
    admin.alter = altered  # type: ignore[method-assign]
    admin.is_quick = False
    drain("--plan", file)
    assert kept_in(file).before[A] == (1, 2)


def test_what_changes_while_the_user_is_asked_is_left_out(
    admin: FakeAdmin,
    drain: Callable[..., Result],
    asked: list[Callable[[], None]],
    tmp_path: Path,
) -> None:
    admin.placed["v", 0] = (1, 2)
    admin.placed["w", 0] = (1, 2)
    admin.ids = {"t": "T", "w": "W"}

    def others() -> None:
        admin.placed[A] = (1, 2, 3)
        admin.targets[B] = (2, 1, 3)
        del admin.placed["v", 0]
        admin.ids["w"] = "anew"

    asked.append(others)
    told = drain("--plan", str(tmp_path / "d.json"))
    assert "4 partitions left out: changed meanwhile" in told.stderr
    assert all(list(one) == [C] for one in admin.altered)
    assert kept_in(str(tmp_path / "d.json")).before == {C: (1,)}


def test_what_another_plan_moves_is_left_alone_and_told(
    admin: FakeAdmin, drain: Callable[..., Result]
) -> None:
    admin.targets[A] = (1, 3)
    admin.placed[B] = (2, 3)
    admin.placed[C] = (2,)
    told = drain()
    assert "1 partition left out, such as t-0: another plan moves them" in told.stderr
    assert admin.done == []
    assert told.exit_code == 8, "the broker has it still"
    assert "broker 1 has 1 partition still, or again, such as t-0" in told.stderr


def test_a_drain_that_has_ended_is_told_in_its_record(
    admin: FakeAdmin, drain: Callable[..., Result], tmp_path: Path
) -> None:
    after = {A: (3, 2), B: (2, 4), C: (3,)}
    file = plan_of(tmp_path, record(after))
    admin.placed.update(after)
    admin.placed[B] = (2, 1)
    admin.targets[B] = (2, 4)
    drain("--plan", file)
    assert kept_in(file).finished_ms is None, "t-1 moves still"
    admin.end()
    told = drain("--plan", file)
    assert told.stdout == "broker 1 has no replicas\n"
    assert kept_in(file).finished_ms is not None
    # Weeks later the broker has partitions again: a new plan, which knows nothing of the old one.
    admin.placed["v", 0] = (1, 2)
    drain("--plan", file)
    assert kept_in(file).before == {("v", 0): (1, 2)}


def test_a_drain_does_not_overwrite_another_plan(
    admin: FakeAdmin, throttles: FakeThrottles, drain: Callable[..., Result], tmp_path: Path
) -> None:
    other = record({A: (1, 3)}, "1MB/s")
    file = plan_of(tmp_path, other)
    throttles.begin(PLACED, {A: (1, 3)}, 1_000)
    admin.targets[A] = (1, 3)
    told = drain("--plan", file)
    assert told.exit_code == 2
    assert "keeps another plan, which moves 1 partition still, such as t-0" in told.stderr
    assert admin.done == []
    admin.end()
    told = drain("--plan", file)
    assert "kept a plan that was not finished" in told.stderr
    assert not any(throttles.options.values()), "its throttle goes"
    assert reassign_record.load(tmp_path / "d.json.progress.json.1") == other
    file = plan_of(tmp_path, replace(other, cluster_id="other"))
    with pytest.raises(CliError, match="another cluster"):
        Earlier.read(admin, 1, file, "id")


def test_a_drain_that_was_killed_leaves_no_throttle(
    admin: FakeAdmin, throttles: FakeThrottles, drain: Callable[..., Result]
) -> None:
    throttles.begin(PLACED, {C: (2,)}, 1_000)
    del admin.placed[A], admin.placed[B]
    admin.targets[C] = (2,)
    told = drain()
    assert told.stdout == "1 partition on the way from broker 1\n"
    assert throttles.rates, "it moves still"
    admin.end()
    assert drain().exit_code == 0
    assert not any(throttles.options.values())


@pytest.mark.parametrize("arguments", [(), ("--throttle", "5MB/s")])
def test_a_drain_that_is_given_again_leaves_no_throttle_of_the_killed_one(
    admin: FakeAdmin,
    throttles: FakeThrottles,
    drain: Callable[..., Result],
    arguments: tuple[str, ...],
) -> None:
    after = {A: (3, 2), B: (2, 3)}
    throttles.begin(PLACED, {**after, C: (3,)}, 1_000)
    admin.placed |= after
    admin.is_quick = True
    assert drain(*arguments).exit_code == 0
    assert not any(throttles.options.values())


def test_a_drain_is_refused_while_another_replica_is_away(
    admin: FakeAdmin, drain: Callable[..., Result]
) -> None:
    admin.placed[A] = (1, 9)
    told = drain()
    assert told.exit_code == 1
    assert "t-0: broker 9, which has a replica of it, is not there" in told.stderr
    assert admin.done == []
