"""What a scan is given: other types are refused by the argument's name, before it is opened."""

from __future__ import annotations

import inspect
import re
import sys
from typing import Any

import pytest

import pyrklog
from pyrklog.scanning.arguments import core_bootstrap, core_topics, milliseconds
from pyrklog.scanning.scan import COLUMNS
from pyrklog.scanning.settings import ScanSettings
from pyrklog.spark.decisions import TOPIC


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[ScanSettings]:
    """What the Rust side was asked for."""
    settings: list[ScanSettings] = []
    monkeypatch.setattr(sys.modules["pyrklog.scanning.scan"], "open_scan", settings.append)
    return settings


def scan(**arguments: Any) -> None:
    pyrklog.scan(**{"topics": "greetings", **arguments})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"colums": ["value"]}, "scan() has no argument 'colums'; did you mean columns?"),
        (
            {"bootstrap": "h:1"},
            "scan() has no argument 'bootstrap'; did you mean bootstrap_servers?",
        ),
        ({"Start": 5}, "scan() has no argument 'Start'; did you mean start?"),
        (
            {"qzx": 5},
            "scan() has no argument 'qzx'; it has topics, start, end, columns, topic_ids,",
        ),
        ({"sasl.username": "u"}, "scan() has no argument 'sasl.username'; options of TLS and SASL"),
    ],
)
def test_an_argument_that_is_not_there_is_told_with_the_one_that_was_meant(
    opened: list[ScanSettings], arguments: dict[str, Any], said: str
) -> None:
    with pytest.raises(TypeError, match=f"^{re.escape(said)}"):
        scan(**arguments)
    assert not opened


def test_the_arguments_are_told_to_tools() -> None:
    assert list(inspect.signature(pyrklog.scan).parameters)[:2] == ["topics", "start"]
    assert (pyrklog.scan.__doc__ or "").startswith("Plans to read")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"topics": None}, "topics is None; it takes the name of a topic, a list of names,"),
        ({"topics": 5}, "topics is 5; it takes"),
        ({"topics": b"greetings"}, "topics is b'greetings'; it takes"),
        ({"topics": ["t", 5]}, "topics is ['t', 5]; it takes"),
        ({"topics": {5: [0]}}, "topics is {5: [0]}; it takes"),
        ({"topics": {"t": ["0"]}}, "topics has ['0'] for 't'; it takes a list of numbers"),
        ({"topics": {"t": 0}}, "topics has 0 for 't'; it takes a list of numbers"),
        ({"topics": re.compile(b"t")}, "topics is re.compile(b't'); a pattern is of a text"),
        ({"topics": {"t": "0"}}, "topics has '0' for 't'; it takes a list of numbers"),
        ({"timeout_s": "5"}, "timeout_s is '5'; it takes a number of seconds"),
        ({"connect_timeout_s": None}, "connect_timeout_s is None; it takes a number of seconds"),
        ({"request_timeout_s": True}, "request_timeout_s is True; it takes a number of seconds"),
        ({"bootstrap_servers": ["h:1"]}, "bootstrap_servers is ['h:1']; it takes HOST:PORT"),
        ({"client_id": 5}, "client_id is 5; it takes a text"),
        ({"rack": None}, "rack is None; it takes a text"),
        ({"threads": "4"}, "threads is '4'; it takes a whole number"),
        ({"batch_rows": 1.5}, "batch_rows is 1.5; it takes a whole number"),
        ({"memory_bytes": None}, "memory_bytes is None; it takes a whole number"),
        ({"check_crcs": "no"}, "check_crcs is 'no'; it takes True or False"),
        ({"columns": 5}, "columns is 5; it takes a list of names"),
        ({"columns": [5]}, "columns has 5; it takes names"),
        ({"columns": "value"}, "columns is 'value'; it takes a list of names, such as ['value']"),
        ({"decode": "json", "fields": 5}, "fields is 5; it takes a list of names"),
        ({"decode": "json", "bad_records": 5}, "bad_records is 5; it takes the name of a topic"),
        ({"topic_ids": 5}, "topic_ids is 5; it takes ids by topic"),
        ({"topic_ids": {"t": b"x"}}, "topic_ids has b'x' for 't'; it takes texts"),
    ],
)
def test_another_type_is_told_by_the_arguments_name(
    opened: list[ScanSettings], arguments: dict[str, Any], said: str
) -> None:
    with pytest.raises(TypeError, match=f"^{re.escape(said)}"):
        scan(**arguments)
    assert not opened


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"on_bad": "fail"}, "on_bad='fail' is for decoded values: give decode"),
        ({"bad_records": "b"}, "bad_records='b' is for decoded values: give decode"),
        ({"decode": "json", "bad_records": "a b"}, "bad_records is 'a b'; no topic can have this"),
        ({"decode": "json", "bad_records": ""}, "bad_records is ''; no topic can have this name"),
        ({"decode": "json", "bad_records": ".."}, "bad_records is '..'; no topic can have this"),
        (
            {"decode": "json", "bad_records": "greetings"},
            "bad_records is 'greetings', which is read",
        ),
        (
            {"decode": "json", "bad_records": "b", "on_bad": "fail"},
            'bad_records takes nothing with on_bad="fail": choose null or drop',
        ),
        ({"columns": ["value", "key", "value"]}, "columns names 'value' twice"),
        ({"topics": {"t": [0, -1]}}, "topic t cannot have a partition -1"),
        ({"topics": {"t": [2**31]}}, "topic t cannot have a partition 2147483648"),
        ({"topics": "t.*"}, "no topic has the name 't.*'; a pattern is re.compile('t.*')"),
        ({"topics": ["t", "(u|v)"]}, "no topic has the name '(u|v)'; a pattern is re.compile("),
        ({"start": "beginning"}, "'beginning' is no place in a partition: 'earliest', 'latest', "),
        ({"start": {"greetings": {"0": 1}}}, "a place is given for greetings-0, which is not read"),
        ({"topic_ids": {"t": "x" * 21}}, f"topic_ids has {'x' * 21!r} for topic t, which is no"),
        ({"topic_ids": {"t": "+" * 22}}, f"topic_ids has {'+' * 22!r} for topic t, which is no"),
    ],
)
def test_what_would_have_no_effect_is_refused(
    opened: list[ScanSettings], arguments: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(said)}"):
        scan(**arguments)
    assert not opened


