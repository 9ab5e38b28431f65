"""Unclean elections: when there is one, and how operators learn of it."""

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
import trio

from pyrklog.base import logs
from pyrklog.cluster.requests import LogEnd
from pyrklog.controller.leader_election import (
    Candidates,
    offline_election,
    shutdown_election,
    unclean_election,
    with_most,
)
from pyrklog.controller.leader_election import is_unclean as is_unclean_change
from pyrklog.metastore import znodes
from pyrklog.metastore.embedded import open_store
from pyrklog.metastore.znodes import RECOVERED, RECOVERING, Leadership
from pyrklog.start.identity import create_paths
from tests.unit.controller.stage import Cluster


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    store = await open_store(tmp_path / "meta")
    await create_paths(store.session(), znodes.PERSISTENT_PATHS)
    under_test = Cluster(store, tmp_path)
    yield under_test
    under_test.state_log.close()
    await store.close()


async def elect_uncleanly(cluster: Cluster) -> None:
    """Partition t-0 of the brokers 2 and 3: 3 leaves the ISR and comes back as 2 goes."""
    cluster.unclean.add("t")
    await cluster.create_topic("t", (2, 3))
    await cluster.brokers.wait_told("lead t-0:2@0 new")
    await cluster.sessions[3].close()
    await cluster.brokers.wait_told("lead t-0:2@1 offline 3")
    cluster.brokers.told.clear()
    await cluster.register(3)
    await cluster.brokers.wait_told("metadata brokers 1,2,3")
    await cluster.sessions[2].close()
    await cluster.brokers.wait_told("lead t-0:3@2 offline 2")


async def test_an_unclean_election_asks_for_the_topics_options_and_is_told(
    cluster: Cluster, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, Mapping[str, object]]] = []

    def keep(_: object, level: str, event: str, fields: Mapping[str, object]) -> None:
        if event == "unclean_election":
            told.append((level, fields))

    monkeypatch.setattr(logs.Logger, "log", keep)
    for broker in (1, 2, 3):
        await cluster.register(broker)
    controller = cluster.driver(1)
    await nursery.start(controller.run)
    await elect_uncleanly(cluster)
    node = await cluster.store.session().get(znodes.state_path("t", 0))
    assert json.loads(node.data)["leader_recovery_state"] == RECOVERING
    assert controller.unclean_elections == 1
    ((level, fields),) = told
    assert level == "warning"
    assert (fields["topic"], fields["partition"], fields["leader"]) == ("t", 0, 3)
    assert fields["consequence"] == "acknowledged records may be lost"
    assert cluster.state_log.flush()
    text = (cluster.directory / "state-change.jsonl").read_text()
    marked = [line for line in map(json.loads, text.splitlines()) if line.get("unclean")]
    assert [(one["event"], one["leader"], one["isr"]) for one in marked] == [
        ("partition_state", 3, [3])
    ]


def candidates(live: set[int], current: Leadership) -> Candidates:
    return Candidates((1, 2, 3), live, current, 9, targets=(1, 2, 3))


BEFORE = Leadership(1, 5, (1, 2), 2)
"""Of a partition with the replicas 1, 2 and 3."""


def is_unclean(before: Leadership, after: Leadership | None) -> bool:
    assert after is not None
    return is_unclean_change(before, after)


def test_a_leader_outside_the_isr_is_unclean() -> None:
    assert is_unclean(BEFORE, unclean_election(candidates({3}, BEFORE)))


def test_a_member_is_clean_though_an_unclean_one_was_allowed() -> None:
    assert not is_unclean(BEFORE, unclean_election(candidates({2, 3}, BEFORE)))
    assert not is_unclean(BEFORE, offline_election(candidates({2, 3}, BEFORE)))
    leaving = candidates({1, 2, 3}, BEFORE)._replace(shutting_down=(1,))
    assert not is_unclean(BEFORE, shutdown_election(leaving))


def test_an_eligible_replica_is_clean() -> None:
    before = BEFORE._replace(eligible=(3,))
    assert not is_unclean(before, offline_election(candidates({3}, before)))


def test_a_marked_member_that_leads_all_the_same_is_unclean() -> None:
    before = BEFORE._replace(leader=-1, unclean=(2,))
    assert is_unclean(before, unclean_election(candidates({2}, before)))


def test_the_longest_log_after_a_power_loss_is_not_unclean() -> None:
    before = BEFORE._replace(leader=-1, unclean=(1, 2))
    ends = {1: LogEnd(5, 4, 10), 2: LogEnd(5, 4, 20)}
    assert not is_unclean(before, with_most(before, ends, 9))


def test_nobody_who_leads_is_not_unclean() -> None:
    assert not is_unclean(BEFORE, BEFORE._replace(leader=-1))


def test_a_leader_that_is_recovering_is_told_once() -> None:
    before = Leadership(3, 6, (3,), 2, RECOVERING)
    again = offline_election(candidates({3}, before))
    assert again is not None
    assert again.recovery_state != RECOVERED
    assert not is_unclean(before, again)
