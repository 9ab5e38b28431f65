"""Anomalies of a history: pure functions from operations to contradictions.

A partition's log is what all readers, members and acknowledgements say of it together. One offset
has one value, a value has one offset, a writer's values keep the order of its sends, and a reader
sees all of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tests.checker.history import NONE, Action, Op, count_of, writer_of

Log = dict[int, int]


class Anomaly(NamedTuple):
    """``kind`` is one of the names in ``CHECKS``."""

    kind: str
    partition: int
    detail: str

    def __str__(self) -> str:
        return f"{self.kind} in partition {self.partition}: {self.detail}"


@dataclass(frozen=True)
class Evidence:
    """A history, and the log at its end: by partition, read in full from the start."""

    ops: Sequence[Op]
    final: Mapping[int, Log]

    def of(self, *actions: Action) -> Iterator[Op]:
        return (op for op in self.ops if op.action in actions)

    def seen(self) -> Iterator[tuple[str, int, int, int]]:
        """All sightings: (who, partition, offset, value), including the final read."""
        for op in self.of("send", "read", "poll"):
            if op.outcome == "ok" and op.offset != NONE:
                yield op.client, op.partition, op.offset, op.value
        for partition, log in self.final.items():
            for offset, value in log.items():
                yield "the final read", partition, offset, value


def check(evidence: Evidence) -> list[Anomaly]:
    return [found for look in CHECKS.values() for found in look(evidence)]


def lost(evidence: Evidence) -> Iterator[Anomaly]:
    """Acknowledged, or seen by a reader, but not in the log at the end."""
    at_end = {
        (partition, value) for partition, log in evidence.final.items() for value in log.values()
    }
    for op in evidence.of("send", "read", "poll"):
        if op.outcome == "ok" and (op.partition, op.value) not in at_end:
            how = "acknowledged" if op.action == "send" else "seen"
            yield Anomaly(
                "lost", op.partition, f"{name_of(op.value)}, {how} by {op.client} at {op.offset}"
            )


def duplicate(evidence: Evidence) -> Iterator[Anomaly]:
    """One value at two offsets. A writer without any acknowledgement that counts may repeat its
    own: librdkafka 2.16 sends again, despite ``retries``, once the metadata does not
    name a broker."""
    unpromised = _unpromised(evidence)
    places: dict[tuple[int, int], set[int]] = defaultdict(set)
    for _, partition, offset, value in evidence.seen():
        places[(partition, value)].add(offset)
    for (partition, value), offsets in sorted(places.items()):
        if len(offsets) > 1 and writer_of(value) not in unpromised:
            yield Anomaly("duplicate", partition, f"{name_of(value)} at {sorted(offsets)}")


def _unpromised(evidence: Evidence) -> set[int]:
    """Writers without any acknowledgement that counts."""
    sends = [(writer_of(op.value), op.outcome) for op in evidence.of("send")]
    return {writer for writer, _ in sends} - {writer for writer, told in sends if told == "ok"}


def inconsistent(evidence: Evidence) -> Iterator[Anomaly]:
    values: dict[tuple[int, int], dict[int, str]] = defaultdict(dict)
    for who, partition, offset, value in evidence.seen():
        values[(partition, offset)].setdefault(value, who)
    for (partition, offset), found in sorted(values.items()):
        if len(found) > 1:
            says = ", ".join(f"{name_of(value)} for {who}" for value, who in found.items())
            yield Anomaly("inconsistent", partition, f"offset {offset} is {says}")


def reordered(evidence: Evidence) -> Iterator[Anomaly]:
    """A writer's values in another order than sent. A writer without any acknowledgement that
    counts was promised no order: sends that it gave up may arrive late."""
    unpromised = _unpromised(evidence)
    for partition, log in sorted(evidence.final.items()):
        last: dict[int, tuple[int, int]] = {}
        for offset, value in sorted(log.items()):
            writer, count = writer_of(value), count_of(value)
            before, where = last.get(writer, (NONE, NONE))
            if count < before and writer not in unpromised:
                text = f"{name_of(value)} at {offset} behind count {before} at {where}"
                yield Anomaly("reordered", partition, text)
            last[writer] = (count, offset)


def phantom(evidence: Evidence) -> Iterator[Anomaly]:
    """Seen but never sent, or seen although the send failed."""
    sent = {(op.partition, op.value) for op in evidence.of("send") if op.outcome == "invoke"}
    failed = {(op.partition, op.value) for op in evidence.of("send") if op.outcome == "fail"}
    told = set()
    for who, partition, offset, value in evidence.seen():
        if (partition, value) in told:
            continue
        if (partition, value) not in sent:
            text = f"{name_of(value)} at {offset}, seen by {who}, was never sent"
            yield Anomaly("phantom", partition, text)
        elif (partition, value) in failed:
            text = f"{name_of(value)} at {offset}, seen by {who}, is said to have failed"
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
            text = f"{op.client} went from {before} to {op.offset} past {range_of(between)}"
            yield Anomaly("skipped", op.partition, text)


def backwards(evidence: Evidence) -> Iterator[Anomaly]:
    for op, before in _steps(evidence):
        if op.offset <= before:
            yield Anomaly("backwards", op.partition, f"{op.client}: {op.offset} behind {before}")


def _steps(evidence: Evidence) -> Iterator[tuple[Op, int]]:
    """A client's sightings, each with the offset seen before it in the same assignment."""
    last: dict[tuple[str, int], int] = {}
    for op in evidence.of("read", "poll", "assign", "revoke"):
        key = (op.client, op.partition)
        if op.outcome != "ok":
            continue
        if op.action in ("assign", "revoke"):
            last.pop(key, None)
            continue
        before = last.get(key)
        # A reader without a group begins at the start.
        if before is None and op.action == "read":
            before = NONE
        if before is not None:
            yield op, before
        last[key] = op.offset


