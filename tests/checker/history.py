"""What clients did and what came of it: one operation after another, as in Jepsen's histories.

An operation begins with an *invoke* and ends with *ok* (it happened), *fail* (it did not) or
*unknown* (nobody knows). What is only observed, a record that was polled for example, is a single
*ok*. Times are those of the machine's monotonic clock, which all clients share.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

Outcome = Literal["invoke", "ok", "fail", "unknown"]
Action = Literal["send", "read", "poll", "assign", "revoke", "commit", "committed", "latest"]
"""``send``: a writer's record. ``read``: a record that a reader with an assignment of its own saw.
``poll``: one that a member of the group saw. ``assign`` and ``revoke``: a partition of the group
comes to a member, and leaves it. ``commit``: a member's; ``committed``: what the group is told to
have committed. ``latest``: the end of a partition as a client was told."""

NONE = -1
_COUNT_BITS = 32


@dataclass(frozen=True, slots=True)
class Op:
    """``value`` and ``offset`` are ``NONE`` where there is none; ``note`` is an error's text."""

    time_ns: int
    client: str
    action: Action
    outcome: Outcome
    partition: int
    value: int = NONE
    offset: int = NONE
    note: str = ""


def value_of(writer: int, count: int) -> int:
    """The value of a writer's record; ``count`` is its own in that partition, from 0."""
    return writer << _COUNT_BITS | count


def writer_of(value: int) -> int:
    """Whose record it is."""
    return value >> _COUNT_BITS


def count_of(value: int) -> int:
    """Which of its writer's records in that partition."""
    return value & (1 << _COUNT_BITS) - 1


def encode(value: int, padding: int) -> bytes:
    """A record's content, with so many bytes behind the value."""
    return b"%d " % value + bytes(padding)


def decode(content: bytes | None) -> int:
    """The value in a record's content; ``NONE`` where there is none."""
    head = (content or b"")[:24].split(b" ", 1)[0]
    return int(head) if head.isdigit() else NONE


class History:
    """For any thread."""

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
    ) -> None:
        """Enters an operation with the time of now."""
        now_ns = time.monotonic_ns()
        self.take(Op(now_ns, client, action, outcome, partition, value, offset, note))

    def take(self, op: Op) -> None:
        """Enters an operation of another process; the clock is the machine's."""
        with self._lock:
            self._ops.append(op)

    def __iter__(self) -> Iterator[Op]:
        """What was entered so far."""
        with self._lock:
            return iter(tuple(self._ops))

    def __len__(self) -> int:
        return len(self._ops)

    def in_order(self) -> list[Op]:
        """What was entered so far, by time."""
        return sorted(self, key=lambda op: op.time_ns)


def write(path: Path, ops: Iterable[Op]) -> None:
    """Keeps them, one line of JSON each."""
    with path.open("w") as output:
        for op in ops:
            output.write(json.dumps(asdict(op)) + "\n")
