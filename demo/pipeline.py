"""The PySpark pipeline: flights from a topic, delays by carrier and hour, to Parquet and a topic.

``format("pyrklog")`` reads and writes, without a jar. The topic gets each result once: a batch that
is repeated after a crash has the same number, which is written once. The end of event time needs
care:

- ``withWatermark("time", "1 hour")``: a flight more than an hour behind the latest one seen is
  late. In append mode a window is emitted once, when the watermark has passed its end.
- Records are keyed by carrier, so each partition is in order, but partitions are not aligned: a run
  limited to n offsets a partition would see one carrier's December beside another's March, and
  drop the latter as late. So the producer sends the year in pieces, each earlier than the next,
  and each run takes all that is there (``availableNow``, without ``maxOffsetsPerTrigger``: one
  batch). The watermark moves between batches, so nothing within one is late. Each run continues
  from the previous checkpoint.
- After the last flight no record would move the watermark, and the last windows would stay open. So
  the producer ends with a marker, a record a day later without a carrier. The run that reads it
  ends with a batch without data (Spark adds it when the watermark has moved), which emits them.
  The marker's own window never closes, so it is never emitted. It is not filtered out: Spark would
  move the filter below the watermark, which then would not see the marker.
"""

import os
import shutil
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from demo.delays import LATE_FROM_MINUTES, Delays, Key
from demo.topics import DemoError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
_SCHEMA = "time_hour TIMESTAMP, carrier STRING, dep_delay INT"
_RUN_TIMEOUT_S = 120


def start_spark(folder: Path, memory: str = "1g") -> "SparkSession":
    """A local session with two threads; DemoError if Java is missing."""
    if shutil.which("java") is None:
        raise DemoError("java is not on the PATH: Spark needs JDK 17")
    # Otherwise Spark looks up the machine's name and warns that it is the loopback interface.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # It also warns of pandas 3, which the pipeline does not use.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    from pyspark.sql import SparkSession

    import pyrklog.spark

    session = (
        SparkSession.builder.appName("flights")
        .master("local[2]")
        .config("spark.driver.memory", memory)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile=file:{_LOG_SETTINGS}")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .getOrCreate()
    )
    pyrklog.spark.register(session)
    return session


class Pipeline:
    """The streaming query from topic ``source`` to topic ``target``; its Parquet files and
    checkpoint are in ``folder``."""

    def __init__(
        self, spark: "SparkSession", bootstrap: str, folder: Path, source: str, target: str
    ) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._source = source
        self._target = target
        self.parquet = folder / "delays.parquet"
        self._checkpoint = folder / "checkpoint"

    def run(self) -> tuple[int, int]:
        """Processes all new records of the source topic. Returns rows read, and rows dropped as
        late. DemoError when the query fails or hangs."""
        from pyspark.errors import StreamingQueryException

        query = (
            self._delays()
            .writeStream.outputMode("append")
            .option("checkpointLocation", str(self._checkpoint))
            .trigger(availableNow=True)
            .foreachBatch(self._write)
            .start()
        )
        try:
            if not query.awaitTermination(_RUN_TIMEOUT_S):
                raise DemoError(f"the query did not end within {_RUN_TIMEOUT_S} s: {query.status}")
        except StreamingQueryException as error:
            raise DemoError(f"the query failed: {error}") from error
        finally:
            query.stop()
        progress = query.recentProgress
        late = sum(
            operator["numRowsDroppedByWatermark"]
            for batch in progress
            for operator in batch["stateOperators"]
        )
        return sum(batch["numInputRows"] for batch in progress), late

    def _delays(self) -> "DataFrame":
        from pyspark.sql import functions as f

        flights = (
            self._spark.readStream.format("pyrklog")
            .option("kafka.bootstrap.servers", self._bootstrap)
            .option("subscribe", self._source)
            .option("startingOffsets", "earliest")
            .option("commitGroup", f"{self._source}-demo")
            .load()
            .select(f.from_json(f.col("value").cast("string"), _SCHEMA).alias("flight"))
            .select("flight.*")
        )
        is_late = f.col("dep_delay") >= LATE_FROM_MINUTES
        return (
            flights.withWatermark("time_hour", "1 hour")
            .groupBy(f.window("time_hour", "1 hour"), "carrier")
            .agg(
                f.count("*").alias("flights"),
                f.count("dep_delay").alias("departed"),
                f.count(f.when(is_late, True)).alias("late"),
                f.coalesce(f.sum("dep_delay"), f.lit(0)).alias("delay_sum"),
                f.max("dep_delay").alias("delay_max"),
            )
            .withColumn("hour", f.date_format("window.start", "yyyy-MM-dd'T'HH:mm:ss'Z'"))
            .select("carrier", "hour", "flights", "departed", "late", "delay_sum", "delay_max")
        )

    def _write(self, batch: "DataFrame", number: int) -> None:
        """Both sinks get the same finished windows. The folder's name has the batch's number, so a
        batch repeated after a crash overwrites its own files."""
        from pyspark.sql import functions as f

        batch.persist()
        try:
            batch.write.mode("overwrite").parquet(str(self.parquet / f"batch={number}"))
            (
                batch.select(f.col("carrier").alias("key"), f.to_json(f.struct("*")).alias("value"))
                .write.format("pyrklog")
                .mode("append")
                .option("kafka.bootstrap.servers", self._bootstrap)
                .option("topic", self._target)
                .option("delivery", "exactly_once")
                .option("txnAppId", self._target)
                .option("txnVersion", number)
                .save()
            )
        finally:
            batch.unpersist()

    def read_parquet(self) -> Iterable[tuple[Key, Delays]]:
        """All written rows, in no order."""
        columns = ("carrier", "hour", "flights", "departed", "late", "delay_sum", "delay_max")
        rows = self._spark.read.parquet(str(self.parquet)).select(*columns).collect()
        return [((row[0], row[1]), Delays(*row[2:])) for row in rows]
