"""What is kept of a plan while it is carried out: how things were, what was predicted, and in the
end how it was. One JSON file; balance.md has its fields."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyrklog.balance.model import PartitionKey, Placement, Replicas
from pyrklog.balance.prediction import Prediction

SCHEMA = "pyrklog.reassign-progress/1"


class RecordError(ValueError):
    """A file that is no record."""


@dataclass(frozen=True)
class Entry:
    """A partition of the plan. ``copied_bytes``: what its new replicas copy; 0 for a new order."""

    before: Replicas
    after: Replicas
    copied_bytes: int
    batch: int


@dataclass(frozen=True)
class Record:
    """Times are milliseconds since the epoch. ``finished_ms`` None: not known to be done.
    ``is_watched``: somebody looked all the time, so ``finished_ms`` is exact."""

    cluster_id: str | None
    begun_ms: int
    entries: Mapping[PartitionKey, Entry]
    rate_bytes: int
    """What the prediction is for: bytes a second of each broker."""
    throttle: str | None
    """As it was given: a rate, or auto."""
    predicted_s: float | None
    brokers: Mapping[int, tuple[int, int]]
    """Bytes that each takes and gives."""
    finished_ms: int | None = None
    is_watched: bool = False
    real_bytes: int | None = None
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """By name; without those that no broker has told."""
    handed_over: Mapping[PartitionKey, Replicas] = field(default_factory=dict)
    """Orders by which leadership went elsewhere before anything was copied."""
    is_begun: bool = True
    """False while the throttle may be set already, and nothing moves yet."""
    at_end: frozenset[PartitionKey] = frozenset()
    """Partitions whose new replicas start at the leader's end, and copy nothing."""
    cancelled_ms: int | None = None
    """When what it moved was cancelled; what had ended by then is there."""

    @property
    def total_bytes(self) -> int:
        return sum(one.copied_bytes for one in self.entries.values())

    @property
    def before(self) -> dict[PartitionKey, Replicas]:
        return {key: one.before for key, one in self.entries.items()}

    @property
    def after(self) -> dict[PartitionKey, Replicas]:
        return {key: one.after for key, one in self.entries.items()}

    @property
    def real_s(self) -> float | None:
        if self.finished_ms is None:
            return None
        return max(0.0, (self.finished_ms - self.begun_ms) / 1000)

    def left_behind(self, key: PartitionKey) -> set[Replicas]:
        """What the plan may have made of a partition: as it was, as it is to be, and what a
        cancelled move leaves."""
        one = self.entries[key]
        begins = {one.before, self.handed_over.get(key, one.before)}
        return {one.after, *begins, *(cancelled(begin, one.after) for begin in begins)}

    def is_anew(self, topic: str, ids: Mapping[str, str]) -> bool:
        """Whether the topic was deleted, and another one has its name. Unknown ids are alike."""
        return self.topic_ids.get(topic, ids.get(topic)) != ids.get(
            topic, self.topic_ids.get(topic)
        )

    def batches(self) -> list[list[PartitionKey]]:
        found: dict[int, list[PartitionKey]] = {}
        for key, one in self.entries.items():
            found.setdefault(one.batch, []).append(key)
        return [found[batch] for batch in sorted(found)]

    def marked_cancelled(self, at_ms: int) -> Record:
        return replace(self, cancelled_ms=at_ms)

    def begun_again(self, at_ms: int) -> Record:
        """Of a plan that was cancelled: the time in between is not its own."""
        return replace(self, cancelled_ms=None, begun_ms=at_ms)

    def finished(self, at_ms: int, real_bytes: int, *, is_watched: bool) -> Record:
        return replace(self, finished_ms=at_ms, real_bytes=real_bytes, is_watched=is_watched)


def cancelled(before: Replicas, after: Replicas) -> Replicas:
    """The replicas after a reassignment that was cancelled: the old ones, in a new order."""
    return (
        *(one for one in after if one in before),
        *(one for one in before if one not in after),
    )


def begun(
    cluster_id: str | None,
    at_ms: int,
    placement: Placement,
    changed: Placement,
    prediction: Prediction,
    copied: Mapping[PartitionKey, int],
    throttle: str | None,
) -> Record:
    entries = {
        key: Entry(tuple(placement[key]), tuple(changed[key]), copied.get(key, 0), number)
        for number, batch in enumerate(prediction.batches)
        for key in batch.keys
    }
    brokers = {b: (one.in_bytes, one.out_bytes) for b, one in prediction.brokers.items()}
    rate = prediction.rate_bytes
    return Record(cluster_id, at_ms, entries, rate, throttle, prediction.seconds, brokers)


