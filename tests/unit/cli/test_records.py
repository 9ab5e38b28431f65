"""Records as lines of JSON, and lines as records."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrklog.cli.failures import CliError, Exit
from pyrklog.cli.producer import LineReader, parse_headers
from pyrklog.cli.records import BadLineError, InputRecord, Record, from_json, to_json

payloads = st.none() | st.binary(max_size=50) | st.text(max_size=50).map(str.encode)
header_lists = st.lists(st.tuples(st.text(max_size=10), payloads), max_size=4).map(tuple)
EMPTY = InputRecord(key=None, value=None)


@given(st.integers(0, 2**31 - 1), st.integers(0, 2**62), payloads, payloads, header_lists)
def test_a_line_of_json_holds_the_whole_record(
    partition: int,
    timestamp_ms: int,
    key: bytes | None,
    value: bytes | None,
    headers: tuple[tuple[str, bytes | None], ...],
) -> None:
    record = Record("t", partition, 5, timestamp_ms, "CreateTime", None, headers, key, value)
    line = to_json(record)
    assert line.endswith(b"\n")
    assert b"\n" not in line[:-1]
    assert from_json(line) == InputRecord(key, value, headers, partition, timestamp_ms)


def test_a_line_of_json_has_no_controls_of_terminals() -> None:
    evil = "\x9b2J\u202e"
    data = evil.encode()
    line = to_json(Record("t", 0, 5, 1, "CreateTime", None, ((evil, data),), data, data)).decode()
    assert line.count("\\u009b2J\\u202e") == 4
    assert line[:-1].isprintable()


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b"{", "is not JSON"),
        (b"\xff", "is not JSON"),
        (b"[]", 'is no object with a "value"'),
        (b'{"key": "a"}', 'is no object with a "value"'),
        (b'{"value": 5}', 'has a "value" that is neither text'),
        (b'{"value": {"base64": "*"}}', 'has a "value" that is no base64'),
        (b'{"value": null, "partition": "x"}', 'has a "partition" that is no integer'),
        (b'{"value": null, "timestamp_ms": true}', 'has a "timestamp_ms" that is no integer'),
        (b'{"value": null, "partition": 2147483648}', 'has a "partition" that is not within'),
        (b'{"value": null, "partition": -1}', 'has a "partition" that is not within'),
        (b'{"value": null, "timestamp_ms": 9223372036854775808}', "that is not within"),
        (b"[" * 100_000, "is not JSON"),
        (b'{"value": null, "headers": [{"key": "\\ud800"}]}', 'has "headers"'),
        (b'{"value": null, "headers": {}}', 'has "headers"'),
        (b'{"value": null, "headers": [{"value": "x"}]}', 'has "headers"'),
    ],
)
def test_lines_that_are_no_record(line: bytes, complaint: str) -> None:
    with pytest.raises(BadLineError) as caught:
        from_json(line)
    assert complaint in str(caught.value)


def read(reader: LineReader, *lines: bytes) -> list[InputRecord]:
    return list(reader.records(lines))


def test_a_line_is_a_value() -> None:
    reader = LineReader(EMPTY._replace(key=b"k", partition=2))
    assert read(reader, b"a", b"") == [
        InputRecord(b"k", b"a", (), 2),
        InputRecord(b"k", b"", (), 2),
    ]


def test_a_delimiter_parts_key_and_value_once() -> None:
    reader = LineReader(EMPTY, key_delimiter=b"::")
    assert read(reader, b"a::b::c", b"::v") == [
        InputRecord(b"a", b"b::c"),
        InputRecord(b"", b"v"),
    ]


def test_a_line_without_the_delimiter_ends_the_reading() -> None:
    reader = LineReader(EMPTY, key_delimiter=b"::")
    records = reader.records([b"a::b", b"a:b", b"c::d"])
    assert next(records) == InputRecord(b"a", b"b")
    with pytest.raises(CliError, match=r"^line 2 has no '::' after a key \(-K\)") as caught:
        next(records)
    assert caught.value.code is Exit.USAGE
    assert list(records) == []


def test_a_line_without_the_delimiter_takes_the_given_key() -> None:
    reader = LineReader(EMPTY._replace(key=b"mine"), key_delimiter=b":")
    assert read(reader, b"a:b", b"plain") == [
        InputRecord(b"a", b"b"),
        InputRecord(b"mine", b"plain"),
    ]


def test_empty_may_mean_null() -> None:
    reader = LineReader(EMPTY, key_delimiter=b":", empty_is_null=True)
    assert read(reader, b"k:", b":v", b":") == [
        InputRecord(b"k", None),
        InputRecord(None, b"v"),
        InputRecord(None, None),
    ]


def test_options_complete_a_json_line() -> None:
    template = InputRecord(b"mine", None, (("h", b"1"),), 4)
    line = json.dumps({"key": "theirs", "value": "v", "headers": [{"key": "x"}], "partition": 1})
    reader = LineReader(template, json_lines=True)
    assert read(reader, line.encode(), b"  ") == [
        InputRecord(b"mine", b"v", (("x", None), ("h", b"1")), 4)
    ]


def test_a_bad_line_is_named_by_its_number() -> None:
    reader = LineReader(EMPTY, json_lines=True)
    records = reader.records([b'{"value": "v"}', b"oops"])
    assert next(records).value == b"v"
    with pytest.raises(CliError, match=r"^line 2 is not JSON") as caught:
        next(records)
    assert caught.value.code is Exit.USAGE


def test_headers_may_be_empty_and_may_repeat() -> None:
    assert parse_headers(["a=1", "a=2=3", "c="]) == (("a", b"1"), ("a", b"2=3"), ("c", b""))


def test_a_header_without_a_value_is_refused() -> None:
    with pytest.raises(CliError, match="-H takes K=V, not 'foo'") as caught:
        parse_headers(["a=1", "foo"])
    assert caught.value.code is Exit.USAGE
    assert caught.value.fix is not None
    assert "`-H foo=`" in caught.value.fix
