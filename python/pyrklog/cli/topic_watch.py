"""Whether topics that are being read were deleted, created anew, or given more partitions.

librdkafka keeps trying with a topic that is gone, without a word, and calls the offsets of the old
one out of range in the new one. A topic's id tells them apart; a Kafka from before 2.8 has none.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from pyrklog.base.problems import Problem
from pyrklog.cli.connection import Connection, PartitionKey
from pyrklog.cli.failures import CliError

LOOK_INTERVAL_S = 2.0
BUSY_LOOK_INTERVAL_S = 5.0
"""While records come: a look holds them up for a moment."""
LOOK_TIMEOUT_S = 3.0
MISSING_LOOKS = 2
"""So often in a row an idle reader misses a topic: a broker that has just started may know none."""


class SeenTopic(NamedTuple):
    """``partitions``: by number, whether each has a leader."""

    id: str
    partitions: Mapping[int, bool]


Look = Callable[[], Mapping[str, SeenTopic | None]]
"""Topics by name, None for a missing one; without those that no broker tells of."""


class TopicWatch:
    """Compares topics with what they were when it was made."""

    def __init__(self, look: Look, *, follows: bool) -> None:
        """``follows``: reading goes on in a topic that was created anew."""
        self._look = look
        self._follows = follows
        self._ids = {name: seen.id for name, seen in look().items() if seen is not None}
        self._missing = dict.fromkeys(self._ids, 0)
        self._looked_at = time.monotonic()

    def check_now_and_then(self) -> dict[PartitionKey, bool]:
        """As :meth:`check`, at most every :data:`LOOK_INTERVAL_S` seconds."""
        if time.monotonic() - self._looked_at < LOOK_INTERVAL_S:
            return {}
        found = self.check(MISSING_LOOKS)
        self._looked_at = time.monotonic()
        return found

    def look_now_and_then(self) -> dict[PartitionKey, bool]:
        """Partitions, as :meth:`check` returns them, while records come. Of a topic that is gone or
        another one the rest is read first. At most every :data:`BUSY_LOOK_INTERVAL_S` seconds."""
        if time.monotonic() - self._looked_at < BUSY_LOOK_INTERVAL_S:
            return {}
        found = self._partitions(self._look())
        self._looked_at = time.monotonic()
        return found

    def check(self, missing_looks: int = 1) -> dict[PartitionKey, bool]:
        """The partitions of the topics that are the same still: whether each has a leader.

        Raises :class:`CliError` for a topic that was missing in so many looks in a row, or that is
        another one."""
        seen = self._look()
        found = self._partitions(seen)
        for name, topic in seen.items():
            if name not in self._ids:
                continue
            now = None if topic is None else topic.id
            if now is None:
                self._missing[name] += 1
                if self._missing[name] >= missing_looks:
                    raise CliError(
                        Problem.TOPIC_NOT_FOUND,
                        f"topic {name} was deleted while it was read",
                        "see `pyrklog topic list`",
                    )
                continue
            self._missing[name] = 0
            if now != self._ids[name] and not self._follows:
                raise CliError(
                    Problem.TOPIC_REPLACED,
                    f"topic {name} was deleted and created anew while it was read",
                    "start again to read the new topic",
                    why="its offsets begin anew, too",
                )
            self._ids[name] = now
        return found

    def _partitions(self, seen: Mapping[str, SeenTopic | None]) -> dict[PartitionKey, bool]:
        return {
            (name, number): is_led
            for name, topic in seen.items()
            if topic is not None and topic.id == self._ids.get(name)
            for number, is_led in topic.partitions.items()
        }


def topic_ids(connection: Connection, names: Sequence[str]) -> dict[str, str | None]:
    """The id of each topic, None for a missing one; without those that no broker tells of."""
    seen = see_topics(connection, names)
    return {name: None if topic is None else topic.id for name, topic in seen.items()}


def see_topics(connection: Connection, names: Sequence[str]) -> dict[str, SeenTopic | None]:
    """As :data:`Look`."""
    from confluent_kafka import KafkaError, KafkaException, TopicCollection

    timeout_s = min(LOOK_TIMEOUT_S, connection.settings.timeout_s)
    try:
        futures = connection.admin.describe_topics(
            TopicCollection(list(names)), request_timeout=timeout_s
        )
    except (CliError, KafkaException):
        return {}  # the reader itself tells of brokers that cannot be reached
    found: dict[str, SeenTopic | None] = {}
    for name, future in futures.items():
        try:
            topic = future.result()
            partitions = {one.id: one.leader is not None for one in topic.partitions}
            found[name] = SeenTopic(str(topic.topic_id), partitions)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                found[name] = None
    return found
