"""What mirrors of other names say in their topics of progress.

Anybody may write to such a topic, its mirror may be of a later version, or its partition without a
leader. None of this stops this mirror: it is told, and topics that are copied already go on. A
topic of which no copy has begun waits until all others can be read, since it might be theirs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from pyrklog.mirror.state import Origin, origin_of
from pyrklog.scanning import (
    AuthenticationError,
    BrokerNotAvailableError,
    ScanError,
    TopicDeletedError,
)

KEYS_MAX = 200_000
KEPT_BYTES_MAX = 64 << 20
READ_BYTES_MAX = 1 << 30
"""Of one topic: what is kept of its keys and values, and what is read at all. A topic of progress
has a few hundred bytes a partition, and what compaction has not taken away yet."""
ANSWER_S = 10.0
"""How long the leader of such a topic is waited for."""
AGAIN_S = 300.0
"""After a leader has not answered, or has sent too much, it is not asked for so long."""
_ORIGIN = b'["mirror"]'
CHAINS = (b'["chain",',)
COPIES = (b'["claim",', b'["partition",')
"""How keys begin, as mirrors write them, that tell where records come from, and what is copied."""
_OF_CLUSTER = (AuthenticationError, BrokerNotAvailableError, TopicDeletedError)
"""Failures that are no fault of a single topic's, or that the next look explains."""

Records = Iterable[tuple[bytes | None, bytes | None]]


class Admin(Protocol):
    """Of :class:`pyrklog.mirror.cluster.ClusterAdmin`."""

    def leaderless(self) -> Collection[tuple[str, int]]: ...
    def records(self, topic: str, *, exists: bool, timeout_s: float) -> Records: ...


@dataclass(frozen=True)
class Other:
    """What one such topic says. ``copied``: topics at its source, with their names at its target,
    that are copied or are going to be."""

    chains: dict[str, list[str]] = field(default_factory=dict)
    copied: set[tuple[str, str]] = field(default_factory=set)


class UnreadableError(Exception):
    """Why a topic cannot be read."""


class TooMuchError(UnreadableError):
    """It has more than is read."""


class Others:
    """At the cluster ``alias``. ``note`` is told what a user may want to know."""

    def __init__(
        self,
        admin: Admin,
        alias: str,
        note: Callable[[str], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._admin = admin
        self._alias = alias
        self._note = note
        self._clock = clock
        self._told: dict[str, str] = {}
        """Topics that cannot be read, and why."""
        self._again_at: dict[str, float] = {}
        self._waiting: frozenset[str] = frozenset()

    @property
    def has_waiting(self) -> bool:
        """Whether topics were left out at the last look."""
        return bool(self._waiting)

    def read(
        self, topic: str, kinds: tuple[bytes, ...], is_wanted: Callable[[Origin], bool]
    ) -> Other | None:
        """What a topic says by keys of these kinds, nothing if it is of other clusters than those
        wanted; None, and a note, if it cannot be read. Raises AwayError, also while a broker does
        not know the topic yet."""
        if self._clock() < self._again_at.get(topic, 0.0):
            return None
        try:
            found = self._read(topic, kinds, is_wanted)
        except UnreadableError as error:
            self._tell(topic, str(error), is_costly=isinstance(error, TooMuchError))
        except _OF_CLUSTER:
            raise
        except ScanError as error:
            self._tell(topic, str(error), is_costly=True)
        else:
            self._told.pop(topic, None)
            return found
        return None

    def _read(
        self, topic: str, kinds: tuple[bytes, ...], is_wanted: Callable[[Origin], bool]
    ) -> Other:
        if (topic, 0) in self._admin.leaderless():
            raise UnreadableError("its partition has no leader")
        return read_other(
            self._admin.records(topic, exists=True, timeout_s=ANSWER_S), kinds, is_wanted
        )

    def _tell(self, topic: str, why: str, *, is_costly: bool) -> None:
        """Once for each reason."""
        if self._told.get(topic) != why:
            self._note(
                f"topic {topic} at {self._alias}, the progress of another mirror, cannot be read: "
                f"{why}; topics that are copied already go on, others wait until it can, or is "
                "deleted"
            )
        self._told[topic] = why
        if is_costly:
            self._again_at[topic] = self._clock() + AGAIN_S

    def waiting(
        self, topics: Collection[str], begun: Collection[str], *, is_read: bool
    ) -> frozenset[str]:
        """Those of the topics that are to be left out: all that are not ``begun``, unless the
        others could be read."""
        waiting = frozenset() if is_read else frozenset(topics) - frozenset(begun)
        for topic in sorted(waiting - self._waiting):
            self._note(f"topic {topic} is not copied yet: another mirror's progress is not known")
        self._waiting = waiting
        return waiting


def read_other(
    records: Records, kinds: tuple[bytes, ...], is_wanted: Callable[[Origin], bool]
) -> Other:
    """Of the records of another mirror's topic of progress, in order. Keys of other kinds are
    passed over. Raises UnreadableError."""
    last: dict[bytes, bytes] = {}
    kept = read = 0
    for key, value in records:
        if key is None:
            continue
        read += len(key) + len(value or b"")
        if key == _ORIGIN or key.startswith(kinds):
            before = last.pop(key, None)
            kept -= 0 if before is None else len(key) + len(before)
            if value is not None:
                last[key] = value
                kept += len(key) + len(value)
        too_much = _too_much(len(last), kept, read)
        if too_much:
            if _ORIGIN in last and not is_wanted(_origin(last)):
                return Other()
            raise TooMuchError(too_much)
    # Without an origin nothing has begun.
    if _ORIGIN not in last or not is_wanted(_origin(last)):
        return Other()
    del last[_ORIGIN]
    found = Other()
    for key, value in last.items():
        try:
            _take(found, json.loads(key), json.loads(value))
        except (ValueError, KeyError, TypeError) as error:
            raise _not_ours(error) from error
    return found


def _too_much(keys: int, kept: int, read: int) -> str:
    if keys > KEYS_MAX:
        return f"it has more than {KEYS_MAX} keys"
    if kept > KEPT_BYTES_MAX:
        return f"it has more than {KEPT_BYTES_MAX >> 20} MiB of keys and last values"
    return f"it has more than {READ_BYTES_MAX >> 20} MiB" if read > READ_BYTES_MAX else ""


def _origin(last: dict[bytes, bytes]) -> Origin:
    try:
        return origin_of(json.loads(last[_ORIGIN]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _not_ours(error) from error


def _take(found: Other, key: list[Any], value: Any) -> None:
    match key, value:
        case ["chain", str(topic)], list():
            found.chains[topic] = [str(one) for one in value]
        case ["claim", str(topic)], str():
            found.copied.add((topic, value))
        case ["partition", str(topic), int()], {"target": str(target)}:
            found.copied.add((topic, target))
        case _:
            raise ValueError(f"key {key}")


def _not_ours(error: Exception) -> UnreadableError:
    return UnreadableError(f"it has a record that no mirror of this version writes: {error}")
