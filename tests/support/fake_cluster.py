"""A cluster for the Spark source's decisions: logs as numbers, changed by the test."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from pyrklog.spark.cluster import GoneError
from pyrklog.spark.offsets import OffsetRange, Position, StreamOffset, TopicPartition
from pyrklog.spark.places import Kind, Place
from pyrklog.spark.view import TopicView


@dataclass
class FakeLog:
    """First and last offset, the leader's epoch, and (offset, milliseconds) of some records.
    ``uncommitted`` records of open transactions lie behind the last offset."""

    first: int = 0
    last: int = 0
    epoch: int = 0
    times: dict[int, int] = field(default_factory=dict)
    is_truncated: bool = False
    uncommitted: int = 0


class FakeCluster:
    """Answers as ``cluster.Cluster``, and counts its questions."""

    def __init__(self) -> None:
        self.logs: dict[TopicPartition, FakeLog] = {}
        self.ids: dict[str, str] = {}
        self.truncation_checks = 0
        self.is_closed = False
        self.expected: Mapping[str, TopicView] = {}
        self.passing: Set[str] = frozenset()
        self.described = 0
        self.deleted_meanwhile: list[str] = []

    def topic(self, name: str, *ends: int, topic_id: str = "id") -> None:
        """A topic with a partition for each last offset."""
        self.ids[name] = topic_id
        for number, last in enumerate(ends):
            self.logs[TopicPartition(name, number)] = FakeLog(last=last)

    def delete(self, name: str) -> None:
        del self.ids[name]
        self.logs = {place: log for place, log in self.logs.items() if place.topic != name}

    def log(self, name: str, number: int = 0) -> FakeLog:
        return self.logs[TopicPartition(name, number)]

    def topic_names(self) -> list[str]:
        return sorted(self.ids)

    def describe(
        self,
        names: list[str],
        expected: Mapping[str, TopicView],
        passing: Set[str] = frozenset(),
    ) -> dict[str, TopicView]:
        self.expected, self.passing = expected, passing
        self.described += 1
        return {
            name: TopicView(
                self.ids[name],
                tuple(place.partition for place in self.logs if place.topic == name),
            )
            for name in names
            if name in self.ids
        }

    def offsets(
        self, wanted: Mapping[TopicPartition, Place], passing: Set[str] = frozenset()
    ) -> dict[TopicPartition, Position]:
        """A topic of ``deleted_meanwhile`` is deleted with each question about it."""
        asked = {place.topic for place in wanted}
        gone = next((name for name in self.deleted_meanwhile if name in asked), None)
        if gone is not None:
            self.deleted_meanwhile.remove(gone)
            self.delete(gone)
            self.passing = passing
            raise GoneError(f"topic {gone} does not exist any more", {gone})
        return {place: self._offset(self.logs[place], what) for place, what in wanted.items()}

    def latest_times(self, places: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        times = {place: self.logs[place].times.values() for place in places}
        return {place: max(some) for place, some in times.items() if some}

    def find_truncated(self, positions: Mapping[TopicPartition, Position]) -> TopicPartition | None:
        self.truncation_checks += 1
        assert all(position.epoch >= 0 for position in positions.values())
        return next((place for place in positions if self.logs[place].is_truncated), None)

    def close(self) -> None:
        self.is_closed = True

    @staticmethod
    def _offset(log: FakeLog, what: Place) -> Position:
        if what.kind is Kind.OFFSET:
            return Position(what.value)
        if what.kind is Kind.TIMESTAMP:
            late = [offset for offset, at in sorted(log.times.items()) if at >= what.value]
            return Position(late[0], log.epoch) if late else Position(-1)
        return Position(log.first if what.kind is Kind.EARLIEST else log.last, log.epoch)


class FakeHighWatermarks:
    """Ends of the same logs, with open transactions."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self.is_closed = False
        self.are_gone = False

    def ends(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        if self.are_gone:
            raise GoneError("it does not exist any more", ())
        logs = {place: self._cluster.logs[place] for place in places}
        return {place: log.last + log.uncommitted for place, log in logs.items()}

    def close(self) -> None:
        self.is_closed = True


class FakeSizes:
    """Records of given sizes; 100 bytes unless said otherwise."""

    def __init__(self, sizes: Mapping[TopicPartition, float] | None = None) -> None:
        self.sizes = sizes or {}
        self.samples = 0

    def record_bytes(self, ranges: Sequence[OffsetRange]) -> dict[TopicPartition, float]:
        self.samples += 1
        return {one.place: self.sizes.get(one.place, 100.0) for one in ranges}


class FakeGroup:
    """Notes what is committed."""

    def __init__(self) -> None:
        self.commits: list[StreamOffset] = []
        self.is_closed = False

    def commit(self, offset: StreamOffset) -> None:
        self.commits.append(offset)

    def close(self) -> None:
        self.is_closed = True
