"""``group seek``: targets, plans, and the file of offsets.

The file has lines ``TOPIC,PARTITION,OFFSET``, as Kafka's consumer-groups tool exports and reads
them; a heading and lines starting with ``#`` are skipped. Or it is JSON of ``group export``.
"""

import csv
import os
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pyrklog.base.problems import Problem
from pyrklog.cli.connection import Connection
from pyrklog.cli.failures import CliError, cli_error, missing_partition, refuse_empty, unread
from pyrklog.cli.group_state import Key, committed_offsets, patiently
from pyrklog.cli.offsets import BEGINNING, END, WORDS
from pyrklog.cli.options import INT32_MAX
from pyrklog.cli.topic_details import query_offsets

INT64_MAX = 2**63 - 1
HEADING = ("topic", "partition", "offset")
TARGETS = "start, end, an offset, +N, -N, @TIME, current, FILE (see `group export`) or group:OTHER"
NOT_COMMITTED = "left out: nothing is committed there"
_NO_SUCH_FILE = "there is no such file"
_LIKE, _BEGUN_MIN = 0.75, 2
_SHOWN = {BEGINNING: "start", END: "end"}
_SELECTION = re.compile(r"([^:]+)(?::([\d,]+))?")


class Move(NamedTuple):
    """``after`` None: it stays as it is, and the remark says why."""

    topic: str
    partition: int
    before: int | None
    after: int | None
    remark: str = ""


def parse_selection(texts: Sequence[str], option: str = "--topic") -> dict[str, list[int] | None]:
    """Parses ``T``, ``T:0`` and ``T:0,3`` to partitions by topic; None: all."""
    found: dict[str, list[int] | None] = {}
    for text in texts:
        match = _SELECTION.fullmatch(text)
        if match is None or (match[2] is not None and not match[2].strip(",")):
            raise CliError(
                Problem.ARGUMENT_VALUE, f"{option} takes TOPIC or TOPIC:PARTITION, not {text!r}"
            )
        topic, partitions = match.groups()
        if partitions is None:
            found[topic] = None
            continue
        known = found.setdefault(topic, [])
        if known is not None:
            known.extend(int(one) for one in partitions.split(",") if one)
    return found


def select(
    connection: Connection, texts: Sequence[str], known: Iterable[Key], option: str = "--topic"
) -> list[Key]:
    wanted = parse_selection(texts, option)
    if not wanted:
        return sorted(known)
    existing = connection.topic_partitions(list(wanted))
    keys: list[Key] = []
    for topic, partitions in wanted.items():
        for partition in existing[topic] if partitions is None else dict.fromkeys(partitions):
            _refuse_missing(topic, partition, existing[topic])
            keys.append((topic, partition))
    return sorted(keys)


def _refuse_missing(topic: str, partition: int, existing: Sequence[int]) -> None:
    if partition not in existing:
        raise missing_partition(topic, partition, len(existing))


def read_file(path: Path) -> dict[Key, int]:
    """Reads offsets from a file. Raises :class:`CliError` with the unreadable line."""
    try:
        text = path.read_text()
    except OSError as error:
        raise unread(path, error, Problem.FILE_CONTENT) from None
    except UnicodeDecodeError as error:
        raise CliError(Problem.FILE_CONTENT, f"cannot read {path}: {error}") from None
    if text.lstrip().startswith("{"):
        return _read_json(path, text)
    found: dict[Key, int] = {}
    for number, row in enumerate(csv.reader(text.splitlines()), start=1):
        cells = [cell.strip() for cell in row]
        if not any(cells) or cells[0].startswith("#") or _is_heading(cells):
            continue
        if len(cells) != 3 or not _is_number(cells[1], INT32_MAX) or not _is_number(cells[2]):
            what = f"{path} line {number} is not TOPIC,PARTITION,OFFSET"
            raise CliError(Problem.FILE_CONTENT, what, "see `pyrklog group export`")
        found[cells[0], int(cells[1])] = int(cells[2])
    return found


def _is_heading(cells: Sequence[str]) -> bool:
    return tuple(cell.lower() for cell in cells) == HEADING


