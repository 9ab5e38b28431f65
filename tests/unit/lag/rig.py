"""Brokers without logs: log ends, leaders and committed offsets are what a test says."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from pyrklog.config.load import load_config
from pyrklog.errors import ErrorCode
from pyrklog.groups.messages import GroupDescription, Offset
from pyrklog.lag.histories import Histories
from pyrklog.lag.leader_offsets import AllOffsets, LedOffsets
from pyrklog.lag.sampler import Sampler
from pyrklog.lag.steady_clock import SteadyClock
from pyrklog.plane.seam import LogStarts
from pyrklog.plane.values import PartitionImage

START = 1_700_000_000_000
TOPIC_ID = bytes(range(16))
Key = tuple[str, int]


class Plane:
    def __init__(self) -> None:
        self.ends: dict[Key, int] = {}
        self.markers: dict[Key, int] = {}
        """Transaction markers at the end of the log."""
        self.starts: dict[Key, int] = {}
        self.led: set[Key] = set()
        self.looks: list[list[Key]] = []

    def log_ends(self, partitions: list[Key]) -> list[tuple[int, int] | None]:
        return [(0, self.ends[key]) if key in self.ends else None for key in partitions]

    def data_ends(self, partitions: list[Key]) -> list[int | None]:
        self.looks.append(list(partitions))
        return [
            self.ends[key] - self.markers.get(key, 0) if key in self.ends else None
            for key in partitions
        ]

    def log_starts(self, partitions: list[Key]) -> list[LogStarts]:
        return [
            LogStarts(0, self.starts.get(key, 0), ())
            if key in self.led
            else LogStarts(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, ())
            for key in partitions
        ]


class Image:
    def __init__(self) -> None:
        self.version = 1
        self.topics: dict[str, Any] = {}

    def partition(self, topic: str, index: int) -> PartitionImage | None:
        entry = self.topics.get(topic)
        found: PartitionImage | None = None if entry is None else entry.partitions.get(index)
        return found

    def put(self, topic: str, leaders: Mapping[int, int], topic_id: bytes = TOPIC_ID) -> None:
        """Partitions with their leaders; each has replicas at 1 and 2."""
        partitions = {
            index: PartitionImage(index, leader, 0, (1, 2), (1, 2), ())
            for index, leader in leaders.items()
        }
        self.topics[topic] = SimpleNamespace(id=topic_id, partitions=partitions)
        self.version += 1


class Offsets:
    def __init__(self, committed: Mapping[Key, int]) -> None:
        self.committed = dict(committed)

    def page(self, after: Key | None, size: int) -> list[tuple[Key, Offset]]:
        names = [key for key in sorted(self.committed) if after is None or key > after]
        return [(key, Offset(self.committed[key])) for key in names[:size]]

    def __len__(self) -> int:
        return len(self.committed)


class Manager:
    """The groups that a broker coordinates."""

    def __init__(self) -> None:
        self.groups: dict[str, Any] = {}
        self.is_loading = False

    def put(
        self, group_id: str, committed: Mapping[Key, int], members: int = 0, *subscribed: str
    ) -> Offsets:
        offsets = Offsets(committed)
        group = SimpleNamespace(
            offsets=offsets,
            members=dict.fromkeys(range(members)),
            subscribed_topics=frozenset(subscribed) if members else None,
        )
        self.groups[group_id] = SimpleNamespace(group=group)
        return offsets

    def describe_group(self, group_id: str) -> GroupDescription:
        return GroupDescription(ErrorCode.NONE, group_id, "Dead")


class Broker:
    """One that hosts partitions, at a clock of its own."""

    def __init__(self, node_id: int = 1, *, partitions_max: int = 100) -> None:
        self.now_ms = START
        self.plane = Plane()
        self.image = Image()
        metadata: Any = SimpleNamespace(node_id=node_id, image=self.image, config=load_config())
        self.metadata = metadata
        self.histories = Histories(1 << 20)
        self.clock = SteadyClock(lambda: self.now_ms, lambda: self.now_ms)
        plane: Any = self.plane
        self.sampler = Sampler(
            metadata, plane, self.histories, self.clock, partitions_max=partitions_max
        )
        self.led = LedOffsets(metadata, plane, self.histories, self.sampler, self.clock)
        self.manager: Any = Manager()

    def all_offsets(self, calls: Any = None) -> AllOffsets:
        return AllOffsets(self.metadata, self.led, calls)

    def lead(self, topic: str, ends: Mapping[int, int]) -> None:
        """Partitions of a topic that this broker leads."""
        self.image.put(topic, dict.fromkeys(ends, self.metadata.node_id))
        for index, end in ends.items():
            self.plane.led.add((topic, index))
            self.plane.ends[topic, index] = end

    async def second(self, **moved: int) -> None:
        """A second passes in which log ends of partition 0 of topics grow by so many."""
        self.now_ms += 1000
        for topic, more in moved.items():
            self.plane.ends[topic, 0] += more
        await self.sampler.look()
