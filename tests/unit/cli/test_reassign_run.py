"""Plans that are stopped, go on, and are undone, while topics go and the cluster is away."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from pyrklog.balance.model import PartitionKey, Replicas
from pyrklog.balance.prediction import Batch, Prediction
from pyrklog.balance.record import Record, begun
from pyrklog.base.problems import Problem
from pyrklog.cli import (
    drain_record,
    reassign_apply,
    reassign_cancel,
    reassign_rate,
    reassign_record,
    reassign_run,
)
from pyrklog.cli import throttles as throttles_module
from pyrklog.cli.app import app
from pyrklog.cli.failures import CliError, Exit
from pyrklog.cli.options import Settings
from pyrklog.cli.reassign_cancel import Back, cancel_moves
from pyrklog.cli.reassign_plan import render_plan
from pyrklog.cli.reassign_planning import first_record
from pyrklog.cli.reassign_run import Limits, Run, outlast
from tests.unit.cli.reassigning import NO_CONNECTION, FakeAdmin, FakeThrottles

A, B, C = ("t", 0), ("t", 1), ("u", 0)
PLACED: dict[PartitionKey, Replicas] = {A: (1, 2), B: (2, 1), C: (1,)}
AWAY = CliError(Problem.BROKER_AWAY, "there is no controller")
OPTIONS = Settings("127.0.0.1:1")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WATCH_INTERVAL_S", "SETTLED_S", "SETTLED_PAUSE_S"):
        monkeypatch.setattr(reassign_run, name, 0.0)


@pytest.fixture
def admin() -> FakeAdmin:
    return FakeAdmin(PLACED)


@pytest.fixture
def throttles(admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch) -> FakeThrottles:
    found = FakeThrottles(admin)
    for module in (
        reassign_run,
        reassign_rate,
        reassign_cancel,
        reassign_apply,
        drain_record,
        throttles_module,
    ):
        monkeypatch.setattr(module, "Throttles", lambda *_: found)
    return found


def record(
    after: Mapping[PartitionKey, Replicas],
    batches: list[list[PartitionKey]] | None = None,
    throttle: str | None = None,
) -> Record:
    parts = [Batch(tuple(keys), 0, 1.0) for keys in batches or [list(after)]]
    return begun("id", 0, PLACED, after, Prediction(1, parts), {}, throttle)


def run(admin: FakeAdmin, found: Record, path: Path | None = None) -> Run:
    return Run(NO_CONNECTION, admin, OPTIONS, found, path)


def test_it_waits_while_the_cluster_is_away(
    admin: FakeAdmin, throttles: FakeThrottles, capsys: pytest.CaptureFixture[str]
) -> None:
    admin.is_quick = True
    away = [AWAY, AWAY]

    def call() -> str:
        if away:
            raise away.pop()
        return "there"

    assert outlast(call) == "there"
    assert capsys.readouterr().err == "note: waits for the cluster: there is no controller\n"
    refused = CliError(Problem.REASSIGNMENT_REFUSED, "no")
    with pytest.raises(CliError, match="no"):
        outlast(lambda: (_ for _ in ()).throw(refused))


def test_a_watch_outlives_the_controller(admin: FakeAdmin, throttles: FakeThrottles) -> None:
    admin.is_quick = True
    after = {A: (1, 3), B: (2, 3)}
    found = run(admin, record(after, [[A], [B]]))
    watched = admin.alter

    def altered(wanted: Any, at_end: Any = ()) -> Any:
        admin.refusals = [AWAY] * 3
        return watched(wanted, at_end)

    admin.alter = altered  # type: ignore[method-assign]
    assert found.carry_out("1MB/s", watch=True) == [Exit.OK] * 3
    assert admin.altered == [{A: (1, 3)}, {B: (2, 3)}]
    assert not any(throttles.options.values())


def test_nothing_changes_where_nothing_can_be_kept(
    admin: FakeAdmin, throttles: FakeThrottles, tmp_path: Path
) -> None:
    found = run(admin, record({A: (1, 3)}), tmp_path / "nowhere" / "progress.json")
    with pytest.raises(CliError, match="No such file"):
        found.carry_out("1MB/s", watch=False)
    assert (admin.done, throttles.options) == ([], {})


def test_moves_go_on_where_nothing_can_be_written_any_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reassign_record.keep(tmp_path / "nowhere" / "x", record({A: (1, 3)}))
    assert "note: how it goes is not kept" in capsys.readouterr().err


def test_a_batch_of_the_run_before_is_waited_for(
    admin: FakeAdmin, throttles: FakeThrottles, capsys: pytest.CaptureFixture[str]
) -> None:
    after = {A: (1, 3), B: (2, 3), C: (2,)}
    throttles.begin(PLACED, after, 1_000)
    admin.targets[A] = after[A]
    seen: list[set[PartitionKey]] = []
    altered = admin.alter

    def alter(wanted: Any, at_end: Any = ()) -> Any:
        seen.append(set(admin.targets))
        return altered(wanted, at_end)

    admin.alter = alter  # type: ignore[method-assign]
    admin.is_quick = True
    found = run(admin, record(after, [[A], [B], [C]], "1MB/s"))
    assert Exit.DIFFERS not in found.carry_out(None, watch=True)
    assert seen == [set(), set()], "one batch at a time"
    assert admin.altered == [{B: (2, 3)}, {C: (2,)}]
    assert "1 partition there already, or on the way\n" in capsys.readouterr().out
    assert not any(throttles.options.values()), "the throttle of the run before goes, too"


def test_a_throttle_stays_while_the_run_before_has_moves(
    admin: FakeAdmin, throttles: FakeThrottles
) -> None:
    after = {A: (1, 3), B: (2, 3)}
    known = record(after, throttle="1MB/s")
    throttles.begin(PLACED, after, 1_000)
    admin.targets[A] = after[A]
    del admin.placed[B]
    assert run(admin, known).carry_out(None, watch=False) == [Exit.NOT_FOUND]
    assert throttles.rates, "t-0 moves still"
    admin.end()
    assert run(admin, known).carry_out(None, watch=False) == [Exit.NOT_FOUND]
    assert not any(throttles.options.values())


def test_a_command_that_ends_early_says_what_stays(
    admin: FakeAdmin, throttles: FakeThrottles, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(wanted: Any, at_end: Any = ()) -> Any:
        raise KeyboardInterrupt

    admin.alter = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        run(admin, record({A: (1, 3)})).carry_out("1MB/s", watch=True)
    assert "what moves, moves on, and its throttle stays; the same" in capsys.readouterr().err
    with pytest.raises(KeyboardInterrupt):
        run(admin, record({A: (1, 3)})).carry_out(None, watch=True)
    assert capsys.readouterr().err == ""


def test_what_was_moving_already_goes_back_to_where_it_was(admin: FakeAdmin) -> None:
    admin.targets[A] = (3, 4)
    assert admin.placement()[0][A] == (3, 4, 1, 2)
    assert first_record(admin, {A: (2, 4)}, None).before == {A: (1, 2)}


# --- commands ------------------------------------------------------------------------------------


@pytest.fixture
def commands(
    admin: FakeAdmin, throttles: FakeThrottles, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Result]:
    """Runs `cluster reassign ...` on the fake cluster."""
    monkeypatch.setattr("pyrklog.cli.reassign.connect", lambda _: NO_CONNECTION)
    monkeypatch.setattr(reassign_apply, "connect", lambda _: NO_CONNECTION)
    monkeypatch.setattr(reassign_apply, "ReassignmentAdmin", lambda _: admin)
    monkeypatch.setattr("pyrklog.cli.reassign_cluster.ReassignmentAdmin", lambda _: admin)
    monkeypatch.setattr("pyrklog.cli.reassign_planning.add_write_rates", lambda *_: {})

    def call(*arguments: str) -> Result:
        command = ["-b", "127.0.0.1:1", "cluster", "reassign", *arguments]
        return CliRunner().invoke(app, command, catch_exceptions=False)

    return call


def written(folder: Path, found: Record) -> str:
    """The file of a plan, with its record beside it."""
    file = folder / "plan.json"
    file.write_text(render_plan(found.after))
    reassign_record.save(reassign_record.path_of(str(file)), found)
    return str(file)


def test_status_between_batches_leaves_the_throttle(
    admin: FakeAdmin, throttles: FakeThrottles, commands: Callable[..., Result], tmp_path: Path
) -> None:
    after = {A: (1, 3), B: (2, 3)}
    throttles.begin(PLACED, after, 1_000)
    admin.placed[A] = after[A]
    told = commands("status", written(tmp_path, record(after, [[A], [B]])))
    assert told.exit_code == 8
    assert "note: batches may be left to begin" in told.stderr
    assert throttles.rates
    told = commands("status", written(tmp_path, record(after)))
    assert told.exit_code == 8
    assert not any(throttles.options.values())


def test_status_tells_of_a_throttle_that_was_left(
    admin: FakeAdmin, throttles: FakeThrottles, commands: Callable[..., Result]
) -> None:
    assert commands("status").stderr == ""
    throttles.begin(PLACED, {A: (1, 3)}, 1_000)
    assert "note: nothing moves, and replicas are throttled still" in commands("status").stderr
    admin.targets[A] = (1, 3)
    assert commands("status").stderr == ""


def test_a_plan_goes_on_without_a_topic_that_was_deleted(
    admin: FakeAdmin, commands: Callable[..., Result], tmp_path: Path
) -> None:
    after = {A: (1, 3), C: (2,)}
    file = written(tmp_path, record(after))
    del admin.placed[C]
    told = commands("apply", file)
    assert told.exit_code == 9
    assert told.stdout == "t-0: 1,2 -> 1,3\n"
    assert "error[PK61]: u-0: " in told.stderr
    told = commands("apply", file, "--dry-run")
    assert (told.exit_code, "topic u does not exist" in told.stderr) == (4, True)
    admin.end()
    admin.placed[A] = PLACED[A]
    file = written(tmp_path, record(after).finished(1, 1, is_watched=True))
    told = commands("apply", file)
    assert (told.exit_code, "topic u does not exist" in told.stderr) == (4, True)


def test_programs_read_json_whatever_happens(
    commands: Callable[..., Result], tmp_path: Path
) -> None:
    file = tmp_path / "plan.json"
    file.write_text(render_plan({}))
    assert json.loads(commands("apply", str(file), "-o", "json").stdout)["items"] == []
    file.write_text(render_plan({A: (1, 3), C: (9,)}))
    told = commands("apply", str(file), "-o", "json", "--dry-run")
    assert told.exit_code == 9
    items = json.loads(told.stdout)["items"]
    assert [(one["before"], one["after"]) for one in items] == [([1, 2], [1, 3]), ([1], [9])]
    assert [one["error"] for one in items] == [None, "u-0: broker 9 is not there"]


def test_a_plan_of_another_cluster_is_not_replaced(
    admin: FakeAdmin, commands: Callable[..., Result], tmp_path: Path
) -> None:
    other = replace(record({A: (1, 3)}), cluster_id="other")
    told = commands("apply", written(tmp_path, other))
    assert told.exit_code == 2
    assert "keeps the progress of a plan that another cluster has begun" in told.stderr
    assert admin.done == []
    told = commands("apply", written(tmp_path, other.finished(1, 1, is_watched=True)))
    assert told.exit_code == 0
    found = reassign_record.load(tmp_path / "plan.json.progress.json")
    assert found is not None
    assert (found.cluster_id, found.before) == ("id", {A: (1, 2)})


def test_what_another_plan_moves_gets_no_new_target_unasked(
    admin: FakeAdmin, commands: Callable[..., Result], tmp_path: Path
) -> None:
    file = tmp_path / "plan.json"
    file.write_text(render_plan({A: (1, 3), B: (2, 3)}))
    admin.targets[A] = (1, 4)
    for more in ((), ("--dry-run",)):
        told = commands("apply", str(file), *more)
        assert told.exit_code == 1
        assert "error[PK78]: t-0 moves to 1,4 already" in told.stderr
        assert "another plan moves 1 partition of this one; nothing was changed" in told.stderr
        assert "--additional" in told.stderr
    assert admin.done == []
    assert list(tmp_path.iterdir()) == [file]
    assert commands("apply", str(file), "--additional").exit_code == 0
    assert admin.targets == {A: (1, 3), B: (2, 3)}


def test_what_begins_to_move_elsewhere_between_batches_is_left_alone(
    admin: FakeAdmin, throttles: FakeThrottles, capsys: pytest.CaptureFixture[str]
) -> None:
    found = run(admin, record({A: (1, 3), B: (2, 3)}))
    left = found._left

    def then(before: Any) -> Any:
        wanted = left(before)
        admin.targets[B] = (2, 4)
        return wanted

    found._left = then  # type: ignore[method-assign]
    assert found.carry_out(None, watch=False) == [Exit.OK, Exit.FAILED]
    assert admin.altered == [{A: (1, 3)}]
    assert "t-1: it moves to 2,4, by another plan" in capsys.readouterr().err


def test_a_second_apply_leaves_alone_what_others_have_changed_since(
    admin: FakeAdmin, commands: Callable[..., Result], tmp_path: Path
) -> None:
    after = {A: (1, 3), B: (2,), C: (2,)}
    kept = replace(record(after), topic_ids={"t": "T", "u": "U"})
    file, undo = written(tmp_path, kept), tmp_path / "undo.json"
    admin.ids = {"t": "T", "u": "anew"}
    admin.placed[B] = (2, 3, 4)
    told = commands("apply", file, "--dry-run")
    assert told.exit_code == 9
    assert told.stdout == "t-0: 1,2 -> 1,3 (not done)\n"
    told = commands("apply", file, "--rollback", str(undo))
    assert told.exit_code == 9
    assert admin.altered == [{A: (1, 3)}], "t-1 would have lost two replicas"
    assert "t-1 stays: it is 2,3,4, as the plan never left it" in told.stderr
    assert "u-0 stays: its topic was deleted and created anew" in told.stderr
    (one,) = json.loads(undo.read_text())["partitions"]
    assert (one["topic"], one["partition"], one["replicas"]) == ("t", 0, [1, 2])
    told = commands("apply", file, "-o", "json")
    errors = {
        one["topic"] + str(one["partition"]): one["error"]
        for one in json.loads(told.stdout)["items"]
    }
    assert errors["t0"] is None
    assert errors["t1"] is not None


def test_what_another_plan_moves_since_stays_unless_it_is_asked_for(
    admin: FakeAdmin, commands: Callable[..., Result], tmp_path: Path
) -> None:
    file = written(tmp_path, record({A: (1, 3), B: (2, 3)}))
    admin.targets[A] = (1, 4)
    told = commands("apply", file)
    assert told.exit_code == 9
    assert "t-0 stays: it moves to 1,4" in told.stderr
    assert admin.targets == {A: (1, 4), B: (2, 3)}
    assert commands("apply", file, "--additional").exit_code == 0
    assert admin.targets == {A: (1, 3), B: (2, 3)}


def test_directories_of_what_stays_are_left_alone(admin: FakeAdmin) -> None:
    directories = {(A, 3): "/a", (B, 3): "/b"}
    limits = Limits({A: "it moves"})
    found = Run(
        NO_CONNECTION,
        admin,
        OPTIONS,
        record({A: (1, 3), B: (2, 3)}),
        None,
        directories=directories,
        limits=limits,
    )
    assert found._directories == {(B, 3): "/b"}


def test_a_plan_does_not_overwrite_one_that_is_under_way(
    admin: FakeAdmin, throttles: FakeThrottles, commands: Callable[..., Result], tmp_path: Path
) -> None:
    old = record({A: (1, 3), B: (2, 3)}, throttle="1MB/s")
    file = written(tmp_path, old)
    throttles.begin(PLACED, old.after, 1_000)
    admin.targets[A] = (1, 3)
    admin.placed[B] = (2, 3)
    Path(file).write_text(render_plan({C: (2,)}))
    path = tmp_path / "plan.json.progress.json"
    for more in ((), ("--dry-run",)):
        told = commands("apply", file, *more)
        assert told.exit_code == 2
        assert "keeps another plan, which moves 1 partition still, such as t-0" in told.stderr
    assert (admin.done, reassign_record.load(path)) == ([], old)
    assert commands("apply", file, "--progress", str(tmp_path / "x"), "--dry-run").exit_code == 0
    admin.end()
    assert commands("apply", file, "--dry-run").exit_code == 0
    assert reassign_record.load(path) == old
    told = commands("apply", file)
    assert told.exit_code == 0
    assert "kept a plan that was not finished; it is in " in told.stderr
    assert not any(throttles.options.values()), "its throttle goes"
    assert reassign_record.load(tmp_path / "plan.json.progress.json.1") == old
    Path(file).write_text(render_plan({B: (1, 2)}))
    admin.end()
    commands("apply", file)
    assert (tmp_path / "plan.json.progress.json.2").exists()


def test_status_elsewhere_takes_no_throttle_away(
    admin: FakeAdmin, throttles: FakeThrottles, commands: Callable[..., Result], tmp_path: Path
) -> None:
    after = {A: (1, 3)}
    throttles.begin(PLACED, after, 1_000)
    told = commands("status", written(tmp_path, replace(record(after), cluster_id="other")))
    assert told.exit_code == 8
    assert "is of another cluster, so no throttle goes here: check -b" in told.stderr
    assert throttles.rates


def test_status_before_the_moves_begin_takes_no_throttle_away(
    admin: FakeAdmin, throttles: FakeThrottles, commands: Callable[..., Result], tmp_path: Path
) -> None:
    after = {A: (1, 3)}
    file = tmp_path / "plan.json"
    file.write_text(render_plan(after))
    altered, told = admin.alter, []

    def alter(wanted: Any, at_end: Any = ()) -> Any:
        told.append(commands("status", str(file)))
        return altered(wanted, at_end)

    admin.alter = alter  # type: ignore[method-assign]
    assert commands("apply", str(file), "--throttle", "1MB/s").exit_code == 0
    assert "its moves are about to begin" in told[0].stderr
    assert throttles.named()["t"].followers == ("0:3",)
    admin.end()
    assert commands("status", str(file)).exit_code == 0
    assert not any(throttles.options.values())


def test_errors_that_pass_are_waited_for(
    admin: FakeAdmin, throttles: FakeThrottles, monkeypatch: pytest.MonkeyPatch
) -> None:
    astray = [CliError(Problem.NO_ANSWER, "late"), {(A, 3): True}, AWAY, {}]

    def told(_: Any) -> Any:
        one = astray.pop(0)
        if isinstance(one, CliError):
            raise one
        return one

    monkeypatch.setattr(admin, "astray", told)
    reassign_run.wait_for_directories(admin, OPTIONS, {(A, 3): "/d"})
    assert astray == []


# --- cancel --------------------------------------------------------------------------------------


@pytest.fixture
def applied(
    admin: FakeAdmin, throttles: FakeThrottles, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Back:
    """A plan that is done for t-1, and was begun for t-0."""
    after = {A: (1, 3), B: (2, 3)}
    throttles.begin(PLACED, after, 1_000)
    admin.targets[A] = after[A]
    admin.placed[B] = after[B]
    file = tmp_path / "plan.json"
    file.write_text(render_plan(after))
    reassign_record.save(reassign_record.path_of(str(file)), record(after))
    monkeypatch.setattr(reassign_cancel, "connect", lambda _: NO_CONNECTION)
    monkeypatch.setattr(reassign_cancel, "ReassignmentAdmin", lambda _: admin)
    monkeypatch.setattr("pyrklog.cli.reassign_planning.add_write_rates", lambda *_: {})
    return Back(str(file), None, None, False)


def test_a_rollback_that_was_killed_goes_on(
    admin: FakeAdmin, throttles: FakeThrottles, applied: Back, capsys: pytest.CaptureFixture[str]
) -> None:
    named = {A: (1, 3), B: (2, 3)}
    cancel_moves(OPTIONS, named, applied._replace(throttle="1MB/s"), dry_run=False)
    assert admin.altered == [{A: None}, {B: (2, 1)}]
    assert throttles.named()["t"].followers == ("1:1",)
    assert f"status {applied.file}.rollback`" in capsys.readouterr().out
    plan = json.loads(Path(applied.file + ".rollback").read_text())
    assert [one["replicas"] for one in plan["partitions"]] == [[2, 1]]
    admin.done.clear()
    cancel_moves(OPTIONS, named, applied, dry_run=False)
    out = capsys.readouterr().out
    assert admin.altered == [], "what goes back is not cancelled"
    assert out.startswith("nothing moves\n1 partition there already, or on the way\n")
    assert throttles.named()["t"].followers == ("1:1",), "and stays throttled"
    admin.is_quick = True
    cancel_moves(OPTIONS, named, applied._replace(watch=True), dry_run=False)
    assert admin.placed == PLACED
    assert not any(throttles.options.values())


def test_a_plan_of_another_cluster_is_not_undone(admin: FakeAdmin, applied: Back) -> None:
    admin.placement = lambda: (dict(admin.placed), "other")  # type: ignore[method-assign]
    with pytest.raises(CliError, match="the plan was applied to another cluster"):
        cancel_moves(OPTIONS, {A: (1, 3), B: (2, 3)}, applied, dry_run=False)
    assert admin.done == []
    found = record({A: (1, 3)})
    assert reassign_record.of_plan(found, found.after, "id") == found
    assert reassign_record.of_plan(found, found.after, "other") is None


def test_a_move_that_ends_while_it_is_cancelled(
    admin: FakeAdmin, applied: Back, capsys: pytest.CaptureFixture[str]
) -> None:
    admin.is_quick = True
    cancel_moves(OPTIONS, {A: (1, 3), B: (2, 3)}, None, dry_run=False)
    assert capsys.readouterr().out == "t-0: has just ended\n"


@contextmanager
def ends(code: Exit) -> Iterator[None]:
    with pytest.raises(typer.Exit) as raised:
        yield
    assert raised.value.exit_code == code


def test_only_what_is_as_the_plan_left_it_goes_back(
    admin: FakeAdmin, throttles: FakeThrottles, applied: Back, capsys: pytest.CaptureFixture[str]
) -> None:
    # t-1 got a third replica since; t-0 moves to something else.
    named = {A: (1, 3), B: (2, 3)}
    admin.placed[B] = (2, 3, 4)
    admin.targets[A] = (4, 3)
    with ends(Exit.DIFFERS):
        cancel_moves(OPTIONS, named, applied, dry_run=True)
    with ends(Exit.DIFFERS):
        cancel_moves(OPTIONS, named, applied, dry_run=False)
    assert admin.altered == []
    told = capsys.readouterr().err
    assert "t-0 stays: it moves to 4,3" in told
    assert "t-1 stays: it is 2,3,4, as the plan never left it" in told
    assert not Path(applied.file + ".rollback").exists()


def test_a_topic_that_was_made_anew_does_not_go_back(
    admin: FakeAdmin, applied: Back, capsys: pytest.CaptureFixture[str]
) -> None:
    named = {A: (1, 3), B: (2, 3)}
    path = reassign_record.path_of(applied.file)
    reassign_record.save(path, replace(record(named), topic_ids={"t": "T"}))
    admin.ids = {"t": "T2"}
    with ends(Exit.DIFFERS):
        cancel_moves(OPTIONS, named, applied, dry_run=False)
    assert admin.altered == []
    assert "t-1 stays: its topic was deleted and created anew" in capsys.readouterr().err
    admin.ids = {}
    cancel_moves(OPTIONS, named, applied, dry_run=False)
    assert admin.altered == [{A: None}, {B: (2, 1)}], "a broker that knows no ids says nothing"


def test_a_way_back_keeps_the_minimum(
    admin: FakeAdmin, applied: Back, capsys: pytest.CaptureFixture[str]
) -> None:
    after = {A: (1, 2, 3), B: (2, 1, 3)}
    Path(applied.file).write_text(render_plan(after))
    reassign_record.save(reassign_record.path_of(applied.file), record(after))
    admin.targets.clear()
    admin.placed.update(after)
    admin.floors["t"] = 3
    with ends(Exit.FAILED):
        cancel_moves(OPTIONS, after, applied, dry_run=False)
    assert admin.altered == []
    assert "2 replicas of before are fewer than its min.insync.replicas of 3" in (
        capsys.readouterr().err
    )
    admin.floors["t"] = 2
    cancel_moves(OPTIONS, after, applied, dry_run=False)
    assert admin.altered == [{A: (1, 2), B: (2, 1)}], "the plan itself had added them"


def test_the_order_that_a_cancelled_move_leaves_is_the_plans(
    admin: FakeAdmin, applied: Back
) -> None:
    after = {A: (2, 3), B: (2, 3)}
    Path(applied.file).write_text(render_plan(after))
    reassign_record.save(reassign_record.path_of(applied.file), record(after))
    admin.targets.clear()
    admin.placed.update({A: (2, 1), B: (2, 1)})
    cancel_moves(OPTIONS, after, applied, dry_run=False)
    assert admin.altered == [{A: (1, 2)}]