def _read_json(path: Path, text: str) -> dict[Key, int]:
    """A document with ``items``, or an item a line."""
    import json

    try:
        document = json.loads(text)
        items = document.get("items", [document])
    except ValueError:
        try:
            items = [json.loads(line) for line in text.splitlines() if line.strip()]
        except (ValueError, RecursionError) as error:
            raise CliError(
                Problem.FILE_CONTENT, f"{path} is neither CSV nor JSON: {error}"
            ) from None
    except RecursionError as error:
        raise CliError(Problem.FILE_CONTENT, f"{path} is no JSON of offsets: {error}") from None
    if not isinstance(items, list) or not all(map(_is_offset, items)):
        what = f"{path} has something else than topic, partition and offset"
        raise CliError(Problem.FILE_CONTENT, what, "see `pyrklog group export -o json`")
    return {(one["topic"], one["partition"]): one["offset"] for one in items}


def _is_offset(item: object) -> bool:
    if not isinstance(item, dict) or not isinstance(item.get("topic"), str) or not item["topic"]:
        return False
    partition, offset = item.get("partition"), item.get("offset")
    return (
        type(partition) is int
        and type(offset) is int
        and 0 <= partition <= INT32_MAX
        and 0 <= offset <= INT64_MAX
    )


def _is_number(text: str, most: int = INT64_MAX) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 19 and int(text) <= most


def write_file(offsets: Mapping[Key, int]) -> str:
    """Without a heading, which Kafka's tool would not read."""
    rows = (f"{topic},{partition},{offset}" for (topic, partition), offset in offsets.items())
    return "".join(f"{row}\n" for row in rows)


def plan(
    connection: Connection,
    group: str,
    target: str,
    selected: Sequence[str],
    now_ms: int,
) -> list[Move]:
    """Plans ``group seek --to TARGET``; changes nothing.

    An offset outside the log becomes its nearer end, with a remark. ``current``, ``+N`` and ``-N``
    leave out partitions without a committed offset, with a remark. Raises :class:`CliError`, also
    where nothing is left.
    """
    from confluent_kafka.admin import OffsetSpec

    committed = {key: offset for key, (offset, _) in committed_offsets(connection, group).items()}
    given = _given(connection, target)
    known = committed if given is None else given
    keys = select(connection, selected, known)
    if given is not None:
        keys = [key for key in keys if key in given]
    if not keys:
        raise _nothing_to_move(group, target, selected, given)
    if not selected:
        existing = connection.topic_partitions(sorted({topic for topic, _ in keys}))
        for topic, partition in keys:
            _refuse_missing(topic, partition, existing[topic])
    lows = query_offsets(connection, keys, OffsetSpec.earliest())
    highs = query_offsets(connection, keys, OffsetSpec.latest())
    wanted = _targets(connection, target, keys, given, committed, lows, highs, now_ms)
    if not wanted:
        where = ", ".join(dict.fromkeys(topic for topic, _ in keys))
        what = f"group {group} has committed nothing in {where}, so {target} leads nowhere"
        raise CliError(Problem.NO_OFFSETS, what, "give --to start, end, an offset or @TIME")
    return [
        _bounded(key, committed.get(key), wanted[key], lows[key], highs[key])
        if key in wanted
        else Move(*key, None, None, NOT_COMMITTED)
        for key in keys
    ]


def _nothing_to_move(
    group: str, target: str, selected: Sequence[str], given: Mapping[Key, int] | None
) -> CliError:
    if given is None:
        what = f"group {group} has no offsets to move"
        return CliError(Problem.NO_OFFSETS, what, "name topics with --topic")
    known = ", ".join(sorted({topic for topic, _ in given}))
    what = f"{target} has no offsets of {', '.join(selected)}"
    return CliError(Problem.NO_OFFSETS, what, f"it has offsets of {known}")


def _bounded(key: Key, before: int | None, wanted: int, low: int, high: int) -> Move:
    after = min(max(wanted, low), high)
    remark = "" if after == wanted else f"{wanted} is outside the log ({low} to {high})"
    return Move(*key, before, after, remark)


def _given(connection: Connection, target: str) -> dict[Key, int] | None:
    if target.startswith("group:"):
        other = target.removeprefix("group:")
        refuse_empty("--to group:", "group", [other])
        offsets = {key: offset for key, (offset, _) in committed_offsets(connection, other).items()}
        if not offsets:
            raise CliError(Problem.NO_OFFSETS, f"group {other} has committed nothing")
        return offsets
    if _is_simple(target):
        return None
    refuse_no_target(target)
    found = read_file(Path(target))
    if not found:
        what = f"{target} has no offsets"
        raise CliError(Problem.FILE_CONTENT, what, "give a file of `pyrklog group export`")
    return found


