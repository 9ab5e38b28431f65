"""A Spark application that runs all pipelines at once, to be killed.

``python -m tests.support.pipelines_driver BOOTSTRAP MIRROR FOLDER`` runs until it is killed, or a
query fails.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyrklog.spark.pipelines import duplicates, groups, joins, silences, windows
from pyrklog.spark.pipelines.run import Run
from tests.support.spark import session_without_jars
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

# The first query is to have work left when the last begins, minutes later on a busy machine.
RECORDS_A_BATCH = 100
EVERY = "4 seconds"
BATCH_S = 120


def main(bootstrap: str, mirror: str, folder: str) -> None:
    spark = session_without_jars(Path(folder) / "warehouse", "local[2,4]")
    trigger: dict[str, Any] = {"processingTime": EVERY}
    run = Run(spark, bootstrap, Path(folder), trigger, RECORDS_A_BATCH)
    # Each query starts Python processes, which Spark gives ten seconds each: too little for those
    # of ten queries at once on two cores.
    for one in (silences, windows, joins, duplicates):
        wait_for_batches(one.start(run))
    wait_for_batches(groups.start(run, mirror))
    spark.streams.awaitAnyTermination()


def wait_for_batches(queries: list[StreamingQuery]) -> None:
    """Returns once each has run a batch, or has ended."""
    wait_until(
        lambda: all(query.recentProgress or not query.isActive for query in queries),
        lambda: f"no batch yet: {[(query.name, query.status) for query in queries]}",
        BATCH_S,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
