"""What a plan is for, by the command line; plans, progress and predictions in words."""

from dataclasses import replace
from pathlib import Path

import pytest

from pyrklog.balance.filling import RETENTION_MS, Filling
from pyrklog.balance.model import Cluster, Goal, Obstacle, Partition, Placement, Wish
from pyrklog.balance.prediction import Prediction, RateFrom, in_batches, predict
from pyrklog.balance.progress import Seen, There, progress
from pyrklog.balance.record import Record
from pyrklog.cli import reassign_progress, reassign_record
from pyrklog.cli.expansion import Start
from pyrklog.cli.failures import CliError, Exit
from pyrklog.cli.options import OutputFormat
from pyrklog.cli.output import render
from pyrklog.cli.reassign_auto import parse_hours
from pyrklog.cli.reassign_measure import Measured
from pyrklog.cli.reassign_planning import (
    Choice,
    Guess,
    _absent_notes,
    filling_of,
    goals_of,
    new_record,
    numbers,
    prediction_of,
    refuse_too_few,
    wish_of,
)
from pyrklog.cli.reassign_signs import Source, longest_wait, sources
from pyrklog.cli.reassign_summary import OBSTACLES_SHOWN, lines, listing, obstacle_lines
from tests.unit.balance.clusters import GB, broker, cluster_of

RATE = 50_000_000


def cluster() -> Cluster:
    return cluster_of([(1, 2)] * 4, [1, 2, 3], [4 * GB, 3 * GB, 2 * GB, GB])


def predicted(changed: Placement) -> Prediction:
    found = cluster()
    return predict(found, changed, in_batches(found, changed), RATE)


# --- what it is for ------------------------------------------------------------------------------


def test_goals_come_in_the_order_of_their_weight() -> None:
    assert goals_of(Choice()) == tuple(Goal)
    assert goals_of(Choice(by="leaders, bytes")) == (Goal.BYTES, Goal.LEADERS)
    assert goals_of(Choice(by="rate")) == (Goal.IN, Goal.OUT)
    assert goals_of(Choice(only_needed=True)) == ()


@pytest.mark.parametrize(
    "choice", [Choice(by="size"), Choice(by=""), Choice(by="bytes", only_needed=True)]
)
def test_goals_that_are_none(choice: Choice) -> None:
    with pytest.raises(CliError) as raised:
        goals_of(choice)
    assert raised.value.code is Exit.USAGE


def test_brokers_that_may_have_replicas() -> None:
    live = [1, 2, 3, 4]
    assert wish_of(Choice(), live, ()).allowed == [1, 2, 3, 4]
    assert wish_of(Choice(brokers="2,1"), live, ()).allowed == [1, 2]
    assert wish_of(Choice(exclude="2, 9"), live, ()).allowed == [1, 3, 4]
    added = wish_of(Choice(brokers="1,2", add="4"), live, ())
    assert (added.allowed, added.targets) == ([1, 2, 4], {4})


@pytest.mark.parametrize(
    ("choice", "code"),
    [
        (Choice(brokers="1,9"), Exit.NOT_FOUND),
        (Choice(add="9"), Exit.NOT_FOUND),
        (Choice(brokers="one"), Exit.USAGE),
        (Choice(exclude="-1"), Exit.USAGE),
        (Choice(add="2", exclude="2"), Exit.USAGE),
        (Choice(brokers="1", exclude="1"), Exit.USAGE),
    ],
)
def test_brokers_that_are_refused(choice: Choice, code: Exit) -> None:
    with pytest.raises(CliError) as raised:
        wish_of(choice, [1, 2], ())
    assert raised.value.code is code


def test_only_excluded_brokers_are_given_up() -> None:
    assert wish_of(Choice(exclude="2,9"), [1, 2, 3], ()).given_up == [2, 9]
    assert wish_of(Choice(brokers="1,2"), [1, 2, 3], ()).given_up == []


def test_what_a_broker_that_is_away_has_stays() -> None:
    found = cluster_of([(1, 2, 9), (1, 9), (1, 2)], [1, 2])
    every = tuple(found.partitions)
    wish = Wish([1, 2], (), every)
    refuse_too_few(found, wish)
    assert _absent_notes(found, wish) == [
        "2 partitions left out: broker 9 is not there (--exclude 9 gives it up)"
    ]
    assert _absent_notes(found, replace(wish, given_up=[9])) == []
    with pytest.raises(CliError, match="3 replicas need 3 brokers"):
        refuse_too_few(found, replace(wish, given_up=[9]))


def test_numbers_of_brokers() -> None:
    assert numbers(" 3,1 ", "--to") == {1, 3}


