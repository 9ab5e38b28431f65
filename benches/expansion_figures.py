"""From raw measurements of expansions to rows, goals, a table."""

import random
import statistics
from collections.abc import Mapping, Sequence

from benches.effort import Row
from benches.expansion_load import Request
from benches.expansion_sampler import Sample, at, percentile, seconds
from benches.expansion_side import Size
from benches.expansion_ways import Times, Trial
from benches.figures import Figure, goal
from benches.growth import CONFIDENCE
from benches.report import number

TAIL, DRAINS = "pyrklog-tail", "pyrklog-drain"
"""A way, and how the names of ways begin."""
_SETTLED_S = 1.0
"""Producers hear of their new leaders a moment after these lead."""
GROWTH_MAX = 1.1
DRAIN_GROWTH_MAX = 1.5
HANDOVER_MAX_S = 1.0
OFF_MAX_PERCENT = 20.0
READ_MAX_PERCENT = 1.0
_THIRD = 1 / 3
_BLOCK_S = 5.0
_RESAMPLES = 2_000
_SEED = 5
_MB, _GB, _MS = 1e6, 1e9, 1e3
COLUMNS = (
    ("quiet_read_mb_per_s", "old brokers read before, MB/s"),
    ("read_until_tail_mb", "until its share, MB"),
    ("more_until_tail_mb", "beyond before, MB"),
    ("read_mb", "in all, MB"),
    ("third_s", "a third of new data, s"),
    ("tail_s", "its share, s"),
    ("whole_s", "whole, s"),
    ("quiet_p99.9_ms", "p99.9 before, ms"),
    ("p99.9_ms", "p99.9, ms"),
    ("growth", "ratio"),
    ("blocks_growth_low", "95 % from"),
    ("blocks_growth_high", "to"),
    ("cpu_s_per_gb", "CPU-s per GB taken"),
    ("taken_gb", "taken, GB"),
    ("busy_percent", "disk busy, %"),
    ("predicted_s", "predicted, s"),
    ("off_percent", "off by, %"),
    ("corrected_s", "predicted by its measured speed, s"),
    ("corrected_after_s", "after, s"),
    ("corrected_off_percent", "off by, %"),
)


def row_of(trial: Trial, size: Size) -> Row:
    """Figures that a trial does not have are left out."""
    quiet = [one for one in trial.requests if trial.quiet_from_s <= one.due_s < trial.begin_s]
    during = [one for one in trial.requests if trial.begin_s <= one.due_s < trial.end_s]
    before, begin = at(trial.samples, trial.quiet_from_s), at(trial.samples, trial.begin_s)
    end = at(trial.samples, trial.end_s)
    found: Row = {"planned": trial.planned, "seconds": trial.end_s - trial.begin_s}
    for name, requests in (("quiet_", quiet), ("", during)):
        latencies = [one.latency_s * _MS for one in requests]
        found[f"{name}p50_ms"] = percentile(latencies, 0.5)
        found[f"{name}p99_ms"] = percentile(latencies, 0.99)
        found[f"{name}p99.9_ms"] = percentile(latencies, 0.999)
        found[f"{name}requests"] = len(latencies)
    found["late_p99.9_ms"] = percentile([one.late_s * _MS for one in during], 0.999)
    if found["quiet_p99.9_ms"] > 0:
        found["growth"] = found["p99.9_ms"] / found["quiet_p99.9_ms"]
    found |= _blocks(quiet, during)
    found["worst_second_ms"] = max(
        (
            one.p999_ms
            for one in seconds(trial.samples, trial.requests, trial.begin_s)
            if 0 <= one.second < found["seconds"]
        ),
        default=0.0,
    )
    found |= _moved(before, begin, end)
    if trial.handover_s is None or trial.gone_s is None:
        found |= _taken_over(trial, size, begin, found.get("quiet_read_mb_per_s", 0.0))
    else:
        found |= {"handover_s": trial.handover_s, "gone_s": trial.gone_s}
        until = trial.begin_s + trial.gone_s + _SETTLED_S
        handing = [one.latency_s * _MS for one in during if one.due_s < until]
        found["handing_p99.9_ms"] = percentile(handing, 0.999)
        if found["quiet_p99.9_ms"] > 0:
            found["handing_growth"] = found["handing_p99.9_ms"] / found["quiet_p99.9_ms"]
    return found | _predicted(trial.record)


