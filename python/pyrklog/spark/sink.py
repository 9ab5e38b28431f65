"""Spark's classes for writes. Each is pickled, and made anew for each call on the driver: they hold
options, and no connection."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from pyrklog.producing import Transactions
from pyrklog.spark.decisions import KafkaDecisions
from pyrklog.spark.sink_commit import Committer
from pyrklog.spark.sink_options import Batch, SinkOptions
from pyrklog.spark.sink_slots import process_slots
from pyrklog.spark.sink_task import Attempt, Place, write_at_least_once, write_in_transaction

if TYPE_CHECKING:
    import pyarrow

# What Spark tells the tasks of a stream.
QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
RUN_ID = "spark.jobGroup.id"

logger = logging.getLogger("pyrklog.spark")

_known_runs: set[tuple[str, str | None]] = set()
"""Of streams, that have a number in this process which was not decided before."""


class Message(WriterCommitMessage):
    """An attempt's, to the driver."""

    def __init__(self, attempt: Attempt | None = None) -> None:
        self.attempt = attempt


class PyrklogWriter(DataSourceArrowWriter):
    """A batch write."""

    def __init__(self, options: SinkOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = list(columns)
        self._finished = -1
        if options.batch is not None:
            # Spark makes a writer when it runs a write, and pickles it to tasks.
            self._finished = self._committer(options.batch).settle()

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> Message:
        settings = self._options.producer._replace(columns=self._columns)
        batch = self._options.batch
        if batch is None:
            write_at_least_once(iterator, settings)
            return Message()
        if batch.version <= self._finished:
            return Message(_skipped(batch.sink, batch.version, iterator))
        place = Place(batch.sink, batch.version, self._finished)
        return Message(write_in_transaction(iterator, settings, place, process_slots()))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        batch = self._options.batch
        if batch is not None:
            self._committer(batch).commit(batch.version, attempts_of(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        batch = self._options.batch
        if batch is not None:
            self._committer(batch).abort(batch.version, attempts_of(messages))

    def _committer(self, batch: Batch) -> Committer:
        return committer(self._options, batch.sink, is_stream=False)


class PyrklogStreamWriter(DataSourceStreamArrowWriter):
    """A stream's writes."""

    def __init__(self, options: SinkOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = list(columns)

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> Message:
        settings = self._options.producer._replace(columns=self._columns)
        if not self._options.is_exactly_once:
            write_at_least_once(iterator, settings)
            return Message()
        place, run = _place()
        if self._is_decided(place, run):
            return Message(_skipped(place.sink, place.number, iterator))
        return Message(write_in_transaction(iterator, settings, place, process_slots()))

    def _is_decided(self, place: Place, run: str | None) -> bool:
        """Only the first number of a run can be decided before it is written."""
        if (place.sink, run) in _known_runs:
            return False
        log = KafkaDecisions(self._options.connection, self._options.producer, place.sink)
        last = log.peek()
        if last is not None and last.number >= place.number:
            return True
        if run is not None:
            _known_runs.add((place.sink, run))
        return False

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        found = attempts_of(messages)
        if found:
            one = committer(self._options, found[0].sink, is_stream=True)
            one.commit(batchId, found)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        found = attempts_of(messages)
        if found:
            committer(self._options, found[0].sink, is_stream=True).abort(batchId, found)


def committer(options: SinkOptions, sink: str, *, is_stream: bool) -> Committer:
    """The driver's part for a sink."""
    return Committer(
        sink,
        KafkaDecisions(options.connection, options.producer, sink),
        Transactions(options.producer),
        is_stream=is_stream,
        fail_on_data_loss=options.fail_on_data_loss,
        timeout_s=options.producer.transaction_timeout_ms / 1000,
    )


def attempts_of(messages: Sequence[WriterCommitMessage | None]) -> list[Attempt]:
    """Those of tasks that ended. Spark gives None for others."""
    found = (one.attempt for one in messages if isinstance(one, Message))
    return [attempt for attempt in found if attempt is not None]


def _place() -> tuple[Place, str | None]:
    context = TaskContext.get()
    query = context.getLocalProperty(QUERY_ID) if context is not None else None
    number = context.getLocalProperty(BATCH_ID) if context is not None else None
    if context is None or query is None or number is None:
        raise RuntimeError(
            "this task does not know its query and batch, without which nothing can be written "
            "exactly once; PySpark 4.2 tells them"
        )
    place = Place(query, int(number), int(number) - 1)
    return place, context.getLocalProperty(RUN_ID)


def _skipped(sink: str, number: int, rows: Iterator[pyarrow.RecordBatch]) -> Attempt:
    """The rows are taken all the same: Spark ends a worker that leaves some."""
    for _ in rows:
        continue
    return Attempt(sink, number, is_skipped=True)
