"""A Spark application that runs all pipelines at once, to be killed.

``python -m tests.support.pipelines_driver BOOTSTRAP MIRROR FOLDER`` runs until it is killed, or a
query fails.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pyrklog.spark.pipelines import duplicates, groups, joins, silences, windows
from pyrklog.spark.pipelines.run import Run
from tests.support.spark import session_without_jars

RECORDS_A_BATCH = 250


def main(bootstrap: str, mirror: str, folder: str) -> None:
    spark = session_without_jars(Path(folder) / "warehouse", "local[2,4]")
    trigger: dict[str, Any] = {"processingTime": "0 seconds"}
    run = Run(spark, bootstrap, Path(folder), trigger, RECORDS_A_BATCH)
    for one in (silences, windows, joins, duplicates):
        one.start(run)
    groups.start(run, mirror)
    spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
