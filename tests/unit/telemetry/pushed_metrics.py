"""Metrics as clients push them."""

import gzip
import math
from collections.abc import Callable, Mapping
from functools import partial

import cramjam
import lz4.frame
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    Metric,
    MetricsData,
)

DELTA = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
TOTAL = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4

COMPRESSED: Mapping[int, Callable[[bytes], bytes]] = {
    0: bytes,
    GZIP: gzip.compress,
    SNAPPY: lambda data: bytes(cramjam.snappy.compress_raw(data)),
    # As clients of Kafka do: Java reads no blocks that depend on one another.
    LZ4: partial(lz4.frame.compress, block_linked=False),
    ZSTD: lambda data: bytes(cramjam.zstd.compress(data)),
}


def label(name: str, value: str | int | float | bool) -> KeyValue:
    found = KeyValue(key=name)
    if isinstance(value, bool):
        found.value.bool_value = value
    elif isinstance(value, int):
        found.value.int_value = value
    elif isinstance(value, float):
        found.value.double_value = value
    else:
        found.value.string_value = value
    return found


def gauge(name: str, value: float, **labels: str) -> Metric:
    metric = Metric(name=name)
    point = metric.gauge.data_points.add(as_double=value)
    point.attributes.extend(label(*one) for one in labels.items())
    return metric


def total(
    name: str, value: int, temporality: "AggregationTemporality.ValueType" = TOTAL, **labels: str
) -> Metric:
    metric = Metric(name=name)
    metric.sum.is_monotonic = True
    metric.sum.aggregation_temporality = temporality
    point = metric.sum.data_points.add(as_int=value)
    point.attributes.extend(label(*one) for one in labels.items())
    return metric


def histogram(name: str) -> Metric:
    metric = Metric(name=name)
    metric.histogram.data_points.add(count=1, sum=math.pi)
    return metric


def message(*metrics: Metric, **client: str) -> bytes:
    """``client``: what it says of itself."""
    data = MetricsData()
    resource = data.resource_metrics.add()
    resource.resource.attributes.extend(label(*one) for one in client.items())
    resource.scope_metrics.add().metrics.extend(metrics)
    found: bytes = data.SerializeToString()
    return found
