"""Which columns of a DataFrame are written."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    BinaryType,
    DataType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from pyrklog.spark.columns import SchemaError, columns_to_write, schema
from pyrklog.spark.source import PyrklogSource

TYPES: dict[str, DataType] = {
    "binary": BinaryType(),
    "bigint": LongType(),
    "map": MapType(StringType(), BinaryType()),
    "string": StringType(),
}


def of(text: str) -> StructType:
    """Without a session, which DDL would need."""
    pairs = (one.split() for one in text.split(","))
    return StructType([StructField(name, TYPES[kind]) for name, kind in pairs])


def test_what_a_source_gives_can_be_written() -> None:
    assert columns_to_write(schema(with_headers=True), has_topic=False) == [
        "key",
        "value",
        "topic",
        "partition",
        "",
        "timestamp",
        "",
        "headers",
    ]


def test_times_that_are_written_are_told(caplog: pytest.LogCaptureFixture) -> None:
    """The stock sink passes over them."""
    options = {"kafka.bootstrap.servers": "h:1", "topic": "t", "delivery": "at_least_once"}
    source = PyrklogSource(options)
    source.writer(of("value string"), False)
    assert not caplog.records
    source.writer(schema(with_headers=False), False)
    assert "becomes the time of the records" in caplog.text


def test_texts_and_bytes() -> None:
    assert columns_to_write(of("value string, key binary"), has_topic=True) == ["value", "key"]


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ("key string", "a column value is needed"),
        ("value string", "a column topic, or the option topic, is needed"),
        ("value bigint", "column value is bigint, and not string or binary: cast it"),
        ("value string, partition bigint", "column partition is bigint, and not int"),
        ("value string, valeu string", "column valeu cannot be written"),
        ("value string, value string", "two columns have the same name"),
        ("value string, headers map", "and not array<struct<key:string"),
    ],
)
def test_mistakes(columns: str, told: str) -> None:
    with pytest.raises(SchemaError, match=told):
        columns_to_write(of(columns), has_topic=False)
