"""What the Rust side of a scan is given: read there by the names of the fields."""

from __future__ import annotations

from typing import NamedTuple

from pyrklog.scanning.schemas import CoreField
from pyrklog.security import CoreSecurity

CorePlace = tuple[str, int, int]
"""``earliest``, ``latest``, ``offset``, ``listed`` or ``timestamp``; offset or milliseconds; leader
epoch, -1 unknown."""


class ScanSettings(NamedTuple):
    """Of ``rust/scan/src/options.rs``. Sizes are bytes. ``decode`` is empty for raw values;
    without ``schema`` one is made from a sample."""

    bootstrap_servers: str
    client_id: str
    topics: list[tuple[str, list[int] | None]]
    start: CorePlace
    end: CorePlace
    starts: list[tuple[str, int, CorePlace]]
    ends: list[tuple[str, int, CorePlace]]
    columns: list[str]
    decode: str
    schema: list[CoreField] | None
    fields: list[str] | None
    on_bad: str
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
    security: CoreSecurity = CoreSecurity()


class AccessSettings(NamedTuple):
    """Of ``rust/bridge/src/security.rs``."""

    bootstrap_servers: str
    client_id: str
    timeout_ms: int
    security: CoreSecurity
