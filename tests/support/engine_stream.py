"""A stream over a cluster in memory.

``Stream`` does what Spark's engine does: it asks for an end, keeps it as text, reads the ranges,
and asks for the next one. A restart keeps the texts alone.
"""

from __future__ import annotations

import json
from typing import Any

from pyrklog.spark.offsets import TopicPartition
from pyrklog.spark.options import parse
from pyrklog.spark.stream_engine import StreamEngine
from tests.support.fake_cluster import FakeCluster, FakeGroup, FakeHighWatermarks, FakeSizes

REQUIRED = {"kafka.bootstrap.servers": "h:9092", "subscribe": "a"}


class Stream:
    """One query over restarts: what it keeps is JSON, as Spark does."""

    def __init__(self, cluster: FakeCluster, **options: str) -> None:
        self.cluster = cluster
        self.options = REQUIRED | {"startingOffsets": "earliest"} | options
        self.high_watermarks = FakeHighWatermarks(cluster)
        self.sizes = FakeSizes()
        self.group = FakeGroup()
        self.now_s = 0.0
        self.kept: list[str] = []
        self.read: dict[TopicPartition, list[int]] = {}
        self.restart()

    def restart(self) -> None:
        options = parse(self.options, is_stream=True)
        self.engine = StreamEngine(
            options,
            self.cluster,
            self.high_watermarks,
            self.sizes,
            self.group,
            lambda: self.now_s,
            self._sleep,
        )

    def _sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def start(self) -> Any:
        return json.loads(self.kept[-1]) if self.kept else self.engine.initial()

    def plan(self, *, is_limited: bool = True) -> bool:
        """Whether there is a batch; its end is kept, as before it is read."""
        start = self.start()
        end = json.dumps(self.engine.latest(start, is_limited=is_limited))
        if end == json.dumps(start):
            return False
        self.kept.append(end)
        return True

    def last_ranges(self) -> dict[str, tuple[int, int]]:
        """Of the batch that was planned last: (start, end) by partition."""
        start = json.loads(self.kept[-2]) if len(self.kept) > 1 else self.engine.initial()
        tasks = self.engine.tasks(start, json.loads(self.kept[-1]))
        return {str(one.place): (one.start, one.end) for one in tasks}

    def batch(self, *, is_limited: bool = True) -> dict[str, tuple[int, int]]:
        """Plans and reads one batch; empty if there is none."""
        if not self.plan(is_limited=is_limited):
            return {}
        ranges = self.last_ranges()
        for name, (start, end) in ranges.items():
            topic, _, number = name.rpartition("-")
            self.read.setdefault(TopicPartition(topic, int(number)), []).extend(range(start, end))
        return ranges
