"""Transactional ids of one process: an attempt has one alone, and none is made without need."""

from __future__ import annotations

import os
import secrets
import threading
from dataclasses import dataclass, field

PREFIX = "pyrklog-spark"


def decision_id(sink: str) -> str:
    """The transactional id of those who write a sink's decisions."""
    return f"{PREFIX}/{sink}"


def ids_prefix(sink: str) -> str:
    """What all transactional ids of a sink's attempts begin with. A sink has no slash."""
    return f"{PREFIX}/{sink}/"


@dataclass
class Slot:
    """A transactional id. ``number`` is that of its last attempt, while the transaction may be
    open; None if it is not."""

    transactional_id: str
    number: int | None = None
    is_busy: bool = False


@dataclass
class Slots:
    """Of a process with this name, which no other process has."""

    process: str
    _slots: dict[str, list[Slot]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, sink: str, number: int, finished: int) -> Slot:
        """A slot for an attempt of ``number``. All numbers up to ``finished`` are done, or will
        never be decided: transactions of theirs may be aborted."""
        with self._lock:
            known = self._slots.setdefault(sink, [])
            for slot in known:
                is_over = slot.number is None or slot.number <= finished
                if not slot.is_busy and is_over:
                    break
            else:
                slot = Slot(f"{ids_prefix(sink)}{self.process}/{len(known)}")
                known.append(slot)
            slot.number, slot.is_busy = number, True
            return slot

    def give_back(self, slot: Slot, *, is_open: bool) -> None:
        """The attempt is over. ``is_open`` unless its transaction is known to be aborted."""
        with self._lock:
            slot.is_busy = False
            if not is_open:
                slot.number = None


_of_process: tuple[int, Slots] | None = None


def process_slots() -> Slots:
    """Those of this process. Spark's workers are forked: a child has its own."""
    global _of_process
    if _of_process is None or _of_process[0] != os.getpid():
        _of_process = os.getpid(), Slots(secrets.token_hex(8))
    return _of_process[1]
