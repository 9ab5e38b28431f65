"""The brokers and clusters of one pytest session, by their options."""

from __future__ import annotations

import signal
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from pyrklog.testing.broker import TestBroker
from pyrklog.testing.cluster import TestCluster

BROKERS_MAX = 4
"""Of different options; the one that was not used for longest ends when another one is needed."""
CLUSTERS_MAX = 1
START_S = 120.0
"""Also on a machine that many test processes share."""
TAIL_RECORDS = 5
TAIL_TIMEOUT_S = 2.0
LINES_SHOWN_MAX = 200

Setting = str | int | bool
Options = Mapping[str, Setting]


class _Site(Protocol):
    def close(self) -> None: ...


Site = TypeVar("Site", bound=_Site)
Key = tuple[object, ...]


class _Kept(Generic[Site]):
    """The least recently used go first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._sites: OrderedDict[Key, Site] = OrderedDict()

    def get(self, key: Key, make: Callable[[], Site]) -> Site:
        site = self._sites.pop(key, None)
        if site is None:
            while len(self._sites) >= self._most:
                self._sites.popitem(last=False)[1].close()
            site = make()
        self._sites[key] = site
        return site

    def __iter__(self) -> Iterator[Site]:
        return iter(list(self._sites.values()))

    def close(self) -> None:
        while self._sites:
            self._sites.popitem()[1].close()


class Pool:
    def __init__(self, new_folder: Callable[[str], Path], *, keeps: bool) -> None:
        """``new_folder`` makes one of a name like this; with ``keeps`` it stays at the end."""
        self._new_folder = new_folder
        self._keeps = keeps
        self._brokers: _Kept[TestBroker] = _Kept(BROKERS_MAX)
        self._clusters: _Kept[TestCluster] = _Kept(CLUSTERS_MAX)
        self._begun: dict[TestBroker, int] = {}
        """Where each broker's log was when the running test began."""
        self.kept: list[Path] = []
        """Folders that stay."""

    def broker(self, options: Options) -> TestBroker:
        """A running one."""
        return self._brokers.get(_key(options), lambda: self._new_broker(options))

    def cluster(self, brokers: int, options: Options) -> TestCluster:
        """A running one."""
        key = (brokers, *_key(options))
        return self._clusters.get(key, lambda: self._new_cluster(brokers, options))

    def _new_broker(self, options: Options) -> TestBroker:
        broker = TestBroker(self._folder("pyrklog"), options=options, faults=True)
        try:
            return broker.start(START_S)
        except BaseException:
            broker.close()
            raise

    def _new_cluster(self, brokers: int, options: Options) -> TestCluster:
        cluster = TestCluster(brokers, options=options, data=self._folder("pyrklog-cluster"))
        try:
            return cluster.start()
        except BaseException:
            cluster.close()
            raise

    def _folder(self, name: str) -> Path | None:
        """None: a temporary one, which goes with its broker."""
        if not self._keeps:
            return None
        self.kept.append(self._new_folder(name))
        return self.kept[-1]

    def _all_brokers(self) -> list[TestBroker]:
        of_clusters = (one for cluster in self._clusters for one in cluster.brokers.values())
        return [*self._brokers, *of_clusters]

    def begin_test(self) -> None:
        """What an earlier test killed runs again."""
        for broker in self._brokers:
            if not broker.running:
                broker.start(START_S)
        for cluster in self._clusters:
            if not cluster.is_whole:
                cluster.start()
        self._begun = {one: one.output.count for one in self._all_brokers()}

    def end_test(self) -> None:
        """Faults, clocks and pauses belong to a test."""
        for cluster in self._clusters:
            if cluster.zookeeper is not None and cluster.zookeeper.running:
                cluster.zookeeper.resume()
        for broker in self._all_brokers():
            if broker.running:
                broker.signal(signal.SIGCONT)
            broker.clear_faults()

    def log_of_test(self, broker: TestBroker) -> str:
        """What a broker wrote since the running test began: of one that came later, all."""
        try:
            broker.note("the test failed")
        except (RuntimeError, OSError, TimeoutError):
            pass  # it does not run, or hangs; what it wrote is here all the same
        lines = broker.output.since(self._begun.get(broker, 0))
        left_out = max(0, len(lines) - LINES_SHOWN_MAX)
        head = [f"({left_out} earlier lines)"] if left_out else []
        return "\n".join([*head, *lines[left_out:]])

    def close(self) -> None:
        self._clusters.close()
        self._brokers.close()


def tail(owner: TestBroker | TestCluster, topic: str) -> str:
    """The last records of a topic, one a line, for people."""
    try:
        found = owner.tail(topic, TAIL_RECORDS, timeout_s=TAIL_TIMEOUT_S)
    except Exception as error:
        return f"not readable: {error}"
    lines = [f"{one.partition}@{one.offset} {one.key!r} {one.value!r}" for one in found]
    return "\n".join(line[:200] for line in lines) or "no records"


def _key(options: Options) -> Key:
    return tuple(sorted(options.items()))
