"""Writes Arrow record batches to topics of any Kafka (0.11 or newer)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyrklog.producing.core_produce import CoreProducer, open_producer
from pyrklog.producing.settings import ProducerSettings

if TYPE_CHECKING:
    import pyarrow


class Written(NamedTuple):
    """What a producer has in the log of a partition."""

    topic: str
    partition: int
    records: int


class Producer:
    """Idempotent, and with a transactional id in transactions; see
    ``docs/understanding/spark-sink.md``.

    A transaction begins with the first row. One thread at a time; the GIL is not held while rows
    are encoded and brokers waited for. After an exception the producer cannot be used.

    Opening asks for a producer id, which ends older producers of the transactional id. It and all
    methods raise the exceptions of :mod:`pyrklog.producing`.
    """

    def __init__(self, settings: ProducerSettings) -> None:
        self._settings = settings
        self._core: CoreProducer = open_producer(settings.core())

    @property
    def producer_id(self) -> tuple[int, int]:
        """Producer id and epoch."""
        return self._core.producer_id()

    def send(self, batch: pyarrow.RecordBatch) -> None:
        """Writes a batch's rows. Returns when they are encoded, and what exceeds ``memory_bytes``
        is acknowledged. Raises ValueError for rows and columns that cannot be written."""
        import pyarrow

        self._core.send(pyarrow.RecordBatchReader.from_batches(batch.schema, [batch]))

    def follow(self, topic: str, partition: int, end: int) -> None:
        """Says where the log of a partition ends, before rows with their own offsets go there. A
        log that ends elsewhere when they come does not take them: LogEndMovedError."""
        self._core.follow(topic, partition, end)

    def flush(self) -> None:
        """Waits until all is acknowledged."""
        self._core.flush()

    def commit(self) -> None:
        """Commits the transaction, if one was begun. Raises TransactionFencedError."""
        self._core.flush()
        self._core.end(True)

    def abort(self) -> None:
        """Aborts the transaction, if one was begun, once what is on its way has arrived; what was
        not sent is dropped. Raises TransactionFencedError, and ClusterUnavailableError if it is not
        known what arrived: the next producer of the transactional id ends the transaction then."""
        self._core.end(False)

    @property
    def written(self) -> list[Written]:
        """Of each partition, what is acknowledged."""
        return [Written(*row) for row in self._core.written()]

    @property
    def acknowledged_bytes(self) -> int:
        """Bytes of acknowledged batches, as they were sent."""
        return self._core.acknowledged_bytes()
