"""A topic to a Delta table, each record once, without a jar.

Tasks write Parquet files into the table's folder, and the driver adds them to the table by one
entry of its log, which also has the batch's number: a repeated batch finds itself there. Files that
a killed task left belong to nothing, and ``DeltaTable.vacuum`` removes them. The table's place may
be a URI of an object store that pyarrow and deltalake know; tested are local folders.
"""

from __future__ import annotations

import itertools
import json
import time
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from pyrklog.spark.pipelines.run import FLIGHT, Run

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    Batches = Iterator[pyarrow.RecordBatch]

COMPACT_EVERY = 20
"""Batches, after which small files become fewer."""
_FILE = "name STRING, size LONG, rows LONG"


def start(run: Run) -> list[StreamingQuery]:
    return [to_table(run, str(run.folder / "flights-delta"))]


def to_table(run: Run, uri: str) -> StreamingQuery:
    from deltalake import DeltaTable, Schema

    name = "lake"
    app_id = run.app_id(name)
    flights = run.rows("flights", FLIGHT)
    # Spark and Delta Lake write a schema in the same way.
    DeltaTable.create(uri, Schema.from_json(flights.schema.json()), mode="ignore")

    def write(flights: DataFrame, batch: int) -> None:
        append(flights, uri, app_id, batch)
        if batch % COMPACT_EVERY == COMPACT_EVERY - 1:
            DeltaTable(uri).optimize.compact()

    return run.writer(flights, name).foreachBatch(write).start()


def append(frame: DataFrame, uri: str, app_id: str, batch: int) -> bool:
    """Adds the rows to a table of the same columns, unless this batch, or a later one, of the
    application is in it. Returns whether it did."""
    from deltalake import CommitProperties, DeltaTable, Transaction
    from deltalake.transaction import AddAction

    table = DeltaTable(uri)
    last = table.transaction_version(app_id)
    if last is not None and last >= batch:
        return False
    schema = table.schema()
    files = frame.mapInArrow(_writer(uri, schema.to_json()), _FILE).collect()
    now_ms = int(time.time() * 1000)
    table.create_write_transaction(
        [
            AddAction(one.name, one.size, {}, now_ms, True, json.dumps({"numRecords": one.rows}))
            for one in files
        ],
        mode="append",
        schema=schema,
        commit_properties=CommitProperties(app_transactions=[Transaction(app_id, batch)]),
    )
    return True


def _writer(uri: str, schema_json: str) -> Callable[[Batches], Batches]:
    """What a task does: a file of its rows, if it has any."""

    def write(batches: Batches) -> Batches:
        import pyarrow as pa
        import pyarrow.parquet
        from deltalake import Schema
        from pyarrow.fs import FileSystem

        first = next((batch for batch in batches if batch.num_rows), None)
        if first is None:
            return
        # Times are in UTC there, whatever the session's zone.
        schema = pa.schema(Schema.from_json(schema_json).to_arrow())
        system, folder = FileSystem.from_uri(uri)
        name, rows = f"part-{uuid.uuid4()}.parquet", 0
        path = f"{folder}/{name}"
        with pyarrow.parquet.ParquetWriter(path, schema, filesystem=system) as file:
            for batch in itertools.chain([first], batches):
                file.write_batch(batch.cast(schema))
                rows += batch.num_rows
        size = system.get_file_info(path).size
        yield pa.RecordBatch.from_pydict({"name": [name], "size": [size], "rows": [rows]})

    return write
