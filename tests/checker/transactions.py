"""Anomalies of read-process-write in transactions: pure functions, as those of ``analysis``.

Copiers read a topic as a group, and write what they read to the same partitions of another one, in
transactions with the group's offsets. An input record's value is its own in its partition, and its
copy has the same. So the committed copies of a partition are its input, in its order, up to the
group's offset.

The names G0, G1a and G1b are Adya's; which of them Kafka forbids is said at each check.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import NamedTuple

from tests.checker.analysis import (
    Anomaly,
    Evidence,
    Log,
    backwards,
    inconsistent,
    lost,
    name_of,
    range_of,
    skipped,
    unreadable,
)
from tests.checker.history import NONE, Op, TransactionId

NEVER_NS = 1 << 62


class Copy(NamedTuple):
    value: int
    transaction: str


Copies = Mapping[int, Mapping[int, Copy]]
"""By partition and offset."""


@dataclass
class Transaction:
    """What its client did. Times are ``NEVER_NS`` of what did not happen."""

    name: str
    began_ns: int = NEVER_NS
    asked_ns: int = NEVER_NS
    """When the client asked for its commit. Nothing of it may be seen before."""
    committed_ns: int = NEVER_NS
    aborted_ns: int = NEVER_NS
    """When the client was told of its end. A commit that failed counts as an abort."""
    sends: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    """By partition."""
    offsets: dict[int, int] = field(default_factory=dict)

    @property
    def is_committed(self) -> bool:
        return self.committed_ns != NEVER_NS

    @property
    def may_be_committed(self) -> bool:
        return self.asked_ns != NEVER_NS and self.aborted_ns == NEVER_NS

    @property
    def ended_ns(self) -> int:
        return min(self.committed_ns, self.aborted_ns)

    def why_not_seen(self) -> str:
        """Of one that may not be."""
        return "is open" if self.aborted_ns == NEVER_NS else "was aborted"


@dataclass(frozen=True)
class Copying:
    """A history in the order of time, and what is there at its end.

    ``source`` is the input. ``committed`` and ``raw`` are the output as read in full from the
    start, by a reader of committed records and by one of all. ``offsets`` are the group's.
    """

    ops: Sequence[Op]
    source: Mapping[int, Log]
    committed: Copies
    raw: Copies
    offsets: Mapping[int, int]

    @cached_property
    def transactions(self) -> Mapping[str, Transaction]:
        return _transactions(self.ops)

    @cached_property
    def read(self) -> Mapping[str, Mapping[int, Log]]:
        """Committed copies by transaction and partition: value -> offset."""
        return _by_transaction(self.committed)

    @cached_property
    def written(self) -> Mapping[str, Mapping[int, Log]]:
        """The same of all."""
        return _by_transaction(self.raw)

    def of(self, *actions: str) -> Iterator[Op]:
        return (op for op in self.ops if op.action in actions and op.outcome == "ok")

    def sightings(self) -> Iterator[tuple[str, int, int, Copy, int]]:
        """Of committed records: who, partition, offset, copy, time."""
        for op in self.of("read"):
            yield op.client, op.partition, op.offset, Copy(op.value, op.transaction), op.time_ns
        for partition, log in self.committed.items():
            for offset, copy in log.items():
                yield "the final read", partition, offset, copy, NEVER_NS

    def plain(self, copies: Copies) -> Evidence:
        """For checks that know nothing of transactions."""
        reads = [op for op in self.ops if op.action in ("read", "assign", "revoke")]
        values = {p: {at: one.value for at, one in log.items()} for p, log in copies.items()}
        return Evidence(reads, values)


def _transactions(ops: Sequence[Op]) -> dict[str, Transaction]:
    found: dict[str, Transaction] = {}
    for op in ops:
        if not op.transaction or op.action in ("read", "poll"):
            continue
        one = found.setdefault(op.transaction, Transaction(op.transaction))
        match op.action, op.outcome:
            case "begin", _:
                one.began_ns = op.time_ns
            case "send", "invoke":
                one.sends[op.partition].append(op.value)
            case "send_offsets", "invoke":
                one.offsets[op.partition] = op.offset
            case "commit_transaction", "invoke":
                one.asked_ns = min(one.asked_ns, op.time_ns)
            case "commit_transaction", "ok":
                one.committed_ns = op.time_ns
            case ("abort_transaction", "ok") | ("commit_transaction", "fail"):
                one.aborted_ns = min(one.aborted_ns, op.time_ns)
    return found


def _by_transaction(copies: Copies) -> dict[str, dict[int, Log]]:
    found: dict[str, dict[int, Log]] = {}
    for partition, log in copies.items():
        for offset, copy in log.items():
            places = found.setdefault(copy.transaction, {})
            places.setdefault(partition, {})[copy.value] = offset
    return found


def check_copying(evidence: Copying) -> list[Anomaly]:
    return [found for look in CHECKS.values() for found in look(evidence)]


def lost_write(evidence: Copying) -> Iterator[Anomaly]:
    """Of a committed transaction, or seen by a reader, but not there at the end."""
    for one in evidence.transactions.values():
        if one.is_committed:
            yield from _missing("lost_write", evidence, one, "was committed")
    for found in lost(evidence.plain(evidence.committed)):
        yield found._replace(kind="lost_write")


def torn(evidence: Copying) -> Iterator[Anomaly]:
    """A transaction whose end nobody was told is there in part."""
    for one in evidence.transactions.values():
        if one.may_be_committed and not one.is_committed and one.name in evidence.read:
            yield from _missing("torn", evidence, one, "is there in part")


def _missing(kind: str, evidence: Copying, one: Transaction, what: str) -> Iterator[Anomaly]:
    for partition, values in sorted(one.sends.items()):
        there = evidence.read.get(one.name, {}).get(partition, {})
        for value in values:
            if value not in there:
                yield Anomaly(kind, partition, f"{one.name} {what}, without {name_of(value)}")


def aborted_read(evidence: Copying) -> Iterator[Anomaly]:
    """G1a: a reader of committed records sees one whose transaction was aborted, or whose commit
    nobody had asked for by then."""
    told: set[tuple[str, int]] = set()
    for who, partition, offset, copy, time_ns in evidence.sightings():
        one = evidence.transactions.get(copy.transaction)
        if one is None or (one.name, partition) in told:
            continue
        if not one.may_be_committed:
            why = one.why_not_seen()
        elif time_ns < one.asked_ns:
            why = "was open"
        else:
            continue
        told.add((one.name, partition))
        text = f"{who} sees {name_of(copy.value)} at {offset}; {one.name} {why}"
        yield Anomaly("aborted_read", partition, text)


def intermediate_read(evidence: Copying) -> Iterator[Anomaly]:
    """G1b: a reader with everything up to a last stable offset has a part of a transaction's
    records in that partition.

    In other partitions it may lag. In this one too, behind the first record of a transaction that
    was open: that record is the last stable offset then, and the end of what may be read.
    """
    seen: dict[tuple[str, int], dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    for op in evidence.of("read", "stable"):
        news = seen[(op.client, op.partition)]
        if op.action == "read":
            news[op.transaction].add(op.value)
            continue
        for name, values in news.items():
            left = _unseen(evidence, name, op, values)
            if left:
                text = f"{op.client} at {op.offset} has {name} without {name_of(left[0])}"
                yield Anomaly("intermediate_read", op.partition, text)
        news.clear()


def _unseen(evidence: Copying, name: str, at: Op, seen: set[int]) -> list[int]:
    """A transaction's values that a reader should have seen by then."""
    one = evidence.transactions.get(name)
    if one is None:
        return []
    places = evidence.written.get(name, {}).get(at.partition, {})
    blocks = evidence.raw.get(at.partition, {}).get(at.offset)
    end = NEVER_NS if blocks is None or blocks.transaction == name else at.offset
    return [
        value
        for value in one.sends.get(at.partition, ())
        if value not in seen and places.get(value, NONE) < end
    ]


