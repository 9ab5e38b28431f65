"""The columns of the source in Spark's and in Arrow's types."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

if TYPE_CHECKING:
    import pyarrow

# As the stock connector's, in its order.
_COLUMNS: tuple[tuple[str, DataType], ...] = (
    ("key", BinaryType()),
    ("value", BinaryType()),
    ("topic", StringType()),
    ("partition", IntegerType()),
    ("offset", LongType()),
    ("timestamp", TimestampType()),
    ("timestampType", IntegerType()),
)
_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_HEADERS = ("headers", ArrayType(_HEADER))


class SchemaError(ValueError):
    """A schema that names columns or types which the source does not have."""


def schema(*, with_headers: bool) -> StructType:
    """All columns."""
    columns = (*_COLUMNS, _HEADERS) if with_headers else _COLUMNS
    return StructType([StructField(name, kind) for name, kind in columns])


def check_schema(asked: StructType) -> None:
    """Accepts some of the columns, in any order, with their own types. Raises SchemaError, which
    names all mistakes."""
    known = dict((*_COLUMNS, _HEADERS))
    mistakes = [
        f"there is no column {field.name}: there are {', '.join(known)}"
        if field.name not in known
        else f"column {field.name} is {known[field.name].simpleString()}, and not "
        f"{field.dataType.simpleString()}: cast it in the query"
        for field in asked.fields
        if field.name not in known
        or field.dataType.simpleString() != known[field.name].simpleString()
    ]
    if not asked.fields:
        mistakes.append("a schema without columns cannot be read")
    if mistakes:
        raise SchemaError("\n".join(mistakes))


# Of the sink: the stock one's, and a timestamp.
_WRITTEN: dict[str, tuple[str, ...]] = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": (ArrayType(_HEADER).simpleString(),),
    "timestamp": ("timestamp",),
}
# Of what a source gives, without a meaning for a sink.
_NOT_WRITTEN = ("offset", "timestampType")


def columns_to_write(given: StructType, *, has_topic: bool) -> list[str]:
    """What each column of a DataFrame is for the producer, empty for one that is not written.
    Raises SchemaError, which names all mistakes."""
    mistakes = []
    names = given.fieldNames()
    for field in given.fields:
        kind = field.dataType.simpleString()
        kinds = _WRITTEN.get(field.name)
        if kinds is None and field.name not in _NOT_WRITTEN:
            mistakes.append(
                f"column {field.name} cannot be written: there are {', '.join(_WRITTEN)}"
            )
        elif kinds is not None and kind not in kinds:
            mistakes.append(
                f"column {field.name} is {kind}, and not {' or '.join(kinds)}: cast it in the query"
            )
    if len(set(names)) < len(names):
        mistakes.append("two columns have the same name")
    if "value" not in names:
        mistakes.append("a column value is needed")
    if "topic" not in names and not has_topic:
        mistakes.append("a column topic, or the option topic, is needed")
    if mistakes:
        raise SchemaError("\n".join(mistakes))
    return [name if name in _WRITTEN else "" for name in names]


def converted(
    batches: Iterable[pyarrow.RecordBatch], wanted: StructType
) -> Iterator[pyarrow.RecordBatch]:
    """The same rows with exactly the Arrow schema that Spark expects of ``wanted``: its columns may
    all be null, and elements of lists have another name than a scan's. Nothing is copied."""
    import pyarrow

    target = to_arrow_schema(wanted, timezone="UTC")
    for batch in batches:
        columns = [
            column if column.type.equals(field.type) else column.cast(field.type)
            for column, field in zip(batch.columns, target, strict=True)
        ]
        yield pyarrow.RecordBatch.from_arrays(columns, schema=target)
