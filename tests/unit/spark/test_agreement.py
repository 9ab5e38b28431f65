"""A topic is gone if every broker says so by itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from pyrklog.scanning import LeaderNotAvailableError, UnknownTopicError
from pyrklog.spark.agreement import THREADS_MAX, confirmed
from pyrklog.spark.connection import Connection
from pyrklog.spark.view import TopicView

CONNECTION = Connection("h:1", rack="r")
EXPECTED = {"a.b": TopicView("id", (0, 1)), "c": TopicView("id", (0,)), "d": TopicView("", (0,))}
ALL = dict(EXPECTED)


class FakeBrokers:
    """Stands for ``pyrklog.scan``: each broker has its topics, or is away."""

    def __init__(self, brokers: Mapping[str, Mapping[str, TopicView] | None]) -> None:
        self.brokers = brokers
        self.calls: list[dict[str, Any]] = []

    def __call__(
        self, topics: re.Pattern[str], start: int, end: int, columns: object, **arguments: Any
    ) -> Any:
        assert (start, end) == (0, 0)
        self.calls.append(arguments)
        known = self.brokers[arguments["bootstrap_servers"]]
        if known is None:
            raise LeaderNotAvailableError("away")
        found = {name: one for name, one in known.items() if topics.fullmatch(name)}
        if not found:
            raise UnknownTopicError("no topic matches")
        progress = [
            SimpleNamespace(topic=name, partition=number)
            for name, one in found.items()
            for number in reversed(one.partitions)
        ]
        ids = {name: one.topic_id for name, one in found.items() if one.topic_id}
        return nullcontext(SimpleNamespace(progress=lambda: progress, topic_ids=ids))


def gone(*brokers: Mapping[str, TopicView] | None) -> set[str]:
    fake = FakeBrokers({f"h:{number}": known for number, known in enumerate(brokers)})
    found = confirmed(list(EXPECTED), EXPECTED, list(fake.brokers), CONNECTION, fake)
    assert sorted(one["bootstrap_servers"] for one in fake.calls) == sorted(fake.brokers)
    assert all((one["rack"], one["timeout_s"]) == ("r", 5.0) for one in fake.calls)
    return found


def test_what_no_broker_knows_is_gone() -> None:
    assert gone({}) == set(EXPECTED)
    assert gone({}, {"aXb": TopicView("id", (0, 1))}) == set(EXPECTED)


def test_one_broker_that_knows_it_is_enough() -> None:
    assert gone({}, ALL, {}) == set()
    assert gone({}, {"a.b": EXPECTED["a.b"]}, {"c": EXPECTED["c"]}) == {"d"}


@pytest.mark.parametrize("found", [TopicView("another", (0, 1)), TopicView("id", (0, 2))])
def test_another_topic_or_less_of_it_is_none(found: TopicView) -> None:
    assert gone(ALL | {"a.b": found}) == {"a.b"}
    assert gone(ALL | {"a.b": found}, ALL) == set()


def test_a_topic_without_an_id_is_any() -> None:
    assert gone(ALL | {"c": TopicView("", (0,)), "d": TopicView("id", (0, 1))}) == set()


def test_a_broker_that_is_away_may_know_it() -> None:
    assert gone({}, None) == set()
    assert confirmed(["c"], EXPECTED, [], CONNECTION, FakeBrokers({})) == set()


def test_many_brokers_are_asked() -> None:
    assert gone(*[{}] * (3 * THREADS_MAX)) == set(EXPECTED)