def refuse_no_target(target: str) -> None:
    """Raises :class:`CliError` for a text that is no word, and that names no file."""
    reason = _no_file(target)
    if reason is None:
        return
    is_missing = bool(target) and reason == _NO_SUCH_FILE
    what = f"--to takes {TARGETS}, not {target!r}"
    meant = _meant(target) if is_missing else None
    if meant is not None:
        raise CliError(Problem.ARGUMENT_VALUE, what, f"did you mean {meant}?")
    problem = Problem.FILE_NOT_FOUND if is_missing else Problem.ARGUMENT_VALUE
    raise CliError(problem, f"{what}: {reason}")


def _meant(target: str) -> str | None:
    """The word of ``--to`` that a text without a file resembles; its beginning is enough."""
    from difflib import get_close_matches

    words = (*WORDS, "current")
    typed = target.lower()
    found = get_close_matches(typed, words, n=1, cutoff=_LIKE)
    begun = [word for word in words if len(typed) >= _BEGUN_MIN and word.startswith(typed)]
    word = next(iter([*begun, *found]), None)
    # Of several words for a place the one that the help has.
    return _SHOWN.get(WORDS[word], word) if word in WORDS else word


def _no_file(target: str) -> str | None:
    """Why it cannot be a file of offsets; None if it may be one."""
    try:
        return "it is a directory" if stat.S_ISDIR(os.stat(target).st_mode) else None
    except FileNotFoundError:
        return _NO_SUCH_FILE
    except OSError as error:
        return f"no file can be read there ({error.strerror})"


def names_partitions(target: str) -> bool:
    """Whether the target, a file or another group, says which partitions to move."""
    return not _is_simple(target)


def _is_simple(target: str) -> bool:
    return (
        target in (*WORDS, "current")
        or target.startswith("@")
        or re.fullmatch(r"[+-]?\d+", target) is not None
    )


def _targets(
    connection: Connection,
    target: str,
    keys: Sequence[Key],
    given: Mapping[Key, int] | None,
    committed: Mapping[Key, int],
    lows: Mapping[Key, int],
    highs: Mapping[Key, int],
    now_ms: int,
) -> dict[Key, int]:
    if given is not None:
        return dict(given)
    if target.startswith("@"):
        return _at_time(connection, target, keys, highs, now_ms)
    if target[0] in "+-":
        return {key: committed[key] + int(target) for key in keys if key in committed}
    if target.isdecimal():
        return dict.fromkeys(keys, int(target))
    ends = lows if WORDS.get(target) is BEGINNING else highs
    places = committed if target == "current" else ends
    return {key: places[key] for key in keys if key in places}


def _at_time(
    connection: Connection, target: str, keys: Sequence[Key], highs: Mapping[Key, int], now_ms: int
) -> dict[Key, int]:
    from confluent_kafka.admin import OffsetSpec

    from pyrklog.cli.offsets import RangeError, parse_time_ms

    try:
        timestamp_ms = parse_time_ms(target[1:], now_ms)
    except RangeError as error:
        raise CliError(Problem.ARGUMENT_VALUE, str(error).replace("-o", "--to")) from None
    found = query_offsets(connection, keys, OffsetSpec.for_timestamp(timestamp_ms))
    return {key: offset if offset >= 0 else highs[key] for key, offset in found.items()}


def apply(connection: Connection, group: str, moves: Sequence[Move]) -> None:
    from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition

    wanted = [
        TopicPartition(move.topic, move.partition, move.after)
        for move in moves
        if move.after is not None
    ]

    def ask() -> Any:
        futures = connection.admin.alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group, wanted)],
            request_timeout=connection.settings.timeout_s,
        )
        return futures[group].result()

    try:
        done = patiently(connection, ask)
    except KafkaException as error:
        raise connection.explain(error.args[0], f"group {group}") from None
    failed = [place for place in done.topic_partitions if place.error is not None]
    if failed:
        place = failed[0]
        refused = cli_error(place.error, f"group {group}, {place.topic} [{place.partition}]")
        problem = refused.problem if len(failed) == len(wanted) else Problem.PARTLY_DONE
        raise CliError(problem, refused.what, refused.fix)
