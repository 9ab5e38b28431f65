"""Consumes as a member of a group, which assigns partitions and keeps offsets.

An offset is committed after its records have been printed: about once a second, when a partition
moves to another member, and at the end. After a kill no record is lost, but the next member may
print some again.
"""

import threading
import time
from collections.abc import Sequence
from typing import Any

import typer

from pyrklog.base.problems import Problem
from pyrklog.cli.connection import PartitionKey
from pyrklog.cli.consumer import RecordConsumer
from pyrklog.cli.failures import CliError
from pyrklog.cli.interrupts import held
from pyrklog.cli.offsets import BEGINNING, END, OffsetPosition
from pyrklog.cli.options import Settings

COMMIT_INTERVAL_S = 1.0
SLOW_END_S = 1.5
"""A longer end is explained."""


class GroupConsumer(RecordConsumer):
    _follows_new_topics = True

    def __init__(
        self,
        settings: Settings,
        topics: Sequence[str],
        group: str,
        start: OffsetPosition,
        *,
        read_committed: bool,
    ) -> None:
        """``start``: BEGINNING or END, for partitions without a committed offset. Raises
        :class:`CliError` for others."""
        super().__init__(settings, topics, read_committed=read_committed)
        if start not in (BEGINNING, END):
            raise CliError(
                Problem.ARGUMENTS_DISAGREE,
                "with -g the group's offsets count; -o takes only start or end, for partitions "
                "without one",
                "move the group with `pyrklog group seek`",
            )
        self._group = group
        self._reset = "earliest" if start is BEGINNING else "latest"
        self._assigned: set[PartitionKey] = set()
        self._was_assigned = False
        self._next: dict[PartitionKey, int] = {}
        """The uncommitted offset after the last printed record of each partition."""
        self._committed_at = time.monotonic()

    def start(self) -> None:
        """Joins the group. Raises :class:`CliError` if a topic is missing or no broker answers."""
        self._connect()
        self._existing_topics()
        self._make_consumer(
            **{
                "group.id": self._group,
                "auto.offset.reset": self._reset,
                "on_commit": self._on_commit,
            }
        )
        self._consumer.subscribe(
            self._topics,
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )

    def finished(self, at_end: bool) -> bool:
        """Without partitions it waits for some, unless ``at_end``."""
        return at_end and self._was_assigned and self._assigned <= self._at_end

    def read(self, limit: int, wait_s: float) -> list[Any]:
        from confluent_kafka import KafkaError

        found: list[Any] = []
        for message in self._poll(limit, wait_s):
            key = (message.topic(), message.partition())
            error = message.error()
            if error is None:
                self._at_end.discard(key)
                found.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                self._at_end.add(key)
            else:
                self._on_error(error, key)
        self._commit_now_and_then()
        return found

    def _may_be_kept_waiting(self) -> bool:
        """The group assigns partitions once all members are back. Raises :class:`CliError` if it
        has no coordinator."""
        from pyrklog.cli.coordinator import no_coordinator

        missing = None if self._was_assigned else no_coordinator(self._connection, self._group)
        if missing is not None:
            self._is_given_up = True
            raise missing
        return not self._was_assigned or not self._assigned

    def _left(self) -> str:
        return f"group {self._group} has given partitions that were not read to their end"

    def written(self, messages: Sequence[Any]) -> None:
        for message in messages:
            key = (message.topic(), message.partition())
            if key in self._assigned:
                self._next[key] = message.offset() + 1

    def close(self) -> None:
        if self._consumer is None:
            return
        if self._is_given_up:
            if self._next:
                self._note("offsets not committed: no broker answers")
            self._abandon()
            return
        slow = threading.Timer(SLOW_END_S, self._note, ["leaving it; Ctrl-C ends at once"])
        slow.daemon = True
        slow.start()
        try:
            self._commit(self._next)
        finally:
            if not self._connection.check_cut_off():  # else no broker can be told
                super().close()
            slow.cancel()

    def _commit_now_and_then(self) -> None:
        now = time.monotonic()
        if self._next and now - self._committed_at >= COMMIT_INTERVAL_S:
            self._committed_at = now
            self._commit(self._next, wait=False)

    def _commit(self, offsets: dict[PartitionKey, int], *, wait: bool = True) -> None:
        """Notes failures; the next member prints those records again."""
        from confluent_kafka import KafkaException, TopicPartition

        if not offsets:
            return
        places = [TopicPartition(*key, offset) for key, offset in offsets.items()]
        if self._connection.check_cut_off():
            # librdkafka would wait for a coordinator for a whole session.
            if wait:
                self._note("offsets not committed: no broker can be reached")
            return
        for key in list(offsets):
            self._next.pop(key, None)
        try:
            with held:
                done = self._consumer.commit(offsets=places, asynchronous=not wait)
        except KafkaException as error:
            self._note(f"offsets not committed: {error.args[0].str()}")
            return
        failed = [place.error for place in done or [] if place.error is not None]
        if failed:
            self._note(f"offsets not committed: {failed[0].str()}")

    def _on_commit(self, error: Any, places: Sequence[Any]) -> None:
        for place in places:
            key = (place.topic, place.partition)
            if (error is not None or place.error is not None) and key in self._assigned:
                self._next.setdefault(key, place.offset)

    def _note(self, what: str) -> None:
        if not self._settings.quiet:
            typer.echo(f"note: group {self._group}: {what}", err=True)

    def _on_assign(self, _consumer: Any, places: Sequence[Any]) -> None:
        self._was_assigned = True
        self._assigned |= {(place.topic, place.partition) for place in places}
        self._tell("reads", places)

    def _on_revoke(self, _consumer: Any, places: Sequence[Any]) -> None:
        revoked = {(place.topic, place.partition) for place in places}
        self._commit({key: offset for key, offset in self._next.items() if key in revoked})
        self._forget(revoked)
        self._tell("gives back", places)

    def _on_lost(self, _consumer: Any, places: Sequence[Any]) -> None:
        """Commits nothing: another member may own the partitions."""
        self._forget({(place.topic, place.partition) for place in places})
        self._tell("has lost", places)

    def _forget(self, keys: set[PartitionKey]) -> None:
        self._assigned -= keys
        self._at_end -= keys
        for key in keys:
            self._next.pop(key, None)

    def _tell(self, does: str, places: Sequence[Any]) -> None:
        if self._settings.verbose:
            named = ", ".join(f"{place.topic} [{place.partition}]" for place in places) or "nothing"
            typer.echo(f"this member {does} {named}", err=True)
