"""Which of the source's records the target refused, and what to do about it.

A producer's error names a partition of the target. A partition takes records in order, one batch at
a time: as many of the open transaction's records as the target has there came before the batch that
was refused.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import Any, NamedTuple

from pyrklog.mirror.cluster import ClusterAdmin
from pyrklog.mirror.copy import Copier, Sent
from pyrklog.mirror.errors import MirrorError
from pyrklog.scanning import ScanError, scan

_REFUSED = re.compile(r"partition (\d+) of topic (\S+) (takes no record so large|is not written)")
_BYTES = re.compile(r"a record takes (\d+) bytes")
READ_S = 10.0
"""How long each side is asked for; the mirror ends in any case."""
READ_MEMORY_BYTES = 16 << 20
RECORDS_MAX = 100_000
"""More than a batch of the producer's has."""
NO_LIMIT = str(2**63 - 1)
_BEFORE, _AFTER = "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"
_EITHER = "message.timestamp.difference.max.ms"

Options = Mapping[str, tuple[str | None, bool]]
"""Of a topic: values, and whether they are its own."""


class Record(NamedTuple):
    """Of the source. ``timestamp_ms`` is None for one without."""

    offset: int
    has_key: bool
    timestamp_ms: int | None


class Late(NamedTuple):
    """An option of the target that a timestamp breaks."""

    option: str
    value: str
    is_past: bool


def explain(
    error: Exception, copier: Copier, source: ClusterAdmin, target: ClusterAdmin
) -> MirrorError | None:
    """The refusal of a record of the open transaction, with the record's place. None for another
    error, and if the place cannot be found."""
    found = _REFUSED.search(str(error))
    sent = None if found is None else copier.sent_to((found[2], int(found[1])))
    if found is None or sent is None:
        return None
    try:
        options = target.options([sent.target])[sent.target]
        records = list(islice(_not_taken(sent, source, target), RECORDS_MAX))
        is_own = source.options([sent.topic])[sent.topic].get("max.message.bytes", ("", False))[1]
    except (ScanError, MirrorError):
        return None
    if not records:
        return None
    place = f"partition {sent.partition} of topic {sent.topic} at {source.cluster.alias}"
    there = f"topic {sent.target} at {target.cluster.alias}"
    what, fix = _about(str(error), records, place, there, options)
    if "max.message.bytes" in fix and is_own:
        fix = fix.replace(there, f"topic {sent.topic} at {source.cluster.alias}, which is copied,")
    others = f"leave the topic out, so that others go on: --topics '(?!{sent.topic}$).*'"
    return MirrorError(what, f"{fix}; or {others}" if fix else others)


def _about(
    text: str, records: list[Record], place: str, there: str, options: Options
) -> tuple[str, str]:
    """What happened, and the fix; an empty one if it is not known."""
    first = records[0]
    size = _BYTES.search(text)
    if size is not None:
        most = options.get("max.message.bytes", ("?", False))[0]
        what = (
            f"offset {first.offset} of {place} is not copied: the record takes {size[1]} bytes, "
            f"and {there} takes at most {most} (max.message.bytes)"
        )
        return what, f"raise max.message.bytes of {there} to {size[1]}"
    if "INVALID_TIMESTAMP" in text:
        now_ms = time.time_ns() // 1_000_000
        for one in records:
            late = broken_bound(one.timestamp_ms, options, now_ms)
            if late is not None:
                what = (
                    f"offset {one.offset} of {place} is not copied: its timestamp, "
                    f"{_time(one.timestamp_ms)}, is further in the "
                    f"{'past' if late.is_past else 'future'} than {there} takes "
                    f"({late.option}={late.value})"
                )
                return what, f"raise {late.option} of {there}"
    keyless = next((one for one in records if not one.has_key), None)
    if "INVALID_RECORD" in text and keyless is not None:
        what = (
            f"offset {keyless.offset} of {place} is not copied: the record has no key, which "
            f"{there} needs, since it is compacted"
        )
        return what, f"take compact out of cleanup.policy of {there}"
    what = f"a batch that begins with offset {first.offset} of {place} is not copied: {text}"
    return what, ""


def broken_bound(timestamp_ms: int | None, options: Options, now_ms: int) -> Late | None:
    """The option of the target's topic that refuses a timestamp; the broker's clock may differ
    from ``now_ms``."""
    if timestamp_ms is None or timestamp_ms < 0:
        return None
    is_past = timestamp_ms < now_ms
    for option in (_BEFORE if is_past else _AFTER, _EITHER):
        value = options.get(option, (None, False))[0]
        # The older option counts where the newer one is not set.
        if value is not None and value != NO_LIMIT:
            is_broken = abs(now_ms - timestamp_ms) > int(value)
            return Late(option, value, is_past) if is_broken else None
    return None


def _time(timestamp_ms: int | None) -> str:
    try:
        found = datetime.fromtimestamp((timestamp_ms or 0) / 1000, UTC)
    except (ValueError, OverflowError):
        return f"{timestamp_ms} ms"
    return found.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _not_taken(sent: Sent, source: ClusterAdmin, target: ClusterAdmin) -> Iterator[Record]:
    """The records of the open transaction that the target's partition has not taken, of which the
    first is that of the refused batch. Raises ScanError."""
    there = _batches(
        target,
        {sent.target: [sent.partition]},
        start=sent.target_end,
        columns=("offset",),
        isolation="read_uncommitted",
    )
    taken = sum(batch.num_rows for batch in there)
    here = _batches(
        source,
        {sent.topic: [sent.partition]},
        start=sent.first,
        columns=("key", "timestamp", "offset"),
    )
    number = 0
    """Of the transaction's records, the batch's first."""
    for batch in here:
        begin = min(batch.num_rows, max(0, taken - number))
        some = batch.slice(begin, max(0, sent.records - number - begin))
        number += batch.num_rows
        columns = (some.column(name) for name in ("key", "timestamp", "offset"))
        for key, timestamp, offset in zip(*columns, strict=True):
            us = timestamp.value if timestamp.is_valid else None
            yield Record(offset.as_py(), key.is_valid, None if us is None else us // 1000)
        if number >= sent.records:
            return


def _batches(admin: ClusterAdmin, partitions: dict[str, list[int]], **how: Any) -> Iterator[Any]:
    with scan(
        partitions,
        threads=1,
        memory_bytes=READ_MEMORY_BYTES,
        timeout_s=READ_S,
        **how,
        **admin.reading(),
    ) as reading:
        yield from reading.reader()
