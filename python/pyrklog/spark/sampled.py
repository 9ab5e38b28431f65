"""The schema of JSON values, from a sample of what a batch reads."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from pyrklog.scanning import scan
from pyrklog.spark.batch_plan import plan_batch
from pyrklog.spark.cluster import KafkaCluster
from pyrklog.spark.decode_options import Decoding
from pyrklog.spark.decoding import scan_arguments, spark_type
from pyrklog.spark.high_watermarks import KafkaHighWatermarks
from pyrklog.spark.offsets import OffsetRange
from pyrklog.spark.options import SourceOptions
from pyrklog.spark.planning import TaskLimits
from pyrklog.spark.sizes import SampledSizes

if TYPE_CHECKING:
    from pyrklog.scanning import Place


def sampled(options: SourceOptions, decoding: Decoding) -> StructType:
    """The fields that the first values of a batch have, as ``pyrklog.scan`` infers them.

    Raises ValueError if there are none, and the exceptions of a plan and of a scan.
    """
    import pyarrow

    ranges = _ranges(options)
    if not ranges:
        raise ValueError("there are no values to infer a schema from: give option schema")
    topics: dict[str, list[int]] = {}
    start: dict[str, dict[int, Place]] = {}
    end: dict[str, dict[int, Place]] = {}
    for one in ranges:
        topics.setdefault(one.topic, []).append(one.partition)
        start.setdefault(one.topic, {})[one.partition] = one.start
        end.setdefault(one.topic, {})[one.partition] = one.end
    reading = scan(
        topics,
        start,
        end,
        ["value"],
        **scan_arguments(replace(decoding, bad_records=None), None),
        missing="fail" if options.fail_on_data_loss else "skip",
        **options.connection.scan_arguments(),
    )
    try:
        found = spark_type(pyarrow.schema(reading).field("value").type)
    finally:
        reading.close()
    assert isinstance(found, StructType)
    return found


def _ranges(options: SourceOptions) -> list[OffsetRange]:
    """One a partition."""
    whole = replace(options, tasks=TaskLimits())
    cluster = KafkaCluster(options.connection)
    high_watermarks = KafkaHighWatermarks(options.connection)
    try:
        sizes = SampledSizes(options.connection, with_headers=False)
        return plan_batch(whole, cluster, high_watermarks, sizes)
    finally:
        cluster.close()
        high_watermarks.close()