def dirty_write(evidence: Copying) -> Iterator[Anomaly]:
    """G0, as far as a log forbids it: a transaction writes behind the records of one that began
    after its end, or after its producer was fenced. Open ones may be in any order."""
    settled = _settled(evidence)
    for partition, log in sorted(evidence.raw.items()):
        latest = Transaction("none", began_ns=-1)
        for offset, copy in sorted(log.items()):
            one = evidence.transactions.get(copy.transaction)
            if one is None:
                continue
            if settled[one.name] < latest.began_ns:
                text = f"{name_of(copy.value)} of {one.name} at {offset} is behind {latest.name}"
                yield Anomaly("dirty_write", partition, text)
            elif one.began_ns > latest.began_ns:
                latest = one


def _settled(evidence: Copying) -> dict[str, int]:
    """By transaction: since when it can write nothing more."""
    asked: dict[tuple[str, str], int] = {}
    inits: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
    for op in evidence.ops:
        if op.action == "init" and op.outcome == "invoke":
            asked[(op.note, op.client)] = op.time_ns
        elif op.action == "init" and op.outcome == "ok":
            inits[op.note].append((asked[(op.note, op.client)], op.time_ns, op.client))
    fenced: dict[str, int] = {}
    for lives in inits.values():
        for _, done_ns, client in lives:
            # Only one that asked after this one was answered is certainly the later one.
            later = [end_ns for begin_ns, end_ns, _ in lives if begin_ns > done_ns]
            fenced[client] = min(later, default=NEVER_NS)
    return {
        name: min(one.ended_ns, fenced.get(client_of(name), NEVER_NS))
        for name, one in evidence.transactions.items()
    }


def client_of(transaction: str) -> str:
    """The client's name in the history: transactional id and life."""
    name, life, _ = TransactionId.parse(transaction)
    return f"{name}/{life}"


