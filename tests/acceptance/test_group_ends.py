"""Rows 15 and 28: what becomes of groups that are deleted, or that nobody uses any more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pyrklog.testing import TestBroker
from tests.acceptance.sites import (
    KAFKA,
    ONE,
    OPTIONS,
    THREE,
    MakeSite,
    OwnSite,
    RestartableKafka,
    Site,
)
from tests.support import kafka_tools
from tests.support.cluster import BrokerCluster
from tests.support.faults.stepped_clock import SteppedClock
from tests.support.groups import ConfluentMember, Crew
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.jvm

PARTITIONS = 6


def tool(site: Site, *commands: str) -> list[kafka_tools.Output]:
    return kafka_tools.run(site.bootstrap, [f"consumer-groups {command}" for command in commands])


def commit(site: Site, group: str, topic: str, offset: int) -> None:
    with Crew(ConfluentMember(site.bootstrap, group, topic)) as crew:
        crew.poll_until(lambda: crew.owns_all(PARTITIONS), "alone")
        crew.members[0].commit({0: offset}, group)


def test_row_15_a_deleted_group_stays_deleted_after_a_restart(
    own_site: MakeSite, topic: str
) -> None:
    own = own_site()
    own.site.create(topic, PARTITIONS)
    commit(own.site, "deleted", topic, 3)
    commit(own.site, "kept", topic, 4)
    deleted, listed = tool(own.site, "--delete --group deleted", "--list")
    assert "Deletion of requested consumer groups ('deleted') was successful." in deleted.text
    assert listed.lines == ["kept"]
    own.restart()
    own.site.wait_until_led(topic, PARTITIONS)
    told: list[list[str]] = []

    def is_loaded() -> bool:
        told.append(tool(own.site, "--list")[0].lines)
        return told[-1] == ["kept"]

    wait_until(is_loaded, lambda: f"the groups are {told}")
    assert not [lines for lines in told if "deleted" in lines]
    with Crew(ConfluentMember(own.site.bootstrap, "deleted", topic)) as crew:
        crew.poll_until(lambda: crew.owns_all(PARTITIONS), "the group, anew")
        assert crew.members[0].committed(0) is None
    with Crew(ConfluentMember(own.site.bootstrap, "kept", topic)) as crew:
        crew.poll_until(lambda: crew.owns_all(PARTITIONS), "the other one")
        assert crew.members[0].committed(0) == (4, "kept")


RETENTION = {"offsets.retention.minutes": 1, "offsets.retention.check.interval.ms": 1_000}
HOUR_S = 3_600.0


class Aging:
    """Brokers with a clock that can be set. Apache Kafka has none: there the minute must pass."""

    def __init__(self, own: OwnSite, clock: SteppedClock | None) -> None:
        self.own = own
        self._clock = clock
        self.patience_s = PATIENCE_S if clock else PATIENCE_S + 80

    def pass_the_retention(self) -> None:
        if self._clock is not None:
            self._clock.step(HOUR_S)


@pytest.fixture(params=[ONE, THREE])
def aging(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Aging]:
    options = {**OPTIONS, **RETENTION}
    if request.config.getoption("--against") == KAFKA:
        kafka = RestartableKafka(tmp_path / "kafka", options)
        yield Aging(OwnSite([kafka]), None)
        kafka.close()
        return
    clock = SteppedClock(tmp_path / "clock", "brokers")
    if request.param == ONE:
        new_broker: Callable[..., TestBroker] = request.getfixturevalue("new_broker")
        broker = new_broker(options=options, environment=clock.environment).start()
        yield Aging(OwnSite([broker]), clock)
        return
    new_cluster: Callable[..., BrokerCluster] = request.getfixturevalue("new_cluster")
    cluster = new_cluster(environment=clock.environment, **options).start()
    yield Aging(OwnSite(list(cluster.brokers.values())), clock)


def test_row_28_offsets_of_an_idle_group_expire_and_those_of_a_busy_one_do_not(
    aging: Aging, topic: str
) -> None:
    """KIP-211: by default after seven days, here after a minute."""
    site = aging.own.site
    site.create(topic, PARTITIONS)
    with Crew(ConfluentMember(site.bootstrap, "busy", topic)) as busy:
        busy.poll_until(lambda: busy.owns_all(PARTITIONS), "the busy group")
        busy.members[0].commit({0: 3, 1: 4}, "kept")
        commit(site, "idle", topic, 5)
        (listed,) = tool(site, "--list")
        assert sorted(listed.lines) == ["busy", "idle"]
        aging.pass_the_retention()

        def is_gone() -> bool:
            busy.seen += busy.members[0].poll()
            return not [one for one in described(site) if one == "idle"]

        wait_until(is_gone, "the idle group's offsets stay", aging.patience_s)
        listed, offsets = tool(site, "--list", "--describe --group busy --offsets")
        assert listed.lines == ["busy"]
        columns = sorted(line.split()[2:4] for line in offsets.lines)
        assert columns[:2] == [["0", "3"], ["1", "4"]], "partition and offset"
        assert busy.members[0].committed(0) == (3, "kept")
    with Crew(ConfluentMember(site.bootstrap, "idle", topic)) as again:
        again.poll_until(lambda: again.owns_all(PARTITIONS), "the group, anew")
        assert again.members[0].committed(0) is None


def described(site: Site) -> list[str]:
    found = site.admin.list_consumer_groups().result(PATIENCE_S)
    return [one.group_id for one in found.valid]
