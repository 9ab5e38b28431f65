"""What moves, how far it is, and when it will be done."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyrklog.balance.prediction import RateFrom
from pyrklog.balance.progress import Mark, Progress, Seen, There, mark_of, progress
from pyrklog.balance.record import Record, fill_item
from pyrklog.balance.throttle import AUTO
from pyrklog.cli.connection import PartitionKey
from pyrklog.cli.expansion import BACK_FILL, bytes_of, fill_rates, lacking
from pyrklog.cli.output import Listing, columns
from pyrklog.cli.reassign_cluster import ReassignmentAdmin, ReplicaSizes
from pyrklog.cli.reassign_plan import amount, duration
from pyrklog.cli.reassign_record import now_ms, verdict
from pyrklog.cli.reassign_summary import hint

COLUMNS = columns(
    "topic, partition>, replicas*, adding, removing, percent> %, bytes_left> BYTES LEFT, "
    "eta_s> ETA S, lacks"
)

_AT_END = "what starts at its leader's end copies nothing, and waits for back-fill or retention"
APPLIED = columns("topic, partition>, before, after, batch>, moving, error")


WINDOW_MS = 10_000
"""Over which the speed of a plan counts whose rate changes all the time."""


WARM_MS = 3_000
"""Since the begin of a plan, before its speed counts: page caches and throttles let the first bytes
through faster."""


@dataclass
class Looks:
    """What a command keeps of its looks at a plan while it watches. ``base``: the look since which
    the speed counts. A plan that was begun before this command may have stood still for any time,
    or by another clock."""

    base: Mark | None = None
    window: list[Mark] = field(default_factory=list)

    def add(self, record: Record, one: Mark) -> None:
        if self.base is None and not 0 <= one.at_ms - record.begun_ms < WARM_MS:
            self.base = one
        self.window.append(one)
        while len(self.window) > 1 and one.at_ms - self.window[1].at_ms >= WINDOW_MS:
            del self.window[0]

    def earlier(self, record: Record) -> Mark | None:
        if record.throttle == AUTO and self.window:
            return self.window[0]
        return self.base


@dataclass
class Moves:
    """``items``: the moves under way. ``whole``, ``seen``: of a plan with a record."""

    items: list[dict[str, Any]]
    whole: Progress | None = None
    seen: Seen | None = None
    record: Record | None = None
    """With what was learned of the plan while it was watched."""

    @property
    def left(self) -> dict[PartitionKey, int]:
        """Bytes that each move lacks."""
        return {(one["topic"], one["partition"]): one["bytes_left"] for one in self.items}


def read_moves(
    admin: ReassignmentAdmin,
    places: Collection[PartitionKey] | None,
    record: Record | None = None,
    looks: Looks | None = None,
) -> Moves:
    """``places`` None: all that moves."""
    moving = admin.moving()
    chosen = [place for place in sorted(moving) if places is None or place in places]
    # A broker that has just died stays listed for a moment: its replicas count as not copied.
    sizes = admin.sizes(without_silent=True) if chosen else {}
    whole = largest(sizes)
    lacks = lacking(admin, {place: moving[place] for place in chosen})
    items = []
    there_by = {}
    for place in chosen:
        one = moving[place]
        adding = one.adding_replicas
        size = whole.get(place, 0)
        by = {broker: min(sizes.get((*place, broker), 0), size) for broker in adding}
        there = sum(by.values())
        partial = lacks.get(place, {}).get("partial", ())
        there_by[place] = There(size, by, frozenset(lack["broker"] for lack in partial))
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
    done = {
        key
        for key, after in record.after.items()
        if key not in moving and placement.get(key) == after
    }
    known = {key: there for key, there in there_by.items() if key in record.entries}
    seen = Seen(now_ms(), done, known, _fill_rates(admin, record))
    found = progress(record, seen, None if looks is None else looks.earlier(record))
    if looks is not None:
        looks.add(record, mark_of(record, seen))
    return Moves(items, found, seen, record)


def _fill_rates(admin: ReassignmentAdmin, record: Record) -> dict[int, int] | None:
    """As brokers tell them now: they change at run time."""
    if record.fill is None:
        return None
    return bytes_of(fill_rates(admin, record.fill.rates))


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
        "rate": {"bytes": whole.rate_bytes, "from": whole.rate_from.value},
        "fill": None,
    }
    if whole.fill_total_bytes:
        told["fill"] = {
            "bytes": whole.fill_total_bytes,
            "bytes_left": whole.fill_left_bytes,
            "percent": round(100 * whole.fill_done_bytes / whole.fill_total_bytes, 1),
            "has_tail": whole.has_tail,
        }
    if record is not None:
        told["predicted"] = {
            "seconds": record.predicted_s,
            "bytes": record.total_bytes,
            "rate_from": record.rate_from.value,
            "fill": None if record.fill is None else fill_item(record.fill),
            "corrected": record.corrected and record.corrected._asdict(),
        }
        told["real"] = None
        if record.real_s is not None:
            told["real"] = {
                "seconds": record.real_s,
                "bytes": record.real_bytes,
                "watched": record.is_watched,
                "tail_seconds": record.real_tail_s,
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
    elif whole.fill_total_bytes:
        what = "all" if whole.fill_left_bytes == whole.left_bytes else amount(whole.fill_left_bytes)
        is_deleted = record.fill is not None and record.fill.is_by_retention
        parts[-1] += f", {what} of it " + ("goes by retention" if is_deleted else "back-fill")
        if whole.has_tail:
            parts.append("new records arrive")
    elif record.at_end:
        parts.append(_AT_END)
    if whole.left_s is not None and whole.partitions_done < whole.partitions:
        parts.append(f"about {duration(whole.left_s)}{_by_rate(whole)}")
    return " · ".join(parts)


def _by_rate(whole: Progress) -> str:
    """What the time left goes by; a given rate is known."""
    is_only_filled = whole.fill_left_bytes == whole.left_bytes
    if whole.rate_from is RateFrom.GIVEN or is_only_filled:
        return ""
    return f" at {amount(whole.rate_bytes)}/s{hint(whole.rate_from)}"
