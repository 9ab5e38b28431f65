"""The topic of decisions in memory, with brokers that know less of it than was written."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from pyrklog.producing import ProducerSettings, TransactionFencedError
from pyrklog.scanning import UnknownTopicError
from pyrklog.spark import decisions
from pyrklog.spark.connection import Connection
from pyrklog.spark.decisions import TOPIC, KafkaDecisions
from tests.support.sink_world import SINK, Stream, World

SERVERS = "a:1,b:1"


class DecisionTopic:
    """Of a world. ``blind`` brokers do not know the topic; ``former`` ones name a leader that has
    only the first ``former_records``."""

    def __init__(self, world: World, patch: pytest.MonkeyPatch) -> None:
        self.world = world
        self.exists = False
        self.records: list[tuple[bytes, bytes]] = []
        self.epoch = 0
        self.blind: set[str] = set()
        self.former: set[str] = set()
        self.former_records = 0
        patch.setattr(decisions, "Producer", lambda settings: _Producer(self))
        patch.setattr(decisions, "scan", self._scan)
        patch.setattr(decisions, "require_safe", lambda connection: None)
        for name in ("_KNOWN_WITHIN_S", "_SHOWN_WITHIN_S", "_WAIT_S"):
            patch.setattr(decisions, name, 0.01, raising=False)

    def log(self) -> KafkaDecisions:
        settings = ProducerSettings(SERVERS, [])
        return KafkaDecisions(Connection(SERVERS), settings, SINK, self._create)

    def forget_nothing(self) -> None:
        """All brokers know what there is."""
        self.blind, self.former = set(), set()

    def _create(self, connection: Connection) -> bool:
        was_there, self.exists = self.exists, True
        return not was_there

    def _scan(self, topics: object, *places: object, **arguments: Any) -> Any:
        """A client asks the first of its brokers."""
        self.world.step()
        broker = arguments["bootstrap_servers"].split(",")[0]
        if not self.exists or broker in self.blind:
            raise UnknownTopicError(f"topic {TOPIC} does not exist")
        records = self.records[: self.former_records] if broker in self.former else self.records
        return _Scan(records[: self._end(arguments.get("end"), len(records))])

    @staticmethod
    def _end(end: Any, last: int) -> int:
        return min(last, *end[TOPIC].values()) if isinstance(end, dict) else last


class _Producer:
    """Of one driver: it writes until another one is opened."""

    def __init__(self, topic: DecisionTopic) -> None:
        topic.world.step()
        topic.epoch += 1
        self.producer_id = 1, topic.epoch
        self._topic = topic
        self._rows: list[tuple[bytes, bytes]] = []
        topic.world.step()

    def send(self, batch: pa.RecordBatch) -> None:
        rows = batch.to_pylist()
        self._rows.extend((row["key"], row["value"]) for row in rows)

    def commit(self) -> None:
        self._topic.world.step()
        if self.producer_id[1] != self._topic.epoch:
            raise TransactionFencedError("another driver has taken over")
        assert self._topic.exists
        self._topic.records.extend(self._rows)
        self._rows = []
        self._topic.world.step()


class _Scan:
    """Of what one leader has."""

    def __init__(self, records: list[tuple[bytes, bytes]]) -> None:
        self._records = records

    def __enter__(self) -> _Scan:
        return self

    def __exit__(self, *error: object) -> None:
        self._records = []

    def progress(self) -> list[Any]:
        return [SimpleNamespace(end=len(self._records))]

    def reader(self) -> Any:
        keys, values = ([row[column] for row in self._records] for column in (0, 1))
        table = pa.table(
            {"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}
        )
        return SimpleNamespace(read_all=lambda: table)


class TopicStream(Stream):
    """A query whose decisions are in such a topic."""

    def __init__(self, topic: DecisionTopic) -> None:
        self._topic = topic
        super().__init__(topic.world)

    def log(self) -> KafkaDecisions:
        return self._topic.log()