def _predicted(record: Times) -> Row:
    predicted_s, real_s, corrected_s, after_s = record
    if not real_s:
        return {}
    found: Row = {"real_s": real_s}
    if predicted_s is not None:
        off = 100 * (predicted_s / real_s - 1)
        found |= {"predicted_s": predicted_s, "off_percent": off}
    if corrected_s is not None and after_s is not None:
        off = 100 * (corrected_s / real_s - 1)
        found |= {"corrected_s": corrected_s, "corrected_after_s": after_s}
        found["corrected_off_percent"] = off
    return found


def _blocks(quiet: Sequence[Request], during: Sequence[Request]) -> Row:
    """How sure the ratio is: medians of the p99.9 of blocks of five seconds, and a 95 % interval of
    the ratio of such medians (bootstrap)."""
    found = []
    for requests in (quiet, during):
        blocks: dict[int, list[float]] = {}
        for one in requests:
            blocks.setdefault(int(one.due_s // _BLOCK_S), []).append(one.latency_s * _MS)
        found.append([percentile(values, 0.999) for values in blocks.values()])
    before, after = found
    if not before or not after or min(before) <= 0:
        return {}
    choices = random.Random(_SEED)
    ratios = sorted(
        statistics.median(choices.choices(after, k=len(after)))
        / statistics.median(choices.choices(before, k=len(before)))
        for _ in range(_RESAMPLES)
    )
    beyond = round((1 - CONFIDENCE) / 2 * _RESAMPLES)
    return {
        "blocks_growth": statistics.median(after) / statistics.median(before),
        "blocks_growth_low": ratios[beyond],
        "blocks_growth_high": ratios[-1 - beyond],
    }


def _moved(before: Sample, begin: Sample, end: Sample) -> Row:
    """What disks and processors did, beyond what they did before."""
    quiet_s, during_s = begin.at_s - before.at_s, end.at_s - begin.at_s
    if quiet_s <= 0 or during_s <= 0:
        return {}
    cpu_s = (end.cpu_s - begin.cpu_s) - (begin.cpu_s - before.cpu_s) / quiet_s * during_s
    taken = end.new_written_bytes - begin.new_written_bytes
    found = {
        "read_mb": (end.old_read_bytes - begin.old_read_bytes) / _MB,
        "quiet_read_mb_per_s": (begin.old_read_bytes - before.old_read_bytes) / _MB / quiet_s,
        "device_read_mb": (end.device_read_bytes - begin.device_read_bytes) / _MB,
        "busy_percent": 100 * (end.device_busy_s - begin.device_busy_s) / during_s,
        "quiet_busy_percent": 100 * (begin.device_busy_s - before.device_busy_s) / quiet_s,
        "taken_gb": taken / _GB,
        "cpu_s": cpu_s,
    }
    if taken > 0:
        found["cpu_s_per_gb"] = cpu_s / (taken / _GB)
    return found


def _taken_over(trial: Trial, size: Size, begin: Sample, quiet_read_mb_per_s: float) -> Row:
    """When the new broker had a third of the new data, all of its share, and everything; what old
    brokers read until then, also beyond what they read without it: segments are made and deleted
    all the time."""
    found: Row = {}
    for name, wanted in (("third_s", size.partitions * _THIRD), ("tail_s", trial.planned)):
        when = next(
            (
                one
                for one in trial.samples
                if one.at_s >= trial.begin_s and one.following >= wanted > 0
            ),
            None,
        )
        if when is not None:
            found[name] = when.at_s - trial.begin_s
            if name == "tail_s":
                read_mb = (when.old_read_bytes - begin.old_read_bytes) / _MB
                more_mb = max(0.0, read_mb - quiet_read_mb_per_s * (when.at_s - begin.at_s))
                got_mb = size.data_bytes / _MB * trial.planned / size.partitions
                found["read_until_tail_mb"] = read_mb
                found["more_until_tail_mb"] = more_mb
                found["more_until_tail_percent"] = 100 * more_mb / got_mb
    if trial.whole_s is not None:
        found["whole_s"] = trial.whole_s - trial.begin_s
    return found


def best_of_kafka(rows: Mapping[str, Row]) -> str | None:
    """The fastest of its throttles that producers hardly feel; else the one they feel least."""
    able = {
        name: row
        for name, row in rows.items()
        if name.startswith("kafka") and "whole_s" in row and "growth" in row
    }
    within = [name for name, row in able.items() if row["growth"] <= GROWTH_MAX]
    if within:
        return min(within, key=lambda name: able[name]["whole_s"])
    return min(able, key=lambda name: able[name]["growth"], default=None)


def figures_of(rows: Mapping[str, Row]) -> list[Figure]:
    """What is held against goals."""
    found: list[Figure] = []

    def add(what: str, row: Row, name: str, sign: str, bound: float, ratio: bool = False) -> None:
        if name in row:
            found.append(Figure(what, (row[name],), goal(sign, bound, ratio=ratio)))

    tail = rows.get(TAIL, {})
    unthrottled = rows.get("kafka", {})
    what = "tail: old brokers' reads until the new one takes its share, % of its history"
    add(what, tail, "more_until_tail_percent", "<=", READ_MAX_PERCENT)
    growing = [name for name in rows if name.startswith("pyrklog-") and not name.startswith(DRAINS)]
    for name in growing:
        add(f"{name}: p99.9 / undisturbed", rows[name], "growth", "<=", GROWTH_MAX, ratio=True)
    best = best_of_kafka(rows)
    for name in growing:
        both = {
            "whole_s": rows[name].get("whole_s"),
            "best": rows.get(best or "", {}).get("whole_s"),
        }
        if name.startswith("pyrklog-fill") and both["whole_s"] and both["best"]:
            ratio = {"ratio": both["whole_s"] / both["best"]}
            add(f"{name}: whole, s / {best}", ratio, "ratio", "<=", 1.0, ratio=True)
    if tail.get("tail_s") and unthrottled.get("tail_s"):
        ratio = {"ratio": tail["tail_s"] / unthrottled["tail_s"]}
        add("tail: its share, s / Kafka without a throttle", ratio, "ratio", "<=", 1.0, ratio=True)
    for name, row in rows.items():
        # Where the rate was assumed, the prediction counts that the command made once it knew.
        for key, what in (
            ("corrected_off_percent", "duration by the measured speed"),
            ("off_percent", "predicted duration"),
        ):
            if key in row:
                off = {"off": abs(row[key])}
                add(f"{name}: {what} off by, %", off, "off", "<=", OFF_MAX_PERCENT)
                break
    for name, row in rows.items():
        if not name.startswith(DRAINS):
            continue
        add(f"{name}: leaders handed over, s", row, "handover_s", "<=", HANDOVER_MAX_S)
        if "gone_s" in row:
            what = f"{name}: from the command to the last leader, s"
            found.append(Figure(what, (row["gone_s"],)))
        most = DRAIN_GROWTH_MAX
        what = f"{name}: p99.9 until the leaders are gone / undisturbed"
        add(what, row, "handing_growth", "<=", most, ratio=True)
        add(f"{name}: p99.9, copies too / undisturbed", row, "growth", "<=", most, ratio=True)
    return found


def markdown(rows: Mapping[str, Row], titles: Mapping[str, str]) -> str:
    """A row for each way; a dash for what it does not have."""
    headings = ["way", *(title for _, title in COLUMNS)]
    rule = ["-", *("-:" for _ in COLUMNS)]
    cells = [
        [titles.get(name, name), *(number(row.get(column)) for column, _ in COLUMNS)]
        for name, row in rows.items()
        if not name.startswith(DRAINS)
    ]
    lines = [" | ".join(headings), "|".join(rule), *(" | ".join(one) for one in cells)]
    return "\n".join(f"| {line} |" for line in lines) + "\n"
