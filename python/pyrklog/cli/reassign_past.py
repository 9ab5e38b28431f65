"""What has become of a plan since its record was kept: what others have moved, what moves still.

A plan is gone on with, or undone, only where nobody else has changed a partition since.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator, Mapping
from itertools import count
from pathlib import Path

import typer

from pyrklog.balance.model import Placement
from pyrklog.balance.record import Record
from pyrklog.base.problems import Problem
from pyrklog.cli import reassign_record, reassign_run
from pyrklog.cli.connection import PartitionKey
from pyrklog.cli.failures import CliError, counted, tell
from pyrklog.cli.reassign_cluster import ReassignmentAdmin
from pyrklog.cli.reassign_cluster import target_of as target_of
from pyrklog.cli.throttles import Throttles
from pyrklog.protocol.reassignments import OngoingPartitionReassignment

Moving = Mapping[PartitionKey, OngoingPartitionReassignment]


def changed_since(
    admin: ReassignmentAdmin, record: Record, *, overrides: bool = False
) -> dict[PartitionKey, str]:
    """Partitions that something else than the plan has changed, or (unless it ``overrides`` that)
    changes, and how. Brokers hear of the end of a move a moment after the controller, so what looks
    changed is looked at again."""
    ids = admin.topic_ids({topic for topic, _ in record.entries})
    deadline = time.monotonic() + reassign_run.SETTLED_S
    while True:
        placed, _ = admin.origins()
        found = _changed(record, placed, {} if overrides else admin.moving(), ids)
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(reassign_run.SETTLED_PAUSE_S)


def _changed(
    record: Record, placed: Placement, moving: Moving, ids: Mapping[str, str]
) -> dict[PartitionKey, str]:
    found = {}
    for key in record.entries:
        if key not in placed:
            continue
        target = target_of(moving[key]) if key in moving else None
        if record.is_anew(key[0], ids):
            found[key] = "its topic was deleted and created anew"
        elif target is not None and target not in record.left_behind(key):
            found[key] = f"it moves to {reassign_run.listed(target)}"
        elif placed[key] not in record.left_behind(key):
            found[key] = f"it is {reassign_run.listed(placed[key])}, as the plan never left it"
    return found


def refuse_moving(moving: Moving, wanted: Placement) -> None:
    """Raises :class:`CliError` if partitions of a plan move to something else: Kafka's tool, too,
    leaves what moves alone unless it is told otherwise."""
    others = {
        key: target_of(moving[key])
        for key, after in wanted.items()
        if key in moving and target_of(moving[key]) != tuple(after)
    }
    if not others:
        return
    for key, target in others.items():
        what = f"{reassign_run.name_of(key)} moves to {reassign_run.listed(target)} already"
        tell(CliError(Problem.REASSIGNMENT_REFUSED, what))
    number = counted(len(others), "partition")
    what = f"another plan moves {number} of this one; nothing was changed"
    fix = "wait for its end, cancel it, or give new targets with --additional"
    raise CliError(Problem.REASSIGNMENT_REFUSED, what, fix)


def refuse_under_way(earlier: Record, moving: Moving, path: Path | None) -> None:
    """Raises :class:`CliError` if the plan that a file keeps moves something still: what undoes it
    must not be lost."""
    going = sorted(
        key
        for key, one in earlier.entries.items()
        if key in moving and target_of(moving[key]) in (one.after, one.before)
    )
    if going:
        number = counted(len(going), "partition")
        what = f"{path} keeps another plan, which moves {number} still, such as "
        what += reassign_run.name_of(going[0])
        fix = "`pyrklog cluster reassign status -w` waits for it; or name another file: --progress"
        raise CliError(Problem.FILE_CONTENT, what, fix)


def put_aside(
    earlier: Record, moving: Collection[PartitionKey], path: Path | None, throttles: Throttles
) -> None:
    """Makes way for a plan where the file keeps one that was never finished, and moves no more:
    its throttle goes, its record gets another name."""
    if path is None:
        return
    still = [key for key in earlier.entries if key not in moving]
    if throttles.named({topic for topic, _ in still}):
        throttles.end(still)
    kept = next(one for one in _numbered(path) if not one.exists())
    try:
        os.replace(path, kept)
    except FileNotFoundError:
        return
    except OSError as error:
        fix = "name another file: --progress"
        raise CliError(Problem.NOT_WRITTEN, f"{kept}: {error.strerror}", fix) from None
    typer.echo(f"note: {path} kept a plan that was not finished; it is in {kept} now", err=True)


def of_another_cluster(path: Path | None) -> CliError:
    what = f"{path} keeps the progress of a plan that another cluster has begun"
    return CliError(Problem.FILE_CONTENT, what, "check -b, or name another file: --progress")


def is_in_the_way(earlier: Record | None, record: Record | None, cluster_id: str | None) -> bool:
    """Whether a plan of this cluster that was never finished would be overwritten."""
    return (
        earlier is not None
        and record is None
        and earlier.finished_ms is None
        and reassign_record.is_of(earlier, cluster_id)
    )


def why_throttled(
    admin: ReassignmentAdmin, wanted: Placement, path: Path | None, cluster_id: str | None
) -> str | None:
    """Why the throttle of a plan stays, although nothing of it moves; None: it may go. The file is
    read again, as an `apply` may have begun meanwhile."""
    kept = reassign_record.load(path)
    if kept is not None and not reassign_record.is_of(kept, cluster_id):
        return f"{path} is of another cluster, so no throttle goes here: check -b"
    record = reassign_record.of_plan(kept, wanted)
    is_cancelled = record is not None and record.cancelled_ms is not None
    if record is not None and record.finished_ms is None and not is_cancelled:
        fix = "`apply` goes on; its throttle stays until then, or until `cancel`"
        if not record.is_begun:
            return f"its moves are about to begin, or a command ended before they did: {fix}"
        if len(record.batches()) > 1:
            return f"batches may be left to begin: {fix}"
    if admin.moving().keys() & wanted.keys():
        return "something of it moves again, so its throttle stays"
    return None


def _numbered(path: Path) -> Iterator[Path]:
    return (path.with_name(f"{path.name}.{number}") for number in count(1))
