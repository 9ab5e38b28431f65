"""What a mirror keeps at the target: the topics of progress and of offsets, as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from pyrklog.mirror.errors import Kind, MirrorError
from pyrklog.mirror.names import Offsets
from pyrklog.mirror.spans import Span

VERSION = 1
Partition = tuple[str, int]
"""Topic at the source, and partition."""


class Progress(NamedTuple):
    """How far a partition is mirrored.

    ``position`` is the source's offset to go on at, ``epoch`` the leader epoch of the record before
    it (-1 unknown). At the target, what is mirrored begins at or behind ``target_begin`` and ends
    before ``target_end``. ``records``, ``bytes`` (of batches as they were fetched) and ``skipped``
    (offsets that were deleted before) count from ``begin``.
    """

    target: str
    position: int
    epoch: int
    target_end: int
    target_begin: int = 0
    begin: int = 0
    records: int = 0
    bytes: int = 0
    skipped: int = 0
    topic_id: str = ""
    at_ms: int = 0
    span: Span | None = None
    """The last one."""
    target_id: str = ""
    """Of the target's topic, as ``topic_id`` of the source's; empty before Kafka 2.8."""


class Origin(NamedTuple):
    """Of what clusters a mirror is, by ids, how it names topics, and which offsets it gives."""

    source_id: str
    target_id: str
    policy: str
    offsets: str = Offsets.TRANSLATE.value


@dataclass
class State:
    """All that the topic of progress says. ``chains``: the clusters that a topic's records come
    from. ``claims``: the target's topics that this mirror writes to, by the source's. ``again``:
    topics that are to be copied from their beginning. ``patterns``: those of which all topics that
    there were have been begun."""

    origin: Origin | None = None
    partitions: dict[Partition, Progress] = field(default_factory=dict)
    chains: dict[str, list[str]] = field(default_factory=dict)
    claims: dict[str, str] = field(default_factory=dict)
    again: set[str] = field(default_factory=set)
    patterns: list[str] | None = None


class Row(NamedTuple):
    """A record of one of these topics; without a value a tombstone."""

    topic: str
    key: bytes
    value: bytes | None


def origin_row(topic: str, origin: Origin) -> Row:
    """Translated offsets are not named: versions that know no others read the row, too."""
    value = {"version": VERSION, **origin._asdict()}
    if origin.offsets == Offsets.TRANSLATE.value:
        del value["offsets"]
    return _row(topic, ["mirror"], value)


def progress_row(topic: str, partition: Partition, progress: Progress) -> Row:
    return _row(topic, ["partition", *partition], progress._asdict())


def forgotten_row(topic: str, partition: Partition) -> Row:
    return Row(topic, _text(["partition", *partition]), None)


def again_row(topic: str, of: str, *, is_due: bool) -> Row:
    key = ["again", of]
    return _row(topic, key, True) if is_due else Row(topic, _text(key), None)


def patterns_row(topic: str, patterns: list[str]) -> Row:
    return _row(topic, ["topics"], patterns)


def chain_row(topic: str, of: str, chain: list[str]) -> Row:
    return _row(topic, ["chain", of], chain)


def claim_row(topic: str, of: str, target: str | None) -> Row:
    """Without a target the claim is taken back."""
    key = ["claim", of]
    return Row(topic, _text(key), None) if target is None else _row(topic, key, target)


def mark_row(topic: str, of: str) -> Row:
    """Says nothing, and is no other's. A tombstone: compaction takes it away, and versions that do
    not know it read on."""
    return Row(topic, _text(["mark", of]), None)


def spans_row(topic: str, partition: Partition, spans: Iterable[Span]) -> Row:
    return _row(topic, [*partition], [list(span) for span in spans])


def _row(topic: str, key: list[Any], value: Any) -> Row:
    return Row(topic, _text(key), _text(value))


def _text(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def read_state(topic: str, records: Iterable[tuple[bytes | None, bytes | None]]) -> State:
    """Of the records of the topic of progress, in order. Raises MirrorError for what no mirror of
    this version writes."""
    last: dict[bytes, bytes] = {}
    for key, value in records:
        if key is not None and value is not None:
            last[key] = value
        elif key is not None:
            last.pop(key, None)
    state = State()
    for key, value in last.items():
        try:
            _take(state, json.loads(key), json.loads(value))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise MirrorError(
                f"topic {topic} has a record that no mirror of this version writes: {error}",
                "use the version of pyrklog that wrote it, or a later one",
            ) from error
    return state


def _take(state: State, key: list[Any], value: Any) -> None:
    match key:
        case ["mirror"]:
            state.origin = origin_of(value)
        case ["partition", str(topic), int(partition)]:
            span = value.pop("span")
            progress = Progress(**value, span=None if span is None else Span(*span))
            state.partitions[topic, partition] = progress
        case ["chain", str(topic)]:
            state.chains[topic] = [str(one) for one in value]
        case ["claim", str(topic)]:
            state.claims[topic] = str(value)
        case ["topics"]:
            state.patterns = [str(one) for one in value]
        case ["again", str(topic)]:
            state.again.add(topic)
        case _:
            raise ValueError(f"key {key}")


def origin_of(value: dict[str, Any]) -> Origin:
    """Of a value as :func:`origin_row` writes it. Raises ValueError for that of another version,
    and what other values are raises, too: KeyError, TypeError, AttributeError."""
    others = dict(value)
    version = others.pop("version")
    if version != VERSION:
        raise ValueError(f"version {version}")
    Offsets(others.get("offsets", Offsets.TRANSLATE.value))
    return Origin(**others)


def read_spans(
    topic: str, records: Iterable[tuple[bytes | None, bytes | None]]
) -> Iterator[tuple[Partition, list[Span]]]:
    """Of the records of the topic of offsets. Raises MirrorError."""
    for key, value in records:
        try:
            source, partition = json.loads(key or b"")
            spans = [Span(*span) for span in json.loads(value or b"")]
        except (ValueError, TypeError) as error:
            raise MirrorError(f"topic {topic} has a record that is none of its: {error}") from error
        yield (source, partition), spans


def check_origin(topic: str, known: Origin | None, now: Origin) -> None:
    """Raises MirrorError if the topic of progress is another mirror's, or a new mirror's clusters
    are one."""
    if known is None and now.source_id and now.source_id == now.target_id:
        raise MirrorError(
            f"--from and --to have the same cluster id, {now.source_id}",
            "give a broker of another cluster; `pyrklog topic copy` copies within one",
            Kind.USAGE,
        )
    if known is None or known == now:
        return
    if known.policy != now.policy:
        what = f"the mirror was begun with --policy {known.policy}, not {now.policy}"
    elif known.offsets != now.offsets:
        what = f"the mirror was begun with --offsets {known.offsets}, not {now.offsets}"
    else:
        what = (
            f"the mirror was begun from cluster {known.source_id} to {known.target_id}, and not "
            f"from {now.source_id} to {now.target_id}"
        )
    raise MirrorError(f"{what} (topic {topic})", "give another --name")


class Chains(Protocol):
    """What a topic of progress says of where records come from."""

    @property
    def chains(self) -> dict[str, list[str]]: ...


def chain_of(topic: str, source_id: str, upstream: Iterable[Chains]) -> list[str]:
    """The clusters that records come from which are mirrored from a topic: the source, and those
    of mirrors that write to it."""
    found = [source_id]
    for state in upstream:
        found += [one for one in state.chains.get(topic, []) if one not in found]
    return found
