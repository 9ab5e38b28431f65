"""How the values of a scan are decoded: the arguments ``decode``, ``schema``, ... of ``scan``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pyrklog.scanning.core_scan import decoded_schema
from pyrklog.scanning.schemas import core_fields
from pyrklog.scanning.settings import CoreDecode

FORMATS = ("json", "avro", "protobuf")
ON_BAD = ("null", "drop", "fail")


def core_decode(
    decode: str | None,
    schema: object,
    fields: Sequence[str] | None,
    on_bad: str,
    writer_schema: object,
    registry: object,
    message: object = None,
    framed: bool = False,
) -> CoreDecode | None:
    """What the extension is told; None for raw values. Raises ValueError and TypeError for
    arguments that cannot be used, or not together."""
    if on_bad not in ON_BAD:
        raise ValueError(f"unknown on_bad {on_bad!r}; it can be {' or '.join(ON_BAD)}")
    if decode is None:
        given = (schema, fields, writer_schema, registry, message)
        if framed or any(one is not None for one in given):
            raise ValueError(
                "schema, fields, writer_schema, registry, message and framed are for decoded"
                ' values: decode="json", "avro" or "protobuf"'
            )
        return None
    if decode not in FORMATS:
        raise ValueError(f"unknown decode {decode!r}; it can be {' or '.join(FORMATS)}")
    if decode != "protobuf" and (framed or message is not None):
        raise ValueError('message and framed are for decode="protobuf"')
    is_inferred = schema is None or (isinstance(schema, str) and schema == "infer")
    if decode == "avro":
        return _avro(None if is_inferred else schema, fields, on_bad, writer_schema, registry)
    if writer_schema is not None or registry is not None:
        raise ValueError('writer_schema and registry are for decode="avro"')
    if decode == "protobuf":
        return _protobuf(schema, fields, on_bad, message, framed)
    return CoreDecode(
        format=decode,
        schema=None if is_inferred else core_fields(schema),
        avro_schema=None,
        writer_schema=None,
        registry=None,
        descriptors=b"",
        message="",
        is_framed=False,
        fields=names("fields", fields),
        on_bad=on_bad,
    )


class ValueSchema:
    """The fields of decoded values, for what takes Arrow's PyCapsules, such as
    ``pyarrow.schema``; once."""

    def __init__(self, capsule: object) -> None:
        self._capsule = capsule

    def __arrow_c_schema__(self) -> object:
        return self._capsule


def value_schema(
    decode: str,
    *,
    schema: object = None,
    fields: Sequence[str] | None = None,
    on_bad: str = "null",
    writer_schema: object = None,
    registry: object = None,
    message: object = None,
    framed: bool = False,
) -> ValueSchema | None:
    """What a scan with these arguments makes of values; None if it would read a sample to know it.
    No broker and no registry is asked. Raises ValueError and TypeError as ``scan`` does."""
    core = core_decode(decode, schema, fields, on_bad, writer_schema, registry, message, framed)
    capsule = None if core is None else decoded_schema(core)
    return None if capsule is None else ValueSchema(capsule)


def _protobuf(
    schema: object, fields: Sequence[str] | None, on_bad: str, message: object, framed: bool
) -> CoreDecode:
    if not isinstance(schema, bytes):
        raise TypeError(
            f"schema is {schema!r}; it takes a set of file descriptors as bytes, of protoc's option"
            " --descriptor_set_out"
        )
    if not isinstance(message, str):
        raise TypeError(f"message is {message!r}; it takes a message's full name")
    return CoreDecode(
        format="protobuf",
        schema=None,
        avro_schema=None,
        writer_schema=None,
        registry=None,
        descriptors=schema,
        message=message,
        is_framed=framed,
        fields=names("fields", fields),
        on_bad=on_bad,
    )


def _avro(
    schema: object,
    fields: Sequence[str] | None,
    on_bad: str,
    writer_schema: object,
    registry: object,
) -> CoreDecode:
    if registry is None and schema is None:
        raise ValueError(
            'decode="avro" needs schema, or the registry of schemas that the values name'
        )
    if registry is not None and writer_schema is not None:
        raise ValueError("give writer_schema or registry: the registry has the writers' schemas")
    if registry is not None and not isinstance(registry, str):
        raise TypeError(f"registry is {registry!r}; it takes http://HOST:PORT")
    return CoreDecode(
        format="avro",
        schema=None,
        avro_schema=_json("schema", schema),
        writer_schema=_json("writer_schema", writer_schema),
        registry=registry,
        descriptors=b"",
        message="",
        is_framed=False,
        fields=names("fields", fields),
        on_bad=on_bad,
    )


def _json(name: str, schema: object) -> str | None:
    if schema is None or isinstance(schema, str):
        return schema
    if not isinstance(schema, Mapping | list):
        raise TypeError(f"{name} is {schema!r}; it takes an Avro schema as JSON, or a dict of it")
    return json.dumps(schema)


def names(name: str, given: Sequence[str] | None) -> list[str] | None:
    """A list of names; None for all. Raises TypeError for a single name."""
    if given is None:
        return None
    if isinstance(given, str | bytes):
        raise TypeError(f"{name} is {given!r}; it takes a list of names, such as [{given!r}]")
    return list(given)