@dataclass(frozen=True)
class Progress:
    """How far a plan is. ``left_s`` None: unknown."""

    partitions: int
    partitions_done: int
    total_bytes: int
    done_bytes: int
    left_s: float | None

    @property
    def percent(self) -> float:
        if self.total_bytes:
            return 100 * self.done_bytes / self.total_bytes
        return 100 * self.partitions_done / self.partitions if self.partitions else 100.0

    @property
    def left_bytes(self) -> int:
        return self.total_bytes - self.done_bytes


def progress(
    record: Record, done: Sequence[PartitionKey], partly: Mapping[PartitionKey, int], now_ms: int
) -> Progress:
    """``done``: partitions that are as planned; ``partly``: bytes that others have copied.

    The time left goes by what was copied until now, and by the prediction as long as that is
    little.
    """
    total = record.total_bytes
    copied = sum(record.entries[key].copied_bytes for key in done)
    for key, count in partly.items():
        copied += min(max(0, count), record.entries[key].copied_bytes)
    passed_s = max(0.0, (now_ms - record.begun_ms) / 1000)
    left_s: float | None = None
    if len(done) == len(record.entries):
        left_s = 0.0
    elif record.cancelled_ms is not None or record.at_end.difference(done):
        pass  # nothing goes on, or back-fill or retention end it
    elif total and copied >= total * 0.05 and passed_s > 0:
        left_s = (total - copied) * passed_s / copied
    elif record.predicted_s is not None:
        left_s = record.predicted_s * (total - copied) / total if total else record.predicted_s
    return Progress(len(record.entries), len(done), total, copied, left_s)


def to_json(record: Record) -> str:
    partitions = [
        {
            "topic": topic,
            "partition": index,
            "before": list(one.before),
            "after": list(one.after),
            "copied_bytes": one.copied_bytes,
            "batch": one.batch,
            **_handed(record, (topic, index)),
            **({"at_end": True} if (topic, index) in record.at_end else {}),
        }
        for (topic, index), one in sorted(record.entries.items())
    ]
    brokers = [
        {"broker": broker, "in_bytes": taken, "out_bytes": given}
        for broker, (taken, given) in sorted(record.brokers.items())
    ]
    real = None
    if record.finished_ms is not None:
        real = {"seconds": record.real_s, "bytes": record.real_bytes, "watched": record.is_watched}
    return (
        json.dumps(
            {
                "schema": SCHEMA,
                "cluster_id": record.cluster_id,
                "begun_ms": record.begun_ms,
                "finished_ms": record.finished_ms,
                "begun": record.is_begun,
                "cancelled_ms": record.cancelled_ms,
                "throttle": record.throttle,
                "predicted": {
                    "rate_bytes": record.rate_bytes,
                    "seconds": record.predicted_s,
                    "bytes": record.total_bytes,
                    "brokers": brokers,
                },
                "real": real,
                "topic_ids": dict(sorted(record.topic_ids.items())),
                "partitions": partitions,
            },
            indent=1,
        )
        + "\n"
    )


def _handed(record: Record, key: PartitionKey) -> dict[str, list[int]]:
    found = record.handed_over.get(key)
    return {} if found is None else {"handed_over": list(found)}


def from_json(text: str) -> Record:
    """Raises :class:`RecordError`."""
    try:
        told = json.loads(text)
        if told["schema"] != SCHEMA:
            raise RecordError(f"its schema is {told['schema']!r}, not {SCHEMA}")
        return _record(told)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RecordError(f"{type(error).__name__}: {error}") from None


def _record(told: Mapping[str, Any]) -> Record:
    entries = {
        (str(one["topic"]), int(one["partition"])): Entry(
            tuple(map(int, one["before"])),
            tuple(map(int, one["after"])),
            int(one["copied_bytes"]),
            int(one["batch"]),
        )
        for one in told["partitions"]
    }
    handed = {
        (str(one["topic"]), int(one["partition"])): tuple(map(int, one["handed_over"]))
        for one in told["partitions"]
        if "handed_over" in one
    }
    predicted, real = told["predicted"], told["real"] or {}
    seconds, real_bytes = predicted["seconds"], real.get("bytes")
    finished = told["finished_ms"]
    return Record(
        told["cluster_id"],
        int(told["begun_ms"]),
        entries,
        int(predicted["rate_bytes"]),
        told["throttle"],
        None if seconds is None else float(seconds),
        {
            int(one["broker"]): (int(one["in_bytes"]), int(one["out_bytes"]))
            for one in predicted["brokers"]
        },
        None if finished is None else int(finished),
        bool(real.get("watched", False)),
        None if real_bytes is None else int(real_bytes),
        {str(name): str(one) for name, one in told.get("topic_ids", {}).items()},
        handed,
        bool(told.get("begun", True)),
        frozenset(
            (str(one["topic"]), int(one["partition"]))
            for one in told["partitions"]
            if one.get("at_end")
        ),
        None if told.get("cancelled_ms") is None else int(told["cancelled_ms"]),
    )
