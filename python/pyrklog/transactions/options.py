"""Options of the transaction coordinator, from the broker's options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

from pyrklog.config.settings import from_options

if TYPE_CHECKING:
    from pyrklog.config.broker import BrokerConfig

MEMORY_SHARE = 16
"""The part of the memory for transactional ids (isolation.md)."""


class TransactionOptions(NamedTuple):
    """With Kafka's names."""

    partition_count: Annotated[int, "transaction.state.log.num.partitions"] = 50
    """Partitions of ``__transaction_state`` before its creation."""
    timeout_max_ms: Annotated[int, "transaction.max.timeout.ms"] = 900_000
    expiration_ms: Annotated[int, "transactional.id.expiration.ms"] = 604_800_000
    timed_out_interval_ms: Annotated[
        int, "transaction.abort.timed.out.transaction.cleanup.interval.ms"
    ] = 10_000
    expired_interval_ms: Annotated[
        int, "transaction.remove.expired.transaction.cleanup.interval.ms"
    ] = 3_600_000
    load_buffer_bytes: Annotated[int, "transaction.state.log.load.buffer.size"] = 5_242_880
    message_bytes_max: Annotated[int, "message.max.bytes"] = 1_048_588
    memory_max_bytes: int = 2**28
    """Limit of all transactional ids together (:mod:`.manager`)."""


def transaction_options(config: BrokerConfig, memory_bytes: int) -> TransactionOptions:
    return from_options(TransactionOptions, config, memory_max_bytes=memory_bytes // MEMORY_SHARE)
