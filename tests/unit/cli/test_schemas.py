"""``consume --schema`` and ``produce --schema`` without a broker: sources, registries, lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrklog.base.problems import Problem
from pyrklog.cli.failures import CliError
from pyrklog.cli.producer import LineReader
from pyrklog.cli.record_format import Bounds, FormatError, RecordFormat
from pyrklog.cli.records import InputRecord, Record, to_json
from pyrklog.cli.schemas import Encoders, RecordDecoder, encoders_of
from pyrklog.serdes import registry as registries
from tests.support.avro import encoded, framed
from tests.support.protobuf import DESCRIPTORS, FILE, part
from tests.support.registry import Proto, Referring, Registry

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]}],
}
TEXT = 'syntax = "proto3"; package shop;'
VALUE = {"id": 7, "note": None}
EMPTY = InputRecord(key=None, value=None)


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    monkeypatch.setattr(registries, "PAUSE_S", 0.0)
    schemas = {1: ORDER, 2: Proto(TEXT, FILE), 3: "string"}
    with Registry(schemas, {"t-value": 1, "shop": 2}) as running:
        yield running


@pytest.fixture
def avsc(tmp_path: Path) -> str:
    path = tmp_path / "order.avsc"
    path.write_text(json.dumps(ORDER))
    return str(path)


@pytest.fixture
def desc(tmp_path: Path) -> str:
    path = tmp_path / "shop.desc"
    path.write_bytes(DESCRIPTORS)
    return f"{path}:shop.Order"


def record(value: bytes | None, key: bytes | None = None) -> Record:
    return Record("t", 0, 5, 1, "CreateTime", None, (), key, value)


def decoder(value: str | None, key: str | None = None, on_bad: str = "fail") -> RecordDecoder:
    return RecordDecoder(value, key, on_bad, 5.0, is_quiet=False)


def encoders(value: str | None, key: str | None = None, register: str | None = None) -> Encoders:
    return encoders_of("t", value, key, register, 5.0)


def shown(source: str, value: bytes | None) -> Any:
    found = decoder(source)(record(value))
    assert found is not None
    assert found.value_json is not None
    return json.loads(found.value_json)


def refused(problem: Problem, call: Any, *arguments: Any) -> str:
    with pytest.raises(CliError) as caught:
        call(*arguments)
    assert caught.value.problem is problem, caught.value.text()
    return caught.value.text()


def test_files(avsc: str, desc: str) -> None:
    assert shown(avsc, encoded(ORDER, {"id": 7, "note": (1, "x")})) == {"id": 7, "note": "x"}
    assert shown(desc, part(1, 7) + part(2, "seven")) == {"id": "7", "name": "seven"}
    assert encoders(avsc).value_of_text(b'{"id":7,"note":null}') == encoded(
        ORDER, {"id": 7, "note": (0, None)}
    )
    assert encoders(desc).value_of_text(b'{"id":7}') == part(1, 7)


def test_a_registry_names_each_records_schema(registry: Registry) -> None:
    written = encoded(ORDER, {"id": 7, "note": (0, None)})
    assert shown(registry.url, framed(1, written)) == VALUE
    of_order = b"\0\0\0\0\2" + b"\x02\x02" + part(1, 7)
    assert shown(registry.url, of_order) == {"id": "7"}
    of_line = b"\0\0\0\0\2" + b"\0" + part(1, "sku")
    assert shown(registry.url, of_line) == {"sku": "sku"}
    decode = decoder(registry.url)
    for _ in range(10):
        decode(record(framed(1, written)))
    assert registry.asked.count(1) == 2, "once by each decoder"


def test_a_registrys_schema_is_written(registry: Registry) -> None:
    written = encoded(ORDER, {"id": 7, "note": (0, None)})
    line = json.dumps(VALUE).encode()
    assert encoders(registry.url).value_of_text(line) == framed(1, written)
    assert encoders(f"{registry.url}#1").value_of_text(line) == framed(1, written)
    head = b"\0\0\0\0\2"
    assert encoders(f"{registry.url}#shop").value_of_text(b'{"sku":"x"}') == head + b"\0" + part(
        1, "x"
    )
    chosen = encoders(f"{registry.url}#shop:shop.Order").value_of_text(b'{"id":7}')
    assert chosen == head + b"\x02\x02" + part(1, 7)
    text = refused(Problem.SCHEMA_NOT_FOUND, encoders, None, registry.url)
    assert "why: Subject not found" in text
    assert len(registry.schemas) == 3, "nothing was registered"


def test_a_file_is_registered_when_asked_to(registry: Registry, avsc: str, desc: str) -> None:
    del registry.subjects["t-value"]
    written = encoded(ORDER, {"id": 7, "note": (0, None)})
    ours = encoders(avsc, register=registry.url)
    assert ours.value_of_text(json.dumps(VALUE).encode()) == framed(1, written)
    assert registry.subjects["t-value"] == 1
    ours = encoders(None, desc, f"{registry.url}#other")
    assert ours.key_of_text(b'{"id":7}') == b"\0\0\0\0\4" + b"\x02\x02" + part(1, 7)
    assert registry.subjects["other"] == 4
    refused(Problem.SCHEMA_UNUSABLE, encoders, avsc, None, f"{registry.url}#refused")
    refused(Problem.ARGUMENT_MISSING, encoders, None, None, registry.url)
    refused(Problem.ARGUMENT_VALUE, encoders, registry.url, None, registry.url)


def test_schemas_refer_to_others(registry: Registry) -> None:
    outer = {"type": "record", "name": "Outer", "fields": [{"name": "o", "type": "Order"}]}
    registry.schemas[9] = Referring(outer, (("Order", "t-value", 1),))
    written = framed(9, encoded(ORDER, {"id": 7, "note": (0, None)}))
    assert shown(registry.url, written) == {"o": VALUE}
    registry.schemas[1] = Referring(ORDER, (("Me", "me", 1),))
    registry.schemas[5] = Referring(outer, (("Order", "t-value", 1),))
    registry.subjects["me"] = 5
    with pytest.raises(CliError, match="schema 9 cannot be used"):
        decoder(registry.url)(record(written))


def test_a_registry_that_is_away_or_refuses(registry: Registry, tmp_path: Path) -> None:
    written = framed(1, encoded(ORDER, {"id": 7, "note": (0, None)}))
    registry.failing = True
    text = refused(Problem.REGISTRY_AWAY, decoder(registry.url, on_bad="drop"), record(written))
    assert "status 503" in text
    registry.failing = False
    registry.password = "me:s%cret"
    text = refused(Problem.REGISTRY_AWAY, decoder(registry.url), record(written))
    assert "Unauthorized" in text
    with_password = registry.url.replace("http://", "http://me:s%25cret@")
    assert shown(with_password, written) == VALUE
    text = refused(Problem.SCHEMA_NOT_FOUND, encoders, f"{with_password}#nope")
    assert "cret" not in text
    refused(Problem.REGISTRY_AWAY, encoders, "http://127.0.0.1:1")
    refused(Problem.ARGUMENT_VALUE, decoder, "http://")
    refused(Problem.ARGUMENT_VALUE, decoder, f"{registry.url}#1")
    refused(Problem.FILE_NOT_FOUND, decoder, str(tmp_path / "nope.avsc"))
    refused(Problem.FILE_UNREADABLE, decoder, str(tmp_path))
    (tmp_path / "bad.avsc").write_text('{"type": "nope"}')
    assert "there is no type 'nope'" in refused(
        Problem.SCHEMA_UNUSABLE, decoder, str(tmp_path / "bad.avsc")
    )


def test_bad_records(registry: Registry, avsc: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = refused(Problem.NOT_DECODED, decoder(avsc), record(b"\x01"))
    assert text.startswith("error[PK103]: t [0] at offset 5: value: note: the bytes end amid")
    assert "--on-bad raw" in text
    assert "`--schema http://HOST:PORT`" in refused(
        Problem.NOT_DECODED, decoder(avsc), record(b"\0\0\0\0\1\x0e\x05")
    )
    for value in (
        b"",
        b"\0\0\0\0",
        b"\1\0\0\0\1",
        framed(3, b""),
        framed(77, b""),
        b"\0" + b"\xff" * 9,
    ):
        assert "t [0] at offset 5: value: " in refused(
            Problem.NOT_DECODED, decoder(registry.url), record(value)
        )
    for value in (b"\0\0\0\0\2", b"\0\0\0\0\2\x02", b"\0\0\0\0\2\x02\x08", b"\0\0\0\0\2\x01"):
        refused(Problem.NOT_DECODED, decoder(registry.url), record(value))
    refused(Problem.ARGUMENT_VALUE, decoder, avsc, None, "nope")
    dropping, keeping = decoder(avsc, on_bad="drop"), decoder(avsc, on_bad="raw")
    for _ in range(12):
        assert dropping(record(b"\x01")) is None
        found = keeping(record(b"\x01"))
        assert found is not None
        assert found.shown_value == b"\x01"
    dropping.finish()
    told = capsys.readouterr().err.splitlines()
    assert sum("; left out" in line for line in told) == 10
    assert sum("; printed as it is" in line for line in told) == 10
    assert told[-1] == "note: 12 records did not fit their schema"


def read(given: Encoders, line: bytes, **options: Any) -> InputRecord:
    [found] = LineReader(EMPTY, encoders=given, **options).records([line])
    return found


@given(
    st.none() | st.binary(max_size=9),
    st.none()
    | st.binary(max_size=9)
    | st.builds(
        lambda number, note: encoded(ORDER, {"id": number, "note": note}),
        st.integers(-(2**63), 2**63 - 1),
        st.just((0, None))
        | st.tuples(st.just(1), st.text(st.characters(exclude_categories=["Cs"]), max_size=9)),
    ),
)
def test_a_line_of_json_holds_the_whole_record(
    tmp_path_factory: pytest.TempPathFactory, key: bytes | None, value: bytes | None
) -> None:
    """Whatever the bytes are: what does not fit comes in base64."""
    folder = tmp_path_factory.getbasetemp()
    (folder / "order.avsc").write_text(json.dumps(ORDER))
    (folder / "key.avsc").write_text('["null", "int"]')
    value_schema, key_schema = str(folder / "order.avsc"), str(folder / "key.avsc")
    found = decoder(value_schema, key_schema, "raw")(record(value, key))
    assert found is not None
    line = to_json(found).removesuffix(b"\n")
    json.loads(line)
    again = read(encoders(value_schema, key_schema), line, json_lines=True)
    shown_again = decoder(value_schema, key_schema, "raw")(record(again.value, again.key))
    assert shown_again is not None
    assert (shown_again.shown_key, shown_again.shown_value) == (found.shown_key, found.shown_value)
    assert (again.key is None, again.value is None) == (key is None, value is None)


def test_nulls_and_tombstones_differ_in_lines_of_json(tmp_path: Path) -> None:
    (tmp_path / "n.avsc").write_text('["null", "int"]')
    source = str(tmp_path / "n.avsc")
    for value, told in (
        (None, {"value": None}),
        (b"\0", {"value": None, "value_base64": "AA=="}),
        (b"\2\4", {"value": 2}),
    ):
        found = decoder(source)(record(value))
        assert found is not None
        line = to_json(found)
        fields = json.loads(line)
        assert {name: fields[name] for name in fields if name.startswith("value")} == told
        assert read(encoders(source), line, json_lines=True).value == value


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "line 1 has a value that is not JSON"),
        (b"[" * 100_000, "line 1 has a value that is not JSON"),
        (b'{"id": 5.5}', "line 1 does not fit --schema: id: 5.5 is no long"),
        (b'{"id": 1e400}', "line 1 does not fit --schema: id: inf is no long"),
    ],
)
def test_lines_that_do_not_fit(avsc: str, line: bytes, reason: str) -> None:
    assert reason in refused(Problem.FILE_CONTENT, read, encoders(avsc), line)


def test_lines_have_keys_and_nulls(avsc: str, tmp_path: Path) -> None:
    (tmp_path / "k.avsc").write_text('"string"')
    ours = encoders(avsc, str(tmp_path / "k.avsc"))
    found = read(ours, b'"k"\t{"id":7,"note":null}', key_delimiter=b"\t")
    assert (found.key, found.value) == (b"\2k", encoded(ORDER, {"id": 7, "note": (0, None)}))
    found = read(ours, b"\t", key_delimiter=b"\t", empty_is_null=True)
    assert (found.key, found.value) == (None, None)
    assert "-k is not JSON" in refused(Problem.ARGUMENT_VALUE, ours.argument_key, b"k")
    text = refused(Problem.FILE_CONTENT, read, ours, b'{"value":{},"value_base64":"AA=="}')
    assert "line 1" in text


def test_formats(avsc: str, desc: str) -> None:
    def written(source: str, decode: RecordDecoder, value: bytes | None) -> bytes:
        found = decode(record(value, b"k"))
        assert found is not None
        form = RecordFormat(
            source, null=b"-", bounds=lambda *_: Bounds(0, 0, 0), kinds=decode.kinds()
        )
        return form.write(found)

    value = encoded(ORDER, {"id": 7, "note": (0, None)})
    told = json.dumps(VALUE, separators=(",", ":")).encode()
    for source in ("%v", "%s", "%v{avro}", "%v{json}"):
        assert written(source, decoder(avsc), value) == told
    control = encoded(ORDER, {"id": 7, "note": (1, "\x9b")})
    assert written("%v", decoder(avsc), control) == b'{"id":7,"note":"\\u009b"}'
    assert written("%v{hex} %V %k", decoder(avsc), value) == b"0e00 2 k"
    assert written("%v|%v{avro}|%v{json}", decoder(avsc), None) == b"-|-|null"
    assert written("%v{avro}", decoder(avsc, on_bad="raw"), b"\x01") == b"\x01"
    with pytest.raises(FormatError, match="the value's schema is avro"):
        written("%v{protobuf}", decoder(avsc), value)
    with pytest.raises(FormatError, match="unknown encoding"):
        written("%v{xml}", decoder(avsc), value)
    assert written("%v{protobuf}", decoder(desc), part(1, 7)) == b'{"id": "7"}'


@pytest.mark.parametrize("place", ["127.0.0.1:1", "registry:8081"])
def test_a_registry_without_a_scheme_is_told_its_url(place: str) -> None:
    with pytest.raises(CliError) as caught:
        decoder(place)
    assert caught.value.problem is Problem.FILE_NOT_FOUND
    assert caught.value.fix == f"a registry is named by its URL: --schema http://{place}"


def test_a_registry_to_register_in_has_a_url(avsc: str) -> None:
    with pytest.raises(CliError) as caught:
        encoders(avsc, register="registry:8081")
    assert caught.value.problem is Problem.ARGUMENT_VALUE
    assert caught.value.fix == "--register http://registry:8081"


def test_a_registry_that_is_away_is_named_without_its_password(
    avsc: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registries, "PAUSE_S", 0.0)
    with pytest.raises(CliError) as caught:
        encoders("http://me:secret@127.0.0.1:1#shop")
    assert caught.value.problem is Problem.REGISTRY_AWAY
    assert caught.value.what == "the registry http://127.0.0.1:1 of --schema gives no answer to use"
    assert caught.value.why == "Connection refused"
    with pytest.raises(CliError) as caught:
        encoders(avsc, register="http://127.0.0.1:1")
    assert caught.value.what.startswith("the registry http://127.0.0.1:1 of --register gives")
