"""What the Rust side of a producer is given: read there by the names of the fields."""

from __future__ import annotations

from typing import NamedTuple

from pyrklog.security import CoreSecurity, Security


class ProducerSettings(NamedTuple):
    """Of ``rust/produce/src/options.rs``. Sizes are bytes."""

    bootstrap_servers: str
    columns: list[str]
    """In the order of the batches: ``key``, ``value``, ``topic``, ``partition``, ``headers``,
    ``timestamp``, ``offset``; an empty name is passed over."""
    topic: str | None = None
    client_id: str = "pyrklog-producer"
    codec: str = "none"
    batch_bytes: int = 512 << 10
    memory_bytes: int = 32 << 20
    request_bytes: int = 1 << 20
    delivery_timeout_ms: int = 120_000
    request_timeout_ms: int = 30_000
    connect_timeout_ms: int = 10_000
    transactional_id: str | None = None
    transaction_timeout_ms: int = 900_000
    keeps_offsets: bool = False
    """Rows have the offsets that they get, in the column ``offset``: for brokers of pyrklog,
    without producer id and transactions."""
    security: Security | CoreSecurity = Security()

    def core(self) -> ProducerSettings:
        """With the contents of files. Raises ValueError for those that cannot be used."""
        security = self.security
        return (
            self if isinstance(security, CoreSecurity) else self._replace(security=security.core())
        )
