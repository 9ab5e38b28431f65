"""The driver's questions about topics and offsets, by confluent-kafka."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from functools import partial
from typing import Generic, Protocol, TypeVar

from confluent_kafka import (
    OFFSET_INVALID,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from pyrklog.base.internal_topics import OF_KAFKA, OF_PYRKLOG
from pyrklog.scanning import ListedOffset, LogTruncatedError, ScanError, scan
from pyrklog.spark import agreement, unreached
from pyrklog.spark.connection import ABSENT_S, Connection
from pyrklog.spark.offsets import Position, TopicPartition
from pyrklog.spark.places import Kind, Place
from pyrklog.spark.view import TopicView, lacks

INTERNAL_TOPICS = OF_PYRKLOG | frozenset(OF_KAFKA)
"""A pattern does not match them, as with Kafka's consumers; nor the sink's decisions, of which each
batch that is written makes new ones."""

NO_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""Sixteen zero bytes, as Kafka writes ids."""

# Of one scan; leaders that lag take all of it. From Kafka 2.3 on they tell of truncations at once.
_TRUNCATION_PROBE_S = 1.0
# What no leader can tell, that of before 2.3 or a topic that was created anew without an id (before
# 2.8), a scan believes after 3 s, from all brokers. One in a while has the time for that.
_LONG_PROBE_S = 5.0
_LONG_PROBE_EVERY_S = 30.0
_WAIT_FIRST_S = 0.05
_WAIT_MOST_S = 1.0
# Of the first try.
_ANSWER_FIRST_S = 1.0
_LEFT_LEAST_S = 0.1

Key = TypeVar("Key")

logger = logging.getLogger("pyrklog.spark")


class ClusterError(Exception):
    """The cluster did not answer in time, or refused; the message says what was asked."""


class GoneError(ClusterError):
    """A topic or partition was there when it was described, and is not there any more. ``topics``
    are all that are known to be concerned."""

    def __init__(self, message: str, topics: Collection[str]) -> None:
        super().__init__(message)
        self.topics = frozenset(topics)


