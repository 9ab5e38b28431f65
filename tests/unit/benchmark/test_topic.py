"""A load waits until the topic that it has made has leaders."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from pyrklog.base.problems import Problem
from pyrklog.cli.bench_topic import leaders_of
from pyrklog.cli.connection import Connection
from pyrklog.cli.failures import CliError


def connection(*leaders: list[int] | None, timeout_s: float = 30.0) -> Connection:
    """Answers one after another, the last one again and again: the leaders of the partitions, or
    None where the broker does not know the topic yet."""
    left = list(leaders)

    def metadata() -> Any:
        found = left.pop(0) if len(left) > 1 else left[0]
        if found is None:
            return SimpleNamespace(topics={})
        partitions = {number: SimpleNamespace(leader=one) for number, one in enumerate(found)}
        return SimpleNamespace(topics={"t": SimpleNamespace(partitions=partitions)})

    settings = SimpleNamespace(timeout_s=timeout_s)
    return cast(Connection, SimpleNamespace(metadata=metadata, settings=settings))


def test_the_leaders_of_a_topic_that_the_broker_learns_of_later() -> None:
    assert leaders_of(connection(None, [], [1, -1], [1, 2, 1]), "t") == 2


@pytest.mark.parametrize("seen", [None, [], [-1, 1]])
def test_a_topic_without_leaders_is_an_error(seen: list[int] | None) -> None:
    with pytest.raises(CliError, match="partitions of t have no leader") as caught:
        leaders_of(connection(seen, timeout_s=0.01), "t")
    assert caught.value.problem is Problem.NO_LEADER
