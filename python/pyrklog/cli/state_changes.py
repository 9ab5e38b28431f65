from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from pyrklog.base.problems import Problem
from pyrklog.cli.failures import CliError
from pyrklog.cli.output import columns

FILE_NAME = "state-change.jsonl"
SCHEMA = "pyrklog.state-changes/1"
COLUMNS = columns(
    "at, source, event, topic, partition>, from, to, leader>, leader_epoch> EPOCH, isr, "
    "controller_epoch> CONTROLLER, marks, more*"
)
_SHOWN = frozenset(column.key for column in COLUMNS)

Fields = Mapping[str, Any]


class Change(NamedTuple):
    """A line. ``time_ms`` never falls within a log."""

    time_ms: int
    source: str
    fields: Fields


class Filter(NamedTuple):
    """Selects lines; None: all. ``until_ms`` is exclusive."""

    topic: str | None = None
    partition: int | None = None
    since_ms: int | None = None
    until_ms: int | None = None

    def takes(self, change: Change) -> bool:
        fields = change.fields
        if self.topic is not None and fields.get("topic") != self.topic:
            return False
        return self.partition is None or fields.get("partition") == self.partition

    def is_in_time(self, change: Change) -> bool:
        if self.since_ms is not None and change.time_ms < self.since_ms:
            return False
        return self.until_ms is None or change.time_ms < self.until_ms


def parse(source: str, data: bytes, wrong: list[str]) -> list[Change]:
    """One broker's lines, the oldest first; messages about invalid ones go to ``wrong``.

    An unfinished last line is still being written, and left out.
    """
    found: list[Change] = []
    latest_ms = 0
    for number, line in enumerate(data.split(b"\n")[:-1], 1):
        try:
            fields = json.loads(line)
            at_ms = round(datetime.fromisoformat(fields["at"]).timestamp() * 1000)
            fields["event"]
        except (ValueError, KeyError, TypeError):
            wrong.append(f"{source}: line {number} is none of a state-change log")
            continue
        latest_ms = max(latest_ms, at_ms)
        found.append(Change(latest_ms, source, fields))
    return found


def timeline(logs: Iterable[Sequence[Change]], wanted: Filter) -> Iterator[dict[str, Any]]:
    """Rows in the order of time. A change of the controller's epoch passes every filter by
    topic."""
    controller_epoch: int | None = None
    leader_epochs: dict[tuple[str, int], int] = {}
    for change in heapq.merge(*logs, key=lambda one: one.time_ms):
        fields = change.fields
        marks = []
        now = fields.get("controller_epoch")
        moved = isinstance(now, int) and now != controller_epoch
        if isinstance(now, int) and moved:
            marks.append(_mark("controller epoch", controller_epoch, now))
            controller_epoch = now
        place, epoch = (fields.get("topic"), fields.get("partition")), fields.get("leader_epoch")
        if isinstance(epoch, int) and isinstance(place[0], str) and isinstance(place[1], int):
            before = leader_epochs.get((place[0], place[1]))
            if epoch != before:
                marks.append(_mark("leader epoch", before, epoch))
                leader_epochs[(place[0], place[1])] = epoch
        if wanted.is_in_time(change) and (wanted.takes(change) or moved):
            yield _row(change, marks)


def _mark(name: str, before: int | None, now: int) -> str:
    if before is None:
        return f"{name} {now}"
    text = f"{name} {before} -> {now}"
    if now < before:
        return f"{text} (back)"
    return f"{text} (jump)" if now > before + 1 else text


def _row(change: Change, marks: list[str]) -> dict[str, Any]:
    fields = change.fields
    row: dict[str, Any] = {name: fields.get(name) for name in _SHOWN - {"source", "marks", "more"}}
    row["source"] = change.source
    row["marks"] = marks
    row["more"] = {name: value for name, value in fields.items() if name not in _SHOWN} or None
    return {column.key: row[column.key] for column in COLUMNS}


def read_paths(paths: Sequence[Path]) -> dict[str, bytes]:
    """Logs by path, from files and from folders at any depth. An older file and the current one
    beside it are one log."""
    folders: dict[str, dict[str, Path]] = {}
    for path in paths:
        if not path.exists():
            raise CliError(Problem.FILE_NOT_FOUND, f"{path} does not exist")
        for file in [path] if path.is_file() else sorted(path.rglob(f"{FILE_NAME}*")):
            is_ours = file.name in (FILE_NAME, f"{FILE_NAME}.1")
            source = str(file.parent if is_ours else file)
            folders.setdefault(source, {})[file.name] = file
    if not folders:
        # Only brokers that were the controller have one.
        what = f"no {FILE_NAME} in {', '.join(map(str, paths))}"
        raise CliError(Problem.NO_DATA, what, "name the data directories of all brokers")
    try:
        # The older file, ``.1``, comes first.
        return {
            source: b"".join(files[name].read_bytes() for name in sorted(files, reverse=True))
            for source, files in folders.items()
        }
    except OSError as error:
        what = f"cannot read {error.filename}: {error.strerror or error}"
        raise CliError(Problem.FILE_UNREADABLE, what) from None
