import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import typer

from pyrklog.base.problems import Problem
from pyrklog.cli.connection import Connection, PartitionKey
from pyrklog.cli.failures import CliError
from pyrklog.cli.held_back import HeldBack
from pyrklog.cli.interrupts import held
from pyrklog.cli.options import Settings
from pyrklog.cli.record_format import Bounds
from pyrklog.cli.topic_details import query_offsets
from pyrklog.cli.topic_watch import TopicWatch, see_topics

BOUNDS_AGE_MAX_S = 1.0
FETCH_WAIT_MS = 100


class RecordConsumer(ABC):
    """Reads partitions with a ``confluent_kafka.Consumer``; subclasses choose the partitions."""

    _fix_of_missing: str | None = (
        "create it with `pyrklog topic create`, or write to it where topics create themselves"
    )

    _fix_of_gone = "start again with another -o"
    """Where records that were to be read are deleted."""
    _follows_new_topics = False
    """Whether reading goes on in a topic that was deleted and created anew."""
    _takes_more = False
    """Whether partitions that come while it reads matter."""

    def __init__(self, settings: Settings, topics: Sequence[str], *, read_committed: bool) -> None:
        self._settings = settings
        self._topics = list(dict.fromkeys(topics))
        self._committed = read_committed
        self._at_end: set[PartitionKey] = set()
        self._known_bounds: dict[PartitionKey, tuple[float, Bounds]] = {}
        self._connection: Connection
        self._watch: TopicWatch | None = None
        self._consumer: Any = None
        self._is_waiting = False
        self._heard_at = time.monotonic()
        """When a broker answered last, with records or without."""
        self._is_given_up = False
        """Whether to stop waiting for brokers, even at the end."""

    def _connect(self) -> None:
        self._connection = Connection(self._settings)

    def _existing_topics(self) -> dict[str, dict[int, int]]:
        """Partitions with their leaders (-1: none)."""
        found = self._connection.topic_leaders(self._topics, self._fix_of_missing)
        look = partial(see_topics, self._connection, self._topics)
        self._watch = TopicWatch(look, follows=self._follows_new_topics)
        return found

    def _make_consumer(self, **more: Any) -> None:
        from confluent_kafka import Consumer

        self._connection.refuse_unreachable()
        isolation = "read_committed" if self._committed else "read_uncommitted"
        configuration = self._connection.configuration(
            **{
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "isolation.level": isolation,
                "check.crcs": True,
                "fetch.wait.max.ms": FETCH_WAIT_MS,
                **more,
            }
        )
        self._consumer = self._connection.make(Consumer, configuration)

    @abstractmethod
    def start(self) -> None:
        """Connects and begins to read."""

    def awaited(self) -> dict[PartitionKey, tuple[int, int]]:
        """Once it has started: partitions that end before their stop, their end and stop."""
        return {}

    @abstractmethod
    def finished(self, at_end: bool) -> bool:
        """Whether all is read, or, with ``at_end``, all for now."""

    @abstractmethod
    def read(self, limit: int, wait_s: float) -> list[Any]:
        """Up to ``limit`` messages."""

    def _poll(self, limit: int, wait_s: float) -> list[Any]:
        """Messages and events of the consumer. Notes unreachable brokers once."""
        with held:
            found: list[Any] = self._consumer.consume(limit, wait_s)
        is_busy = any(map(_is_answer, found))
        if is_busy:
            self._heard_at = time.monotonic()
        else:
            self._pace(found, wait_s)
        if self._connection.is_cut_off and is_busy:
            # librdkafka reports unreachable brokers once; this message may have come before.
            self._connection.check_cut_off()
        if not self._connection.is_cut_off:
            self._is_waiting = False
            self._look(is_busy)
        elif not self._is_waiting:
            self._is_waiting = True
            if not self._settings.quiet:
                typer.echo("note: no broker can be reached; trying again", err=True)
        return found

    def _look(self, is_busy: bool) -> None:
        if self._watch is None or (is_busy and not self._takes_more):
            return
        watch = self._watch
        seen = watch.look_now_and_then() if is_busy else watch.check_now_and_then()
        if seen and self._takes_more:
            self._on_look(seen)

    def _on_look(self, seen: Mapping[PartitionKey, bool]) -> None:
        """Partitions that there are now, and whether each has a leader."""
        return

    def check_whole(self) -> None:
        """Once it has finished: raises :class:`CliError` for partitions that were left out."""
        return

    def _pace(self, found: Sequence[Any], wait_s: float) -> None:
        """Waits after errors: librdkafka may repeat them quickly."""
        if found:
            with held:
                time.sleep(wait_s)

    def wait_anew(self) -> None:
        """Lets the time within which a broker must answer begin now."""
        self._heard_at = time.monotonic()

    def check_progress(self) -> None:
        """Raises :class:`CliError` if existing records do not come within the timeout. Not for
        readers that wait for new records."""
        if time.monotonic() - self._heard_at < self._settings.timeout_s:
            return
        known = self._connection.cause(self._topics)
        if known is not None:
            self._is_given_up = True
            raise CliError(Problem.NO_ANSWER, known.what, known.fix)
        if not self._may_be_kept_waiting():
            self._is_given_up = True
            what = f"no broker has answered for {self._settings.timeout_s:g} s, and {self._left()}"
            raise CliError(Problem.NO_ANSWER, what, "try again, or raise --timeout")
        self._heard_at = time.monotonic()

    def _may_be_kept_waiting(self) -> bool:
        return False

    @abstractmethod
    def _left(self) -> str:
        """Names the unread part, as the end of a sentence."""

    @abstractmethod
    def written(self, messages: Sequence[Any]) -> None:
        """Notes that messages have been printed."""

    def held_back(self) -> dict[PartitionKey, HeldBack]:
        """What open transactions hold back of partitions that were read to their end; without
        ``read_committed`` nothing."""
        from confluent_kafka.admin import OffsetSpec

        keys = sorted(self._unbounded()) if self._committed else []
        if not keys:
            return {}
        # In this order: what a later transaction adds does not count as held back.
        ends = query_offsets(self._connection, keys, OffsetSpec.latest())
        stable = query_offsets(self._connection, keys, OffsetSpec.latest(), committed=True)
        return {key: HeldBack(stable[key], ends[key]) for key in keys if stable[key] < ends[key]}

    def _unbounded(self) -> set[PartitionKey]:
        """Partitions that were read to what was their end."""
        return self._at_end

    def bounds(self, topic: str, partition: int) -> Bounds:
        """Log start offset, last stable offset and high watermark, at most a second old."""
        from confluent_kafka.admin import OffsetSpec

        known = self._known_bounds.get((topic, partition))
        if known is not None and time.monotonic() - known[0] < BOUNDS_AGE_MAX_S:
            return known[1]
        key = (topic, partition)
        latest = OffsetSpec.latest()
        bounds = Bounds(
            start=query_offsets(self._connection, [key], OffsetSpec.earliest())[key],
            last_stable=query_offsets(self._connection, [key], latest, committed=True)[key],
            high_watermark=query_offsets(self._connection, [key], latest)[key],
        )
        self._known_bounds[key] = (time.monotonic(), bounds)
        return bounds

    def close(self) -> None:
        if self._consumer is None:
            return
        if self._is_given_up:
            self._abandon()
            return
        with held:
            self._consumer.close()

    def _abandon(self) -> None:
        """Keeps the consumer until the process ends: freeing it would wait for silent brokers as
        long as a session lasts."""
        import ctypes

        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._consumer))

    def _on_error(self, error: Any, key: PartitionKey) -> None:
        """Ignores errors that librdkafka retries. Raises :class:`CliError` for others."""
        from confluent_kafka import KafkaError

        if error.retriable() or error.code() in (
            KafkaError._ALL_BROKERS_DOWN,
            KafkaError._TRANSPORT,
        ):
            return
        where = f"{key[0]} [{key[1]}]" if key[0] else "reading"
        if self._watch is not None:
            self._watch.check()
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            raise CliError(Problem.BROKER_REFUSED, f"{where}: {error.str()}", self._fix_of_gone)
        raise self._connection.explain(error, where)


def _is_answer(message: Any) -> bool:
    from confluent_kafka import KafkaError

    error = message.error()
    return error is None or error.code() == KafkaError._PARTITION_EOF
