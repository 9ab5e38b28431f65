"""What is kept of a plan while it is carried out: how things were, what was predicted, and in the
end how it was. One JSON file; balance.md has its fields."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from pyrklog.balance.filling import Fill
from pyrklog.balance.model import PartitionKey, Placement, Replicas, arriving
from pyrklog.balance.prediction import Copy, Prediction, RateFrom

SCHEMA = "pyrklog.reassign-progress/1"


class RecordError(ValueError):
    """A file that is no record."""


@dataclass(frozen=True)
class Entry:
    """A partition of the plan. ``copied_bytes``: what its new replicas copy; 0 for a new order.
    ``filled_bytes``: what they lack below their starts. ``source``: the leader when it began, -1
    unknown; ``rate_in``: bytes a second that producers wrote then."""

    before: Replicas
    after: Replicas
    copied_bytes: int
    batch: int
    filled_bytes: int = 0
    source: int = -1
    rate_in: float = 0.0

    @property
    def targets(self) -> Replicas:
        return tuple(arriving(self.before, self.after))


class Corrected(NamedTuple):
    """A prediction of the whole plan by the rate that was measured after some time: of the busiest
    broker's copies; of the slowest back-fill where nothing is copied."""

    after_s: float
    rate_bytes: int
    seconds: float


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
    rate_from: RateFrom = RateFrom.GIVEN
    fill: Fill | None = None
    """What was predicted of back-fills."""
    corrected: Corrected | None = None
    real_tail_s: float | None = None
    """When all new replicas that started at the end were seen to have what was written since."""
    cancelled_ms: int | None = None
    """When what it moved was cancelled; what had ended by then is there."""

    @property
    def total_bytes(self) -> int:
        return sum(one.copied_bytes for one in self.entries.values())

    @property
    def is_measured(self) -> bool:
        """Whether its bytes are known; they may be read only once moves have begun."""
        is_known = self.predicted_s is not None or self.total_bytes > 0
        return is_known or self.fill is not None

    @property
    def fill_bytes(self) -> int:
        return sum(one.filled_bytes for one in self.entries.values())

    def copies(self, key: PartitionKey) -> list[Copy]:
        """As they were when the plan began; none of what starts at the end."""
        one = self.entries[key]
        targets = () if key in self.at_end else one.targets
        size = one.copied_bytes // max(1, len(targets))
        # A file of an older version does not have the leader.
        source = one.source if one.source >= 0 or not one.before else one.before[0]
        return [Copy(key, source, target, size, one.rate_in) for target in targets]

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
        return self._batches

    @cached_property
    def _batches(self) -> list[list[PartitionKey]]:
        found: dict[int, list[PartitionKey]] = {}
        for key, one in self.entries.items():
            found.setdefault(one.batch, []).append(key)
        return [found[batch] for batch in sorted(found)]

    def marked_cancelled(self, at_ms: int) -> Record:
        return replace(self, cancelled_ms=at_ms)

    def begun_again(self, at_ms: int) -> Record:
        """Of a plan that was cancelled: the time in between is not its own."""
        return replace(self, cancelled_ms=None, begun_ms=at_ms, corrected=None, real_tail_s=None)

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
    return Record(
        cluster_id,
        at_ms,
        entries,
        rate,
        throttle,
        prediction.seconds,
        brokers,
        rate_from=prediction.rate_from,
        fill=prediction.fill,
    )


def to_json(record: Record) -> str:
    partitions = [
        {
            "topic": topic,
            "partition": index,
            "before": list(one.before),
            "after": list(one.after),
            "copied_bytes": one.copied_bytes,
            "batch": one.batch,
            "filled_bytes": one.filled_bytes,
            "source": one.source,
            "rate_in": round(one.rate_in, 1),
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
                    "rate_from": record.rate_from.value,
                    "fill": None if record.fill is None else fill_item(record.fill),
                    "corrected": record.corrected and record.corrected._asdict(),
                },
                "real": real,
                "real_tail_seconds": record.real_tail_s,
                "topic_ids": dict(sorted(record.topic_ids.items())),
                "partitions": partitions,
            },
            indent=1,
        )
        + "\n"
    )


def fill_item(fill: Fill) -> dict[str, Any]:
    rates = [{"broker": one, "bytes": rate} for one, rate in sorted(fill.rates.items())]
    return {
        "bytes": fill.bytes,
        "tail_seconds": fill.tail_s,
        "whole_seconds": fill.whole_s,
        "retention_seconds": fill.retention_s,
        "rates": rates,
    }


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
            int(one.get("filled_bytes", 0)),
            int(one.get("source", -1)),
            float(one.get("rate_in", 0.0)),
        )
        for one in told["partitions"]
    }
    handed = {
        (str(one["topic"]), int(one["partition"])): tuple(map(int, one["handed_over"]))
        for one in told["partitions"]
        if "handed_over" in one
    }
    predicted, real = told["predicted"], told["real"] or {}
    real_bytes = real.get("bytes")
    finished = told["finished_ms"]
    return Record(
        told["cluster_id"],
        int(told["begun_ms"]),
        entries,
        int(predicted["rate_bytes"]),
        told["throttle"],
        _seconds(predicted["seconds"]),
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
        RateFrom(predicted.get("rate_from", RateFrom.GIVEN)),
        _fill(predicted.get("fill")),
        _corrected(predicted.get("corrected")),
        _seconds(told.get("real_tail_seconds")),
        None if told.get("cancelled_ms") is None else int(told["cancelled_ms"]),
    )


def _fill(told: Mapping[str, Any] | None) -> Fill | None:
    if told is None:
        return None
    return Fill(
        int(told["bytes"]),
        _seconds(told["tail_seconds"]),
        _seconds(told["whole_seconds"]),
        _seconds(told["retention_seconds"]),
        {int(one["broker"]): int(one["bytes"]) for one in told["rates"]},
    )


def _corrected(told: Mapping[str, Any] | None) -> Corrected | None:
    if told is None:
        return None
    return Corrected(float(told["after_s"]), int(told["rate_bytes"]), float(told["seconds"]))


def _seconds(told: Any) -> float | None:
    return None if told is None else float(told)
