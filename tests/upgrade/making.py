"""Makes the fixtures of a version: ``python -m tests.upgrade VERSION``."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient

from pyrklog.lag.history_format import parse
from pyrklog.testing import TestBroker
from tests.support import wire
from tests.support.cluster import BrokerCluster
from tests.support.lagging import lag_of
from tests.support.waiting import wait_until
from tests.support.wire import batch_headers
from tests.upgrade.content import BROKER_OPTIONS, write, write_on
from tests.upgrade.observation import Seen, observe
from tests.upgrade.packing import ARENAS, pack

FIXTURES = Path(__file__).parent / "fixtures"
ALONE = "node"
NUMBERS = (1, 2, 3)
NODES = "zookeeper.json"
UNWRITTEN = "unwritten"
"""A topic whose last records are in the block cache alone."""
WRITTEN = 5
BEHIND = 20
Options = dict[str, str | int | bool]
_KEEP_BACK: Options = {
    "pyrklog.cache.flush.ms": 3_600_000,
    "pyrklog.cache.flush.bytes": 1_000_000_000,
}
_HISTORY = "lag-history"
_TRIES = 20_000


def make_alone(folder: Path, fixtures: Path) -> None:
    """``clean`` after an orderly end, ``killed`` after ``kill -9`` with records in memory only."""
    data, arenas = folder / ALONE, folder / ARENAS
    arenas.mkdir(parents=True)
    options: Options = {**BROKER_OPTIONS, "pyrklog.cache.dir": str(arenas)}
    broker = TestBroker(data, faults=False, options=options).start()
    write(broker.bootstrap)
    broker.restart()
    # What comes now is timed: the broker has seen where the logs ended.
    assert lag_of(broker.bootstrap, "readers")["records"] == 0
    write_on(broker.bootstrap, idempotent=True)
    _begin_unwritten(broker.bootstrap)
    _wait_for_history(data)
    seen = _manifest(broker.bootstrap)
    assert broker.stop() == 0
    save(fixtures / "clean", folder, seen)
    broker = TestBroker(data, faults=False, options={**options, **_KEEP_BACK}).start()
    ends = _fill_unwritten(broker)
    seen = {**_manifest(broker.bootstrap), UNWRITTEN: ends}
    broker.kill()
    save(fixtures / "killed", folder, seen)
    broker.close()


def _manifest(bootstrap: str) -> Seen:
    return {"at": round(time.time()), "lag": lag_of(bootstrap, "readers"), **observe(bootstrap)}


def _begin_unwritten(bootstrap: str) -> None:
    with wire.Connection(bootstrap) as connection:
        assert wire.create_topic(connection, UNWRITTEN) == 0
        for number in range(WRITTEN):
            _write_unwritten(connection, number)


def _write_unwritten(connection: wire.Connection, number: int) -> None:
    sent = wire.record_batch([b"%d" % number])
    assert wire.produce(connection, UNWRITTEN, sent) == wire.Produced(0, number)


def _fill_unwritten(broker: TestBroker) -> dict[str, int]:
    """Writes until the files lack something; returns the ends of file and log."""
    folder = broker.data / "logs" / f"{UNWRITTEN}-0"
    with wire.Connection(broker.bootstrap) as connection:
        for number in range(WRITTEN, _TRIES):
            _write_unwritten(connection, number)
            written = written_end(folder)
            if number > written + BEHIND:
                return {"file": written, "log": number + 1}
    raise AssertionError("everything is written at once")


def written_end(folder: Path) -> int:
    """What the files of a partition end with, whatever is in the cache."""
    found = [one for path in folder.glob("*.log") for one in batch_headers(path.read_bytes())]
    return max((one.base_offset + one.last_offset_delta + 1 for one in found), default=0)


def _wait_for_history(data: Path) -> None:
    file = data / "meta" / _HISTORY

    def is_saved() -> bool:
        if not file.exists():
            return False
        saved = parse(file.read_bytes(), time.time_ns() // 1_000_000).histories
        return any(key.topic == "plain" for key in saved)

    wait_until(is_saved, "no lag history is saved")


def make_cluster(address: str, folder: Path, fixtures: Path) -> None:
    """Three brokers' directories, and what they keep in ZooKeeper: no session's nodes, which end
    with their broker."""
    cluster = BrokerCluster(address, folder, **cluster_options())
    try:
        cluster.start()
        write(cluster.bootstrap, replicas=3)
        for broker in cluster.brokers.values():
            broker.restart()
        wait_until(lambda: cluster.registered() == set(NUMBERS), "a broker is missing")
        assert lag_of(cluster.bootstrap, "readers")["records"] == 0
        write_on(cluster.bootstrap, idempotent=False)
        seen = _manifest(cluster.bootstrap)
        for broker in cluster.brokers.values():
            assert broker.stop() == 0
        nodes = tree(cluster.store)
    finally:
        cluster.close()
    (folder / NODES).write_text(json.dumps(nodes, indent=1, sort_keys=True))
    save(fixtures / "cluster", folder, seen)


def cluster_options() -> dict[str, Any]:
    return {**BROKER_OPTIONS, "min.insync.replicas": 2}


def tree(store: KazooClient, path: str = "/") -> dict[str, str]:
    """Path -> content, of everything that no session owns."""
    content, stat = store.get(path)
    if stat.ephemeralOwner:
        return {}
    found = {path: content.decode()}
    for name in sorted(store.get_children(path)):
        if path + name != "/zookeeper":
            found |= tree(store, f"{path.rstrip('/')}/{name}")
    return found


def load(address: str, nodes: Mapping[str, str]) -> None:
    """``address`` ends with the chroot, which does not exist yet."""
    host, _, chroot = address.partition("/")
    store = KazooClient(host)
    store.start()
    try:
        for path, content in sorted(nodes.items()):
            store.create(f"/{chroot}{path}".rstrip("/"), content.encode(), makepath=True)
    finally:
        store.stop()
        store.close()


def save(place: Path, folder: Path, seen: Seen) -> None:
    pack(folder, place.with_suffix(".tar.xz"))
    text = json.dumps(seen, indent=1, sort_keys=True)
    place.with_suffix(".json").write_text(text + "\n")


def remove_earlier(fixtures: Path) -> None:
    """A version's fixtures are made as a whole."""
    shutil.rmtree(fixtures, ignore_errors=True)