def test_a_pattern_must_not_match_the_topic_for_bad_records(
    opened: list[ScanSettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["orders", "orders-bad", "others"]
    monkeypatch.setattr(sys.modules["pyrklog.scanning.scan"], "topic_names", lambda _: names)
    given = {"decode": "json", "bad_records": "orders-bad"}
    with pytest.raises(ValueError, match=r"^bad_records is 'orders-bad', which is read"):
        scan(topics=re.compile("orders.*"), **given)
    assert not opened
    scan(topics=re.compile("o[a-z]*"), **given)
    assert opened[0].topics == [("orders", None), ("others", None)]


def test_a_pattern_does_not_match_what_the_sink_of_spark_keeps(
    opened: list[ScanSettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["pyrklog.scanning.scan"], "topic_names", lambda _: ["a", TOPIC])
    scan(topics=re.compile(".*"))
    scan(topics=TOPIC)
    assert [one.topics for one in opened] == [[("a", None)], [(TOPIC, None)]]


def test_what_can_be_used_is_handed_on(opened: list[ScanSettings]) -> None:
    scan(topics=["a", "b", "a"], columns=["value", "key"], timeout_s=1, batch_rows=7)
    scan(decode="json", on_bad="fail")
    scan(decode="json", on_bad="drop", bad_records="b")
    scan(topic_ids={"a": "AAAAAAAAAAAAAAAAAAAB_w"})
    first, second, third, fourth = opened
    assert (first.topic_ids, fourth.topic_ids) == ([], [("a", bytes(14) + b"\x01\xff")])
    assert (first.bad_records, third.bad_records) == (None, "b")
    assert first.topics == [("a", None), ("b", None)]
    assert (first.columns, first.timeout_ms, first.batch_rows) == (["value", "key"], 1000, 7)
    assert second.columns == list(COLUMNS)


def test_topics_may_be_any_iterable() -> None:
    assert core_topics(iter(["a", "b"])) == [("a", None), ("b", None)]
    assert core_topics({"a": range(2), "b": None}) == [("a", [0, 1]), ("b", None)]
    assert core_topics({"a": [2, 0, 2], "b": []}) == [("a", [0, 2]), ("b", [])]


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ("localhost", "localhost:9092"),
        ("k:1,localhost", "k:1,localhost:9092"),
        ("[::1]", "[::1]:9092"),
        ("[::1]:1", "[::1]:1"),
        # Left to the Rust side, which refuses them.
        ("", ""),
        ("::1", "::1"),
        ("k:x", "k:x"),
    ],
)
def test_a_host_without_a_port_has_the_usual_one(given: str, asked: str) -> None:
    assert core_bootstrap(given) == asked


@pytest.mark.parametrize(("seconds", "expected"), [(1, 1000), (0.25, 250), (1e-9, 1)])
def test_seconds_become_milliseconds(seconds: float, expected: int) -> None:
    assert milliseconds("timeout_s", seconds) == expected


@pytest.mark.parametrize("seconds", [0, -1, 86_401, float("nan"), float("inf")])
def test_times_out_of_range_are_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match=r"timeout_s is .*; it can be more than 0 and up to 86400"):
        milliseconds("timeout_s", seconds)
