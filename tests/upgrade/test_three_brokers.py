"""Three of today's brokers take up a cluster of each earlier version: their directories, and what
it kept in ZooKeeper."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.cluster import BrokerCluster
from tests.upgrade.making import FIXTURES, NODES, NUMBERS, cluster_options, load, tree
from tests.upgrade.taking_up import check_found, check_kept, clock_of, go_on, unpacked

VERSIONS = sorted(path.name for path in FIXTURES.iterdir())
CONTROLLER_EPOCH = "/controller_epoch"
CLEAN_MARK = ".kafka_cleanshutdown"


def as_left_here(cluster: BrokerCluster, folder: Path) -> None:
    """ZooKeeper knows the directories of each broker by their paths, and they know by ZooKeeper's
    numbers at which registration they were closed. Both are others here."""
    for number in NUMBERS:
        node, logs = f"/pyrklog/brokers/{number}", folder / f"broker{number}" / "logs"
        content = {**cluster.json(node), "log_dirs": [str(logs)]}
        stat = cluster.store.set(node, json.dumps(content).encode())
        mark = {"version": 0, "brokerEpoch": stat.mzxid}
        assert json.loads((logs / CLEAN_MARK).read_text()).keys() == mark.keys()
        (logs / CLEAN_MARK).write_text(json.dumps(mark, separators=(",", ":")))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_cluster_goes_on(
    version: str, tmp_path: Path, new_cluster: Callable[..., BrokerCluster]
) -> None:
    # Where ``new_cluster`` puts the directories of its first cluster.
    folder = tmp_path / "cluster0"
    seen = unpacked(FIXTURES / version / "cluster", folder)
    nodes = json.loads((folder / NODES).read_text())
    environment = clock_of(seen, tmp_path / "clock").environment
    cluster = new_cluster(environment=environment, **cluster_options())
    load(cluster.zookeeper, nodes)
    assert tree(cluster.store) == nodes
    as_left_here(cluster, folder)
    cluster.start()
    assert cluster.store.get_children("/pyrklog/unclean") == []
    check_found(seen, cluster.bootstrap)
    assert int(tree(cluster.store)[CONTROLLER_EPOCH]) > int(nodes[CONTROLLER_EPOCH])
    go_on(seen, cluster.bootstrap)
    for number in NUMBERS:
        assert cluster.brokers[number].stop() == 0
    for number in NUMBERS:
        cluster.brokers[number].start()
    check_kept(seen, cluster.bootstrap)
