"""Faults of brokers and ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

from pyrklog.testing import TestBroker
from pyrklog.testing.broker import free_port
from tests.service import scraping
from tests.service.watched import ODD, OTHER, Watched
from tests.support.cluster_clients import in_sync
from tests.support.faults.disks import Disk
from tests.support.faults.driver import FaultDriver
from tests.support.waiting import wait_until

RESTARTS_MAX = 6
CLOCK_AHEAD_S = 3.0
SMALL_CACHE_BYTES = 32 << 20


def _fault(watched: Watched, kind: str, *victims: int) -> AbstractContextManager[None]:
    return FaultDriver(watched.cluster).fault(kind, *victims)


@contextmanager
def broker_killed(watched: Watched) -> Iterator[None]:
    """It has the only replica of a topic."""
    with watched.topic("lone", [[ODD]]), _fault(watched, "kill", ODD):
        yield


@contextmanager
def broker_hangs(watched: Watched) -> Iterator[None]:
    """SIGSTOP. A topic needs all three replicas."""
    strict = watched.topic("strict", [[1, 2, 3], [3, 1, 2]], min_insync_replicas="3")
    with strict, _fault(watched, "pause_past_session", OTHER):
        yield


@contextmanager
def broker_restarts_again(watched: Watched) -> Iterator[None]:
    started = f'process_start_time_seconds{{instance="{watched.target(OTHER)}"}}'
    seen = [watched.prometheus.number(started)]

    def is_seen() -> bool:
        found = watched.prometheus.now(started)
        return bool(found) and found[0][1] != seen[-1]

    for _ in range(RESTARTS_MAX):
        watched.cluster.kill(OTHER)
        watched.cluster.begin(OTHER)
        wait_until(is_seen, "the start is not scraped")
        seen.append(watched.prometheus.number(started))
        if "PyrklogBrokerRestarts" in watched.prometheus.active():
            break
    yield


@contextmanager
def start_unheard(watched: Watched) -> Iterator[None]:
    """Other brokers do not reach one that starts, so the controller tells it nothing."""
    watched.cluster.stop(ODD)
    with ExitStack() as started, _fault(watched, "deaf", ODD):
        started.callback(watched.starting(ODD))
        yield


@contextmanager
def zookeeper_away(watched: Watched) -> Iterator[None]:
    with _fault(watched, "zookeeper_kill"):
        yield


@contextmanager
def broker_without_zookeeper(watched: Watched) -> Iterator[None]:
    """One that is not the controller."""
    victim = ODD if watched.cluster.controller() != ODD else OTHER
    with _fault(watched, "session_cut", victim):
        yield


@contextmanager
def controller_without_zookeeper(watched: Watched) -> Iterator[None]:
    """Another one is elected, and this one does not hear of it."""
    with _fault(watched, "session_cut", watched.cluster.controller()):
        yield


@contextmanager
def controller_dies_without_zookeeper(watched: Watched) -> Iterator[None]:
    victim = watched.cluster.controller()
    with ExitStack() as undone:
        undone.callback(watched.cluster.begin, victim)
        undone.enter_context(_fault(watched, "zookeeper_kill"))
        watched.cluster.kill(victim)
        yield


@contextmanager
def two_clusters_in_a_job(watched: Watched) -> Iterator[None]:
    target = f"127.0.0.1:{free_port()}"
    options: dict[str, str | int] = {"pyrklog.http.listener": target, "pyrklog.cache.max.bytes": 0}
    with TestBroker(watched.folder / "lone", faults=False, options=options):
        watched.scrape(scraping.JOB, [*watched.targets, target])
        try:
            yield
        finally:
            watched.scrape(scraping.JOB, watched.targets)
            gone = f'up{{instance="{target}"}}'
            wait_until(lambda: not watched.prometheus.now(gone), "it is scraped still")


@contextmanager
def leaders_stay_moved(watched: Watched) -> Iterator[None]:
    """A restart, and nobody elects the preferred leaders."""
    watched.restart(OTHER)
    yield


@contextmanager
def unclean_election(watched: Watched) -> Iterator[None]:
    """Of a topic that allows it. The follower does not reach its leader alone, so that all other
    partitions have in-sync replicas still. The controller's count ends with its process: with it
    the alert would go on for as long as that is young."""
    controller, network = watched.cluster.controller(), watched.cluster.network
    leader, follower = watched.cluster.others(controller)
    risky = watched.topic("risky", [[leader, follower]], unclean_leader_election_enable="true")
    with risky:
        wire = [(follower, leader)]
        network.cut(wire)
        try:
            wait_until(
                lambda: in_sync(watched.admin, "risky")[0] == {leader}, "it stays in sync", 60
            )
            with _fault(watched, "kill", leader):
                yield
        finally:
            network.join(wire)
        watched.restart(controller)


@contextmanager
def clock_ahead(watched: Watched) -> Iterator[None]:
    """A clock is compared with ZooKeeper's when the broker registers."""
    clock = watched.cluster.clocks[OTHER]
    clock.step(CLOCK_AHEAD_S)
    try:
        watched.restart(OTHER)
        yield
    finally:
        clock.step(0.0)
        watched.restart(OTHER)


@contextmanager
def little_shared_memory(watched: Watched) -> Iterator[None]:
    memory = Disk(watched.folder / "little-memory", SMALL_CACHE_BYTES)
    options = watched.cluster.brokers[OTHER].options
    before = options["pyrklog.cache.dir"]
    options["pyrklog.cache.dir"] = str(memory.folder)
    try:
        watched.restart(OTHER)
        yield
    finally:
        options["pyrklog.cache.dir"] = before
        watched.restart(OTHER)
        memory.close()
