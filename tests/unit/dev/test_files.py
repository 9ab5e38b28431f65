from pathlib import Path

import pytest

from pyrklog.base.problems import Problem
from pyrklog.config.load import load_config
from pyrklog.dev import brokers, zookeeper
from pyrklog.dev.errors import DevError
from pyrklog.dev.logs import Tail, for_people, print_logs
from pyrklog.dev.running import new_cluster
from pyrklog.dev.state import Cluster, Place
from pyrklog.errors import ConfigError


def make(folder: Path, count: int = 3, **changes: object) -> tuple[Place, Cluster]:
    place = Place(folder, "a")
    given: dict[str, object] = {
        "racks": [],
        "zookeepers": 1,
        "base_port": None,
        "settings": [],
        "temporary": False,
    }
    return place, new_cluster(place, count, **{**given, **changes})  # type: ignore[arg-type]


def test_a_new_cluster_leaves_nothing_on_the_disk(tmp_path: Path) -> None:
    _, cluster = make(tmp_path, 4, racks=["x", "y"])
    assert [(node.name, node.rack) for node in cluster.nodes] == [
        ("1", "x"),
        ("2", "y"),
        ("3", "x"),
        ("4", "y"),
        ("zk1", None),
        ("network", None),
    ]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("count", "changes"),
    [(0, {}), (51, {}), (3, {"zookeepers": 2}), (3, {"base_port": 80})],
)
def test_impossible_cluster_shapes_are_refused(
    tmp_path: Path, count: int, changes: dict[str, object]
) -> None:
    with pytest.raises(DevError) as caught:
        make(tmp_path, count, **changes)
    assert caught.value.problem is Problem.ARGUMENT_VALUE


def test_an_option_that_no_broker_takes_is_refused_before_anything_is_there(
    tmp_path: Path,
) -> None:
    with pytest.raises(ConfigError, match=r"num\.partitions"):
        make(tmp_path, settings=["num.partitions=many"])
    assert list(tmp_path.iterdir()) == []


def test_a_brokers_file_is_one_that_brokers_take(tmp_path: Path) -> None:
    place, cluster = make(tmp_path, racks=["x"], settings=["min.insync.replicas=1"])
    node = cluster.node("2")
    brokers.write_files(place, cluster, node)
    file = place.node_folder(cluster, node) / brokers.CONFIG_FILE
    config = load_config(file=file)
    assert config.notices == []
    assert config.configured_node_id == 2
    assert [item.port for item in config.listeners.bound] == [19093, 19293]
    assert [item.port for item in config.listeners.advertised] == [19093, 19343]
    assert config.listeners.inter_broker == "PEERS"
    assert config.zookeeper == "127.0.0.1:19395/pyrklog"
    assert config.string("broker.rack") == "x"
    assert config.integer("default.replication.factor") == 3
    assert config.integer("min.insync.replicas") == 1, "what the user gives wins"
    assert config.integer("group.initial.rebalance.delay.ms") == 0


@pytest.mark.parametrize(("count", "replicas", "in_sync"), [(1, 1, 1), (2, 2, 1), (5, 3, 2)])
def test_as_many_replicas_as_brokers_can_hold(
    tmp_path: Path, count: int, replicas: int, in_sync: int
) -> None:
    _, cluster = make(tmp_path, count)
    lines = brokers.settings(cluster, cluster.node("1"), tmp_path)
    assert f"default.replication.factor={replicas}" in lines
    assert f"offsets.topic.replication.factor={replicas}" in lines
    assert f"min.insync.replicas={in_sync}" in lines


def test_manual_changes_of_a_broker_file_stay(tmp_path: Path) -> None:
    place, cluster = make(tmp_path)
    node = cluster.node("1")
    brokers.write_files(place, cluster, node)
    file = place.node_folder(cluster, node) / brokers.CONFIG_FILE
    file.write_text(file.read_text() + "num.partitions=7\n")
    brokers.write_files(place, cluster, node)
    assert load_config(file=file).integer("num.partitions") == 7


def test_several_zookeepers_know_each_other(tmp_path: Path) -> None:
    alone = zookeeper.settings(tmp_path, 19092, 1, [1])
    assert not [line for line in alone if line.startswith("server.")]
    assert "clientPort=19142" in alone
    third = zookeeper.settings(tmp_path, 19092, 3, [1, 2, 3])
    assert "clientPort=19144" in third
    assert [line for line in third if line.startswith("server.")] == [
        "server.1=127.0.0.1:19152:19162",
        "server.2=127.0.0.1:19153:19163",
        "server.3=127.0.0.1:19154:19164",
    ]


def test_broker_is_ready_after_its_ready_line() -> None:
    assert not brokers.is_ready("")
    assert not brokers.is_ready('{"event": "listening", "of": "ready"}\n')
    assert not brokers.is_ready('{"event": "ready"')
    assert not brokers.is_ready('"ready"\n')
    assert brokers.is_ready('noise\n{"seconds": 0.4, "event": "ready", "level": "info"}\n')


def test_the_cluster_id_is_read_where_brokers_note_it(tmp_path: Path) -> None:
    assert brokers.cluster_id(tmp_path) is None
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "meta.properties").write_text("#x\nversion=0\ncluster.id=abc\n")
    assert brokers.cluster_id(tmp_path) == "abc"


def test_last_lines_of_logs_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = tmp_path / "1", tmp_path / "2"
    with pytest.raises(DevError, match="there is no log") as caught:
        print_logs([("1", one)], 1, False)
    assert caught.value.problem is Problem.DEV_NOT_FOUND
    one.write_text("a\nb\nc\n")
    print_logs([("1", one)], 2, False)
    assert capsys.readouterr().out == "b\nc\n"
    print_logs([("1", one), ("2", two)], 0, False)
    assert capsys.readouterr().out == "1 | a\n1 | b\n1 | c\n"
    print_logs([("1", one), ("2", two)], 1, False, str.upper)
    assert capsys.readouterr().out == "1 | C\n"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (
            '{"logger": "broker", "port": 9092, "host": "::1", "dirs": ["/a b"], '
            '"event": "ready_now", "timestamp": "2026-11-23T15:57:29.869Z", "level": "info"}',
            '15:57:29.869 info    broker: ready now  port=9092  host=::1  dirs=["/a b"]',
        ),
        (
            '{"event": "x", "why": "two words", "empty": ""}',
            '- -       -: x  why="two words"  empty=""',
        ),
        (
            "2026-11-23 WARN  ServerCnxnFactory: maxCnxns",
            "2026-11-23 WARN  ServerCnxnFactory: maxCnxns",
        ),
        ('["event"]', '["event"]'),
        ('{"a": "\\u001b[31m"}', '{"a": "\\u001b[31m"}'),
        ('{"event": "x", "a": "\\u009b31m"}', '- -       -: x  a="\\u009b31m"'),
        ('{"event": "x", "a": "\\u001b[31m"}', '- -       -: x  a="\\u001b[31m"'),
    ],
)
def test_lines_for_people(line: str, shown: str) -> None:
    assert for_people(line) == shown


def test_a_log_is_followed_through_half_lines_and_a_new_file(tmp_path: Path) -> None:
    path = tmp_path / "log"
    tail = Tail(path, "p ")
    assert tail.new_lines() == []
    path.write_text("a\nb")
    assert tail.new_lines() == ["p a\n"]
    with path.open("a") as file:
        file.write("c\n")
    assert tail.new_lines() == ["p bc\n"]
    assert tail.new_lines() == []
    path.rename(tmp_path / "log.1")
    path.write_text("new\n")
    assert tail.new_lines() == ["p new\n"]
