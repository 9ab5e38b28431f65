"""The topics of a directory's folders, and those that cannot be adopted. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from pyrklog.adoption.broker_options import OF_DELETION, Defaults, kept_options, marked
from pyrklog.adoption.kraft import KraftMetadata, KraftTopic
from pyrklog.cluster.image import KRAFT_TOPIC
from pyrklog.cluster.topic_names import wrong_with_name
from pyrklog.config.option import InvalidValueError
from pyrklog.config.topic import check_topic_options
from pyrklog.plane.seam import FoundPartition

TRANSACTION_TOPIC = "__transaction_state"
OFFSETS_TOPIC = "__consumer_offsets"
SHOWN_MAX = 10
KEEP_EVERYTHING: Mapping[str, str] = marked(OF_DELETION)
"""Options of a topic whose own are unknown, until somebody confirms others."""


class AdoptedTopic(NamedTuple):
    """A topic to enter into the metadata, with this broker as its only replica."""

    name: str
    topic_id: bytes | None
    """None: no folder knows one, so a new one is made."""
    leader_epochs: Sequence[int]
    """By partition: the newest known; the next leader's is above it."""
    options: Mapping[str, str]
    options_known: bool


class Plan(NamedTuple):
    """``refused``: topic -> reason; their folders stay untouched."""

    topics: Sequence[AdoptedTopic]
    refused: Mapping[str, str]
    options_left_out: Mapping[str, Sequence[str]]
    """Topic -> options that this broker lacks."""
    kept: Sequence[str]
    """Topics of known options that keep more than those say."""


def make_plan(
    node_id: int,
    found: Sequence[FoundPartition],
    epochs: Mapping[tuple[str, int], int],
    kraft: KraftMetadata | None,
    offsets_segment_bytes: int,
    defaults: Defaults | None = None,
) -> Plan:
    """``epochs``: the newest leader epoch in each folder, if any. ``defaults``: those of topics in
    ``kraft``; None = all are known."""
    folders: dict[str, dict[int, FoundPartition]] = {}
    for item in found:
        folders.setdefault(item.topic, {})[item.partition] = item
    known = kraft.by_name() if kraft is not None else {}
    topics: list[AdoptedTopic] = []
    refused: dict[str, str] = {}
    left_out: dict[str, list[str]] = {}
    kept: list[str] = []
    for name, partitions in sorted(folders.items()):
        if name == KRAFT_TOPIC:
            continue
        topic = known.get(name)
        why = wrong_with_name(name) or _refusal(node_id, partitions, topic, kraft is not None)
        if why is not None:
            refused[name] = why
            continue
        options: Mapping[str, str]
        if topic is not None and kraft is not None:
            options, unknown = _usable(kraft.options.get(name, {}))
            if unknown:
                left_out[name] = unknown
            more = kept_options(name, options, unknown, defaults) if defaults else {}
            if more:
                kept.append(name)
                options = {**options, **more}
        else:
            options = _options_without_source(name, offsets_segment_bytes)
        known_id = topic.topic_id if topic and any(topic.topic_id) else None
        topic_id = known_id or next(iter(_ids(partitions.values())), None)
        newest = [
            max(
                epochs.get((name, index), -1),
                topic.partitions[index].leader_epoch if topic else -1,
            )
            for index in sorted(partitions)
        ]
        topics.append(AdoptedTopic(name, topic_id, newest, options, topic is not None))
    return Plan(topics, refused, left_out, kept)


def is_current(
    found: Sequence[FoundPartition],
    epochs: Mapping[tuple[str, int], int],
    kraft: KraftMetadata | None,
) -> bool:
    """Whether the metadata is as new as the folders and so has all producer ids.

    It is older if a broker without it (ours) has written since: it led at a newer epoch, or made a
    topic.
    """
    if kraft is None:
        return False
    topics = kraft.by_name()
    for item in found:
        if item.topic == KRAFT_TOPIC:
            continue
        topic = topics.get(item.topic)
        partition = topic.partitions.get(item.partition) if topic is not None else None
        newest = epochs.get((item.topic, item.partition), -1)
        if partition is None or newest > partition.leader_epoch:
            return False
    return True


def _refusal(
    node_id: int,
    partitions: Mapping[int, FoundPartition],
    topic: KraftTopic | None,
    metadata_known: bool,
) -> str | None:
    ids = _ids(partitions.values())
    if topic is None and metadata_known:
        return (
            "Kafka's own metadata does not know the topic: a left-over of a deleted one, or made "
            "without it (then move __cluster_metadata-0 away to adopt from the folders alone)"
        )
    if topic is None:
        if len(ids) > 1:
            return f"its folders bear {len(ids)} different topic ids; keep those of one topic"
        return _gap(partitions, max(partitions) + 1)
    if any(topic.topic_id) and ids - {topic.topic_id}:
        return "a folder bears another topic id than Kafka's metadata: a left-over of a deleted one"
    if sorted(topic.partitions) != list(range(len(topic.partitions))):
        return "Kafka's metadata lists its partitions with gaps"
    foreign = [i for i, item in topic.partitions.items() if node_id not in item.replicas]
    if foreign:
        return f"{_partitions(foreign)} on other brokers only; copy those folders here first"
    behind = [
        index
        for index, item in topic.partitions.items()
        if node_id not in item.isr and len(item.replicas) > 1
    ]
    if behind:
        return f"{_partitions(behind)} not in sync here; adopt it from a broker that is in sync"
    extra = sorted(set(partitions) - set(topic.partitions))
    if extra:
        return f"Kafka's metadata does not know {_partitions(extra)}"
    return _gap(partitions, len(topic.partitions))


def _gap(partitions: Collection[int], count: int) -> str | None:
    missing = [index for index in range(count) if index not in partitions]
    if not missing:
        return None
    return (
        f"no folder for {_partitions(missing)}; bring it back (an empty folder makes an empty "
        "partition) and start again"
    )


def _partitions(indexes: Sequence[int]) -> str:
    shown = ", ".join(map(str, sorted(indexes)[:SHOWN_MAX]))
    more = f" and {len(indexes) - SHOWN_MAX} more" if len(indexes) > SHOWN_MAX else ""
    return f"partition {shown}{more}" if len(indexes) == 1 else f"partitions {shown}{more}"


def _ids(partitions: Collection[FoundPartition]) -> set[bytes]:
    return {item.topic_id for item in partitions if item.topic_id is not None}


def _usable(options: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    usable, unknown = {}, []
    for name, value in sorted(options.items()):
        try:
            check_topic_options({name: value})
        except InvalidValueError:
            unknown.append(name)
        else:
            usable[name] = value
    return usable, unknown


def _options_without_source(name: str, offsets_segment_bytes: int) -> Mapping[str, str]:
    if name == OFFSETS_TOPIC:  # the same in every cluster
        return {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(offsets_segment_bytes),
        }
    if name == TRANSACTION_TOPIC:
        return {"cleanup.policy": "compact", "compression.type": "uncompressed"}
    return KEEP_EVERYTHING
