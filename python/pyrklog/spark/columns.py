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
_VALUE = "value"
_WHERE_FIELDS_ARE = (
    "with decode the fields of values are in the column value: "
    'schema("value struct<id: bigint, name: string>"), then select("value.*")'
)
_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_HEADERS = ("headers", ArrayType(_HEADER))


class SchemaError(ValueError):
    """A schema that names columns or types which the source does not have."""


def schema(*, with_headers: bool, value: StructType | None = None) -> StructType:
    """All columns; ``value`` is what decoded ones have."""
    columns = (*_COLUMNS, _HEADERS) if with_headers else _COLUMNS
    own = {} if value is None else {_VALUE: value}
    return StructType([StructField(name, own.get(name, kind)) for name, kind in columns])


def check_schema(
    asked: StructType, value: StructType | None = None, *, is_decoded: bool = False
) -> None:
    """Accepts some of the columns, in any order, with their own types; of ``value``, which decoded
    ones have, some of the fields. Raises SchemaError, which names all mistakes."""
    known = dict((*_COLUMNS, _HEADERS))
    mistakes = []
    if value is not None:
        mistakes = _mistakes_in_value(asked, value)
        asked = StructType([field for field in asked.fields if field.name != _VALUE])
    mistakes += [
        f"there is no column {field.name}: there are {', '.join(known)}"
        if field.name not in known
        else f"column {field.name} is {known[field.name].simpleString()}, and not "
        f"{field.dataType.simpleString()}: cast it in the query"
        for field in asked.fields
        if field.name not in known
        or field.dataType.simpleString() != known[field.name].simpleString()
    ]
    if not asked.fields and value is None:
        mistakes.append("a schema without columns cannot be read")
    if is_decoded and any(field.name not in known for field in asked.fields):
        mistakes.append(_WHERE_FIELDS_ARE)
    if mistakes:
        raise SchemaError("\n".join(mistakes))


def value_of(asked: StructType) -> StructType | None:
    """What is asked of decoded values; None if nothing is. Raises SchemaError."""
    for field in asked.fields:
        if field.name != _VALUE:
            continue
        if not isinstance(field.dataType, StructType) or not field.dataType.fields:
            raise SchemaError(
                f"column value is a struct of fields where decode is given, and not "
                f"{field.dataType.simpleString()}"
            )
        return field.dataType
    return None


def _mistakes_in_value(asked: StructType, value: StructType) -> list[str]:
    known = {field.name: field.dataType.simpleString() for field in value.fields}
    wanted = value_of(asked)
    return [
        f"there is no field {field.name} in value: there are {', '.join(known)}"
        if field.name not in known
        else f"field {field.name} of value is {known[field.name]}, and not "
        f"{field.dataType.simpleString()}: cast it in the query"
        for field in ([] if wanted is None else wanted.fields)
        if field.dataType.simpleString() != known.get(field.name)
    ]


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
    all be null, and elements of lists have another name than a scan's. Nothing is copied, but what
    Spark has no type for. Columns that are not wanted are left out."""
    import pyarrow

    target = to_arrow_schema(wanted, timezone="UTC")
    for batch in batches:
        given = [batch.column(field.name) for field in target]
        # Nanoseconds are cut off: nothing else is smaller in Spark.
        columns = [
            column if column.type.equals(field.type) else column.cast(field.type, safe=False)
            for column, field in zip(given, target, strict=True)
        ]
        yield pyarrow.RecordBatch.from_arrays(columns, schema=target)
