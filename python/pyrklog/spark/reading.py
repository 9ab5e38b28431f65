"""One range of a partition, on an executor, as Arrow batches."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pyrklog.scanning import (
    LeaderNotAvailableError,
    ListedOffset,
    LogTruncatedError,
    OffsetOutOfRangeError,
    Place,
    Scan,
    ScanError,
    TopicDeletedError,
    UnknownTopicError,
    scan,
)
from pyrklog.spark.cluster import ClusterError
from pyrklog.spark.connection import ABSENT_S, Connection
from pyrklog.spark.high_watermarks import HighWatermarks, KafkaHighWatermarks
from pyrklog.spark.offsets import OffsetRange, TopicPartition

if TYPE_CHECKING:
    import pyarrow

TASK_MEMORY_BYTES = 64 << 20
TRUNCATIONS_MAX = 10
"""Times that one task goes on after a truncation: a log that loses more fails the task."""

_WAIT_S = 0.2

logger = logging.getLogger("pyrklog.spark")


def read_range(
    one: OffsetRange,
    columns: Sequence[str],
    connection: Connection,
    *,
    fail_on_data_loss: bool,
    decode: Mapping[str, object] | None = None,
    open_scan: Callable[..., Scan] = scan,
    high_watermarks: Callable[[Connection], HighWatermarks] = KafkaHighWatermarks,
) -> Iterator[pyarrow.RecordBatch]:
    """All visible records of a range that are left, in order, each once; ``decode`` has the
    arguments of a scan that decodes values.

    Raises the exceptions of ``pyrklog.scanning``. Without ``fail_on_data_loss`` a loss is logged,
    and reading goes on at the first record left behind the last one that was given.
    """
    position: Place = one.start if one.epoch < 0 else ListedOffset(one.start, one.epoch)
    end, is_cut = one.end, False
    for attempt in range(TRUNCATIONS_MAX + 1):
        reading: Scan | None = None
        try:
            reading = _opened(
                one,
                open_scan,
                topics={one.topic: [one.partition]},
                start={one.topic: {one.partition: position}},
                end={one.topic: {one.partition: end}},
                columns=list(columns),
                missing="fail" if fail_on_data_loss else "skip",
                threads=1,
                memory_bytes=TASK_MEMORY_BYTES,
                **(decode or {}),
                **connection.scan_arguments(),
            )
            yield from reading.reader()
            return
        except LogTruncatedError as loss:
            if fail_on_data_loss or reading is None or attempt == TRUNCATIONS_MAX:
                raise
            _warn(one, loss)
            position, is_cut = reading.progress()[0].position, True
        except LeaderNotAvailableError as failure:
            # What a truncation cut off may never come again: the range ends where the log does.
            if not is_cut or reading is None or attempt == TRUNCATIONS_MAX:
                raise
            shown = _shown_end(one, high_watermarks(connection))
            if shown is None or shown >= end:
                raise
            _warn(one, failure)
            position = reading.progress()[0].position
            if position >= shown:
                return
            end = shown
        except (OffsetOutOfRangeError, TopicDeletedError, UnknownTopicError) as loss:
            # The scan skips what was deleted at the start: the leader refuses this position, which
            # is behind its end. One that only shows no records so far fails the task instead.
            if fail_on_data_loss:
                raise
            _warn(one, loss)
            return
        finally:
            if reading is not None:
                reading.close()


def _opened(one: OffsetRange, open_scan: Callable[..., Scan], **arguments: object) -> Scan:
    """A scan of the topic that was planned: another one of the same name has other records at these
    offsets. The scan itself notices one that is created later.

    The driver saw this topic and partition. Brokers that all do not know them are asked again for
    ``ABSENT_S``: they may have just started, or hear of new partitions later.
    """
    if one.topic_id:
        arguments["topic_ids"] = {one.topic: one.topic_id}
    until = time.monotonic() + ABSENT_S
    while True:
        try:
            return open_scan(**arguments)
        except (TopicDeletedError, UnknownTopicError) as error:
            if time.monotonic() < until:
                time.sleep(_WAIT_S)
                continue
            if isinstance(error, UnknownTopicError):
                raise
            raise TopicDeletedError(
                f"topic {one.topic} was deleted and created anew before offsets {one.start} to "
                f"{one.end - 1} of {one.place} were read"
            ) from error


def _shown_end(one: OffsetRange, high_watermarks: HighWatermarks) -> int | None:
    """The offset behind the last record that the leader shows. None where none answers."""
    place = TopicPartition(one.topic, one.partition)
    try:
        return high_watermarks.ends([place]).get(place)
    except ClusterError:
        return None
    finally:
        high_watermarks.close()


def _warn(one: OffsetRange, loss: ScanError) -> None:
    logger.warning(
        "data loss in %s, offsets %d to %d, and failOnDataLoss is false: %s",
        one.place,
        one.start,
        one.end - 1,
        loss,
    )
