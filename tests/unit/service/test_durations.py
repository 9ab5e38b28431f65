"""Alert rules in less time: each is still itself."""

import re

import pytest
import yaml

from pyrklog.deploy.alert_table import ALERTS
from pyrklog.deploy.alerts import rules
from tests.service.durations import (
    FACTOR,
    LEAST_S,
    longest_s,
    longest_silence_s,
    seconds,
    shortened,
    shortened_expr,
    shortened_rules,
)

SHIPPED = rules(ALERTS)


@pytest.mark.parametrize(
    ("shipped", "expected"),
    [("0m", "0s"), ("10s", "10s"), ("1m", "15s"), ("5m", "15s"), ("10m", "20s"), ("1h", "120s")],
)
def test_a_duration(shipped: str, expected: str) -> None:
    assert shortened(shipped) == expected


@pytest.mark.parametrize("text", ["", "m", "5", "5w", "1h30m"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no duration"):
        seconds(text)


@pytest.mark.parametrize(
    ("shipped", "expected"),
    [
        ('up{job=~"pyrklog.*"} == 0', 'up{job=~"pyrklog.*"} == 0'),
        ("increase(x_total{a}[10m]) > 10", "increase(x_total{a}[20s]) > 10"),
        ("max by (job) (lag_seconds{a}) > 900", "max by (job) (lag_seconds{a}) > 30"),
        ("max by (job) (wait_seconds{a}) > 5", "max by (job) (wait_seconds{a}) > 5"),
        ("max by (job) (bytes{a}) > 900", "max by (job) (bytes{a}) > 900"),
        ("changes(start_seconds{a}[30m]) > 2", "changes(start_seconds{a}[60s]) > 2"),
        ("rate(x{a}[5m]) + rate(y{a}[5m]) > 0", "rate(x{a}[15s]) + rate(y{a}[15s]) > 0"),
    ],
)
def test_an_expression(shipped: str, expected: str) -> None:
    assert shortened_expr(shipped) == expected


def test_all_rules_stay_and_only_durations_change() -> None:
    (before,) = yaml.safe_load(SHIPPED)["groups"]
    (after,) = yaml.safe_load(shortened_rules(SHIPPED))["groups"]
    assert len(after["rules"]) == len(ALERTS)
    for old, new in zip(before["rules"], after["rules"], strict=True):
        assert {**new, "for": old["for"], "expr": old["expr"]} == old
        without_numbers = [re.sub(r"\d+[smh]?\b", "", one["expr"]) for one in (old, new)]
        assert without_numbers[0] == without_numbers[1]
        assert seconds(new["for"]) <= seconds(old["for"])
        assert bool(seconds(new["for"])) == bool(seconds(old["for"]))


def test_no_rule_takes_longer_than_two_minutes() -> None:
    assert longest_s(SHIPPED) == 3600
    assert longest_s(shortened_rules(SHIPPED)) == 3600 / FACTOR
    assert LEAST_S < 3600 / FACTOR


@pytest.mark.parametrize(
    ("up", "expected"),
    [([1.0, 1.0], 0), ([1.0, 0.0, 1.0, 0.0], 1), ([0.0, 0.0, 1.0, 0.0], 2), ([0.0] * 3, 3)],
)
def test_the_longest_silence_of_a_target(up: list[float], expected: int) -> None:
    assert longest_silence_s(up) == expected
