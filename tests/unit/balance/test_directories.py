"""Log directories of replicas that arrive."""

from dataclasses import replace

from pyrklog.balance.directories import choose
from pyrklog.balance.model import Broker, Cluster, LogDir, Partition, Wish
from pyrklog.balance.planner import make_plan
from tests.unit.balance.clusters import GB


def cluster(*places: LogDir) -> Cluster:
    partitions = {("t", index): Partition((1,), (index + 1) * GB) for index in range(4)}
    return Cluster({1: Broker(1), 2: Broker(2, None, places)}, partitions)


def test_the_emptiest_gets_the_largest() -> None:
    found = cluster(LogDir("/a", 3 * GB), LogDir("/b", 0))
    changed = {("t", index): (2,) for index in range(4)}
    # 4 GB to b; 3 to a (3 < 4); 2 to b (4 < 6); 1 to a or b, which are alike: by name.
    assert choose(found, changed) == {
        (("t", 3), 2): "/b",
        (("t", 2), 2): "/a",
        (("t", 1), 2): "/b",
        (("t", 0), 2): "/a",
    }


def test_a_full_directory_gets_nothing_and_one_alone_is_not_named() -> None:
    full, free = LogDir("/a", 0, 100 * GB, 11 * GB), LogDir("/b", 90 * GB, 100 * GB, 50 * GB)
    changed = {("t", 3): (2,), ("t", 0): (2,)}
    assert choose(cluster(full, free), changed) == {(("t", 3), 2): "/b", (("t", 0), 2): "/a"}
    assert choose(cluster(full), changed) == {}
    none = cluster(full, LogDir("/c", 0, 100 * GB, 0))
    assert choose(none, {("t", 3): (2,)}) == {(("t", 3), 2): "/a"}, "it has most room of those"


def test_directories_of_one_volume_share_its_room() -> None:
    total, free = 100 * GB, 14 * GB
    places = LogDir("/a", 0, total, free), LogDir("/b", 0, total, free + 4096)
    other = LogDir("/c", 90 * GB, total, 40 * GB)
    found = choose(cluster(*places, other), {("t", index): (2,) for index in range(4)})
    # Of the 4 GB that a and b may take together, the largest replica takes all.
    assert found[("t", 3), 2] in ("/a", "/b")
    assert {found[("t", index), 2] for index in range(3)} == {"/c"}


def test_a_replica_needs_room_on_one_volume() -> None:
    places = [LogDir("/a", 0, 200 * GB, 150 * GB), LogDir("/b", 0, 200 * GB, 160 * GB)]
    rooms = Broker(2, None, places).rooms()
    assert rooms.fit(140 * GB)
    assert not rooms.fit(141 * GB)
    rooms.take(100 * GB)
    assert rooms.largest == 130 * GB
    assert Broker(2, None, places, arriving=[120 * GB, 10 * GB]).rooms().largest == 120 * GB
    assert Broker(2, None, [], arriving=[GB]).rooms().largest is None


def test_what_stays_is_not_named() -> None:
    found = cluster(LogDir("/a"), LogDir("/b"))
    assert choose(found, {("t", 0): (1, 2), ("t", 1): (1,)}) == {(("t", 0), 2): "/a"}


def test_room_ends_where_the_cluster_says() -> None:
    places = LogDir("/a", 0, 100 * GB, 8 * GB), LogDir("/b", 90 * GB, 100 * GB, 9 * GB)
    found = cluster(*places)
    assert found.rooms(2).largest == 0
    fuller = replace(found, fill_max=0.95)
    assert fuller.rooms(2).largest == 4 * GB
    # The emptier directory has 3 GB, the other one 4.
    changed = {("t", 3): (2,), ("t", 2): (2,)}
    assert choose(fuller, changed) == {(("t", 3), 2): "/b", (("t", 2), 2): "/a"}
    assert make_plan(found, Wish([1, 2])).changed == {}
    assert make_plan(fuller, Wish([1, 2])).changed
