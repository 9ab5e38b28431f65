"""What clients did and its outcome: a sequence of operations, as in Jepsen's histories.

An operation begins with an *invoke* and ends with *ok* (it happened), *fail* (it did not) or
*unknown*. A mere observation, such as a polled record, is a single *ok*. Times are of the machine's
monotonic clock, which all clients share.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, NamedTuple

Outcome = Literal["invoke", "ok", "fail", "unknown"]
Action = Literal[
    "send",
    "read",
    "poll",
    "assign",
    "revoke",
    "commit",
    "committed",
    "latest",
    "stable",
    "init",
    "begin",
    "send_offsets",
    "commit_transaction",
    "abort_transaction",
]
"""``send``: a writer's record. ``read``: a record seen by a reader with its own assignment.
``poll``: one seen by a group member. ``assign`` and ``revoke``: a member gets or loses a partition.
``commit``: a member's. ``committed``: the group's committed offset as told. ``latest``: a
partition's end as told. ``stable``: a reader of committed records has everything up to a last
stable offset.

Of a transactional client: ``init``: as ``initTransactions``. ``begin``, ``send`` and
``send_offsets`` (an input partition's next offset) belong to a transaction, as do its ends."""

NONE = -1
_COUNT_BITS = 32


@dataclass(frozen=True, slots=True)
class Op:
    """``value`` and ``offset`` are ``NONE`` if there is none, ``partition`` too where an operation
    has none; ``note`` is an error's text; ``transaction`` is a :class:`TransactionId`'s text."""

    time_ns: int
    client: str
    action: Action
    outcome: Outcome
    partition: int
    value: int = NONE
    offset: int = NONE
    note: str = ""
    transaction: str = ""


class TransactionId(NamedTuple):
    """A producer's transaction. ``name`` is the producer's transactional id, ``life`` counts the
    processes that had it, ``number`` the transactions of a life."""

    name: str
    life: int
    number: int

    def __str__(self) -> str:
        return f"{self.name}/{self.life}/{self.number}"

    @classmethod
    def parse(cls, text: str) -> TransactionId:
        name, life, number = text.rsplit("/", 2)
        return cls(name, int(life), int(number))


def value_of(writer: int, count: int) -> int:
    """The value of a writer's record; ``count`` is its own in that partition, from 0."""
    return writer << _COUNT_BITS | count


def writer_of(value: int) -> int:
    return value >> _COUNT_BITS


def count_of(value: int) -> int:
    return value & (1 << _COUNT_BITS) - 1


def encode(value: int, padding: int) -> bytes:
    """A record's content, with padding after the value."""
    return b"%d " % value + bytes(padding)


def decode(content: bytes | None) -> int:
    """The value in a record's content; ``NONE`` if there is none."""
    head = (content or b"")[:24].split(b" ", 1)[0]
    return int(head) if head.isdigit() else NONE


def encode_copy(value: int, transaction: str) -> bytes:
    """The content of a transaction's record."""
    return b"%d %s " % (value, transaction.encode())


def decode_copy(content: bytes | None) -> tuple[int, str]:
    """Value and transaction in a record's content; without a transaction ``""``."""
    parts = (content or b"").split(b" ")
    return decode(content), parts[1].decode() if len(parts) == 3 else ""


class History:
    """Thread-safe."""

    def __init__(self) -> None:
        self._ops: list[Op] = []
        self._lock = threading.Lock()

    def add(
        self,
        client: str,
        action: Action,
        outcome: Outcome,
        partition: int,
        *,
        value: int = NONE,
        offset: int = NONE,
        note: str = "",
        transaction: str = "",
    ) -> None:
        """Adds an operation with the present time."""
        now_ns = time.monotonic_ns()
        op = Op(now_ns, client, action, outcome, partition, value, offset, note, transaction)
        self.take(op)

    def take(self, op: Op) -> None:
        """Adds another process's operation; both have the machine's clock."""
        with self._lock:
            self._ops.append(op)

    def __iter__(self) -> Iterator[Op]:
        with self._lock:
            return iter(tuple(self._ops))

    def __len__(self) -> int:
        return len(self._ops)

    def since(self, count: int) -> list[Op]:
        """The operations but the first ``count``."""
        with self._lock:
            return self._ops[count:]

    def in_order(self) -> list[Op]:
        return sorted(self, key=lambda op: op.time_ns)


def write(path: Path, ops: Iterable[Op]) -> None:
    with path.open("w") as output:
        for op in ops:
            output.write(json.dumps(asdict(op)) + "\n")
