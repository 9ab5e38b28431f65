"""The file beside a plan that keeps how things were, what was predicted, and how it went."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pyrklog.balance.prediction import STEP_S, RateFrom
from pyrklog.balance.progress import MEASURED_AFTER_S, SURE_AFTER_S, Progress, Seen, corrected
from pyrklog.balance.record import Record, RecordError, from_json, to_json
from pyrklog.base.problems import Problem
from pyrklog.cli import copy_rates
from pyrklog.cli.connection import PartitionKey
from pyrklog.cli.failures import CliError, unread
from pyrklog.cli.reassign_plan import amount, duration

SUFFIX = ".progress.json"
NEW = ".new"
STANDARD_INPUT = "-"


def path_of(plan: str | None, given: str | None = None) -> Path | None:
    """Where the record of a plan is; None for a plan from standard input."""
    if given is not None:
        return Path(given)
    return None if plan is None or plan == STANDARD_INPUT else Path(plan + SUFFIX)


def able(path: Path | None, given: str | None) -> Path | None:
    """The path, if a file can be made there; else, unless the user has chosen it, None and a note:
    a plan may come out of a pipe, or a folder that one may only read."""
    if path is None or given is not None:
        return path
    new = _new(path)
    try:
        new.touch()
        new.unlink()
    except OSError as error:
        what = f"{path}: {error.strerror}; what is predicted is not kept (--progress)"
        print(f"note: {what}", file=sys.stderr)
        return None
    return path


def load(path: Path | None) -> Record | None:
    """None if there is none. Raises :class:`CliError` for a file that is no record."""
    if path is None:
        return None
    try:
        return from_json(path.read_text())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unread(str(path), error) from None
    except (RecordError, UnicodeDecodeError) as error:
        what = f"{path} does not keep the progress of a plan ({error})"
        raise CliError(Problem.FILE_CONTENT, what, "remove it, or name another file") from None


def save(path: Path | None, record: Record) -> None:
    """Replaces the file as a whole, so that no end of the command leaves a part."""
    if path is None:
        return
    new = _new(path)
    try:
        with new.open("w") as file:
            file.write(to_json(record))
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    except OSError as error:
        what = f"{path}: {error.strerror}"
        fix = "name another file with --progress"
        raise CliError(Problem.NOT_WRITTEN, what, fix) from None


def keep(path: Path | None, record: Record) -> None:
    """The same, once moves have begun: they go on where nothing can be written any more."""
    try:
        save(path, record)
    except CliError as error:
        print(f"note: how it goes is not kept: {error.what}", file=sys.stderr)


def _new(path: Path) -> Path:
    """Two commands may write at once."""
    return path.with_name(f"{path.name}{NEW}{os.getpid()}")


def of_plan(
    record: Record | None,
    plan: Mapping[PartitionKey, tuple[int, ...]],
    cluster_id: str | None = None,
) -> Record | None:
    """The record, if it is that of this plan, and of this cluster where that is known."""
    if record is None or record.after != dict(plan):
        return None
    return record if cluster_id is None or is_of(record, cluster_id) else None


def is_of(record: Record, cluster_id: str | None) -> bool:
    """Whether it may be of this cluster."""
    return None in (record.cluster_id, cluster_id) or record.cluster_id == cluster_id


_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""It goes on while a machine sleeps, where there is such a clock."""
_BEGAN_NS = time.time_ns() - time.clock_gettime_ns(_CLOCK)


def now_ms() -> int:
    """The wall clock as the command began, and the time since: who sets the clock meanwhile makes
    no plan faster or slower."""
    return (_BEGAN_NS + time.clock_gettime_ns(_CLOCK)) // 1_000_000


def noticed(path: Path | None, record: Record, seen: Seen, found: Progress) -> Record:
    """The record with what a look has taught; kept in its file, and for later plans."""
    if record.finished_ms is not None:
        return record
    known = record
    if record.corrected is None:
        better = corrected(record, seen, found)
        if better is not None:
            known = replace(known, corrected=better)
            if record.total_bytes:
                copy_rates.remember(record.cluster_id, record.throttle, better.rate_bytes)
    if record.at_end and record.real_tail_s is None and found.has_tail:
        known = replace(known, real_tail_s=max(0.0, (seen.at_ms - record.begun_ms) / 1000))
    if known is not record:
        keep(path, known)
    return known


def learn(record: Record) -> None:
    """Keeps how fast a short plan copied that was watched to its end, for later ones. A long one
    has taught that before; it may also have stood still."""
    if record.real_s is None or not record.is_watched or record.at_end or not record.brokers:
        return
    lasted_s = record.real_s - STEP_S * len(record.batches())
    is_short = record.corrected is None and record.real_s < 2 * SURE_AFTER_S
    if not is_short or lasted_s < MEASURED_AFTER_S or not record.total_bytes:
        return
    most = max(max(both) for both in record.brokers.values())
    copied = (record.real_bytes or 0) / record.total_bytes
    rate_bytes = int(most * max(1.0, copied) / lasted_s)
    copy_rates.remember(record.cluster_id, record.throttle, rate_bytes)


def verdict(record: Record) -> str | None:
    """How well it was predicted; None before the end."""
    if record.real_s is None:
        return None
    at_most = "" if record.is_watched else "at most "
    took = f"took {at_most}{duration(record.real_s)}"
    if record.predicted_s is None:
        told = f"predicted: it would not end; {took}"
    else:
        told = f"predicted {duration(record.predicted_s)}{_by(record)}, {took}"
        if record.is_watched and record.predicted_s > 0:
            told += f" ({_off(record.predicted_s, record.real_s)})"
    if record.corrected is not None and record.is_watched:
        after_s, rate_bytes, seconds = record.corrected
        by = f"{amount(rate_bytes)}/s, measured for {duration(after_s)}"
        told += f" · by {by}: {duration(seconds)} ({_off(seconds, record.real_s)})"
    if record.fill is not None and record.real_tail_s is not None:
        tail = f"took {duration(record.real_tail_s)}"
        if record.fill.tail_s is not None:
            tail = f"predicted {duration(record.fill.tail_s)}, {tail}"
        told = f"new records on the new brokers: {tail} · older ones, too: {told}"
    if record.real_bytes is not None and (record.total_bytes or record.real_bytes):
        told += f" · predicted {amount(record.total_bytes)}, copied {amount(record.real_bytes)}"
    return told


def _by(record: Record) -> str:
    is_guessed = record.rate_from is RateFrom.ASSUMED and record.total_bytes
    return f" at an assumed {amount(record.rate_bytes)}/s" if is_guessed else ""


def _off(predicted_s: float, real_s: float) -> str:
    off = (real_s - predicted_s) / predicted_s if predicted_s > 0 else 0.0
    return f"{abs(off) * 100:.0f} % {'longer' if off > 0 else 'shorter'}"