def test_a_factor_that_does_not_fit_or_breaks_a_minimum() -> None:
    found = cluster()
    every = tuple(found.partitions)
    refuse_too_few(found, Wish([1, 2], (), every))
    with pytest.raises(CliError, match="2 replicas need 2 brokers, and there are only 1"):
        refuse_too_few(found, Wish([1], (), every))
    with pytest.raises(CliError, match="4 replicas need 4 brokers, and there are only 3"):
        refuse_too_few(found, Wish([1, 2, 3], (), every, 4))
    careful = Cluster(found.brokers, {("t", 0): Partition((1, 2), GB, min_insync=2)})
    refuse_too_few(careful, Wish([1, 2], (), [("t", 0)]))
    with pytest.raises(CliError, match="less than a topic needs for acks=all, 2"):
        refuse_too_few(careful, Wish([1, 2], (), [("t", 0)], 1))


# --- in words ------------------------------------------------------------------------------------


def test_a_plan_in_words() -> None:
    changed = {("t", 0): (1, 3), ("t", 1): (2, 1)}
    assert lines(cluster(), changed, predicted(changed), [1, 2, 3]) == [
        "moves 1 of 4 partitions · copies 4 GB · about 81 s at 50 MB/s · 1 more gets another order",
        "skew by bytes 1.50 -> 1.50 · leaders 3.00 -> 2.25 · replicas 1.50 -> 1.50",
        "most is taken by broker 3, 4 GB, and given by broker 1, 4 GB",
    ]
    (told, *_) = lines(cluster(), {}, predicted({}), [1, 2, 3])
    assert told == "moves 0 of 4 partitions · copies 0 B · about 0 s at 50 MB/s"


def test_a_plan_that_never_ends_and_one_in_batches() -> None:
    busy = Cluster(cluster().brokers, {("t", 0): Partition((1,), GB, 2.0 * RATE)})
    changed = {("t", 0): (2,)}
    endless = prediction_of(busy, changed, None, Guess(RATE, RateFrom.GIVEN))
    told = lines(busy, changed, endless, [1, 2])
    assert told[0].endswith("never ends at 50 MB/s: producers write more")
    assert "in 2.00 -> 2.00" in told[1]
    two = predict(cluster(), {("t", 0): (1, 3), ("t", 1): (1, 3)}, [[("t", 0)], [("t", 1)]], RATE)
    assert lines(cluster(), {}, two, [1])[0].endswith("at 50 MB/s in 2 batches")


def test_what_a_plan_does_to_each_broker() -> None:
    changed = {("t", 0): (1, 3)}
    rows = listing(cluster(), changed, predicted(changed), [1, 2, 3], "id").items
    assert [(row["broker"], row["bytes"], row["bytes_after"]) for row in rows] == [
        (1, 10 * GB, 10 * GB),
        (2, 10 * GB, 6 * GB),
        (3, 0, 4 * GB),
    ]
    assert (rows[0]["gives"], rows[2]["takes"], rows[1]["gives"]) == (4 * GB, 4 * GB, 0)
    shown = render(listing(cluster(), {}, predicted({}), [1], None), OutputFormat.TABLE)
    assert shown.splitlines()[0].split() == [
        *("BROKER", "BYTES", "AFTER", "LEADERS", "AFTER", "REPLICAS", "AFTER", "TAKES", "GIVES")
    ]


def test_many_obstacles_are_counted() -> None:
    some = [Obstacle(("t", index), "no room") for index in range(OBSTACLES_SHOWN + 2)]
    told = obstacle_lines(some)
    assert told[0] == "t-0: no room"
    assert told[-1] == "and 2 partitions more"
    assert len(told) == OBSTACLES_SHOWN + 1


# --- progress ------------------------------------------------------------------------------------


def record() -> Record:
    changed = {("t", 0): (1, 3), ("t", 3): (1, 3)}
    measured = Measured(cluster(), "id", {})
    return new_record(measured, changed, None, "100MB/s")


def test_the_record_of_a_plan() -> None:
    found = record()
    assert found.total_bytes == 5 * GB
    assert found.predicted_s == 51.0
    assert found.before == {("t", 0): (1, 2), ("t", 3): (1, 2)}
    assert found.brokers == {1: (0, 5 * GB), 3: (5 * GB, 0)}


