"""Options of compaction that do not go together."""

from __future__ import annotations

from pyrklog.config.broker import BrokerConfig

BUFFER = "log.cleaner.dedupe.buffer.size"
THREADS = "log.cleaner.threads"
MIN_LAG = "log.cleaner.min.compaction.lag.ms"
MAX_LAG = "log.cleaner.max.compaction.lag.ms"
BUFFER_MIN_BYTES = 2**20
"""Each thread has more, rounded down."""


def wrong_with_cleaner(config: BrokerConfig) -> str | None:
    """Kafka's sentence (``KafkaConfig.validateValues``), or None.

    With less memory a pass over a log learns too few keys to get anywhere.
    """
    threads = max(config.integer(THREADS), 1)
    if config.integer(BUFFER) // threads <= BUFFER_MIN_BYTES:
        return f"{BUFFER} must be at least 1MB per cleaner thread."
    return None


def wrong_with_compaction_lag(config: BrokerConfig) -> str | None:
    """A sentence about a range that is empty, or None. As in Kafka
    (``LogConfig.validateBrokerLogConfigValues``) only a start is refused for it."""
    least, most = config.integer(MIN_LAG), config.integer(MAX_LAG)
    if least > most:
        return f"{MIN_LAG} ({least}) is more than {MAX_LAG} ({most})."
    return None
