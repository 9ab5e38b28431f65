"""A Spark application that copies a topic exactly once, in a process of its own, to be killed.

``python -m tests.support.sink_driver BOOTSTRAP TOPIC OUT CHECKPOINT`` says ``batch`` when it has
started and after each batch, and ends when all is copied, with 1 if the query fails.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.errors import StreamingQueryException

from tests.support.sinking import sink
from tests.support.spark import our_source, session_without_jars

RECORDS_A_BATCH = 40
POLL_S = 0.02


def main(bootstrap: str, topic: str, out: str, checkpoint: str) -> int:
    spark = session_without_jars(Path(checkpoint).parent / "warehouse", "local[2,4]")
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(RECORDS_A_BATCH)}
    rows = our_source(spark.readStream, bootstrap, topic, **options).select("key", "value")
    query = (
        sink(rows, bootstrap, out, delivery="exactly_once")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    last = None
    try:
        while True:
            print("batch", flush=True)
            while not query.awaitTermination(POLL_S):
                progress = query.lastProgress
                if progress is not None and progress.batchId != last:
                    last = progress.batchId
                    break
            else:
                break
    except StreamingQueryException as error:
        print(str(error)[:2000], file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    status = main(*sys.argv[1:])
    sys.stdout.flush()
    # Without the seconds that Spark takes to end in good order.
    os._exit(status)
