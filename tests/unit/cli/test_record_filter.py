"""Conditions of ``--filter`` on single records."""

import pytest

from pyrklog.cli.record_filter import FilterError, all_hold, parse_filters
from pyrklog.cli.records import Record

NOW_MS = 1_700_000_000_000
VALUE = b'{"a": {"b": [1, "two", {"c": null}], "ok": true}, "n": 7.0, "s": "7", "1": "one"}'
RECORD = Record(
    topic="dlq",
    partition=3,
    offset=9_007_199_254_740_993,  # not a float
    timestamp_ms=NOW_MS - 3_600_000,
    timestamp_type="CreateTime",
    leader_epoch=0,
    headers=(("e", b"first"), ("e", b"last=1"), ("n", None), ("x.y-z", b"10"), ("b", b"\xff")),
    key=b"order-17",
    value=VALUE,
)


def holds(text: str, record: Record = RECORD) -> bool:
    return all_hold(parse_filters([text], NOW_MS), record)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("key", True),
        ("!key", False),
        ("header:n", False),
        ("!header:n", True),
        ("!header:other", True),
        ("header:e", True),
        ("header:e=last=1", True),
        ("header:e = last=1", True),
        ("header:e=first", False),
        ("header:e!=first", True),
        ("header:other=x", False),
        ("header:other!=x", True),
        ("header:e~^last", True),
        ("header:e!~^last", False),
        ("header:other!~.", True),
        ("header:x.y-z>9", True),
        ("header:x.y-z<9", False),
        ("header:e>9", False),
        ("header:b~.", True),
        ("key=order-17", True),
        ("key~\\d+$", True),
        ("value.a.b.0=1", True),
        ("value.a.b.0=1.0", True),
        ("value.a.b.1=two", True),
        ("value.a.b.2.c", False),
        ("!value.a.b.2.c", True),
        ("value.a.b.3", False),
        ("value.a.b.99999999999999999999", False),
        ("value.a.b.x", False),
        ("value.a.ok=true", True),
        ("value.a.ok>0", False),
        ('value.a.b.2={"c":null}', True),
        ("value.n=7", True),
        ("value.n>=7", True),
        ("value.s=7", True),
        ("value.s=7.0", False),
        ("value.1=one", True),
        ('value~"two"', True),
        ("key.a=1", False),
        ("topic=dlq", True),
        ("partition=3", True),
        ("partition<3", False),
        ("offset=9007199254740993", True),
        ("offset<=9007199254740992", False),
        ("offset>9007199254740992", True),
        ("timestamp>@-2h", True),
        ("timestamp>@-30m", False),
        (f"timestamp<{NOW_MS}", True),
        ("timestamp>=@2023-11-14T21:13:20Z", True),
    ],
)
def test_a_condition(text: str, expected: bool) -> None:
    assert holds(text) is expected


def test_all_conditions_have_to_hold() -> None:
    both = parse_filters(["partition=3", "header:e=first"], NOW_MS)
    assert not all_hold(both, RECORD)
    assert all_hold(both[:1], RECORD)
    assert all_hold((), RECORD)


@pytest.mark.parametrize("value", [None, b"", b"\xff", b"[" * 100_000, b"7", b'"text"', b"NaN"])
def test_a_value_that_has_no_such_field(value: bytes | None) -> None:
    record = RECORD._replace(value=value, timestamp_ms=None)
    assert not holds("value.a.b=1", record)
    assert holds("!value.a", record)
    assert not holds("timestamp>0", record)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no condition"),
        ("=x", "no condition"),
        ("vlaue=1", "unknown field 'vlaue'"),
        ("value.", "unknown field 'value.'"),
        ("header:", "unknown field 'header:'"),
        ("!key=x", "write != or !~"),
        ("key~(", "no regular expression"),
        ("partition>two", "> takes a number, not 'two'"),
        ("partition>nan", "> takes a number, not 'nan'"),
        ("timestamp>@soon", "@soon is no time"),
    ],
)
def test_what_is_no_condition(text: str, told: str) -> None:
    with pytest.raises(FilterError) as caught:
        parse_filters([text], NOW_MS)
    assert told in str(caught.value)
    assert str(caught.value).startswith(f"--filter {text!r}")
