"""Codecs by what a user names: a file, or a registry's URL.

=========================  =====================================================================
``FILE``                   Avro's JSON (``.avsc``), a ``.proto`` file, or a set of descriptors
``FILE:MESSAGE``           the last two, with several messages
``URL``                    a registry: each record names its schema; written with the latest one
                           of the subject TOPIC-value or TOPIC-key
``URL#SUBJECT``            written with the latest one of this subject
``URL#ID``                 written with this schema
``URL#SUBJECT:MESSAGE``    Protobuf, with another message than the first
=========================  =====================================================================
"""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import NamedTuple

from pyrklog.serdes.avro import AvroCodec, avro_codec
from pyrklog.serdes.codec import SCHEMA_BYTES_MAX, Codec, Decoder, Encoder, SchemaError
from pyrklog.serdes.framing import RegistryReader, RegistryWriter, usable
from pyrklog.serdes.protobuf import MessageFiles, ProtobufCodec, of_descriptor_set, of_proto
from pyrklog.serdes.registry import Registry

_MESSAGE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)


class Source(NamedTuple):
    """``url`` or ``path``; ``chosen``: what follows a URL's ``#``."""

    url: str | None
    path: Path | None
    chosen: str | None
    message: str | None


def parse_source(text: str) -> Source:
    if text.lower().startswith(("http://", "https://")):
        url, _, chosen = text.partition("#")
        subject, message = _split(chosen)
        return Source(url, None, subject or None, message)
    if Path(text).exists():
        return Source(None, Path(text), None, None)
    path, message = _split(text)
    return Source(None, Path(path), None, message)


def _split(text: str) -> tuple[str, str | None]:
    """Subjects and paths may have colons, names of messages have none."""
    front, colon, message = text.rpartition(":")
    if colon and _MESSAGE.fullmatch(message):
        return front, message
    return text, None


def decoder_of(text: str, timeout_s: float) -> Decoder:
    """Raises SchemaError, OSError for a file, ValueError for a URL."""
    source = parse_source(text)
    if source.url is None:
        return _file_codec(source)[0]
    if source.chosen is not None or source.message is not None:
        raise ValueError("each record names its schema: leave out what follows #")
    return RegistryReader(Registry(source.url, timeout_s))


def encoder_of(text: str, timeout_s: float, subject: str, register: str | None) -> Encoder:
    """``subject`` is that of the topic; ``register``: the registry that gets the file's schema.
    Raises what a registry raises, besides."""
    source = parse_source(text)
    if source.url is not None:
        if register is not None:
            raise ValueError("a schema that is registered there already needs no --register")
        return _of_registry(Registry(source.url, timeout_s), source, subject)
    codec, kind, schema, files = _file_codec(source)
    if register is None:
        return codec
    register, _, named = register.partition("#")
    subject = named or subject
    indexes = None
    if files is not None:
        indexes = files.indexes_of(files.message(source.message))
    schema_id = Registry(register, timeout_s).register(subject, kind, schema)
    return RegistryWriter(schema_id, codec, indexes)


def _of_registry(registry: Registry, source: Source, subject: str) -> RegistryWriter:
    chosen = source.chosen or subject
    if chosen.isascii() and chosen.isdecimal():
        found = registry.schema(int(chosen))
    else:
        found = registry.version(chosen)
    schema = usable(registry, found)
    if isinstance(schema, AvroCodec):
        if source.message is not None:
            raise SchemaError(f"it is Avro's, which has no message {source.message}")
        return RegistryWriter(found.schema_id, schema, None)
    message = schema.message(source.message, is_first=True)
    indexes = schema.indexes_of(message)
    return RegistryWriter(found.schema_id, ProtobufCodec(schema, message), indexes)


def _file_codec(source: Source) -> tuple[Codec, str, str, MessageFiles | None]:
    """The codec; type and text for a registry; messages."""
    assert source.path is not None
    with source.path.open("rb") as file:
        data = file.read(SCHEMA_BYTES_MAX + 1)
    if len(data) > SCHEMA_BYTES_MAX:
        raise SchemaError(f"a schema has at most {SCHEMA_BYTES_MAX} bytes")
    is_proto = source.path.suffix == ".proto"
    if not is_proto and data.lstrip()[:1] in (b"{", b"[", b'"'):
        if source.message is not None:
            raise SchemaError(f"it is Avro's, which has no message {source.message}")
        try:
            text = data.decode()
        except UnicodeDecodeError:
            raise SchemaError("it is not UTF-8") from None
        return avro_codec(text), "AVRO", text, None
    files = of_proto(source.path) if is_proto else of_descriptor_set(data)
    message = files.message(source.message)
    if is_proto:
        text = data.decode("utf-8", "replace")
    else:
        text = base64.b64encode(files.serialized(message.file.name)).decode()
    return ProtobufCodec(files, message), "PROTOBUF", text, files
