"""The options of decoded values: ``decode``, ``schema``, ..."""

from __future__ import annotations

from dataclasses import dataclass

from pyrklog.scanning.decoding import FORMATS, ON_BAD
from pyrklog.spark.given import Given

DESCRIPTORS_BYTES_MAX = 16 << 20
"""Of a set of file descriptors, as a scan takes it."""

INFER = "infer"
# Of which formats an option is; all others are of each.
_FORMATS_OF = {
    "schema": ("json", "avro"),
    "writerSchema": ("avro",),
    "registry": ("avro",),
    "descriptors": ("protobuf",),
    "message": ("protobuf",),
    "framed": ("protobuf",),
}
OPTIONS = ("decode", "onBad", *_FORMATS_OF)
"""All of them."""


@dataclass(frozen=True)
class Decoding:
    """Checked as far as that takes no schema. Texts are as given; ``descriptors`` is a file's
    content. Without ``schema`` JSON's fields are those asked for, or found in a sample."""

    format: str
    on_bad: str
    schema: str | None = None
    writer_schema: str | None = None
    registry: str | None = None
    descriptors: bytes = b""
    message: str | None = None
    is_framed: bool = False


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
    )
    if form == "avro" and found.schema is None:
        given.mistakes.append("decode=avro needs option schema: the columns wanted, as Avro's JSON")
    if form == "protobuf":
        given.mistakes += [
            f"decode=protobuf needs option {name}"
            for name in ("descriptors", "message")
            if not given.has(name)
        ]
    return found


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
