"""A Spark application that runs the pipelines of databases and lakehouse tables, to be killed.

``python -m tests.support.connectors_driver BOOTSTRAP FOLDER FROM INTO`` runs until it is killed, or
a query fails; FROM and INTO are PostgreSQL's databases.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pyrklog.spark.pipelines import changes, lake, upserts
from pyrklog.spark.pipelines.run import Run
from tests.support.spark import session_without_jars

# The first query is to have work left when the last begins, minutes later on a busy machine.
RECORDS_A_BATCH = 100
EVERY = "2 seconds"


def main(bootstrap: str, folder: str, from_database: str, into_database: str) -> None:
    spark = session_without_jars(Path(folder) / "warehouse", "local[2,4]")
    trigger: dict[str, Any] = {"processingTime": EVERY}
    run = Run(spark, bootstrap, Path(folder), trigger, RECORDS_A_BATCH)
    changes.start(run, from_database)
    upserts.start(run, into_database)
    lake.start(run)
    spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
