"""What a history contradicts: pure functions from operations to anomalies.

The log of a partition is what all readers, all members and all acknowledgements say of it together.
One offset has one value, a value has one offset, a writer's values stand in the order in which it
sent them, and a reader goes through all of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tests.checker.history import NONE, Action, Op, count_of, writer_of

Log = dict[int, int]
"""Value by offset."""


class Anomaly(NamedTuple):
    """``kind`` is one of the names in `CHECKS`."""

    kind: str
    partition: int
    detail: str

    def __str__(self) -> str:
        return f"{self.kind} in partition {self.partition}: {self.detail}"


@dataclass(frozen=True)
class Evidence:
    """A history and what stands in the log after it: by partition, a whole read from the start."""

    ops: Sequence[Op]
    final: Mapping[int, Log]

    def of(self, *actions: Action) -> Iterator[Op]:
        """Operations of these kinds."""
        return (op for op in self.ops if op.action in actions)

    def seen(self) -> Iterator[tuple[str, int, int, int]]:
        """Who says that which partition has which value at which offset: (who, partition, offset,
        value), the final read included."""
        for op in self.of("send", "read", "poll"):
            if op.outcome == "ok" and op.offset != NONE:
                yield op.client, op.partition, op.offset, op.value
        for partition, log in self.final.items():
            for offset, value in log.items():
                yield "the final read", partition, offset, value


def check(evidence: Evidence) -> list[Anomaly]:
    """Everything that must not be."""
    return [found for look in CHECKS.values() for found in look(evidence)]


def lost(evidence: Evidence) -> Iterator[Anomaly]:
    """Acknowledged, or seen by a reader, and not in the log at the end."""
    at_end = {
        (partition, value) for partition, log in evidence.final.items() for value in log.values()
    }
    for op in evidence.of("send", "read", "poll"):
        if op.outcome == "ok" and (op.partition, op.value) not in at_end:
            how = "acknowledged" if op.action == "send" else "seen"
            yield Anomaly(
                "lost", op.partition, f"{_name(op.value)}, {how} by {op.client} at {op.offset}"
            )


def duplicate(evidence: Evidence) -> Iterator[Anomaly]:
    """One value at two offsets. A writer that never had an acknowledgement that counts may repeat
    its own: librdkafka 2.16 sends again, whatever ``retries`` says, once the metadata does not name
    a broker."""
    unpromised = _unpromised(evidence)
    places: dict[tuple[int, int], set[int]] = defaultdict(set)
    for _, partition, offset, value in evidence.seen():
        places[(partition, value)].add(offset)
    for (partition, value), offsets in sorted(places.items()):
        if len(offsets) > 1 and writer_of(value) not in unpromised:
            yield Anomaly("duplicate", partition, f"{_name(value)} at {sorted(offsets)}")


def _unpromised(evidence: Evidence) -> set[int]:
    """Writers that never had an acknowledgement which counts."""
    sends = [(writer_of(op.value), op.outcome) for op in evidence.of("send")]
    return {writer for writer, _ in sends} - {writer for writer, told in sends if told == "ok"}


def inconsistent(evidence: Evidence) -> Iterator[Anomaly]:
    """One offset, two values."""
    values: dict[tuple[int, int], dict[int, str]] = defaultdict(dict)
    for who, partition, offset, value in evidence.seen():
        values[(partition, offset)].setdefault(value, who)
    for (partition, offset), found in sorted(values.items()):
        if len(found) > 1:
            says = ", ".join(f"{_name(value)} for {who}" for value, who in found.items())
            yield Anomaly("inconsistent", partition, f"offset {offset} is {says}")


def reordered(evidence: Evidence) -> Iterator[Anomaly]:
    """A writer's values out of the order in which they were sent. One that never had an
    acknowledgement that counts was promised none: what it gave up may arrive late."""
    unpromised = _unpromised(evidence)
    for partition, log in sorted(evidence.final.items()):
        last: dict[int, tuple[int, int]] = {}
        for offset, value in sorted(log.items()):
            writer, count = writer_of(value), count_of(value)
            before, where = last.get(writer, (NONE, NONE))
            if count < before and writer not in unpromised:
                text = f"{_name(value)} at {offset} behind count {before} at {where}"
                yield Anomaly("reordered", partition, text)
            last[writer] = (count, offset)


def phantom(evidence: Evidence) -> Iterator[Anomaly]:
    """Seen, and never sent; or said to have failed, and seen nevertheless."""
    sent = {(op.partition, op.value) for op in evidence.of("send") if op.outcome == "invoke"}
    failed = {(op.partition, op.value) for op in evidence.of("send") if op.outcome == "fail"}
    told = set()
    for who, partition, offset, value in evidence.seen():
        if (partition, value) in told:
            continue
        if (partition, value) not in sent:
            text = f"{_name(value)} at {offset}, seen by {who}, was never sent"
            yield Anomaly("phantom", partition, text)
        elif (partition, value) in failed:
            text = f"{_name(value)} at {offset}, seen by {who}, is said to have failed"
            yield Anomaly("phantom", partition, text)
        else:
            continue
        told.add((partition, value))


def skipped(evidence: Evidence) -> Iterator[Anomaly]:
    """A reader passes over what somebody else saw, or what is there at the end."""
    known = _offsets(evidence)
    for op, before in _steps(evidence):
        between = [o for o in range(before + 1, op.offset) if o in known[op.partition]]
        if between:
            text = f"{op.client} went from {before} to {op.offset} past {_range(between)}"
            yield Anomaly("skipped", op.partition, text)


def backwards(evidence: Evidence) -> Iterator[Anomaly]:
    """A reader goes back without a rebalance."""
    for op, before in _steps(evidence):
        if op.offset <= before:
            yield Anomaly("backwards", op.partition, f"{op.client}: {op.offset} behind {before}")


def _steps(evidence: Evidence) -> Iterator[tuple[Op, int]]:
    """What a client saw, with the offset that it saw before it in the same assignment."""
    last: dict[tuple[str, int], int] = {}
    for op in evidence.of("read", "poll", "assign", "revoke"):
        key = (op.client, op.partition)
        if op.outcome != "ok":
            continue
        if op.action in ("assign", "revoke"):
            last.pop(key, None)
            continue
        before = last.get(key)
        # A reader of its own begins at the start.
        if before is None and op.action == "read":
            before = NONE
        if before is not None:
            yield op, before
        last[key] = op.offset


def watermark(evidence: Evidence) -> Iterator[Anomaly]:
    """The end of a partition goes back for a client that was told a later one before.

    Only where it asks for the end. A high watermark that comes with records may lie below that of
    the leader before, which a new one learns a round trip later (KIP-207).
    """
    highest: dict[tuple[str, int], int] = {}
    for op in evidence.of("latest"):
        if op.outcome != "ok":
            continue
        key = (op.client, op.partition)
        if op.offset < highest.get(key, NONE):
            text = f"{op.client} was told {highest[key]} and then {op.offset}\n{op.note}".rstrip()
            yield Anomaly("watermark", op.partition, text)
        highest[key] = max(op.offset, highest.get(key, NONE))


def unreadable(evidence: Evidence) -> Iterator[Anomaly]:
    """A reader was told that its position is not in the log."""
    for op in evidence.of("read", "poll"):
        if op.outcome == "fail":
            yield Anomaly("unreadable", op.partition, f"{op.client}: {op.note}")


def unconsumed(evidence: Evidence) -> Iterator[Anomaly]:
    """The group has come to an end, and nobody in it saw this."""
    polled: dict[int, set[int]] = defaultdict(set)
    for op in evidence.of("poll"):
        if op.outcome == "ok":
            polled[op.partition].add(op.offset)
    if not polled and not any(True for _ in evidence.of("assign")):
        return
    for partition, log in sorted(evidence.final.items()):
        missing = sorted(log.keys() - polled[partition])
        if missing:
            yield Anomaly("unconsumed", partition, f"offsets {_range(missing)}")


def passed(evidence: Evidence) -> Iterator[Anomaly]:
    """A commit lies beyond what the group's members had seen when it was made, or where a member
    begins: between the two are values that nobody of the group may ever see."""
    known = {partition: sorted(found) for partition, found in _offsets(evidence).items()}
    polled: dict[int, set[int]] = defaultdict(set)
    checked: dict[int, int] = defaultdict(int)
    for op in evidence.of("poll", "commit", "committed"):
        if op.action == "poll":
            polled[op.partition].add(op.offset)
        elif op.offset != NONE and op.outcome in ("invoke", "ok"):
            unseen = [
                offset
                for offset in known.get(op.partition, ())
                if checked[op.partition] <= offset < op.offset
                and offset not in polled[op.partition]
            ]
            if unseen:
                text = f"{op.client}: {op.action} {op.offset}, unseen: {_range(unseen)}"
                yield Anomaly("passed", op.partition, text)
            checked[op.partition] = max(checked[op.partition], op.offset)


class _Commits:
    """What the group has committed in a partition, as far as anybody can know."""

    def __init__(self) -> None:
        self.certain = 0
        """An acknowledged commit; nothing below it may come back."""
        self.possible = 0
        """The highest that was tried."""


def forgotten(evidence: Evidence) -> Iterator[Anomaly]:
    """A member begins, or the group is told to stand, before a commit that was acknowledged; or
    beyond any that was tried."""
    commits: dict[int, _Commits] = defaultdict(_Commits)
    # Where a member stands when it is assigned is asked at some time from then on.
    floor: dict[tuple[str, int], int] = {}
    for op in evidence.of("poll", "assign", "revoke", "commit", "committed"):
        found, key = commits[op.partition], (op.client, op.partition)
        match op.action:
            case "commit":
                if op.outcome == "ok":
                    found.certain = max(found.certain, op.offset)
                found.possible = max(found.possible, op.offset)
            case "assign":
                floor[key] = found.certain
            case "revoke":
                floor.pop(key, None)
            case _ if op.outcome == "ok":
                least = found.certain if op.action == "committed" else floor.pop(key, None)
                if least is not None:
                    yield from _judge_position(op, least, found.possible)


def _judge_position(op: Op, least: int, most: int) -> Iterator[Anomaly]:
    if op.offset < least:
        text = f"{op.client} is at {op.offset}; {least} was committed"
        yield Anomaly("forgotten", op.partition, text)
    elif op.offset > most:
        text = f"{op.client} is at {op.offset}; nothing beyond {most} was committed"
        yield Anomaly("forgotten", op.partition, text)


def _offsets(evidence: Evidence) -> dict[int, set[int]]:
    """The offsets of each partition that anybody saw."""
    found: dict[int, set[int]] = defaultdict(set)
    for _, partition, offset, _ in evidence.seen():
        found[partition].add(offset)
    return found


def _name(value: int) -> str:
    return f"{writer_of(value)}:{count_of(value)}" if value != NONE else "no value"


def _range(offsets: Sequence[int]) -> str:
    """First and last of some offsets, and how many they are."""
    if len(offsets) == 1:
        return str(offsets[0])
    return f"{offsets[0]}..{offsets[-1]} ({len(offsets)})"


def summary(anomalies: Iterable[Anomaly], shown_max: int = 10) -> str:
    """One line each, at most so many of a kind."""
    by_kind: dict[str, list[Anomaly]] = defaultdict(list)
    for anomaly in anomalies:
        by_kind[anomaly.kind].append(anomaly)
    lines = []
    for kind, found in by_kind.items():
        lines += [str(anomaly) for anomaly in found[:shown_max]]
        if len(found) > shown_max:
            lines.append(f"{kind}: {len(found) - shown_max} more")
    return "\n".join(lines)


CHECKS: Mapping[str, Callable[[Evidence], Iterator[Anomaly]]] = {
    look.__name__: look
    for look in (
        lost,
        duplicate,
        inconsistent,
        reordered,
        phantom,
        skipped,
        backwards,
        watermark,
        unreadable,
        unconsumed,
        passed,
        forgotten,
    )
}
"""Every check by the kind of anomaly that it finds."""
