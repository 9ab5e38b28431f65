"""What a stream tells its group, and that it goes on when it cannot."""

from __future__ import annotations

import logging
import time
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from pyrklog.spark import group_commit
from pyrklog.spark.connection import Connection
from pyrklog.spark.group_commit import COMMIT_MOST_S, KafkaGroup
from pyrklog.spark.offsets import Position, StreamOffset, TopicPartition

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


class FakeAdmin:
    """Notes commits; fails with ``failure``, or for single partitions with ``refused``."""

    failure: KafkaException | None = None
    failures_left: int = 99
    refused: KafkaError | None = None
    made: list[FakeAdmin]

    def __init__(self, settings: dict[str, object]) -> None:
        self.settings = settings
        self.commits: list[list[tuple[object, ...]]] = []
        type(self).made.append(self)

    def alter_consumer_group_offsets(
        self, groups: list[Any], *, request_timeout: float
    ) -> dict[str, Future[Any]]:
        assert request_timeout <= COMMIT_MOST_S
        (group,) = groups
        future: Future[Any] = Future()
        if self.failure is not None and self.failures_left > 0:
            type(self).failures_left -= 1
            future.set_exception(self.failure)
            return {group.group_id: future}
        places = group.topic_partitions
        self.commits.append(
            [
                (one.topic, one.partition, one.offset, one.metadata, one.leader_epoch)
                for one in places
            ]
        )
        answers = [
            SimpleNamespace(topic=one.topic, partition=one.partition, error=self.refused)
            for one in places
        ]
        future.set_result(SimpleNamespace(topic_partitions=answers))
        return {group.group_id: future}


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> type[FakeAdmin]:
    monkeypatch.setattr(FakeAdmin, "made", [], raising=False)
    monkeypatch.setattr(FakeAdmin, "failure", None)
    monkeypatch.setattr(FakeAdmin, "failures_left", 99)
    monkeypatch.setattr(FakeAdmin, "refused", None)
    monkeypatch.setattr(group_commit, "AdminClient", FakeAdmin)
    return FakeAdmin


def offset(number: int, **ends: int) -> StreamOffset:
    places = {"first": A0, "second": A1}
    return StreamOffset(
        {places[name]: Position(end, 3) for name, end in ends.items()}, number=number
    )


def test_what_changed_is_committed(admin: type[FakeAdmin]) -> None:
    group = KafkaGroup(Connection("h:1"), "etl")
    group.close()
    assert admin.made == []
    group.commit(offset(1, first=5, second=6))
    group.commit(offset(2, first=5, second=9))
    group.commit(offset(2, first=5, second=9))
    (made,) = admin.made
    assert made.commits == [
        [("a", 0, 5, "pyrklog.spark 1", 3), ("a", 1, 6, "pyrklog.spark 1", 3)],
        [("a", 1, 9, "pyrklog.spark 2", 3)],
    ]


def test_idle_partitions_are_committed_each_day(
    admin: type[FakeAdmin], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise their offsets expire, and tools show no lag for them."""
    now_s = 1_000.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    group = KafkaGroup(Connection("h:1"), "etl")
    for number in range(1, 50):
        group.commit(offset(number, first=number, second=6))
        now_s += 3_600
    commits = admin.made[0].commits
    assert [number for number, one in enumerate(commits) if len(one) == 2] == [0, 24, 48]


@pytest.mark.parametrize("kind", ["failure", "refused"])
def test_a_failure_is_told_once_and_tried_again(
    admin: type[FakeAdmin],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    """As from a group that has members."""
    group = KafkaGroup(Connection("h:1"), "etl")
    error = KafkaError(KafkaError.UNKNOWN_MEMBER_ID)
    monkeypatch.setattr(admin, kind, KafkaException(error) if kind == "failure" else error)
    with caplog.at_level(logging.WARNING):
        group.commit(offset(1, first=5))
        group.commit(offset(2, first=6))
    assert len(caplog.records) == 1
    assert "not committed for group etl" in caplog.text
    monkeypatch.setattr(admin, kind, None)
    group.commit(offset(3, first=6))
    assert admin.made[0].commits[-1] == [("a", 0, 6, "pyrklog.spark 3", 3)]


def test_a_coordinator_that_loads_is_waited_for(
    admin: type[FakeAdmin], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the last offset of a run that ends when all is read would not be committed."""
    loading = KafkaException(KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS))
    monkeypatch.setattr(admin, "failure", loading)
    monkeypatch.setattr(admin, "failures_left", 2)
    KafkaGroup(Connection("h:1"), "etl").commit(offset(1, first=5))
    assert admin.made[0].commits == [[("a", 0, 5, "pyrklog.spark 1", 3)]]
    assert not caplog.records


def test_a_coordinator_that_stays_away_is_not_waited_for_with_each_batch(
    admin: type[FakeAdmin], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "COMMIT_MOST_S", 0.5)
    away = KafkaException(KafkaError(KafkaError.COORDINATOR_NOT_AVAILABLE))
    monkeypatch.setattr(admin, "failure", away)
    group = KafkaGroup(Connection("h:1"), "etl")
    group.commit(offset(1, first=5))
    left = admin.failures_left
    assert left < 98
    group.commit(offset(2, first=6))
    assert admin.failures_left == left - 1
    assert [record.levelname for record in caplog.records] == ["WARNING"]
