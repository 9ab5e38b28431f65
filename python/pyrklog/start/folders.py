"""Partition folders against the metadata: unknown and missing ones."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Sequence
from pathlib import Path

from pyrklog.base.logs import get_logger
from pyrklog.cluster.image import KRAFT_TOPIC, ClusterImage
from pyrklog.plane.seam import FoundPartition

SHOWN_MAX = 20
DISK_USED_WARN_PERCENT = 90
HIGH_WATERMARKS = "replication-offset-checkpoint"
"""In each log directory: a version, a count, then TOPIC PARTITION OFFSET on each line."""
ADOPTED_UNCONFIRMED = "pyrklog.adopted.unconfirmed"

log = get_logger("broker")


def compare_folders(
    node_id: int,
    found: Sequence[FoundPartition],
    image: ClusterImage,
    being_deleted: Collection[str],
    log_dirs: Sequence[Path],
    known_dirs: Collection[Path],
) -> frozenset[str]:
    """Logs differences; returns topics with folders that are not in the metadata.

    Such folders stay untouched, and no topic of that name is created over them. Folders of topics
    being deleted at the start are ignored. ``known_dirs`` are the log directories used before this
    start.
    """
    strangers = [
        item
        for item in found
        if item.topic not in being_deleted and not _belongs(item, node_id, image)
    ]
    unknown = frozenset(item.topic for item in strangers if item.topic not in image.topics)
    strangers = [item for item in strangers if item.topic != KRAFT_TOPIC]
    if strangers:
        log.warning(
            "unknown_partition_folders",
            count=len(strangers),
            folders=[_folder(item) for item in strangers[:SHOWN_MAX]],
            consequence="left untouched; their topics are not in the metadata",
        )
    present = {(item.topic, item.partition) for item in found}
    missing = [
        (entry.name, partition.partition)
        for entry in image.topics.values()
        for partition in entry.partitions.values()
        if node_id in partition.replicas and (entry.name, partition.partition) not in present
    ]
    if missing:
        _tell_of_missing(missing, log_dirs, known_dirs)
    return unknown


def _tell_of_missing(
    missing: Sequence[tuple[str, int]], log_dirs: Sequence[Path], known_dirs: Collection[Path]
) -> None:
    ends = _known_ends(log_dirs, known_dirs)
    lost = missing if ends is None else [key for key in missing if ends.get(key, 0) > 0]
    if len(lost) < len(missing):
        log.info(
            "partition_folders_made",
            count=len(missing) - len(lost),
            reason="the creation of their topics was interrupted; they never held a record",
        )
    if lost:
        log.warning(
            "partition_folders_missing",
            count=len(lost),
            folders=[f"{topic}-{partition}" for topic, partition in lost[:SHOWN_MAX]],
            consequence="created anew and empty; their records are gone"
            if ends is not None
            else "created anew and empty: a log directory is new, or has noted nothing yet; if "
            "their records lie elsewhere, stop the broker and name that directory in log.dirs",
        )


def _known_ends(
    log_dirs: Sequence[Path], known_dirs: Collection[Path]
) -> dict[tuple[str, int], int] | None:
    """High watermarks that the log directories noted in their last life.

    None when a directory is new (perhaps in the place of another) or has noted nothing yet.
    """
    ends: dict[tuple[str, int], int] = {}
    for path in log_dirs:
        try:
            lines = (path / HIGH_WATERMARKS).read_text(encoding="utf-8").splitlines()[2:]
            rows = [line.split() for line in lines]
            ends.update({(topic, int(index)): int(offset) for topic, index, offset in rows})
        except (OSError, ValueError):
            return None
        if path not in known_dirs:
            return None
    return ends


def warn_of_unconfirmed(image: ClusterImage) -> None:
    """Topics adopted without all their options keep everything; logged at each start."""
    marks = {name: image.overrides(name).get(ADOPTED_UNCONFIRMED) for name in image.topics}
    topics = [name for name, mark in marks.items() if mark is not None]
    if topics:
        log.warning(
            "adopted_topics_unconfirmed",
            count=len(topics),
            topics=sorted(topics)[:SHOWN_MAX],
            options=sorted({name for mark in marks.values() if mark for name in mark.split(",")}),
            consequence="Kafka's values of these options are not known, so nothing of the topics "
            "is deleted or compacted that Kafka may have kept",
            fix="pyrklog topic alter NAME --confirm-adopted for the defaults of this broker, with "
            "--set for other values",
        )


def warn_of_full_disks(log_dirs: Sequence[Path]) -> None:
    """One line for each log directory on a nearly full volume."""
    for path in log_dirs:
        try:
            usage = shutil.disk_usage(path)
        except OSError:
            continue  # the plane says more about it
        # As df: what is kept for root is neither used nor usable.
        used_percent = usage.used * 100 // max(1, usage.used + usage.free)
        if used_percent >= DISK_USED_WARN_PERCENT:
            log.warning(
                "disk_nearly_full",
                path=str(path),
                used_percent=used_percent,
                free_bytes=usage.free,
                fix="free some space, or lower retention.ms or retention.bytes of the largest "
                "topics; without space the log directory becomes read-only",
            )


def _belongs(item: FoundPartition, node_id: int, image: ClusterImage) -> bool:
    entry = image.topics.get(item.topic)
    if entry is None or (item.topic_id is not None and item.topic_id != entry.id):
        return False
    partition = entry.partitions.get(item.partition)
    return partition is not None and node_id in partition.replicas


def _folder(item: FoundPartition) -> str:
    return f"{item.log_dir}/{item.topic}-{item.partition}"
