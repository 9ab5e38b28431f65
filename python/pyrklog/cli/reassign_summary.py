"""A plan in words: what it moves, copies and takes, and how even it leaves the brokers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from pyrklog.balance.filling import Fill
from pyrklog.balance.model import (
    Cluster,
    Full,
    Goal,
    Obstacle,
    Placement,
    Plan,
    arriving,
    copied_bytes,
    loads,
    skews,
)
from pyrklog.balance.prediction import Prediction, RateFrom
from pyrklog.base.problems import Problem
from pyrklog.cli.failures import CliError, counted
from pyrklog.cli.output import Listing, columns
from pyrklog.cli.reassign_plan import amount, duration

OBSTACLES_SHOWN = 5
BROKER_COLUMNS = columns(
    "broker>, rack*, bytes>, bytes_after> AFTER, leaders>, leaders_after> AFTER, replicas>, "
    "replicas_after> AFTER, in_rate>* IN/S, in_rate_after>* AFTER, out_rate>* OUT/S, "
    "out_rate_after>* AFTER, takes> TAKES, gives> GIVES"
)
_HINTS = {
    RateFrom.ASSUMED: ", if the disks allow it",
    RateFrom.EARLIER: ", as the last plan",
    RateFrom.MEASURED: ", as measured",
}
_NAMES = {Goal.IN: "in_rate", Goal.OUT: "out_rate"}


def lines(
    cluster: Cluster, changed: Placement, prediction: Prediction, brokers: Collection[int]
) -> list[str]:
    """What a plan costs, and what it does for balance."""
    before = cluster.placement
    moves = [key for key in changed if arriving(before[key], changed[key])]
    fewer = [key for key in changed if key not in moves and len(changed[key]) < len(before[key])]
    reordered = len(changed) - len(moves) - len(fewer)
    told = f"moves {len(moves) + len(fewer)} of {len(before)} partitions"
    told += f" · copies {amount(copied_bytes(cluster, changed))} · {_time(prediction)}"
    if reordered:
        gets = "gets" if reordered == 1 else "get"
        told += f" · {reordered} more {gets} another order"
    found = [told, _skew_line(cluster, changed, brokers)]
    if prediction.fill is not None:
        found.append(fill_line(prediction.fill))
    busy = _busiest(prediction)
    return [*found, busy] if busy else found


def _time(prediction: Prediction) -> str:
    at = f"at {amount(prediction.rate_bytes)}/s"
    if prediction.seconds is None:
        if prediction.fill is not None and prediction.fill.whole_s is None:
            return "nothing ends it"
        return f"never ends {at}: producers write more"
    batches = len(prediction.batches)
    told = f"about {duration(prediction.seconds)}"
    if prediction.bytes or prediction.fill is None:
        told += f" {at}"
    told += f" in {batches} batches" if batches > 1 else ""
    return told + (hint(prediction.rate_from) if prediction.bytes else "")


def hint(rate_from: RateFrom) -> str:
    """How far a rate is to be believed."""
    return _HINTS.get(rate_from, "")


def fill_line(fill: Fill) -> str:
    """When new replicas have what is written, and when they lack nothing."""
    told = f"new records are on the new brokers {_when(fill.tail_s)}"
    if not fill.bytes:
        return told
    rates = sorted({rate for rate in fill.rates.values() if rate})
    if fill.is_by_retention or not rates:
        how = "go by retention"
    else:
        at = " to ".join(dict.fromkeys(amount(rate) for rate in (rates[0], rates[-1])))
        how = f"follow at {at}/s"
    return f"{told} · {amount(fill.bytes)} of older ones {how}: whole {_when(fill.whole_s)}"


def _when(seconds: float | None) -> str:
    return "never" if seconds is None else f"in about {duration(seconds)}"


def _skew_line(cluster: Cluster, changed: Placement, brokers: Collection[int]) -> str:
    before = cluster.placement
    after = {**before, **changed}
    now, then = skews(cluster, before, brokers), skews(cluster, after, brokers)
    told = [f"skew by bytes {now[Goal.BYTES]:.2f} -> {then[Goal.BYTES]:.2f}"]
    names = {Goal.LEADERS: "leaders", Goal.REPLICAS: "replicas", Goal.IN: "in", Goal.OUT: "out"}
    is_idle = all(not one.rate_in for one in cluster.partitions.values())
    for goal, name in names.items():
        if not (is_idle and goal in _NAMES):
            told.append(f"{name} {now[goal]:.2f} -> {then[goal]:.2f}")
    return " · ".join(told)


def _busiest(prediction: Prediction) -> str | None:
    if not prediction.bytes:
        return None
    taker = max(prediction.brokers, key=lambda one: (prediction.brokers[one].in_bytes, -one))
    giver = max(prediction.brokers, key=lambda one: (prediction.brokers[one].out_bytes, -one))
    return (
        f"most is taken by broker {taker}, {amount(prediction.brokers[taker].in_bytes)}, and given "
        f"by broker {giver}, {amount(prediction.brokers[giver].out_bytes)}"
    )


def obstacle_lines(obstacles: Sequence[Obstacle]) -> list[str]:
    """The first obstacles, and how many there are."""
    told = [f"{one.name}: {one.why}" for one in obstacles[:OBSTACLES_SHOWN]]
    more = len(obstacles) - len(told)
    return [*told, f"and {counted(more, 'partition')} more"] if more else told


def room_lines(full: Sequence[Full]) -> list[str]:
    """The first brokers that lack room, and how many there are."""
    told = [one.text for one in full[:OBSTACLES_SHOWN]]
    more = len(full) - len(told)
    return [*told, f"and {counted(more, 'broker')} more"] if more else told


def refuse_without_room(cluster: Cluster, plan: Plan) -> None:
    """Raises :class:`CliError` if a plan moves nothing, and would were there room."""
    before = cluster.placement
    if plan.lacks_room and all(set(one) == set(before[key]) for key, one in plan.changed.items()):
        what = "nothing is moved: no disk has room for what would move"
        raise CliError(Problem.NO_ROOM, what, "make space, or fill disks further: --max-fill")


def listing(
    cluster: Cluster,
    changed: Placement,
    prediction: Prediction,
    brokers: Collection[int],
    cluster_id: str | None,
) -> Listing:
    """What the plan does to each broker."""
    before = cluster.placement
    after = {**before, **changed}
    rows: dict[int, dict[str, Any]] = {}
    for goal in Goal:
        name = _NAMES.get(goal, goal.value)
        for suffix, placement in (("", before), ("_after", after)):
            for number, value in loads(cluster, placement, goal, brokers).items():
                rack = cluster.brokers[number].rack if number in cluster.brokers else None
                row = rows.setdefault(number, {"broker": number, "rack": rack})
                row[name + suffix] = round(value)
    for number, row in rows.items():
        traffic = prediction.brokers.get(number)
        row["takes"] = 0 if traffic is None else traffic.in_bytes
        row["gives"] = 0 if traffic is None else traffic.out_bytes
    ordered = [rows[number] for number in sorted(rows)]
    return Listing("pyrklog.reassign-plan/1", BROKER_COLUMNS, ordered, cluster_id)
