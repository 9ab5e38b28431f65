"""Protobuf's messages as JSON, by Google's package.

The JSON is Protobuf's own ("ProtoJSON"): names in lowerCamelCase (those of the ``.proto`` file are
read, too), 64-bit integers as strings, bytes in base64, zeros of proto3 left out. What a message
holds beyond its schema is not shown. Google's parser bounds levels at 100, and so does its JSON.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.message import DecodeError, EncodeError

from pyrklog.serdes.codec import PROTOBUF, SCHEMA_BYTES_MAX, DataError, SchemaError, shortened

FILES_MAX = 1_000
INDEX_LEVELS_MAX = 64
PROTOC = "protoc"
PROTOC_SECONDS_MAX = 60.0
_WELL_KNOWN = (
    "any",
    "api",
    "duration",
    "empty",
    "field_mask",
    "source_context",
    "struct",
    "timestamp",
    "type",
    "wrappers",
)
_UNREADABLE = (
    DecodeError,
    EncodeError,
    json_format.Error,
    KeyError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What Google's package raises for data that it does not take."""


class CompilerMissingError(SchemaError):
    """There is no protoc."""


class ProtobufCodec:
    kind = PROTOBUF

    def __init__(self, files: MessageFiles, message: Any) -> None:
        self._files = files
        self._class = message_factory.GetMessageClass(message)
        # Google's own may be texts, numbers and lists in JSON.
        self._is_object = not message.full_name.startswith("google.protobuf.")

    def decode(self, data: bytes) -> bytes:
        found = self._class()
        try:
            found.ParseFromString(data)
            text: str = json_format.MessageToJson(
                found, indent=None, ensure_ascii=False, descriptor_pool=self._files.pool
            )
            return text.encode()
        except _UNREADABLE as error:
            raise DataError(_reason(error)) from None

    def encode(self, value: Any) -> bytes:
        if self._is_object and not isinstance(value, dict):
            raise DataError(f"{shortened(value)} is no object")
        found = self._class()
        try:
            json_format.ParseDict(value, found, descriptor_pool=self._files.pool)
            data: bytes = found.SerializeToString(deterministic=True)
        except (*_UNREADABLE, AttributeError) as error:
            raise DataError(_reason(error)) from None
        return data


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 300 else f"{text[:300]}..."


class MessageFiles:
    """Files of declarations with all that they import."""

    def __init__(self, files: Sequence[Any], main: Sequence[str]) -> None:
        """``files`` are FileDescriptorProtos, ``main`` the names of those whose messages are meant.
        Raises SchemaError."""
        self.pool = descriptor_pool.DescriptorPool()
        self._main = list(main)
        self._files = {one.name: one for one in files}
        if len(self._files) > FILES_MAX:
            raise SchemaError(f"it has {len(self._files)} files, more than {FILES_MAX}")
        _add_well_known(self._files)
        try:
            self._add(self._files)
        except (TypeError, ValueError, KeyError, RecursionError) as error:
            raise SchemaError(_reason(error)) from None

    def _add(self, files: dict[str, Any]) -> None:
        """Imported files come before those that import them."""
        begun, added = set[str](), set[str]()
        stack = list(files)
        while stack:
            name = stack[-1]
            file = files[name]
            if name in added:
                stack.pop()
            elif name in begun:
                self.pool.AddSerializedFile(file.SerializeToString())
                added.add(name)
                stack.pop()
            else:
                begun.add(name)
                for one in file.dependency:
                    if one not in files:
                        raise SchemaError(f"{name} imports {one}, which is not there")
                    if one in begun and one not in added:
                        raise SchemaError(f"{name} and {one} import each other")
                    stack.append(one)

    def serialized(self, name: str) -> bytes:
        """A file's FileDescriptorProto."""
        data: bytes = self._files[name].SerializeToString()
        return data

    def messages(self) -> list[Any]:
        """The first level, in the order of the declarations."""
        found = [self.pool.FindFileByName(name) for name in self._main]
        return [one for file in found for one in file.message_types_by_name.values()]

    def message(self, name: str | None, *, is_first: bool = False) -> Any:
        """By its full name, or the only one; with ``is_first`` the first. Raises SchemaError."""
        if name is None:
            messages = self.messages()
            if len(messages) == 1 or (messages and is_first):
                return messages[0]
            if not messages:
                raise SchemaError("it has no messages")
            names = ", ".join(one.full_name for one in messages[:5])
            more = ", ..." if len(messages) > 5 else ""
            raise SchemaError(f"it has several messages ({names}{more}): name one")
        try:
            return self.pool.FindMessageTypeByName(name)
        except KeyError:
            near = [one.full_name for one in self.messages() if one.name == name]
            if len(near) == 1:
                return self.pool.FindMessageTypeByName(near[0])
            raise SchemaError(f"it has no message {name}") from None

    def by_indexes(self, indexes: Sequence[int]) -> Any:
        """As a registry's frame names a message. Raises DataError."""
        found, among = None, self.messages()
        for number in indexes:
            if not 0 <= number < len(among):
                raise DataError(f"its schema has no message {list(indexes)}")
            found = among[number]
            among = list(found.nested_types)
        return found

    @staticmethod
    def indexes_of(message: Any) -> list[int]:
        found = list[int]()
        while message is not None:
            around = message.containing_type
            among = (
                message.file.message_types_by_name.values()
                if around is None
                else around.nested_types
            )
            found.insert(0, [one.full_name for one in among].index(message.full_name))
            message = around
        return found


