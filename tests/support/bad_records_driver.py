"""A Spark application that reads JSON with a topic for bad records, in a process of its own, to be
killed.

``python -m tests.support.bad_records_driver BOOTSTRAP TOPIC BAD FOLDER`` writes good rows to
Parquet in ``FOLDER/out``, with offsets, and ends when all is read. The first attempt of each task
of partition 0 fails when it has read its rows.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext

from tests.support.spark import our_source, session_without_jars

RECORDS_A_BATCH = 100
SCHEMA = (
    '{"type": "struct", "fields": '
    '[{"name": "id", "type": "long", "nullable": false, "metadata": {}}]}'
)


def main(bootstrap: str, topic: str, bad: str, folder: str) -> None:
    spark = session_without_jars(Path(folder) / "warehouse", "local[2,4]")
    options = {
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(RECORDS_A_BATCH),
        "decode": "json",
        "schema": SCHEMA,
        "onBad": "drop",
        "badRecords": bad,
    }
    rows = our_source(spark.readStream, bootstrap, topic, **options)
    rows = rows.selectExpr("value.id AS id", "partition", "offset")
    query = (
        rows.mapInArrow(fail_once, rows.schema)
        .writeStream.format("parquet")
        .option("path", f"{folder}/out")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def fail_once(batches: Iterator[Any]) -> Iterator[Any]:
    is_first = False
    for batch in batches:
        yield batch
        is_first = is_first or 0 in batch.column("partition").to_pylist()
    context = TaskContext.get()
    if is_first and context is not None and context.attemptNumber() == 0:
        raise RuntimeError("the first attempt fails")


if __name__ == "__main__":
    main(*sys.argv[1:])
    sys.stdout.flush()
    # Without the seconds that Spark takes to end in good order.
    os._exit(0)
