"""Brokers that are emptied and replaced: real brokers."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.balancing import (
    PATIENT,
    SLOW,
    has_rate,
    is_throttled,
    killed_when_it_moves,
    large,
    place,
    replicas,
    run,
    wait_until_told,
)
from tests.support.cluster import BrokerCluster
from tests.support.cluster_clients import consume
from tests.support.knowing import leaders_of, wait_until_each
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(600)]


@pytest.fixture
def four(new_cluster: Callable[..., BrokerCluster]) -> BrokerCluster:
    return new_cluster(count=4, **PATIENT).start()


@pytest.fixture
def cluster(new_cluster: Callable[..., BrokerCluster]) -> BrokerCluster:
    return new_cluster(**PATIENT).start()


def test_a_drain_that_is_killed_goes_on_and_can_be_undone(
    four: BrokerCluster, topic: str, tmp_path: Path
) -> None:
    before = [[1, 2], [2, 1]]
    large(four, topic, before)
    file = str(tmp_path / "drain.json")
    drain = ["drain", "--broker", "1", "-y", "--plan", file]
    with killed_when_it_moves(four, topic, 2, *drain, "--throttle", SLOW):
        pass
    assert is_throttled(four, topic)
    out, _ = run(four, *drain)
    assert out == "2 partitions on the way from broker 1\n"
    out, _ = run(four, *drain, "--throttle", "500MB/s")
    assert out.startswith("each broker copies at most 500 MB/s\n")
    assert out.endswith("broker 1 has no replicas any more\n")
    assert all(1 not in one for one in replicas(four, topic))
    assert not is_throttled(four, topic)
    assert not has_rate(four)
    run(four, "reassign", "cancel", file, "--rollback", "-w")
    assert replicas(four, topic) == before


def test_a_broker_is_drained(four: BrokerCluster, topic: str, tmp_path: Path) -> None:
    before, alone = [[2, 1], [2, 3], [1, 2], [3, 4]], f"{topic}-alone"
    place(four, topic, before)
    place(four, alone, [[2]])
    out, _ = run(four, "drain", "--broker", "2", "--dry-run")
    assert "hands over the leadership of 2 partitions first\n" in out
    assert "moves 4 of 5 partitions" in out
    assert out.count("(not done)") == 4
    assert replicas(four, topic) == before
    _, error = run(four, "drain", "--broker", "2", code=2)
    assert "draining needs to be confirmed" in error
    file = str(tmp_path / "drain.json")
    out, _ = run(four, "drain", "--broker", "2", "-y", "-w", "--plan", file)
    assert "handed over the leadership of 2 partitions\n" in out
    assert out.endswith("broker 2 has no replicas any more\n")
    assert all(2 not in one for one in replicas(four, topic) + replicas(four, alone))
    assert replicas(four, topic)[3] == [3, 4], "others are left alone"
    wait_until_told(four, topic, replicas(four, topic))
    wait_until_told(four, alone, replicas(four, alone))
    out, _ = run(four, "drain", "--broker", "2", "-y")
    assert out == "broker 2 has no replicas\n"
    run(four, "reassign", "cancel", file, "--rollback", "-w")
    assert (replicas(four, topic), replicas(four, alone)) == (before, [[2]])
    assert len(consume(four, topic, 80, "g")) == 80


def test_a_drain_that_would_break_a_minimum_is_refused(cluster: BrokerCluster, topic: str) -> None:
    other = f"{topic}-two"
    place(cluster, topic, [[1, 2, 3]])
    place(cluster, other, [[1, 2]])
    _, error = run(cluster, "drain", "--broker", "1", "-y", code=1)
    assert f"error[PK92]: {topic}-0: 3 replicas need 3 brokers, and there are only 2" in error
    assert "1 partition cannot leave broker 1; nothing was changed" in error
    assert (replicas(cluster, topic), replicas(cluster, other)) == ([[1, 2, 3]], [[1, 2]])
    _, error = run(cluster, "drain", "--broker", "9", "-y", code=4)
    assert "there is no broker 9" in error


def test_a_dead_broker_is_replaced_and_the_command_goes_on(four: BrokerCluster, topic: str) -> None:
    place(four, topic, [[2, 1], [1, 2], [3, 2], [1, 3]])
    four.brokers[2].kill()
    wait_until(lambda: four.is_gone(2), "its session does not end")
    alive = ",".join(four.brokers[number].bootstrap for number in (1, 3, 4))
    wait_until_each(
        alive,
        lambda told: leaders_of(told, topic) == {0: 1, 1: 1, 2: 3, 3: 1},
        "not every broker knows the new leader",
    )
    _, error = run(four, "replace", "2", "--with", "9", "-y", code=4, bootstrap=alive)
    assert "broker 9 is not there" in error
    out, _ = run(four, "replace", "2", "--with", "4", "-y", bootstrap=alive)
    assert "moves 3 of 4 partitions" in out
    assert f"{topic}-0: 2,1 -> 4,1\n" in out
    out, _ = run(four, "replace", "2", "--with", "4", "-y", "-w", bootstrap=alive)
    assert out.endswith("broker 2 has no replicas any more\n")
    after = [[4, 1], [1, 4], [3, 4], [1, 3]]
    assert replicas(four, topic) == after
    wait_until_told(four, topic, after, alive)
