"""A Spark application that reads topics into aggregates, in a process of its own, and tells how
much memory its Python workers took.

``python -m tests.support.worker_memory_driver BOOTSTRAP SMALL LARGE FOLDER`` prints a line of JSON
for each of the reads ``raw`` and ``json``: the aggregate, the number of workers, the most that one
of them had after it had read the topic SMALL in the same way, and the most while it read LARGE, in
bytes.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from tests.support.large_topic import SCHEMA
from tests.support.processes import children
from tests.support.spark import our_source, session_without_jars

TASKS = 2
_RESET_PEAK = "5"


def main(bootstrap: str, small: str, large: str, folder: str) -> None:
    spark = session_without_jars(Path(folder))
    for name, read in (("raw", read_raw), ("json", read_json)):
        read(spark, bootstrap, small)
        before = max(memory(pid, "VmRSS") for pid in workers())
        for pid in workers():
            Path(f"/proc/{pid}/clear_refs").write_text(_RESET_PEAK)
        found = read(spark, bootstrap, large)
        peaks = [memory(pid, "VmHWM") for pid in workers()]
        told = {"name": name, "workers": len(peaks), "before": before, "peak": max(peaks)}
        print(json.dumps(told | found), flush=True)
    # Without the seconds that Spark takes to end in good order.
    os._exit(0)


def read_raw(spark: Any, bootstrap: str, topic: str) -> dict[str, int]:
    """All columns, which are those that Spark gets without a schema."""
    frame = our_source(spark.read, bootstrap, topic, minPartitions=str(TASKS))
    row = frame.agg(f.count("*").alias("rows"), f.sum(f.length("value")).alias("bytes")).first()
    return row.asDict()  # type: ignore[no-any-return]


def read_json(spark: Any, bootstrap: str, topic: str) -> dict[str, int]:
    schema = StructType.fromDDL(SCHEMA).json()
    frame = our_source(
        spark.read,
        bootstrap,
        topic,
        minPartitions=str(TASKS),
        decode="json",
        onBad="fail",
        schema=schema,
    )
    by_customer = frame.groupBy("value.customer").agg(
        f.count("*").alias("rows"), f.sum("value.amount").alias("amount")
    )
    row = by_customer.agg(f.sum("rows").alias("rows"), f.sum("amount").alias("amount")).first()
    return row.asDict()  # type: ignore[no-any-return]


def workers() -> list[int]:
    """Python processes of Spark's that run, below this one: their daemons among them."""
    found, unseen = [], [os.getpid()]
    while unseen:
        for pid in children(unseen.pop()):
            unseen.append(pid)
            if b"pyspark.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def memory(pid: int, name: str) -> int:
    """A line of a process's status, in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = (one for one in lines if one.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    main(*sys.argv[1:])
