"""What moves, how far it is, and when it will be done."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from pyrklog.balance.record import Progress, Record, progress
from pyrklog.cli.connection import PartitionKey
from pyrklog.cli.expansion import BACK_FILL, lacking
from pyrklog.cli.output import Listing, columns
from pyrklog.cli.reassign_cluster import ReassignmentAdmin, ReplicaSizes
from pyrklog.cli.reassign_plan import amount, duration
from pyrklog.cli.reassign_record import now_ms, verdict

COLUMNS = columns(
    "topic, partition>, replicas*, adding, removing, percent> %, bytes_left> BYTES LEFT, "
    "eta_s> ETA S, lacks"
)

_AT_END = "what starts at its leader's end copies nothing, and waits for back-fill or retention"
APPLIED = columns("topic, partition>, before, after, batch>, moving, error")


@dataclass
class Moves:
    """``items``: the moves under way. ``whole``: of a plan with a record."""

    items: list[dict[str, Any]]
    whole: Progress | None = None

    @property
    def left(self) -> dict[PartitionKey, int]:
        """Bytes that each move lacks."""
        return {(one["topic"], one["partition"]): one["bytes_left"] for one in self.items}


def read_moves(
    admin: ReassignmentAdmin,
    places: Collection[PartitionKey] | None,
    record: Record | None = None,
) -> Moves:
    """``places`` None: all that moves."""
    moving = admin.moving()
    chosen = [place for place in sorted(moving) if places is None or place in places]
    # A broker that has just died stays listed for a moment: its replicas count as not copied.
    sizes = admin.sizes(without_silent=True) if chosen else {}
    whole = largest(sizes)
    lacks = lacking(admin, {place: moving[place] for place in chosen})
    items = []
    partly = {}
    for place in chosen:
        one = moving[place]
        adding = one.adding_replicas
        size = whole.get(place, 0)
        there = sum(min(sizes.get((*place, broker), 0), size) for broker in adding)
        partly[place] = there
        items.append(
            {
                "topic": place[0],
                "partition": place[1],
                "replicas": list(one.replicas),
                "adding": list(adding),
                "removing": list(one.removing_replicas),
                "percent": _percent(there, size * len(adding), lacks.get(place, {})),
                "bytes_left": size * len(adding) - there,
                "eta_s": None,
                **lacks.get(place, {}),
            }
        )
    if record is None:
        return Moves(items)
    placement, _ = admin.placement()
    done = [
        key
        for key, after in record.after.items()
        if key not in moving and placement.get(key) == after
    ]
    copied = {key: count for key, count in partly.items() if key in record.entries}
    return Moves(items, progress(record, done, copied, now_ms()))


def _percent(there: int, whole: int, lacks: Mapping[str, Any]) -> int | None:
    """None where nothing is copied: retention makes the new replicas whole."""
    partial = lacks.get("partial") or ()
    if partial and all(one["by"] != BACK_FILL for one in partial):
        return None
    return int(100 * there / whole) if whole else 100


def largest(sizes: ReplicaSizes) -> dict[PartitionKey, int]:
    """A partition's size is that of its largest replica."""
    found: dict[PartitionKey, int] = {}
    for (topic, index, _), size in sizes.items():
        found[topic, index] = max(size, found.get((topic, index), 0))
    return found


def add_times(moves: Moves, before: Mapping[PartitionKey, int], passed_s: float) -> None:
    """The time that each move still takes, by what it copied since ``before``."""
    for item in moves.items:
        place = item["topic"], item["partition"]
        copied = before.get(place, item["bytes_left"]) - item["bytes_left"]
        if copied > 0:
            item["eta_s"] = round(item["bytes_left"] * passed_s / copied)


def listing(moves: Moves, cluster_id: str | None, record: Record | None = None) -> Listing:
    summary = None if moves.whole is None else _summary(moves.whole, record)
    return Listing("pyrklog.reassignments/1", COLUMNS, moves.items, cluster_id, summary)


def applied(record: Record, moves: Moves, errors: Mapping[PartitionKey, str]) -> Listing:
    """Each partition of a plan that was begun."""
    moving = moves.left
    items = [
        {
            "topic": topic,
            "partition": index,
            "before": list(one.before),
            "after": list(one.after),
            "batch": one.batch + 1,
            "moving": (topic, index) in moving,
            "error": errors.get((topic, index)),
        }
        for (topic, index), one in sorted(record.entries.items())
    ]
    summary = None if moves.whole is None else _summary(moves.whole, record)
    return Listing("pyrklog.reassign-apply/1", APPLIED, items, record.cluster_id, summary)


def _summary(whole: Progress, record: Record | None) -> dict[str, Any]:
    told: dict[str, Any] = {
        "percent": round(whole.percent, 1),
        "partitions": whole.partitions,
        "partitions_done": whole.partitions_done,
        "bytes": whole.total_bytes,
        "bytes_left": whole.left_bytes,
        "eta_s": None if whole.left_s is None else round(whole.left_s),
    }
    if record is not None:
        told["predicted"] = {"seconds": record.predicted_s, "bytes": record.total_bytes}
        told["real"] = None
        if record.real_s is not None:
            told["real"] = {
                "seconds": record.real_s,
                "bytes": record.real_bytes,
                "watched": record.is_watched,
            }
    return told


def line(whole: Progress, record: Record) -> str:
    """One line for people."""
    told = verdict(record)
    if told is not None:
        return told
    parts = [f"{whole.partitions_done} of {whole.partitions} partitions done"]
    if whole.total_bytes or not record.at_end:
        parts += [f"{whole.percent:.0f} %", f"{amount(whole.left_bytes)} left"]
    if record.cancelled_ms is not None:
        parts.append("cancelled: `apply` begins the rest again")
    elif record.at_end:
        parts.append(_AT_END)
    if whole.left_s is not None and whole.partitions_done < whole.partitions:
        parts.append(f"about {duration(whole.left_s)}")
    return " · ".join(parts)