def test_it_is_kept_beside_the_plan(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    path = reassign_record.path_of(str(plan))
    assert path == tmp_path / "plan.json.progress.json"
    assert reassign_record.path_of("-") is None
    assert reassign_record.path_of("-", "x") == Path("x")
    assert reassign_record.load(path) is None
    assert reassign_record.load(None) is None
    found = record()
    reassign_record.save(path, found)
    assert reassign_record.load(path) == found
    assert [one.name for one in tmp_path.iterdir()] == ["plan.json.progress.json"]
    assert reassign_record.of_plan(found, found.after) == found
    assert reassign_record.of_plan(found, {("t", 0): (1, 3)}) is None
    assert path is not None
    path.write_text("{}")
    with pytest.raises(CliError, match="does not keep the progress of a plan") as raised:
        reassign_record.load(path)
    assert raised.value.code is Exit.USAGE
    with pytest.raises(CliError, match="No such file"):
        reassign_record.save(tmp_path / "nowhere" / "x", found)


def test_where_nothing_can_be_written_nothing_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there, nowhere = tmp_path / "x", tmp_path / "nowhere" / "x"
    assert reassign_record.able(there, None) == there
    assert list(tmp_path.iterdir()) == []
    assert reassign_record.able(nowhere, None) is None
    assert "No such file or directory; what is predicted is not kept" in capsys.readouterr().err
    assert reassign_record.able(nowhere, "given") == nowhere, "its error comes with the writing"


def test_throttle_is_that_of_back_fills_too() -> None:
    start = Start(frozenset({("t", 0)}), {}, {3: 20, 4: 0}, {"t": {RETENTION_MS: "50000"}})
    told = filling_of(start, cluster(), None, Guess(RATE, RateFrom.ASSUMED))
    assert (told.rates, told.retention_s) == ({3: 20, 4: 0}, {("t", 0): 50.0})
    given = filling_of(start, cluster(), "5MB/s", Guess(5_000_000, RateFrom.GIVEN))
    assert given.rates == {3: 5_000_000, 4: 0}, "one that fills nothing goes on so"


def test_plan_from_the_end_that_nothing_makes_whole() -> None:
    changed = {("t", 0): (1, 3)}
    filling = Filling(changed.keys(), {3: 0}, {("t", 0): None})
    endless = prediction_of(cluster(), changed, None, Guess(RATE, RateFrom.ASSUMED), filling)
    told = lines(cluster(), changed, endless, [1, 2, 3])
    assert told[0].endswith("nothing ends it")
    assert any(one.endswith("go by retention: whole never") for one in told)


def test_how_well_it_was_predicted() -> None:
    found = record()
    assert reassign_record.verdict(found) is None
    late = found.finished(found.begun_ms + 61_200, 6 * GB, is_watched=True)
    assert reassign_record.verdict(late) == (
        "predicted 51 s, took 61 s (20 % longer) · predicted 5 GB, copied 6 GB"
    )
    unseen = found.finished(found.begun_ms + 600_000, 5 * GB, is_watched=False)
    assert reassign_record.verdict(unseen) == (
        "predicted 51 s, took at most 10 min · predicted 5 GB, copied 5 GB"
    )


def test_progress_in_a_line_and_for_programs() -> None:
    found = record()
    half = progress(found, Seen(found.begun_ms, {("t", 3)}, {("t", 0): There(4 * GB, {3: 0})}))
    assert reassign_progress.line(half, found) == (
        "1 of 2 partitions done · 20 % · 4 GB left · about 40 s"
    )
    moves = reassign_progress.Moves([], half)
    told = reassign_progress.listing(moves, "id", found)
    assert told.summary is not None
    assert (told.summary["percent"], told.summary["bytes_left"]) == (20.0, 4 * GB)
    predicted = told.summary["predicted"]
    assert (predicted["seconds"], predicted["bytes"]) == (51.0, 5 * GB)
    assert predicted["rate_from"] == "given"
    assert told.summary["rate"] == {"bytes": 100_000_000, "from": "given"}
    assert (predicted["fill"], told.summary["fill"]) == (None, None)
    assert told.summary["real"] is None
    items = reassign_progress.applied(found, moves, {("t", 0): "no"}).items
    assert [(one["partition"], one["error"]) for one in items] == [(0, "no"), (3, None)]


# --- signs ---------------------------------------------------------------------------------------


def test_the_leaders_of_a_plan_are_its_sources() -> None:
    addresses = {1: ("a", 1), 2: ("b", 2)}
    leaders = {("t", 0): 2, ("t", 1): 2, ("t", 2): 1, ("t", 3): -1, ("u", 0): 1}
    found = sources(addresses, leaders, [("t", 1), ("t", 0), ("t", 3), ("t", 9)])
    assert found == [Source(2, ("b", 2), ("t", 0))]


def test_the_longest_wait_for_a_disk() -> None:
    page = (
        "# TYPE pyrklog_reader_queue_oldest_wait_seconds gauge\n"
        'pyrklog_reader_queue_oldest_wait_seconds{log_dir="/a b",queue="fetch-1"} 0.25\n'
        'pyrklog_reader_queue_stalled_seconds{log_dir="/a",queue="x"} 0.5\n'
        'pyrklog_produce_muted_oldest_wait_seconds{log_dir="/a"} broken\n'
        "pyrklog_reader_threads 7\n"
    )
    assert longest_wait(page) == 0.5
    assert longest_wait("pyrklog_reader_threads 7\n") is None


def test_broker_without_a_disk_has_unknown_room() -> None:
    assert broker(1).rooms().largest is None
    assert broker(1, free=150 * GB).rooms().largest == 50 * GB


@pytest.mark.parametrize(
    ("text", "hours"),
    [("22-6", (1320, 360)), ("9:30-17", (570, 1020)), ("0-24", (0, 1440)), ("24-6", (0, 360))],
)
def test_hours_of_the_day(text: str, hours: tuple[int, int]) -> None:
    assert parse_hours(text) == hours


@pytest.mark.parametrize("text", ["", "22", "6-6", "25-6", "1-2-3", "1:60-2", "night"])
def test_hours_that_are_none(text: str) -> None:
    with pytest.raises(CliError):
        parse_hours(text)
