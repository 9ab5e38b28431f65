"""What the Rust side of a scan is given: read there by the names of the fields."""

from __future__ import annotations

from typing import NamedTuple

CorePlace = tuple[str, int, int]
"""``earliest``, ``latest``, ``offset``, ``listed`` or ``timestamp``; offset or milliseconds; leader
epoch, -1 unknown."""


class ScanSettings(NamedTuple):
    """Of ``rust/scan/src/options.rs``. Sizes are bytes."""

    bootstrap_servers: str
    client_id: str
    topics: list[tuple[str, list[int] | None]]
    start: CorePlace
    end: CorePlace
    starts: list[tuple[str, int, CorePlace]]
    ends: list[tuple[str, int, CorePlace]]
    columns: list[str]
    isolation: str
    rack: str
    missing: str
    threads: int
    batch_rows: int
    batch_bytes: int
    memory_bytes: int
    large_bytes: int
    timeout_ms: int
    request_timeout_ms: int
    connect_timeout_ms: int
    check_crcs: bool