def duplicate(evidence: Copying) -> Iterator[Anomaly]:
    """An input record has several copies."""
    for partition, log in sorted(evidence.committed.items()):
        places: dict[int, list[str]] = defaultdict(list)
        for offset, copy in sorted(log.items()):
            places[copy.value].append(f"{offset} of {copy.transaction}")
        for value, found in places.items():
            if len(found) > 1:
                yield Anomaly("duplicate", partition, f"{name_of(value)} at {', '.join(found)}")


def reordered(evidence: Copying) -> Iterator[Anomaly]:
    """Copies are not in the order of the input."""
    for partition, log in sorted(evidence.committed.items()):
        places = _places(evidence.source.get(partition, {}))
        last, before = NONE, NONE
        for offset, copy in sorted(log.items()):
            place = places.get(copy.value, NONE)
            if NONE < place < last:
                text = f"{name_of(copy.value)} at {offset} is behind {name_of(before)}"
                yield Anomaly("reordered", partition, text)
            elif place > last:
                last, before = place, copy.value


def _places(log: Log) -> dict[int, int]:
    return {value: offset for offset, value in log.items()}


def phantom(evidence: Copying) -> Iterator[Anomaly]:
    """A record that no transaction wrote there, or that is not in the input."""
    told: set[tuple[int, Copy]] = set()
    raw = ((p, at, copy) for p, log in evidence.raw.items() for at, copy in log.items())
    seen = ((p, at, copy) for _, p, at, copy, _ in evidence.sightings())
    sources = {partition: set(log.values()) for partition, log in evidence.source.items()}
    for partition, offset, copy in chain(raw, seen):
        one = evidence.transactions.get(copy.transaction)
        is_sent = one is not None and copy.value in one.sends.get(partition, ())
        if is_sent and copy.value in sources.get(partition, ()):
            continue
        if (partition, copy) not in told:
            told.add((partition, copy))
            what = "was never sent" if not is_sent else "is not in the input"
            text = f"{name_of(copy.value)} of {copy.transaction!r} at {offset} {what}"
            yield Anomaly("phantom", partition, text)


def ahead(evidence: Copying) -> Iterator[Anomaly]:
    """The group's offset is beyond what the committed output accounts for: the records between are
    never copied. Or somebody is told an offset whose commit nobody had asked for."""
    for partition, offset in sorted(evidence.offsets.items()):
        copied = {copy.value for copy in evidence.committed.get(partition, {}).values()}
        source = sorted(evidence.source.get(partition, {}).items())
        left = [at for at, value in source if at < offset and value not in copied]
        if left:
            yield Anomaly("ahead", partition, f"offset {offset}, not copied: {range_of(left)}")
    asked: dict[tuple[int, int], int] = {}
    for one in evidence.transactions.values():
        for place in one.offsets.items() if one.may_be_committed else ():
            asked[place] = min(asked.get(place, NEVER_NS), one.asked_ns)
    for op in evidence.of("committed"):
        if op.offset > 0 and op.time_ns < asked.get((op.partition, op.offset), NEVER_NS):
            text = f"{op.client} is told {op.offset}, which nobody has committed"
            yield Anomaly("ahead", op.partition, text)


def behind(evidence: Copying) -> Iterator[Anomaly]:
    """The group's offset is before a copied record, or before a committed transaction's offset:
    what is between would be copied again."""
    for partition, log in sorted(evidence.committed.items()):
        offset = evidence.offsets.get(partition, 0)
        places = _places(evidence.source.get(partition, {}))
        again = sorted({places.get(copy.value, NONE) for copy in log.values()})
        again = [place for place in again if place >= offset]
        if again:
            yield Anomaly("behind", partition, f"offset {offset}, copied: {range_of(again)}")
    for one in evidence.transactions.values():
        for partition, offset in one.offsets.items() if one.is_committed else ():
            if offset > evidence.offsets.get(partition, 0):
                text = f"offset {evidence.offsets.get(partition, 0)}; {one.name} has {offset}"
                yield Anomaly("behind", partition, text)


def _each_offset_has_one_record(evidence: Copying) -> Iterator[Anomaly]:
    # What readers of committed records saw, and all of the log.
    return inconsistent(evidence.plain(evidence.raw))


def _readers_see_all_in_order(evidence: Copying) -> Iterator[Anomaly]:
    plain = evidence.plain(evidence.committed)
    return chain(skipped(plain), backwards(plain), unreadable(plain))


CHECKS: Mapping[str, Callable[[Copying], Iterator[Anomaly]]] = {
    "lost_write": lost_write,
    "torn": torn,
    "aborted_read": aborted_read,
    "intermediate_read": intermediate_read,
    "dirty_write": dirty_write,
    "duplicate": duplicate,
    "reordered": reordered,
    "phantom": phantom,
    "ahead": ahead,
    "behind": behind,
    "inconsistent": _each_offset_has_one_record,
    "skipped, backwards, unreadable": _readers_see_all_in_order,
}
"""Kinds of anomalies -> their check."""
