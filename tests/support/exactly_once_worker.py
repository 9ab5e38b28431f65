"""Copies a topic's records to another one, exactly once, until it is killed; run as a script.

Arguments: bootstrap, transactional id, group, input topic, output topic. Each batch is a
transaction of its records and of the group's offsets. Some transactions are aborted after a record
that nobody may ever read.
"""

from __future__ import annotations

import random
import sys
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

BATCH_MAX = 20
TIMEOUT_S = 30.0
ABORTED = b"aborted"
SHARE_ABORTED = 0.2


class Worker:
    def __init__(self, bootstrap: str, name: str, group: str, source: str, target: str) -> None:
        self._target = target
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "session.timeout.ms": 6000,
            }
        )
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": name,
                "transaction.timeout.ms": 10_000,
            }
        )
        self._producer.init_transactions(TIMEOUT_S)
        self._consumer.subscribe([source])

    def run(self) -> None:
        while True:
            messages = [one for one in self._consumer.consume(BATCH_MAX, 0.2) if not one.error()]
            if messages:
                self._copy(messages)

    def _copy(self, messages: list[Message]) -> None:
        """Ends the process where its producer is fenced, or broken for good."""
        try:
            self._producer.begin_transaction()
            for message in messages:
                self._write(message, message.value() or b"")
            if random.random() < SHARE_ABORTED:
                self._write(messages[0], ABORTED)
                self._producer.flush(TIMEOUT_S)
                self._abort()
                return
            self._until_done(
                self._producer.send_offsets_to_transaction,
                _next_offsets(messages),
                self._consumer.consumer_group_metadata(),
            )
            self._until_done(self._producer.commit_transaction)
        except KafkaException as failure:
            if not failure.args[0].txn_requires_abort():
                raise
            self._abort()

    def _write(self, message: Message, value: bytes) -> None:
        self._producer.produce(self._target, value, partition=message.partition() or 0)

    def _until_done(self, step: Any, *arguments: Any) -> None:
        while True:
            try:
                step(*arguments, TIMEOUT_S)
            except KafkaException as failure:
                if failure.args[0].retriable():
                    continue
                raise
            return

    def _abort(self) -> None:
        """The records are read again."""
        self._until_done(self._producer.abort_transaction)
        for place in self._consumer.committed(self._consumer.assignment(), TIMEOUT_S):
            place.offset = max(0, place.offset)
            self._consumer.seek(place)


def _next_offsets(messages: list[Message]) -> list[TopicPartition]:
    found = {(one.topic() or "", one.partition() or 0): one.offset() or 0 for one in messages}
    return [TopicPartition(*place, offset + 1) for place, offset in found.items()]


if __name__ == "__main__":
    Worker(*sys.argv[1:6]).run()
