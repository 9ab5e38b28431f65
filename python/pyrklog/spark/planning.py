"""Cuts the ranges of a batch into tasks."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyrklog.spark.offsets import OffsetRange, TopicPartition

TASKS_MAX = 100_000
"""Spark's driver keeps each task of a stage in memory."""


class TooManyTasksError(ValueError):
    """A plan of more than ``TASKS_MAX`` tasks."""


@dataclass(frozen=True)
class TaskLimits:
    """How a range is cut; None for not at all."""

    min_partitions: int | None = None
    max_records: int | None = None
    max_bytes: int | None = None


def plan_tasks(
    ranges: Sequence[OffsetRange],
    limits: TaskLimits,
    record_bytes: Callable[[TopicPartition], float] = lambda _: 1.0,
) -> list[OffsetRange]:
    """The pieces of ``ranges``, in their order: together the same offsets, each once.

    A range is cut into as few equal pieces as keep within the limits by records and by estimated
    bytes; then, until there are ``min_partitions``, that range is cut further whose pieces have the
    most bytes. No piece is empty. Raises TooManyTasksError.
    """
    full = [one for one in ranges if one.size > 0]
    weights = [one.size * max(record_bytes(one.place), 1e-9) for one in full]
    pieces = [_least(one, weight, limits) for one, weight in zip(full, weights, strict=True)]
    count = max(sum(pieces), min(limits.min_partitions or 0, sum(one.size for one in full)))
    if count > TASKS_MAX:
        raise TooManyTasksError(
            f"the batch would have {count} tasks, more than {TASKS_MAX}: raise "
            "maxRecordsPerPartition or maxBytesPerPartition, or lower minPartitions"
        )
    heaviest = [
        (-weights[number] / pieces[number], number)
        for number, one in enumerate(full)
        if pieces[number] < one.size
    ]
    heapq.heapify(heaviest)
    for _ in range(count - sum(pieces)):
        number = heaviest[0][1]
        pieces[number] += 1
        if pieces[number] < full[number].size:
            heapq.heapreplace(heaviest, (-weights[number] / pieces[number], number))
        else:
            heapq.heappop(heaviest)
    return [part for one, number in zip(full, pieces, strict=True) for part in cut(one, number)]


def cut(whole: OffsetRange, pieces: int) -> list[OffsetRange]:
    """Equal pieces but for one offset. The epoch is that of the first piece's start alone."""
    edges = [whole.start + whole.size * number // pieces for number in range(pieces + 1)]
    return [
        whole._replace(start=start, end=end, epoch=whole.epoch if start == whole.start else -1)
        for start, end in itertools.pairwise(edges)
    ]


def _least(one: OffsetRange, weight: float, limits: TaskLimits) -> int:
    by_records = math.ceil(one.size / limits.max_records) if limits.max_records else 1
    by_bytes = math.ceil(weight / limits.max_bytes) if limits.max_bytes else 1
    return min(one.size, max(1, by_records, by_bytes))
