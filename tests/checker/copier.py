"""Copies a topic's records to another one, exactly once, until it is killed: librdkafka's way.

``python -m tests.checker.copier BOOTSTRAP NAME LIFE GROUP SOURCE TARGET`` prints its operations as
lines of JSON. ``Copier.java`` does the same. Each batch is a transaction of its records and of the
group's offsets. Some transactions are aborted after their records, which nobody may ever read.
"""

from __future__ import annotations

import os
import random
import sys
import time
import traceback
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from tests.checker.history import NONE, TransactionId, decode, encode_copy
from tests.checker.reporting import Printed

BATCH_MAX = 20
BATCH_S = 0.05
OPEN_S_MAX = 0.1
TIMEOUT_S = 30.0
SHARE_ABORTED = 0.2
NO_GENERATION = b"CGMDv2:\xff\xff\xff\xff"
"""How a client writes its group metadata while it is no member."""


class Copier:
    def __init__(
        self, bootstrap: str, name: str, life: str, group: str, source: str, target: str
    ) -> None:
        self._history = Printed()
        self._name = name
        self._life = int(life)
        self._client = f"{name}/{life}"
        self._number = 0
        self._target = target
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "session.timeout.ms": 3_000,
                "max.poll.interval.ms": 10_000,
                "heartbeat.interval.ms": 500,
                "log_level": 0,
            }
        )
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": name,
                "transaction.timeout.ms": 10_000,
                "log_level": 0,
            }
        )
        self._history.add(self._client, "init", "invoke", NONE, note=name)
        self._producer.init_transactions(TIMEOUT_S)
        self._history.add(self._client, "init", "ok", NONE, note=name)
        self._batch: list[Message] = []
        self._generation = b""
        self._consumer.subscribe(
            [source], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
        )

    def _assigned(self, *_: object) -> None:
        """Keeps the assignment's generation: offsets that are sent with a later one, or with none,
        might be those of another member's partitions."""
        self._generation = self._consumer.consumer_group_metadata()
        if self._generation.startswith(NO_GENERATION):
            raise RuntimeError("the membership is lost already")

    def _revoked(self, *_: object) -> None:
        self._batch.clear()

    def run(self) -> None:
        while True:
            self._batch.clear()
            deadline = time.monotonic() + BATCH_S
            while len(self._batch) < BATCH_MAX and (left_s := deadline - time.monotonic()) > 0:
                # One at a time: what is revoked meanwhile must not be copied.
                message = self._consumer.poll(left_s)
                if message is not None and message.error() is None:
                    self._batch.append(message)
            if self._batch:
                self._copy(list(self._batch))

    def _copy(self, messages: list[Message]) -> None:
        """Ends the process where its producer is fenced, or broken for good."""
        self._number += 1
        transaction = str(TransactionId(self._name, self._life, self._number))
        self._history.add(self._client, "begin", "ok", NONE, transaction=transaction)
        try:
            self._producer.begin_transaction()
            for message in messages:
                self._write(message, transaction)
            self._producer.flush(TIMEOUT_S)
            # Readers and faults find it open.
            time.sleep(random.uniform(0, OPEN_S_MAX))
            if random.random() > SHARE_ABORTED:
                self._send_offsets(messages, transaction)
                self._end("commit_transaction", transaction)
                return
        except KafkaException as failure:
            if not failure.args[0].txn_requires_abort():
                raise
        self._end("abort_transaction", transaction)
        self._go_back()

    def _write(self, message: Message, transaction: str) -> None:
        partition, value = message.partition() or 0, decode(message.value())
        self._history.add(
            self._client, "send", "invoke", partition, value=value, transaction=transaction
        )
        content = encode_copy(value, transaction)
        self._producer.produce(self._target, content, partition=partition)

    def _send_offsets(self, messages: list[Message], transaction: str) -> None:
        places = _next_offsets(messages)
        for place in places:
            self._history.add(
                self._client,
                "send_offsets",
                "invoke",
                place.partition,
                offset=place.offset,
                transaction=transaction,
            )
        _until_done(self._producer.send_offsets_to_transaction, places, self._generation)

    def _end(self, action: Any, transaction: str) -> None:
        """``action`` is a method of the producer's, too."""
        self._history.add(self._client, action, "invoke", NONE, transaction=transaction)
        try:
            _until_done(getattr(self._producer, action))
        except KafkaException as failure:
            outcome: Any = "fail" if failure.args[0].txn_requires_abort() else "unknown"
            note = str(failure)
            self._history.add(
                self._client, action, outcome, NONE, note=note, transaction=transaction
            )
            raise
        self._history.add(self._client, action, "ok", NONE, transaction=transaction)

    def _go_back(self) -> None:
        """The records are read again."""
        for place in self._consumer.committed(self._consumer.assignment(), TIMEOUT_S):
            place.offset = max(0, place.offset)
            self._consumer.seek(place)


def _until_done(step: Any, *arguments: Any) -> None:
    while True:
        try:
            step(*arguments, TIMEOUT_S)
        except KafkaException as failure:
            if failure.args[0].retriable():
                continue
            raise
        return


def _next_offsets(messages: list[Message]) -> list[TopicPartition]:
    found = {(one.topic() or "", one.partition() or 0): one.offset() or 0 for one in messages}
    return [TopicPartition(*place, offset + 1) for place, offset in found.items()]


if __name__ == "__main__":
    try:
        Copier(*sys.argv[1:7]).run()
    except Exception:
        traceback.print_exc()
        sys.stderr.flush()
        # librdkafka can hang in its close. To the group this is one more kill.
        os._exit(1)
