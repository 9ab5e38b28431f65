"""What the Rust side of a scan is given: read there by the names of the fields."""

from __future__ import annotations

from typing import NamedTuple

from pyrklog.scanning.schemas import CoreField
from pyrklog.security import CoreSecurity

CorePlace = tuple[str, int, int]
"""``earliest``, ``latest``, ``offset``, ``listed`` or ``timestamp``; offset or milliseconds; leader
epoch, -1 unknown."""


class CoreDecode(NamedTuple):
    """Of ``rust/scan/src/typed``. ``schema`` is for the format ``json``, ``avro_schema``,
    ``writer_schema`` and ``registry`` for ``avro``; without one it is made from a sample.
    ``descriptors``, ``message`` and ``is_framed`` are for ``protobuf``."""

    format: str
    schema: list[CoreField] | None
    avro_schema: str | None
    writer_schema: str | None
    registry: str | None
    descriptors: bytes
    message: str
    is_framed: bool
    fields: list[str] | None
    on_bad: str


class ScanSettings(NamedTuple):
    """Of ``rust/scan/src/options.rs``. Sizes are bytes. ``decode`` is None for raw values.
    ``bad_records`` is a topic for records whose values do not fit."""

    bootstrap_servers: str
    client_id: str
    topics: list[tuple[str, list[int] | None]]
    topic_ids: list[tuple[str, bytes]]
    start: CorePlace
    end: CorePlace
    starts: list[tuple[str, int, CorePlace]]
    ends: list[tuple[str, int, CorePlace]]
    columns: list[str]
    decode: CoreDecode | None
    bad_records: str | None
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
    unanswered: str = "fail"


class AccessSettings(NamedTuple):
    """Of ``rust/bridge/src/security.rs``."""

    bootstrap_servers: str
    client_id: str
    timeout_ms: int
    security: CoreSecurity
