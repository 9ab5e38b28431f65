"""The options of decoded values: ``decode``, ``schema``, ..."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from pyrklog.scanning.decoding import FORMATS, ON_BAD
from pyrklog.spark.given import Given, topic_name

DESCRIPTORS_BYTES_MAX = 16 << 20
"""Of a set of file descriptors, as a scan takes it."""

INFER = "infer"
# Of which formats an option is; all others are of each.
_FORMATS_OF = {
    "schema": ("json", "avro"),
    "writerSchema": ("avro",),
    "registry": ("avro",),
    "subject": ("avro",),
    "descriptors": ("protobuf",),
    "message": ("protobuf",),
    "framed": ("protobuf",),
}
OPTIONS = ("decode", "onBad", "badRecords", *_FORMATS_OF)
"""All of them."""


@dataclass(frozen=True)
class Decoding:
    """Checked as far as that takes no schema. Texts are as given; ``descriptors`` is a file's
    content. Without ``schema`` JSON's fields are those asked for, or found in a sample, and Avro's
    those of the latest schema of ``subject``. ``bad_records`` is a topic."""

    format: str
    on_bad: str
    schema: str | None = None
    writer_schema: str | None = None
    registry: str | None = None
    descriptors: bytes = b""
    message: str | None = None
    is_framed: bool = False
    subject: str | None = None
    bad_records: str | None = None


def decoding(given: Given) -> Decoding | None:
    """What the options say; None for raw values. Mistakes are noted."""
    if not given.has("decode"):
        beside = [name for name in OPTIONS if given.has(name)]
        given.mistakes += [f"option {name} is for decoded values: give decode" for name in beside]
        return None
    form = given.word("decode", FORMATS)
    given.mistakes += [
        f"option {name} is for decode={' or '.join(formats)}"
        for name, formats in _FORMATS_OF.items()
        if given.has(name) and form not in formats
    ]
    schema = given.text("schema")
    found = Decoding(
        format=form,
        on_bad=given.word("onBad", ON_BAD),
        schema=None if schema is None or schema.strip() == INFER else schema,
        writer_schema=given.text("writerSchema"),
        registry=given.text("registry"),
        descriptors=given.value("descriptors", _file, b""),
        message=given.text("message"),
        is_framed=given.flag("framed", False),
        subject=given.text("subject"),
        bad_records=given.value("badRecords", topic_name, None),
    )
    if found.bad_records is not None and found.on_bad == "fail":
        given.mistakes.append("badRecords takes nothing with onBad=fail: choose null or drop")
    if form == "avro":
        given.mistakes += _mistakes_of_avro(found)
        if found.schema is None and found.subject is None and found.registry is not None:
            found = replace(found, subject=_value_subject(given))
    if form == "protobuf":
        given.mistakes += [
            f"decode=protobuf needs option {name}"
            for name in ("descriptors", "message")
            if not given.has(name)
        ]
    return found


def _mistakes_of_avro(found: Decoding) -> list[str]:
    if found.schema is not None and found.subject is not None:
        return ["option subject beside schema: the columns are those of one of them"]
    if found.schema is None and found.registry is None:
        return ["decode=avro needs option schema, the columns wanted as Avro's JSON, or registry"]
    if found.registry is not None and found.writer_schema is not None:
        return ["option writerSchema beside registry: the registry has the writers' schemas"]
    return []


def _value_subject(given: Given) -> str | None:
    """As Confluent's serializers name it for values of a topic; it is a mistake if not one topic
    is read."""
    names = [name.strip() for name in (given.text("subscribe") or "").split(",") if name.strip()]
    if not names and given.has("assign"):
        try:
            names = list(json.loads(given.text("assign") or ""))
        except (TypeError, ValueError):
            # Told where the option is read.
            return None
    if len(set(names)) == 1:
        return f"{names[0]}-value"
    given.mistakes.append(
        "decode=avro without schema needs option subject, whose latest schema has the columns: by "
        "default it is that of one topic, TOPIC-value"
    )
    return None


def _file(path: str) -> bytes:
    """Raises ValueError with the rest of a sentence."""
    try:
        with open(path, "rb") as file:
            found = file.read(DESCRIPTORS_BYTES_MAX + 1)
    except OSError as error:
        raise ValueError(f"it is a file that the driver reads, and {error}") from error
    if len(found) > DESCRIPTORS_BYTES_MAX:
        raise ValueError(f"the file has more than {DESCRIPTORS_BYTES_MAX} bytes")
    return found