def _add_well_known(files: dict[str, Any]) -> None:
    """Those of Google's that files import and do not bring."""
    from importlib import import_module

    wanted = {name for file in files.values() for name in file.dependency}
    while wanted:
        name = wanted.pop()
        short = name.removeprefix("google/protobuf/").removesuffix(".proto")
        if name in files or short not in _WELL_KNOWN:
            continue
        module = import_module(f"google.protobuf.{short}_pb2")
        file = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        files[name] = file
        wanted.update(file.dependency)


def of_descriptor_set(data: bytes, main: Sequence[str] = ()) -> MessageFiles:
    """What ``protoc --include_imports --descriptor_set_out`` writes; without ``main`` the files
    that no other one imports are meant. Raises SchemaError."""
    _refuse_large(data)
    found = descriptor_pb2.FileDescriptorSet()
    try:
        found.ParseFromString(data)
    except DecodeError:
        raise SchemaError("it is no set of descriptors, as protoc writes it") from None
    imported = {name for one in found.file for name in one.dependency}
    if not found.file:
        raise SchemaError("it is a set of no descriptors")
    main = main or [one.name for one in found.file if one.name not in imported]
    return MessageFiles(found.file, main)


def of_serialized(files: Mapping[str, bytes]) -> MessageFiles:
    """FileDescriptorProtos by the names that imports have; the first one is meant."""
    found = list[Any]()
    for name, data in files.items():
        _refuse_large(data)
        one = descriptor_pb2.FileDescriptorProto()
        try:
            one.ParseFromString(data)
        except DecodeError:
            raise SchemaError("it is no descriptor of a file") from None
        one.name = name
        found.append(one)
    return MessageFiles(found, [found[0].name])


def of_texts(texts: Mapping[str, str]) -> MessageFiles:
    """``.proto`` texts by the names that imports have; the first one is meant.
    Raises SchemaError."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in texts.items():
            place = PurePosixPath(name)
            if place.is_absolute() or ".." in place.parts or not place.parts:
                raise SchemaError(f"{name!r} is no name to import")
            path = Path(folder) / place
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            except (OSError, ValueError) as error:
                raise SchemaError(f"{name!r}: {error}") from None
        return of_proto(Path(folder) / next(iter(texts)), Path(folder))


def of_proto(path: Path, root: Path | None = None) -> MessageFiles:
    """A ``.proto`` file, compiled by protoc; imports are found from ``root``, by default its own
    folder. Raises SchemaError."""
    protoc = shutil.which(PROTOC)
    if protoc is None:
        raise CompilerMissingError("there is no protoc to compile it")
    root = path.parent if root is None else root
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "set"
        command = [protoc, f"--proto_path={root}", "--include_imports"]
        command += [f"--descriptor_set_out={made}", str(path)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=PROTOC_SECONDS_MAX
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SchemaError(f"protoc: {error}") from None
        if done.returncode != 0 or not made.exists():
            raise SchemaError(f"protoc: {_reason(ValueError(done.stderr))}")
        data = made.read_bytes()
    return of_descriptor_set(data, [path.relative_to(root).as_posix()])


def _refuse_large(data: bytes) -> None:
    if len(data) > SCHEMA_BYTES_MAX:
        raise SchemaError(f"a schema has at most {SCHEMA_BYTES_MAX} bytes, not {len(data)}")
