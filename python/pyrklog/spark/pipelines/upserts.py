"""A topic into PostgreSQL's table, as it is by its last record of each key, each batch once.

Tombstones remove rows. The driver writes a batch in one transaction, with the batch's number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from pyrklog.spark.pipelines.run import PLANE, Run
from pyrklog.spark.postgres.upsert import Target, upsert

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

TARGET = Target(["planes"], key=["tailnum"], others=["manufacturer", "seats"])


def start(run: Run, conninfo: str) -> list[StreamingQuery]:
    import psycopg

    name = "planes-upserts"
    app_id = run.app_id(name)

    def write(records: DataFrame, batch: int) -> None:
        with psycopg.connect(conninfo, autocommit=True) as connection:
            upsert(connection, TARGET, _rows(records), app_id, batch)

    # A value that does not fit ends the query: nulls would overwrite what is there.
    schema = StructType.fromDDL(PLANE).json()
    planes = run.stream("planes", decode="json", schema=schema, onBad="fail")
    return [run.writer(planes, name).foreachBatch(write).start()]


def _rows(records: DataFrame) -> Iterator[tuple[bool, Sequence[object]]]:
    """In the order of each partition, and so of each key."""
    for record in records.select("key", "value").toLocalIterator(prefetchPartitions=True):
        if record.key is None:
            raise ValueError("a record of planes has no key, which says which row it is of")
        value = record.value
        others = [None if value is None else value[name] for name in TARGET.others]
        yield value is not None, [record.key.decode(), *others]
