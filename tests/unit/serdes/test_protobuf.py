"""Protobuf as JSON and back, and what is no schema."""

from __future__ import annotations

import json
import shutil
import stat
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from hypothesis import given
from hypothesis import strategies as st

from pyrklog.serdes import protobuf
from pyrklog.serdes.codec import DataError, SchemaError
from pyrklog.serdes.protobuf import (
    CompilerMissingError,
    MessageFiles,
    ProtobufCodec,
    of_descriptor_set,
    of_proto,
    of_serialized,
    of_texts,
)
from tests.support.protobuf import DESCRIPTORS, FILE, MESSAGE, OPTIONAL, STRING, field, part

FILES = of_descriptor_set(DESCRIPTORS)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
LINES = st.tuples(TEXTS, st.floats(allow_nan=False).filter(bool))


def codec(message: str = "shop.Order", files: MessageFiles = FILES) -> ProtobufCodec:
    return ProtobufCodec(files, files.message(message))


def file(name: str, *parts: bytes, imports: tuple[str, ...] = ()) -> bytes:
    own = part(1, name) + b"".join(part(3, one) for one in imports)
    return own + b"".join(parts) + part(12, "proto3")


@given(
    st.integers(1, 2**63 - 1),
    TEXTS.filter(bool),
    st.lists(LINES.filter(lambda line: line[0] != ""), max_size=3),
)
def test_what_is_shown_is_read_back_as_the_same_bytes(
    number: int, name: str, lines: list[tuple[str, float]]
) -> None:
    """``tests/support/protobuf.py`` writes like a producer."""
    written = part(1, number) + part(2, name)
    written += b"".join(part(3, part(1, sku) + part(2, price)) for sku, price in lines)
    shown = codec().decode(written)
    assert b"\n" not in shown
    assert json.loads(shown)["id"] == str(number)
    assert codec().encode(json.loads(shown)) == written


@given(st.binary(max_size=80))
def test_any_bytes_are_shown_or_refused(written: bytes) -> None:
    try:
        shown = codec().decode(written)
    except DataError:
        return
    assert codec().decode(codec().encode(json.loads(shown))) == shown


@pytest.mark.parametrize("value", [5, None, [], "x", {"nope": 1}, {"id": "x"}, {"counts": 5}])
def test_json_that_does_not_fit(value: object) -> None:
    with pytest.raises(DataError):
        codec().encode(value)


def test_messages_within_one_another_are_bounded() -> None:
    node = part(1, "Node") + field("next", 1, MESSAGE, OPTIONAL, ".Node")
    ours = codec("Node", of_descriptor_set(part(1, file("n.proto", part(4, node)))))
    written = b""
    for _ in range(2_000):
        written = part(1, written)
    with pytest.raises(DataError):
        ours.decode(written)
    value: dict[str, object] = {}
    for _ in range(500):
        value = {"next": value}
    with pytest.raises(DataError):
        ours.encode(value)


def test_a_message_is_named_or_the_only_one() -> None:
    with pytest.raises(SchemaError, match=r"several messages \(shop.Line, shop.Order\): name one"):
        FILES.message(None)
    assert FILES.message("Order").full_name == "shop.Order"
    assert FILES.message(None, is_first=True).full_name == "shop.Line"
    with pytest.raises(SchemaError, match=r"it has no message shop\.Nope"):
        FILES.message("shop.Nope")


def test_indexes_name_messages() -> None:
    inner = part(1, "Inner") + field("x", 1, STRING)
    outer = part(1, "Outer") + part(3, inner)
    files = of_descriptor_set(part(1, file("o.proto", part(4, part(1, "First")), part(4, outer))))
    found = files.by_indexes([1, 0])
    assert found.full_name == "Outer.Inner"
    assert files.indexes_of(found) == [1, 0]
    for indexes in ([2], [1, 1], [-1]):
        with pytest.raises(DataError, match="no message"):
            files.by_indexes(indexes)


def test_imports_are_resolved_in_any_order() -> None:
    when = field("at", 1, MESSAGE, OPTIONAL, ".google.protobuf.Timestamp")
    base = file(
        "b.proto", part(4, part(1, "B") + when), imports=("google/protobuf/timestamp.proto",)
    )
    of_b = field("b", 1, MESSAGE, OPTIONAL, ".B")
    main = file("a.proto", part(4, part(1, "A") + of_b), imports=("b.proto",))
    for files in (
        of_descriptor_set(part(1, main) + part(1, base)),
        of_serialized({"a.proto": main, "b.proto": base}),
    ):
        assert [one.full_name for one in files.messages()] == ["A"]
        ours = codec("A", files)
        value = {"b": {"at": "2026-01-31T12:00:00Z"}}
        assert json.loads(ours.decode(ours.encode(value))) == value


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "it is a set of no descriptors"),
        (b"\xff\xff", "it is no set of descriptors"),
        (
            part(1, file("a.proto", imports=("b.proto",))),
            "a.proto imports b.proto, which is not there",
        ),
        (
            part(1, file("a.proto", imports=("b.proto",)))
            + part(1, file("b.proto", imports=("a.proto",))),
            "import each other",
        ),
        (
            part(
                1, file("a.proto", part(4, part(1, "A") + field("b", 1, MESSAGE, OPTIONAL, ".B")))
            ),
            "",
        ),
        (b"".join(part(1, file(f"{n}.proto")) for n in range(1_001)), "more than 1000"),
    ],
)
def test_what_is_no_schema(data: bytes, reason: str) -> None:
    with pytest.raises(SchemaError) as caught:
        of_descriptor_set(data)
    assert reason in str(caught.value)


@pytest.fixture
def protoc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiler that knows one file, and writes its descriptors."""
    made = tmp_path / "made"
    made.write_bytes(
        FileDescriptorSet(file=[FileDescriptorProto.FromString(FILE)]).SerializeToString()
    )
    program = tmp_path / "protoc"
    program.write_text(
        '#!/bin/sh\nfor one; do case "$one" in --descriptor_set_out=*) out=${one#*=};; esac; done\n'
        f'if grep -q syntax "$one"; then cp {made} "$out"\n'
        'else echo "$one:1:1: bad" >&2; exit 1; fi\n'
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(
        shutil, "which", lambda name: str(program) if name == protobuf.PROTOC else None
    )
    return program


def test_a_proto_file_is_compiled(protoc: Path, tmp_path: Path) -> None:
    source = tmp_path / "shop.proto"
    source.write_text('syntax = "proto3"; // and so on')
    assert of_proto(source).message("shop.Order").name == "Order"
    source.write_text("nothing")
    with pytest.raises(SchemaError, match=r"protoc: .*shop.proto:1:1: bad"):
        of_proto(source)
    assert of_texts({"shop.proto": 'syntax = "proto3";'}).message("Order").name == "Order"
    for name in ("../shop.proto", "/shop.proto", ""):
        with pytest.raises(SchemaError, match="no name to import"):
            of_texts({"shop.proto": "syntax", name: "syntax"})


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(CompilerMissingError, match="there is no protoc"):
        of_proto(tmp_path / "x.proto")
