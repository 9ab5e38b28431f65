"""Values as typed columns, in Spark's types."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    IntegerType,
    LongType,
    MapType,
    StructField,
    StructType,
)

from pyrklog.scanning.decoding import value_schema
from pyrklog.spark.decode_options import INFER, Decoding

if TYPE_CHECKING:
    import pyarrow


def known(decoding: Decoding) -> StructType | None:
    """The fields of values, all of which may be null; None if no schema says them. Raises
    ValueError for a schema that cannot be used."""
    import pyarrow

    if decoding.format == "json" and decoding.schema is None:
        return None
    found = value_schema(decoding.format, **_arguments(decoding, None))
    return None if found is None else _struct(pyarrow.struct(list(pyarrow.schema(found))))


def is_judged(decoding: Decoding) -> bool:
    """Whether it matters that a value fits where nobody asks for what is in it."""
    return decoding.on_bad != "null" or decoding.bad_records is not None


def scan_arguments(decoding: Decoding, asked: StructType | None) -> dict[str, Any]:
    """Of ``pyrklog.scan``, for these fields of values; None for all that the schema has."""
    arguments = _arguments(decoding, asked)
    if asked is not None:
        arguments["fields"] = asked.fieldNames()
    return {
        "decode": decoding.format,
        "on_bad": decoding.on_bad,
        "bad_records": decoding.bad_records,
        **arguments,
    }


def _arguments(decoding: Decoding, asked: StructType | None) -> dict[str, Any]:
    if decoding.format == "protobuf":
        return {
            "schema": decoding.descriptors,
            "message": decoding.message,
            "framed": decoding.is_framed,
        }
    if decoding.format == "avro":
        return {
            "schema": decoding.schema,
            "writer_schema": decoding.writer_schema,
            "registry": decoding.registry,
        }
    fields = asked if decoding.schema is None else struct_of(decoding.schema)
    return {"schema": INFER if fields is None else to_arrow_schema(fields, timezone="UTC")}


def struct_of(text: str) -> StructType:
    """Of Spark's JSON. Raises ValueError with the rest of a sentence."""
    wanted = (
        "option schema: it can be infer, or what StructType.json() gives, such as "
        'StructType.fromDDL("id LONG, name STRING").json()'
    )
    try:
        found = StructType.fromJson(json.loads(text))
    except Exception as error:
        # Spark raises whatever its walk over the tree meets.
        raise ValueError(wanted) from error
    if not found.fields:
        raise ValueError(f"{wanted}, with a field")
    return found


def spark_type(kind: pyarrow.DataType) -> DataType:
    """Of a column that a scan decodes. Whatever it holds may be null. What Spark has no type for is
    one that holds all of it: unsigned numbers the next larger type, times of day their numbers."""
    import pyarrow.types as kinds

    if kinds.is_uint32(kind):
        return LongType()
    if kinds.is_uint64(kind):
        return DecimalType(20, 0)
    if kinds.is_time32(kind):
        return IntegerType()
    if kinds.is_time64(kind):
        return LongType()
    if kinds.is_list(kind):
        return ArrayType(spark_type(kind.value_type))
    if kinds.is_map(kind):
        return MapType(spark_type(kind.key_type), spark_type(kind.item_type))
    if kinds.is_struct(kind):
        return _struct(kind)
    return from_arrow_type(kind)


def _struct(kind: pyarrow.DataType) -> StructType:
    fields = (kind.field(number) for number in range(kind.num_fields))
    return StructType([StructField(field.name, spark_type(field.type)) for field in fields])