class Cluster(Protocol):
    """What a stream and a batch read ask. Each raises ClusterError."""

    def topic_names(self) -> list[str]:
        """All topics but internal ones, sorted."""

    def describe(
        self,
        names: list[str],
        expected: Mapping[str, TopicView],
        passing: Set[str] = frozenset(),
    ) -> dict[str, TopicView]:
        """Those that exist. A broker is not believed at once if it does not know one, or without an
        expected partition or with another id; but that it does not know one of ``passing``."""

    def offsets(
        self, wanted: Mapping[TopicPartition, Place], passing: Set[str] = frozenset()
    ) -> dict[TopicPartition, Position]:
        """The offset of each place, -1 if no record is as late as a timestamp. An offset stands for
        itself, and is not looked for. Raises GoneError, of topics ``passing`` at once."""

    def latest_times(self, places: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Of each log's latest record by time, ms since 1970: none of the log is later. Partitions
        of which it is not known are left out. Raises GoneError."""

    def find_truncated(self, positions: Mapping[TopicPartition, Position]) -> TopicPartition | None:
        """A partition whose leader is known not to have the record before its position, None if
        there is none. All epochs are known."""

    def close(self) -> None:
        """Ends connections."""


class KafkaCluster:
    """A cluster of Kafka or pyrklog. Connects when it is asked the first question."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._client: AdminClient | None = None
        self._absent: set[str] = set()
        self._long_probe_s: float | None = None

    def topic_names(self) -> list[str]:
        try:
            metadata = self._admin().list_topics(timeout=self._connection.timeout_s)
        except KafkaException as error:
            why = _why(error, self._connection, None)
            raise ClusterError(f"topics cannot be listed: {why}") from error
        return sorted(name for name in metadata.topics if name not in INTERNAL_TOPICS)

    def describe(
        self,
        names: list[str],
        expected: Mapping[str, TopicView],
        passing: Set[str] = frozenset(),
    ) -> dict[str, TopicView]:
        if not names:
            return {}

        def ask(some: list[str], timeout_s: float) -> Mapping[str, Callable[[], object]]:
            futures = self._admin().describe_topics(
                TopicCollection(some), request_timeout=timeout_s
            )
            return {name: future.result for name, future in futures.items()}

        def is_doubtful(name: str, answer: object) -> bool:
            return name in expected and lacks(_topic_view(answer), expected[name])

        def confirm(doubtful: list[str]) -> Set[str]:
            gone = {name for name in doubtful if name not in expected}
            known = [name for name in doubtful if name in expected]
            if known:
                brokers = self._brokers()
                gone |= agreement.confirmed(known, expected, brokers, self._connection)
            return gone

        asking = _Asking("topic {} cannot be described", ask, self._connection)
        # Of what is expected the last answer proves nothing: it may be that of one broker.
        absent = {name for name in self._absent | passing if name not in expected}
        found = asking.described(names, absent, is_doubtful, confirm, self._refresh)
        # What is known to be absent is not waited for again.
        self._absent = {name for name in names if name not in found}
        return {name: _topic_view(answer) for name, answer in found.items()}

    def offsets(
        self, wanted: Mapping[TopicPartition, Place], passing: Set[str] = frozenset()
    ) -> dict[TopicPartition, Position]:
        given = {
            place: Position(what.value)
            for place, what in wanted.items()
            if what.kind is Kind.OFFSET
        }
        asked = {
            place: _specification(what) for place, what in wanted.items() if place not in given
        }
        answers = self._listed(asked, passing)
        return given | {place: _position(answer) for place, answer in answers.items()}

    def latest_times(self, places: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        answers = self._listed(dict.fromkeys(places, OffsetSpec.max_timestamp()))
        # librdkafka asks brokers before Kafka 3.0, too. They take the question for one about a time
        # long ago, and name the first record: what lies behind that is no such answer. In this
        # order, for the first record may be deleted in between.
        first = self.offsets(dict.fromkeys(answers, Place(Kind.TIMESTAMP, 0)))
        return {
            place: int(getattr(answer, "timestamp", -1))
            for place, answer in answers.items()
            if _position(answer).offset > first[place].offset >= 0
        }

    def _listed(
        self, wanted: Mapping[TopicPartition, OffsetSpec], passing: Set[str] = frozenset()
    ) -> dict[TopicPartition, object]:
        """Raises ClusterError, GoneError."""
        if not wanted:
            return {}
        isolation = IsolationLevel.READ_UNCOMMITTED
        if self._connection.isolation == "read_committed":
            isolation = IsolationLevel.READ_COMMITTED

        def ask(
            some: list[TopicPartition], timeout_s: float
        ) -> Mapping[TopicPartition, Callable[[], object]]:
            question = {ConfluentPartition(*place): wanted[place] for place in some}
            futures = self._admin().list_offsets(
                question, isolation_level=isolation, request_timeout=timeout_s
            )
            return {
                TopicPartition(one.topic, one.partition): partial(_listed, future.result)
                for one, future in futures.items()
            }

        def look_again(some: list[TopicPartition]) -> None:
            self._refresh(asking.left_s)
            is_over = asking.waited_s >= ABSENT_S
            self._require([one for one in some if is_over or one.topic in passing], passing)

        asking = _Asking("the offsets of {} cannot be listed", ask, self._connection)
        return asking.answers(list(wanted), look_again)

    def find_truncated(self, positions: Mapping[TopicPartition, Position]) -> TopicPartition | None:
        places = list(positions)
        timeout_s = self._probe_s()
        if not self._is_one_truncated(places, positions, timeout_s):
            return None
        is_sure = True
        while len(places) > 1:
            half, rest = places[: len(places) // 2], places[len(places) // 2 :]
            is_sure = self._is_one_truncated(half, positions, timeout_s)
            places = half if is_sure else rest
        # The leader that said so may not answer now, or be another one.
        if is_sure or self._is_one_truncated(places, positions, timeout_s):
            return places[0]
        return None

    def _probe_s(self) -> float:
        """Whatever the options' time-out is: a shorter look would never find some truncations."""
        now = time.monotonic()
        if self._long_probe_s is not None and now - self._long_probe_s < _LONG_PROBE_EVERY_S:
            return _TRUNCATION_PROBE_S
        self._long_probe_s = now
        return _LONG_PROBE_S

    def _is_one_truncated(
        self,
        places: list[TopicPartition],
        positions: Mapping[TopicPartition, Position],
        timeout_s: float,
    ) -> bool:
        """Begins to read behind the positions: a scan asks the leaders about epochs first."""
        topics: dict[str, list[int]] = {}
        starts: dict[str, dict[int, ListedOffset]] = {}
        ends: dict[str, dict[int, int]] = {}
        for topic, partition in places:
            position = positions[TopicPartition(topic, partition)]
            topics.setdefault(topic, []).append(partition)
            starts.setdefault(topic, {})[partition] = ListedOffset(*position)
            ends.setdefault(topic, {})[partition] = position.offset + 1
        arguments = self._connection.scan_arguments()
        arguments["timeout_s"] = timeout_s
        try:
            with scan(topics, starts, ends, ["offset"], threads=1, **arguments) as probe:
                for _ in probe:
                    continue
        except LogTruncatedError:
            return True
        except ScanError as error:
            # The records behind the positions are not there yet, or a leader is away.
            logger.info("no leader says that its log was truncated: %s", error)
        return False

    def close(self) -> None:
        self._client = None

    def _admin(self) -> AdminClient:
        if self._client is None:
            try:
                self._client = self._connection.admin()
            except ScanError as error:
                raise ClusterError(str(error)) from error
        return self._client

    def _refresh(self, left_s: float) -> None:
        """librdkafka asks the leader or controller that it last heard of, and does not look for a
        new one when that one refuses or is away. ``left_s`` is what the question has left."""
        try:
            self._admin().list_topics(timeout=min(self._connection.request_timeout_s, left_s))
        except KafkaException as error:
            logger.info("metadata is not refreshed: %s", _text(error))

    def _brokers(self) -> list[str]:
        """Their addresses, none if nobody tells them."""
        try:
            metadata = self._admin().list_topics(timeout=self._connection.request_timeout_s)
        except KafkaException as error:
            logger.info("brokers are not listed: %s", _text(error))
            return []
        brokers = metadata.brokers.values()
        return [
            f"[{one.host}]:{one.port}" if ":" in one.host else f"{one.host}:{one.port}"
            for one in brokers
        ]

    def _require(self, places: list[TopicPartition], passing: Set[str]) -> None:
        """Raises GoneError if a partition does not exist: no leader can be waited for."""
        found = self.describe(sorted({place.topic for place in places}), {}, passing)
        gone = [
            place
            for place in places
            if place.topic not in found or place.partition not in found[place.topic].partitions
        ]
        if gone:
            first = gone[0]
            what = f"partition {first}" if first.topic in found else f"topic {first.topic}"
            topics = {place.topic for place in gone}
            raise GoneError(f"{what} does not exist any more", topics)


class _Asking(Generic[Key]):
    """A question about several keys, asked again for those whose failure may pass, until the time
    is over. ``failure`` has room for a key."""

    def __init__(
        self,
        failure: str,
        ask: Callable[[list[Key], float], Mapping[Key, Callable[[], object]]],
        connection: Connection,
    ) -> None:
        self._failure = failure
        self._ask = ask
        self._connection = connection
        self._timeout_s = connection.timeout_s
        self._request_timeout_s = connection.request_timeout_s
        self._begin_s = time.monotonic()
        self._doubtful_since_s: float | None = None
        self._wait_s = _WAIT_FIRST_S
        self._answer_s = _ANSWER_FIRST_S

    @property
    def waited_s(self) -> float:
        return time.monotonic() - self._begin_s

    @property
    def left_s(self) -> float:
        """Of the time for the question, and enough for an answer that is on its way."""
        return max(_LEFT_LEAST_S, self._timeout_s - self.waited_s)

    def answers(
        self, keys: list[Key], look_again: Callable[[list[Key]], None]
    ) -> dict[Key, object]:
        """Of all keys. ``look_again`` is called with those that are asked for again. Raises
        ClusterError."""
        found: dict[Key, object] = {}
        while True:
            again = []
            for key, result in self._asked(keys):
                try:
                    found[key] = result()
                except KafkaException as error:
                    self._raise_if_lasting(key, error)
                    again.append(key)
            if not again:
                return found
            keys = again
            self._pause()
            look_again(keys)

    def described(
        self,
        names: list[Key],
        known_absent: Set[Key],
        is_doubtful: Callable[[Key, object], bool],
        confirm: Callable[[list[Key]], Set[Key]],
        refresh: Callable[[float], None],
    ) -> dict[Key, object]:
        """Of those that exist. Absence and doubtful answers are believed when they came for
        ``ABSENT_S``, of those names that ``confirm`` gives. ``refresh`` is called after failures,
        with the time that is left. Raises ClusterError."""
        found: dict[Key, object] = {}
        while True:
            failed: list[Key] = []
            doubtful: dict[Key, object] = {}
            for name, result in self._asked(names):
                try:
                    answer = result()
                except KafkaException as error:
                    if _error(error).code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                        self._raise_if_lasting(name, error)
                        failed.append(name)
                    elif name not in known_absent:
                        doubtful[name] = None
                else:
                    kept = doubtful if is_doubtful(name, answer) else found
                    kept[name] = answer
            is_over = bool(doubtful) and self._is_doubt_over()
            if is_over:
                found |= self._believed(doubtful, confirm)
            names = [*failed, *doubtful]
            if not names:
                return found
            self._pause()
            if failed or is_over:
                refresh(self.left_s)

    def _believed(
        self, doubtful: dict[Key, object], confirm: Callable[[list[Key]], Set[Key]]
    ) -> dict[Key, object]:
        """The answers among them that are confirmed, which are doubtful no more."""
        believed = {name: doubtful.pop(name) for name in confirm(list(doubtful))}
        if doubtful and self._is_late():
            raise ClusterError(
                f"{self._failure.format(next(iter(doubtful)))}: a broker does not know it as it "
                "was, and not all brokers say the same"
            )
        return {name: answer for name, answer in believed.items() if answer is not None}

    def _asked(self, keys: list[Key]) -> Iterable[tuple[Key, Callable[[], object]]]:
        """Each time an answer may take twice as long: whether librdkafka waits for a broker that is
        away or for one that is slow is not told."""
        timeout_s = min(self._answer_s, self._request_timeout_s)
        self._answer_s = 2 * timeout_s
        return self._ask(keys, timeout_s).items()

    def _is_doubt_over(self) -> bool:
        now = time.monotonic()
        if self._doubtful_since_s is None:
            self._doubtful_since_s = now
        return self._is_late() or now - self._doubtful_since_s >= ABSENT_S

    def _is_late(self) -> bool:
        return self.waited_s + self._wait_s >= self._timeout_s

    def _raise_if_lasting(self, key: Key, error: KafkaException) -> None:
        if self._is_late() or not _may_pass(_error(error)):
            topic = key.topic if isinstance(key, TopicPartition) else str(key)
            why = _why(error, self._connection, topic)
            raise ClusterError(f"{self._failure.format(key)}: {why}") from error

    def _pause(self) -> None:
        time.sleep(self._wait_s)
        self._wait_s = min(2 * self._wait_s, _WAIT_MOST_S)


_PASSING = frozenset(
    {
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._NODE_UPDATE,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
        # librdkafka knows no leader of any partition asked for: its metadata may be old.
        KafkaError._NOENT,
    }
)


def _may_pass(error: KafkaError) -> bool:
    return error.retriable() or error.code() in _PASSING


def _error(exception: KafkaException) -> KafkaError:
    error = exception.args[0]
    assert isinstance(error, KafkaError)
    return error


def _text(exception: KafkaException) -> str:
    text: str = _error(exception).str()
    return text


# librdkafka waited for somebody, and does not say for whom, nor what is wrong there.
_UNANSWERED = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError.REQUEST_TIMED_OUT,
    }
)


def _why(exception: KafkaException, connection: Connection, topic: str | None) -> str:
    """The rest of a sentence."""
    if _error(exception).code() not in _UNANSWERED:
        return _text(exception)
    return unreached.reason(connection, topic) or (
        f"{_text(exception)}; a broker answers at {connection.bootstrap_servers}, but perhaps not "
        "at the address that it advertises"
    )


def _topic_view(answer: object) -> TopicView:
    # librdkafka writes ids with two other letters than Kafka.
    topic_id = str(getattr(answer, "topic_id", NO_TOPIC_ID)).replace("+", "-").replace("/", "_")
    numbers = sorted(partition.id for partition in getattr(answer, "partitions", ()))
    return TopicView("" if topic_id == NO_TOPIC_ID else topic_id, tuple(numbers))


def _listed(result: Callable[[], object]) -> object:
    """librdkafka gives no error, and this offset, if only some of the leaders did not answer in
    time."""
    answer = result()
    if getattr(answer, "offset", OFFSET_INVALID) == OFFSET_INVALID:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
    return answer


def _specification(place: Place) -> OffsetSpec:
    if place.kind is Kind.EARLIEST:
        return OffsetSpec.earliest()
    if place.kind is Kind.LATEST:
        return OffsetSpec.latest()
    return OffsetSpec.for_timestamp(place.value)


def _position(answer: object) -> Position:
    epoch = getattr(answer, "leader_epoch", None)
    return Position(int(getattr(answer, "offset", -1)), -1 if epoch is None else int(epoch))
