"""A member of the group in a process of its own.

``python -m tests.checker.member BOOTSTRAP TOPIC GROUP NAME`` prints its operations as lines of JSON
until its standard input ends, then leaves the group. It needs its own process because librdkafka
can hang in its close, holding Python's lock, if an assignment arrives at that moment.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tests.checker.clients import IMPATIENT, POLL_S, Client
from tests.checker.history import History, Outcome, decode
from tests.checker.reporting import Printed

_COMMIT_SHARE = 0.05
_NOT_COMMITTED = (
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.REBALANCE_IN_PROGRESS,
)


class Member(Client):
    """Polls, and commits only what it has seen."""

    def __init__(self, bootstrap: str, topic: str, group: str, name: str, history: History) -> None:
        super().__init__(name, history)
        self._topic = topic
        self._seen: dict[int, int] = {}
        """Uncommitted offsets after the last polled record."""
        self._consumer = Consumer(
            {
                **IMPATIENT,
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "client.id": name,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 3_000,
                "heartbeat.interval.ms": 200,
                "fetch.wait.max.ms": 100,
                "fetch.error.backoff.ms": 50,
            }
        )
        self._consumer.subscribe(
            [topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
        )

    def _assigned(self, _: object, places: Sequence[TopicPartition]) -> None:
        for place in places:
            self.history.add(self.name, "assign", "ok", place.partition)

    def _revoked(self, _: object, places: Sequence[TopicPartition]) -> None:
        for place in places:
            self._seen.pop(place.partition, None)
            self.history.add(self.name, "revoke", "ok", place.partition)

    def step(self) -> None:
        message = self._consumer.poll(POLL_S)
        if message is not None and message.error() is None:
            partition, offset = message.partition(), message.offset()
            value = decode(message.value())
            self._seen[partition] = offset + 1
            self.history.add(self.name, "poll", "ok", partition, value=value, offset=offset)
        if self._seen and (message is None or random.random() < _COMMIT_SHARE):
            self._commit()

    def _commit(self) -> None:
        seen, self._seen = self._seen, {}
        for partition, offset in seen.items():
            self.history.add(self.name, "commit", "invoke", partition, offset=offset)
        places = [TopicPartition(self._topic, index, offset) for index, offset in seen.items()]
        try:
            answers = self._consumer.commit(offsets=places, asynchronous=False)
        except KafkaException as failure:
            self._committed(seen, dict.fromkeys(seen, failure.args[0]))
        else:
            self._committed(seen, {place.partition: place.error for place in answers})

    def _committed(self, seen: dict[int, int], errors: dict[int, KafkaError | None]) -> None:
        for partition, offset in seen.items():
            error = errors[partition]
            if error is None:
                self.history.add(self.name, "commit", "ok", partition, offset=offset)
                continue
            outcome: Outcome = "fail" if error.code() in _NOT_COMMITTED else "unknown"
            note = str(error)
            self.history.add(self.name, "commit", outcome, partition, offset=offset, note=note)
            self._seen.setdefault(partition, offset)

    def finish(self) -> None:
        if self._seen:
            self._commit()
        self._consumer.close()


def main() -> int:
    bootstrap, topic, group, name = sys.argv[1:]
    member = Member(bootstrap, topic, group, name, Printed())

    def wait_for_the_end() -> None:
        sys.stdin.read()
        member.end()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    member.run()
    if member.broke is not None:
        print(repr(member.broke), file=sys.stderr)
    return 0 if member.broke is None else 1


if __name__ == "__main__":
    sys.exit(main())
