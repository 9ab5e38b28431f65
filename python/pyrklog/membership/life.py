"""What the store keeps of a broker's last life, and whether its logs have all of it (KIP-966)."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyrklog.plane.dataplane import DirectoryPast


class LastLife(NamedTuple):
    """The last one that was registered."""

    epoch: int
    log_dirs: frozenset[str] | None
    """The log directories that it used; None where its version did not write them down."""


def encode_log_dirs(log_dirs: Sequence[str]) -> bytes:
    """Content of the node of a broker's life."""
    return json.dumps({"version": 1, "log_dirs": list(log_dirs)}, separators=(",", ":")).encode()


def decode_log_dirs(data: bytes) -> frozenset[str] | None:
    """None where it does not tell."""
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
    """Whether the log directories have what they had in the broker's last life: closed in order at
    its end, or with the block cache of before. ``pasts`` has one for each of them; ``used`` are
    those that hold partitions.

    One that is merely added lacks nothing: the last life did not use it, and it is empty. Where one
    of the last life's is named no more, an empty one may stand in for it, and counts.
    """
    are_whole = [past.is_reattached or past.closed_at_epoch == last.epoch for past in pasts]
    if last.log_dirs is None or not last.log_dirs.issubset(log_dirs):
        return all(are_whole)
    kept = last.log_dirs.union(used)
    return all(
        is_whole or path not in kept for path, is_whole in zip(log_dirs, are_whole, strict=True)
    )
