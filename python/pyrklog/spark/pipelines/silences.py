"""State and timers: planes that do not start for two days, told when the two days are over.

``transformWithStateInPandas`` calls ``handleInputRows`` with the new rows of a key, and
``handleExpiredTimer`` when the watermark has passed a timer. It needs ``pip install
"pyrklog[stateful]"`` and the state store in RocksDB, which comes with Spark.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from pyrklog.spark.pipelines.run import FLIGHT, Run, keyed

if TYPE_CHECKING:
    import pandas
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LATE_AT_MOST = "1 day"
SILENT_S = 2 * 86_400
_STORE = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def start(run: Run) -> list[StreamingQuery]:
    with rocksdb(run.spark):
        silent = silences(run.rows("flights", FLIGHT))
        return [run.to_topic(keyed(silent, "tailnum"), "silent-planes")]


def silences(flights: DataFrame) -> DataFrame:
    return (
        flights.withWatermark("time", LATE_AT_MOST)
        .where("tailnum IS NOT NULL")
        .select("tailnum", "time", f.col("time").cast("long").alias("second"))
        .groupBy("tailnum")
        .transformWithStateInPandas(
            Silences(), "tailnum STRING, last_s LONG", "Append", "EventTime"
        )
    )


class Silences(StatefulProcessor):
    """State of a plane: the second, since 1970, of its last flight, and a timer for it."""

    def init(self, handle: Any) -> None:
        self._handle = handle
        self._last = handle.getValueState("last", "second LONG")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pandas.DataFrame]:
        seconds = sorted(int(second) for frame in rows for second in frame["second"])
        known = self._last.get()
        if known is not None:
            self._handle.deleteTimer(_due_ms(known[0]))
            seconds = sorted([known[0], *seconds])
        # Between rows of one batch the timer has had no chance.
        silent = [
            before for before, after in itertools.pairwise(seconds) if after - before > SILENT_S
        ]
        self._last.update((seconds[-1],))
        self._handle.registerTimer(_due_ms(seconds[-1]))
        yield _told(key[0], silent)

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[pandas.DataFrame]:
        last = self._last.get()[0]
        self._last.clear()
        yield _told(key[0], [last])

    def close(self) -> None:
        pass


def _due_ms(second: int) -> int:
    return (second + SILENT_S) * 1000


def _told(tailnum: str, seconds: list[int]) -> pandas.DataFrame:
    import pandas

    # PySpark 4.2 fails on joined columns of the type that pandas 3 gives strings.
    names = pandas.Series([tailnum] * len(seconds), dtype=object)
    return pandas.DataFrame({"tailnum": names, "last_s": pandas.Series(seconds, dtype="int64")})


@contextmanager
def rocksdb(spark: SparkSession) -> Iterator[None]:
    """Queries that start meanwhile keep their state there; its place is in their checkpoints."""
    before = spark.conf.get(_STORE)
    spark.conf.set(_STORE, _ROCKSDB)
    try:
        yield
    finally:
        spark.conf.set(_STORE, str(before))
