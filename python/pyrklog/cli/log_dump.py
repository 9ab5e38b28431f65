import base64
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from pyrklog.base.problems import Problem
from pyrklog.cli.failures import CliError, counted
from pyrklog.cli.log_decode import Decode, decoded
from pyrklog.cli.options import OutputFormat
from pyrklog.cli.output import Column, Listing, as_json, cell, print_listing, text

Row = dict[str, Any]

SCHEMA = "pyrklog.log-dump/1"
DAMAGE = "damage"
TABLE_ROWS_MAX = 1000
_SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
_NAMES = (
    "leader-epoch-checkpoint",
    "partition.metadata",
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
    "meta.properties",
)
_BATCH = """
    position base_offset last_offset count size_bytes leader_epoch compression max_timestamp_ms
    producer_id base_sequence valid
"""
_NOUNS = {
    "aborted_txn": ("aborted transaction", "aborted transactions"),
    "batch": ("batch", "batches"),
    "checkpoint_entry": ("checkpoint entry", "checkpoint entries"),
    "index_entry": ("index entry", "index entries"),
    "messages": ("entry of messages", "entries of messages"),
    "property": ("property", "properties"),
    "time_index_entry": ("time index entry", "time index entries"),
}
"""Kinds of rows that do not get an s only."""
_NARROW = {"batch": _BATCH.split()}
"""Columns of the narrow table by kind; other kinds show all columns."""


def files(paths: list[Path], *, only_indexes: bool = False) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            found = sorted(one for one in path.iterdir() if one.is_file() and _is_ours(one))
            if only_indexes:
                found = [one for one in found if one.suffix != ".log"]
            if not found:
                raise CliError(Problem.NO_DATA, f"{path} holds no log files", "name a partition")
            yield from found
        elif path.exists():
            yield path
        else:
            raise CliError(Problem.FILE_NOT_FOUND, f"{path} does not exist")


def _is_ours(path: Path) -> bool:
    return path.suffix in _SUFFIXES or path.name in _NAMES


def rows(path: Path, *, records: bool, verify: bool, decode: Decode | None = None) -> Iterator[Row]:
    """The rows of a file, with JSON's types only. ``decode`` adds what records say."""
    from pyrklog.plane.offline import dump_file

    try:
        for row in dump_file(str(path), records=records, verify=verify):
            shown = {name: _json(value) for name, value in row.items()}
            told = None if decode is None else decoded(decode, dict(row))
            more = {} if told is None else {"decoded": _json(told)}
            yield {"file": path.name, **shown, **more}
    except ValueError as error:
        raise CliError(Problem.FILE_CONTENT, str(error)) from None
    except OSError as error:
        raise CliError(
            Problem.FILE_UNREADABLE, f"cannot read {path}: {error.strerror or error}"
        ) from None


def _json(value: Any) -> Any:
    """Bytes as text if they are text, else as base64."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, list | tuple):
        return [_json(inner) for inner in value]
    if isinstance(value, dict):
        return {name: _json(inner) for name, inner in value.items()}
    return value


class Printer:
    def __init__(self, output: OutputFormat, *, lines: bool) -> None:
        """``lines``: each row is a line ``kind name=value ...`` instead of tables."""
        self.damages = 0
        self._output = output
        self._lines = lines
        self._path = Path()
        self._waiting: list[Row] = []
        self._counts: dict[str, int] = {}
        self._file_damages = 0

    def begin(self, path: Path) -> None:
        self._path = path
        self._counts = {}
        self._file_damages = 0
        if self._is_for_people():
            typer.echo(str(path))

    def add(self, row: Row) -> None:
        kind = row["kind"]
        self._counts[kind] = self._counts.get(kind, 0) + 1
        if kind == DAMAGE:
            self._add_damage(row)
        if self._output is OutputFormat.JSONL:
            sys.stdout.write(as_json(row) + "\n")
        elif not self._is_for_people():
            self._waiting.append(row)
        elif kind == DAMAGE:
            self._flush()
        elif self._lines:
            sys.stdout.write(_line(row))
        else:
            if self._waiting and self._waiting[-1]["kind"] != kind:
                self._flush()
            self._waiting.append(row)
            if len(self._waiting) >= TABLE_ROWS_MAX:
                self._flush()

    def end(self) -> None:
        if self._is_for_people():
            self._flush()
            counts = [
                counted(count, *_NOUNS.get(kind, (kind, f"{kind}s")))
                for kind, count in self._counts.items()
                if kind != DAMAGE
            ]
            state = f"{self._file_damages} damaged" if self._file_damages else "no damage found"
            typer.echo(f"{', '.join(counts) or 'empty'}; {state}\n")

    def finish(self) -> None:
        if not self._is_for_people() and self._output is not OutputFormat.JSONL:
            self._flush()
        sys.stdout.flush()

    def _add_damage(self, row: Row) -> None:
        self.damages += 1
        self._file_damages += 1
        where = f"byte {row['position']}"
        if row["offset"] is not None:
            where += f", offset {row['offset']}"
        if self._is_for_people():
            self._flush()
            sys.stdout.flush()
        typer.echo(f"damaged: {self._path}: {where}: {cell(row['message'])}", err=True)

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        if waiting or not self._is_for_people():
            print_listing(Listing(SCHEMA, self._columns(waiting), waiting), self._output)

    def _columns(self, waiting: list[Row]) -> list[Column]:
        names = list(dict.fromkeys(name for row in waiting for name in row))
        if not self._is_for_people():
            return [Column(name, name.upper()) for name in names]
        narrow = _NARROW.get(waiting[0]["kind"], names)
        return [
            Column(
                name,
                name.upper(),
                right=all(isinstance(row.get(name), int) for row in waiting),
                wide=name not in narrow,
            )
            for name in names
            if name not in ("file", "kind")
        ]

    def _is_for_people(self) -> bool:
        return self._output in (OutputFormat.TABLE, OutputFormat.WIDE)


def _line(row: Row) -> str:
    indent = "  " if row["kind"] == "record" else ""
    told = row.get("decoded", {})
    values = " ".join(
        f"{name}={_word(told.get(name, value))}"
        for name, value in row.items()
        if name not in ("file", "kind", "decoded")
    )
    return f"{indent}{row['kind']} {values}\n"


def _word(value: Any) -> str:
    told = as_json(value) if isinstance(value, str | list) else text(value)
    # What is in a record must not move the cursor.
    return "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in told)
