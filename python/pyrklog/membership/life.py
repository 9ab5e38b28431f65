"""What the store keeps of a broker's last life, and whether its logs are complete (KIP-966)."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyrklog.plane.seam import DirectoryPast


class LastLife(NamedTuple):
    epoch: int
    log_dirs: frozenset[str] | None
    """Its log directories; None where its version did not store them."""


def encode_log_dirs(log_dirs: Sequence[str]) -> bytes:
    """The content of /pyrklog/brokers/N. ``partial_replicas``: this version knows those
    (``expansion.md``).
    """
    content = {"version": 1, "log_dirs": list(log_dirs), "partial_replicas": 1}
    return json.dumps(content, separators=(",", ":")).encode()


def decode_log_dirs(data: bytes) -> frozenset[str] | None:
    """None where it is missing or unreadable."""
    try:
        found = json.loads(data)["log_dirs"]
        return frozenset(map(str, found)) if isinstance(found, list) else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def has_all(
    last: LastLife,
    log_dirs: Sequence[str],
    pasts: Sequence[DirectoryPast],
    used: Collection[str],
) -> bool:
    """Whether the log directories have what they had in the last life: each was closed cleanly at
    its end or reattached with its block cache. ``pasts`` has one per usable directory; ``used``
    hold partitions.

    Where a directory cannot be used, what it has is missing. An added directory that is empty lacks
    nothing. Where a directory of the last life is no longer named, an empty one may replace it and
    counts.
    """
    if len(pasts) < len(log_dirs):
        return False
    are_whole = [past.is_reattached or past.closed_at_epoch == last.epoch for past in pasts]
    if last.log_dirs is None or not last.log_dirs.issubset(log_dirs):
        return all(are_whole)
    kept = last.log_dirs.union(used)
    return all(
        is_whole or path not in kept for path, is_whole in zip(log_dirs, are_whole, strict=True)
    )
