"""Offsets of partitions whose leaders move."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from pyrklog.base.problems import Problem
from pyrklog.cli import group_state
from pyrklog.cli.failures import CliError
from pyrklog.cli.topic_details import query_offsets
from pyrklog.errors import ErrorCode

FIRST, SECOND = ("t", 0), ("t", 1)


class Cluster:
    """A cluster that first answers each partition with its errors."""

    def __init__(self, timeout_s: float = 60.0, **errors: list[ErrorCode]) -> None:
        self.settings = SimpleNamespace(timeout_s=timeout_s)
        self.admin = self
        self.asked: list[list[tuple[str, int]]] = []
        self._errors = errors

    def list_offsets(
        self, places: dict[TopicPartition, Any], **_: Any
    ) -> dict[TopicPartition, Future[Any]]:
        self.asked.append([(place.topic, place.partition) for place in places])
        return {place: self._answer(place.partition) for place in places}

    def _answer(self, partition: int) -> Future[Any]:
        future: Future[Any] = Future()
        if errors := self._errors.get(f"p{partition}"):
            future.set_exception(KafkaException(KafkaError(int(errors.pop(0)))))
        else:
            future.set_result(SimpleNamespace(offset=10 + partition))
        return future

    def explain(self, error: KafkaError, about: str) -> CliError:
        return CliError(Problem.BROKER_REFUSED, f"{about}: {ErrorCode(error.code()).name}")


def ask(cluster: Any) -> dict[tuple[str, int], int]:
    return query_offsets(cluster, [FIRST, SECOND], OffsetSpec.latest())


def test_only_partitions_with_retriable_errors_are_asked_again() -> None:
    moving = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OFFSET_NOT_AVAILABLE]
    cluster = Cluster(p1=moving)
    assert ask(cluster) == {FIRST: 10, SECOND: 11}
    assert cluster.asked == [[FIRST, SECOND], [SECOND], [SECOND]]


def test_offset_query_fails_at_once_on_other_errors() -> None:
    cluster = Cluster(p1=[ErrorCode.TOPIC_AUTHORIZATION_FAILED])
    with pytest.raises(CliError, match=r"offsets of t \[1\]: TOPIC_AUTHORIZATION_FAILED"):
        ask(cluster)
    assert len(cluster.asked) == 1


def test_offset_query_fails_after_its_timeout() -> None:
    cluster = Cluster(timeout_s=0.0, p0=[ErrorCode.LEADER_NOT_AVAILABLE])
    with pytest.raises(CliError, match="LEADER_NOT_AVAILABLE"):
        ask(cluster)


def test_offset_query_for_no_partitions_sends_nothing() -> None:
    cluster: Any = Cluster()
    assert query_offsets(cluster, [], OffsetSpec.latest()) == {}
    assert cluster.asked == []


def test_a_group_without_some_leaders_has_the_ends_of_the_others() -> None:
    cluster: Any = Cluster()
    gone = ("u", 0)
    found = group_state._ends(cluster, [FIRST, SECOND, gone], {FIRST: 3, SECOND: -1})
    assert found == {FIRST: 10, SECOND: None, gone: None}
    assert cluster.asked == [[FIRST]]
