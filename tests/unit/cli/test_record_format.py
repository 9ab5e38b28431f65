"""The verbs of ``consume -f``."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrklog.cli.record_format import Bounds, FormatError, RecordFormat
from pyrklog.cli.records import Record

RECORD = Record(
    topic="orders",
    partition=3,
    offset=42,
    timestamp_ms=1_700_000_000_123,
    timestamp_type="CreateTime",
    leader_epoch=7,
    headers=(("a", b"x"), ("b", None), ("a", b"\xff")),
    key=b"k\x00",
    value="né".encode(),
)
BARE = RECORD._replace(key=None, value=None, headers=(), timestamp_ms=None, leader_epoch=None)


def bounds(topic: str, partition: int) -> Bounds:
    return Bounds(start=partition, last_stable=len(topic), high_watermark=99)


def written(source: str, record: Record = RECORD, null: bytes = b"") -> bytes:
    return RecordFormat(source, null=null, bounds=bounds).write(record)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("%t %p %o", b"orders 3 42"),
        ("%t-%p@%o\\n", b"orders-3@42\n"),
        ("%k|%K", b"k\x00|2"),
        ("%v %V %s %S", "né 3 né 3".encode()),
        ("%h %H", b"a=x,b=NULL,a=\xff 3"),
        ("%h{hex}", b"a=78,b=NULL,a=ff"),
        ("%T %d %d{millis} %d{unix}", b"1700000000123 1700000000123 1700000000123 1700000000"),
        ("%d{iso}", b"2023-11-14T22:13:20.123Z"),
        ("%d{%Y-%m-%d}", b"2023-11-14"),
        ("%e %a", b"7 CreateTime"),
        ("%[ %| %]", b"3 6 99"),
        ("%R", b"\x00\x00\x00\x03"),
        ("%k{hex} %v{hex}", b"6b00 6ec3a9"),
        ("%k{base64}", b"awA="),
        ("%k{json} %v{json}", '"k\\u0000" "né"'.encode()),
        ("100%% \\t\\r\\0\\\\\\x41", b"100% \t\r\0\\A"),
        ("%%", b"%"),
    ],
)
def test_verbs(source: str, expected: bytes) -> None:
    assert written(source) == expected


def test_json_has_no_controls_of_terminals() -> None:
    record = RECORD._replace(value="\x9b2J\u202e é".encode())
    assert written("%v{json}", record) == '"\\u009b2J\\u202e é"'.encode()
    assert written("%v", record) == record.value


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("%k|%v|%h|%K|%V|%H", b"||" + b"|-1|-1|0"),
        ("%T %d %d{iso} %e", b"-1 -1 - -1"),
        ("%R", b"\xff\xff\xff\xff"),
        ("%k{hex}|%k{base64}|%k{json}", b"||null"),
    ],
)
def test_missing_record_parts_are_empty(source: str, expected: bytes) -> None:
    assert written(source, BARE) == expected


def test_null_has_a_text_of_its_own() -> None:
    assert written("%k %v{hex} %v{json}", BARE, null=b"NULL") == b"NULL NULL null"


def test_bytes_that_are_no_text_are_kept() -> None:
    record = RECORD._replace(value=b"\xff\xfe")
    assert written("%v", record) == b"\xff\xfe"
    assert written("%v{json}", record) == b'{"base64": "//4="}'


@pytest.mark.parametrize("timestamp_ms", [2**62, -(2**62)])
def test_a_time_beyond_the_calendar_is_a_number(timestamp_ms: int) -> None:
    record = RECORD._replace(timestamp_ms=timestamp_ms)
    assert written("%d{iso}", record) == str(timestamp_ms).encode()


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("%q", "unknown verb %q"),
        ("%", "unknown verb %"),
        ("%t{hex}", "unknown verb %t{hex}"),
        ("%v{xml}", "unknown encoding {xml}; known are hex, base64, json, avro, protobuf"),
        ("%v{avro}", "{avro}, and no schema of the value: give one with --schema"),
        ("%k{protobuf}", "{protobuf}, and no schema of the key: give one with --key-schema"),
        ("%h{avro}", "{avro} is for keys and values"),
        ("%v{hex", "{ without }"),
        ("\\q", "unknown escape"),
        ("\\xZZ", "two hexadecimal digits"),
    ],
)
def test_formats_that_mean_nothing(source: str, complaint: str) -> None:
    with pytest.raises(FormatError, match=r"^-f, character \d+: ") as caught:
        written(source)
    assert complaint in str(caught.value)


@pytest.mark.parametrize("source", ["csv", "", "k v\\n", "yaml"])
def test_a_text_without_a_verb_is_no_format(source: str) -> None:
    with pytest.raises(FormatError, match=r"has no verb such as %v.*jsonl$"):
        written(source)


def _is_plain(text: str) -> bool:
    # Braces right after a verb belong to the verb.
    return "%" not in text and "\\" not in text and not text.startswith("{")


@given(st.binary(), st.text().filter(_is_plain))
def test_text_between_verbs_is_copied(value: bytes, text: str) -> None:
    record = RECORD._replace(value=value)
    assert written(f"{text}%v{text}", record) == text.encode() + value + text.encode()