def watermark(evidence: Evidence) -> Iterator[Anomaly]:
    """A partition's end goes back for a client that was told a later one.

    Applies only to requests for the end. The high watermark in a fetch may be lower than the
    previous leader's: a new leader learns it a round trip later (KIP-207).
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
    """The group reached the end, and no member saw this."""
    polled: dict[int, set[int]] = defaultdict(set)
    for op in evidence.of("poll"):
        if op.outcome == "ok":
            polled[op.partition].add(op.offset)
    if not polled and not any(True for _ in evidence.of("assign")):
        return
    for partition, log in sorted(evidence.final.items()):
        missing = sorted(log.keys() - polled[partition])
        if missing:
            yield Anomaly("unconsumed", partition, f"offsets {range_of(missing)}")


def passed(evidence: Evidence) -> Iterator[Anomaly]:
    """A commit lies beyond what the group's members had seen when it was made, or beyond a member's
    start: the values in between may never be seen by the group."""
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
                text = f"{op.client}: {op.action} {op.offset}, unseen: {range_of(unseen)}"
                yield Anomaly("passed", op.partition, text)
            checked[op.partition] = max(checked[op.partition], op.offset)


class _Commits:
    """What is known of the group's commits in a partition."""

    def __init__(self) -> None:
        self.certain = 0
        """An acknowledged commit; a member must not begin below it."""
        self.possible = 0


def forgotten(evidence: Evidence) -> Iterator[Anomaly]:
    """A member begins, or the group's committed offset is, before an acknowledged commit, or beyond
    any that was tried."""
    commits: dict[int, _Commits] = defaultdict(_Commits)
    # A member's start is looked up at some time after its assignment.
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
    """By partition, the offsets that anybody saw."""
    found: dict[int, set[int]] = defaultdict(set)
    for _, partition, offset, _ in evidence.seen():
        found[partition].add(offset)
    return found


def name_of(value: int) -> str:
    return f"{writer_of(value)}:{count_of(value)}" if value != NONE else "no value"


def range_of(offsets: Sequence[int]) -> str:
    if len(offsets) == 1:
        return str(offsets[0])
    return f"{offsets[0]}..{offsets[-1]} ({len(offsets)})"


def summary(anomalies: Iterable[Anomaly], shown_max: int = 10) -> str:
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
"""Kind of anomaly -> its check."""
