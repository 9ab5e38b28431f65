"""The broker's image of the cluster, for the plane.

:class:`ClusterImage` takes UpdateMetadata, LeaderAndIsr and topic options, and returns what the
plane has not seen yet as an :class:`ImageDelta`. Pure; the work grows with what changed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from pyrklog.cluster.topic_names import TopicNames
from pyrklog.plane.values import BrokerImage, ImageDelta, PartitionImage, TopicImage

if TYPE_CHECKING:
    from pyrklog.config.topic import TopicDefaults

LEADER_NONE = -1
LEADER_BEING_DELETED = -2
"""The leader in UpdateMetadata of a partition whose topic is being deleted."""

GAP_MAX = 10_000
"""Missing partitions of a topic that are filled in; partitions behind more gaps are not shown.
Bounds the memory for one with a very high number.
"""

KRAFT_TOPIC = "__cluster_metadata"
"""Kafka's metadata log; unused here, but kept for Kafka's next start."""
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})


class TopicEntry:
    __slots__ = ("id", "name", "partitions")

    def __init__(self, name: str, topic_id: bytes) -> None:
        self.name = name
        self.id = topic_id
        self.partitions: dict[int, PartitionImage] = {}

    def numbered(self) -> list[PartitionImage]:
        """The partitions to show, from 0 on without a gap, as the plane indexes them.

        A missing one is shown without a leader.
        """
        shown: list[PartitionImage] = []
        room = GAP_MAX
        for index, item in sorted(self.partitions.items()):
            missing = range(len(shown), index)
            room -= len(missing)
            if room < 0:
                break
            shown += [PartitionImage(absent, LEADER_NONE, -1, (), (), ()) for absent in missing]
            shown.append(item)
        return shown


class ClusterImage:
    """This broker's metadata, and the changes that the plane has yet to see."""

    def __init__(self, defaults: TopicDefaults) -> None:
        self.controller_id = -1
        self.brokers: Sequence[BrokerImage] = ()
        self.topics: dict[str, TopicEntry] = {}
        self.names = TopicNames()
        self._names_by_id: dict[bytes, str] = {}
        self._sorted_names: list[str] | None = None
        """None: a topic has come or gone since they were sorted."""
        self._defaults = defaults
        self._overrides: dict[str, Mapping[str, str]] = {}
        self._version = 0
        self._changed: set[str] = set()
        self._removed: set[str] = set()
        self._heading_changed = False

    def set_brokers(self, controller_id: int, brokers: Sequence[BrokerImage]) -> None:
        if (controller_id, list(brokers)) != (self.controller_id, list(self.brokers)):
            self.controller_id = controller_id
            self.brokers = list(brokers)
            self._heading_changed = True

    def set_partitions(
        self, topic: str, topic_id: bytes, partitions: Iterable[PartitionImage]
    ) -> None:
        """New or changed partitions of a topic; another id means a new topic."""
        entry = self.topics.get(topic)
        if entry is not None and entry.id != topic_id:
            self._forget(entry)
            entry = None
        if entry is None:
            entry = self.topics[topic] = TopicEntry(topic, topic_id)
            self.names.add(topic)
            self._sorted_names = None
            self._names_by_id[topic_id] = topic
            self._changed.add(topic)
            self._removed.discard(topic)
        for item in partitions:
            if entry.partitions.get(item.partition) != item:
                entry.partitions[item.partition] = item
                self._changed.add(topic)

    def remove_partitions(self, topic: str, partitions: Iterable[int]) -> None:
        """Deleted partitions; a topic without any is gone."""
        entry = self.topics.get(topic)
        if entry is None:
            return
        for index in partitions:
            if entry.partitions.pop(index, None) is not None:
                self._changed.add(topic)
        if not entry.partitions:
            self._forget(entry)
            self._overrides.pop(topic, None)
            self._changed.discard(topic)
            self._removed.add(topic)

    def _forget(self, entry: TopicEntry) -> None:
        del self.topics[entry.name]
        self.names.discard(entry.name)
        self._sorted_names = None
        if self._names_by_id.get(entry.id) == entry.name:
            del self._names_by_id[entry.id]

    def set_overrides(self, topic: str, overrides: Mapping[str, str]) -> None:
        """The options of a topic, which need not be in the image yet."""
        if self._overrides.get(topic, {}) == overrides:
            return
        if overrides:
            self._overrides[topic] = dict(overrides)
        else:
            self._overrides.pop(topic, None)
        if topic in self.topics:
            self._changed.add(topic)

    def overrides(self, topic: str) -> Mapping[str, str]:
        return self._overrides.get(topic, {})

    def set_defaults(self, defaults: TopicDefaults) -> None:
        """The broker's defaults changed: every topic may have other options now."""
        self._defaults = defaults
        self._changed.update(self.topics)

    def names_from(self, first: str, count: int) -> list[str]:
        """The next ``count`` topics in order of their names, ``first`` included."""
        if self._sorted_names is None:
            self._sorted_names = sorted(self.topics)
        start = bisect_left(self._sorted_names, first)
        return self._sorted_names[start : start + count]

    def name_of(self, topic_id: bytes) -> str | None:
        return self._names_by_id.get(topic_id)

    def partition(self, topic: str, index: int) -> PartitionImage | None:
        entry = self.topics.get(topic)
        return entry.partitions.get(index) if entry else None

    def take_delta(self) -> ImageDelta | None:
        """The changes since the last call, under a new version; None without any."""
        if not (self._changed or self._removed or self._heading_changed):
            return None
        delta = ImageDelta(
            version=self.next_version(),
            controller_id=self.controller_id,
            brokers=self.brokers,
            topics=[self._compile(self.topics[name]) for name in sorted(self._changed)],
            removed_topics=sorted(self._removed),
        )
        self._changed = set()
        self._removed = set()
        self._heading_changed = False
        return delta

    @property
    def version(self) -> int:
        """Of the last delta."""
        return self._version

    def next_version(self) -> int:
        """For a delta made of parts of another."""
        self._version += 1
        return self._version

    def _compile(self, entry: TopicEntry) -> TopicImage:
        resolved = self._defaults.resolve(self._overrides.get(entry.name, {}))
        return TopicImage(
            name=entry.name,
            id=entry.id,
            internal=entry.name in INTERNAL_TOPICS,
            log=resolved.log,
            min_insync_replicas=resolved.min_insync_replicas,
            partitions=entry.numbered(),
            throttled=resolved.throttled,
        )
