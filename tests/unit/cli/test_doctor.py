"""Each of the doctor's checks: what it finds, what it says then, and when it cannot know."""

import os
import socket
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from pyrklog.base.clock_reading import ClockReading
from pyrklog.base.problems import Problem
from pyrklog.cli import http_port, peer_protocol
from pyrklog.cli.broker_healths import BrokerHealth
from pyrklog.cli.doctor.checks import NOBODY, NOT_OURS, Check, chroot_of, examined
from pyrklog.cli.doctor.command import page, refuse_missing
from pyrklog.cli.doctor.evidence import (
    BrokerEvidence,
    Evidence,
    LocalDir,
    LocalProcess,
    NamedPlaces,
    Reached,
    ZooKeeperServer,
)
from pyrklog.cli.doctor.gathering import gather, zookeeper_server
from pyrklog.cli.doctor.host import is_local, local_dir, named_places, processes, reached
from pyrklog.cli.failures import CliError
from pyrklog.cli.options import Settings
from pyrklog.observability.health_rules import BrokerState, ClusterState, PartitionState, Reason
from pyrklog.protocol.health import (
    BrokerHealthResponse,
    ClientRefusal,
    ClientVersion,
    HealthClient,
    HealthReason,
)
from pyrklog.protocol.log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from tests.support.deaf_peer import deaf_peer

GB = 10**9
READY = b'HTTP/1.1 200 OK\r\n\r\n{"ready":true,"broker":7}'
STATE = ClusterState(
    "c1",
    [BrokerState(1, "127.0.0.1", 9092), BrokerState(2, "127.0.0.1", 9093)],
    1,
    [PartitionState("t", 0, 1, [1, 2], [1, 2])],
)
HERE = Reached("127.0.0.1", 9092, is_local=True, cluster_id="c1")


def volume(used_percent: int, *topics: tuple[str, int]) -> DescribeLogDirsResult:
    told = [
        DescribeLogDirsTopic(name, [DescribeLogDirsPartition(0, size, 0)]) for name, size in topics
    ]
    return DescribeLogDirsResult(0, "/d", told, 100 * GB, (100 - used_percent) * GB)


def health(*reasons: HealthReason, ahead_ms: int = 0, **more: Any) -> BrokerHealth:
    response = BrokerHealthResponse(reasons=list(reasons), **{"clients": [], **more})
    return BrokerHealth(response, ClockReading(0, ahead_ms, 0))


def ours(number: int, **more: Any) -> BrokerEvidence:
    known = {
        "is_local": True,
        "cluster_id": "c1",
        "health": health(),
        "log_dirs": [volume(50)],
        "options": {"zookeeper.connect": "zk:2181/kafka"},
    }
    return BrokerEvidence(number, **{**known, **more})


WELL = Evidence(
    [HERE],
    STATE,
    brokers={1: ours(1), 2: ours(2)},
    zookeepers=[ZooKeeperServer("zk:2181", mode="standalone")],
    dirs=[LocalDir(Path("/d"), 1, "pid 7", True, "c1", 1, "zk:2181/kafka")],
    processes=[LocalProcess(7, "python3", "2026-01-01 10:00", 1, 30, 1000)],
)
NAMES = (
    *("port", "advertised", "lock", "disk", "chroot", "cluster id", "file handles", "memory"),
    *("clock", "clients", "zookeeper", "cluster"),
)


def checked(evidence: Evidence, name: str) -> Check:
    return next(one for one in examined(evidence) if one.name == name)


def with_broker(**more: Any) -> Evidence:
    return replace(WELL, brokers={1: ours(1, **more), 2: ours(2)})


def test_a_cluster_that_is_well_passes_all_checks() -> None:
    checks = examined(WELL)
    assert [(one.name, one.status) for one in checks] == [(name, "ok") for name in NAMES]
    assert all(one.well and one.item()["fix"] is None for one in checks)
    assert page(checks).splitlines()[-1] == "12 checks, all well"


def test_another_kafka_leaves_what_only_ours_tell_unknown() -> None:
    apaches = {number: ours(number, health=None) for number in (1, 2)}
    checks = examined(replace(WELL, brokers=apaches, processes=(), dirs=()))
    unknown = {one.name: one.what for one in checks if one.status == "unknown"}
    assert unknown.pop("lock").startswith("no log directory")
    assert unknown == dict.fromkeys(("file handles", "memory", "clock", "clients"), NOT_OURS)
    assert NOT_OURS.startswith("unknown against this broker")
    assert all(one.is_healthy for one in checks)


def test_without_a_broker_the_port_is_the_one_finding() -> None:
    away = Reached("h", 9092, "nothing listens there", fix="start one")
    checks = examined(Evidence([away]))
    assert checks[0].item()["what"] == "no broker is reached at h:9092: nothing listens there"
    assert (checks[0].status, checks[0].findings[0].fix) == ("error", "start one")
    assert {one.what for one in checks[1:] if one.name != "lock"} == {NOBODY}
    assert page(checks).splitlines()[-1] == "UNHEALTHY: port (11 unknown)"


def test_an_encrypted_connection_says_so() -> None:
    asked = {number: BrokerEvidence(number, options={}) for number in (1, 2)}
    checks = examined(Evidence([HERE], STATE, unasked="only at PLAINTEXT", brokers=asked))
    told = {one.name for one in checks if one.what == "only at PLAINTEXT"}
    assert told == {"disk", "file handles", "memory", "clock", "clients"}


def test_a_port_that_another_program_holds() -> None:
    taken = Reached(
        "127.0.0.1",
        9092,
        foreign="speaks HTTP",
        is_local=True,
        holder="java pid 4121",
        fix="end it",
    )
    found = checked(replace(WELL, reached=[taken]), "port")
    assert found.what == "127.0.0.1:9092 is held by java pid 4121, which speaks HTTP"
    both = checked(replace(WELL, reached=[HERE, taken]), "port")
    assert (both.status, both.is_healthy) == ("warning", True)


def test_brokers_that_are_not_where_they_say() -> None:
    silent = replace(STATE.brokers[1], answers=False, why="refused")
    found = checked(
        replace(WELL, state=replace(STATE, brokers=[STATE.brokers[0], silent])), "advertised"
    )
    assert found.what == "broker 2 does not answer at 127.0.0.1:9093"
    dialled = checked(with_broker(dial_error="no answer in time"), "advertised")
    assert dialled.what == "broker 1 tells clients to connect to 127.0.0.1:9092: no answer in time"
    assert not dialled.is_healthy


def test_brokers_elsewhere_that_name_the_clients_own_machine() -> None:
    far = Reached("kafka.example", 9092, cluster_id="c1")
    found = checked(replace(WELL, reached=[far]), "advertised")
    assert found.status == "error"
    assert [one.broker for one in found.findings] == [1, 2]
    assert found.what == (
        "we reached kafka.example:9092, but broker 1 tells clients to connect to 127.0.0.1:9092, "
        "which is their own machine"
    )
    assert found.findings[0].fix == (
        "set advertised.listeners=PLAINTEXT://kafka.example:9092 on the broker"
    )


def test_locks_that_nobody_or_another_process_holds() -> None:
    lost = replace(WELL.dirs[0], holder=None)
    found = checked(replace(WELL, dirs=[lost]), "lock")
    assert (found.status, found.what) == (
        "warning",
        "broker 1 runs, but no process here holds /d/.lock",
    )
    named = replace(WELL.dirs[0], broker=None)
    found = checked(replace(WELL, dirs=[named]), "lock")
    assert found.what == (
        "/d is in use by python3 pid 7 since 2026-01-01 10:00: no other broker can use it"
    )
    assert "leave the lock" in (found.findings[0].fix or "")
    assert found.is_healthy


def test_a_full_volume_names_the_largest_topics() -> None:
    topics = [
        ("small", 1),
        ("orders", 61 * GB),
        ("__consumer_offsets", 70 * GB),
        ("__canary", 5 * GB),
    ]
    found = checked(with_broker(log_dirs=[volume(93, *topics)]), "disk")
    assert (found.status, found.what) == (
        "warning",
        "broker 1: the volume of /d is 93 % full (7.0 GB free)",
    )
    assert found.findings[0].fix == (
        "free space there, or keep less of the largest topics (orders 61.0 GB, __canary 5.0 GB, "
        "small 1 B): `pyrklog topic alter orders --set retention.ms=86400000` keeps a day"
    )


def test_what_brokers_tell_of_their_disks_is_told_once() -> None:
    filling = Reason("disk_filling", "degraded", "full in 9 min", 1)
    state = replace(STATE, signs=[filling])
    full = [volume(95, ("t", 9 * GB), ("__consumer_offsets", GB))]
    found = checked(replace(with_broker(log_dirs=full), state=state), "disk")
    assert [one.what for one in found.findings] == ["full in 9 min"]
    assert "topic alter t " in (found.findings[0].fix or "")
    old = {number: ours(number, log_dirs=[DescribeLogDirsResult(0, "/d")]) for number in (1, 2)}
    assert checked(replace(WELL, brokers=old), "disk").status == "unknown"


def test_a_volume_that_others_fill_is_not_laid_to_the_topics() -> None:
    filling = Reason("disk_filling", "degraded", "full in 3 h", 1, fix="lower retention.ms")
    state = replace(STATE, signs=[filling])
    told = (
        "free space there: something other than this broker's topics fills the volume. They take "
        "1.2 MB of 95.0 GB in use, so deleting records would help little"
    )
    for topics in ([("t", 1_200_000)], [("__consumer_offsets", 1_200_000)]):
        broker = with_broker(log_dirs=[volume(95, *topics)])
        assert checked(replace(broker, state=state), "disk").findings[0].fix == told
    # The finding does not name the volume: topics fill one of two.
    both = with_broker(log_dirs=[volume(95), volume(5, ("t", 4 * GB))])
    found = checked(replace(both, state=state), "disk")
    assert "keep less of the largest topics (t 4.0 GB)" in (found.findings[0].fix or "")


@pytest.mark.parametrize(
    ("connect", "chroot"),
    [("h:1,i:2/kafka", "/kafka"), ("h:1/kafka/", "/kafka"), ("h:1", ""), ("h:1/", "")],
)
def test_chroots(connect: str, chroot: str) -> None:
    assert chroot_of(connect) == chroot


def test_chroots_that_differ() -> None:
    found = checked(with_broker(options={"zookeeper.connect": "zk:2181/kafka2"}), "chroot")
    assert found.what == (
        "brokers of one cluster name different chroots of ZooKeeper: broker 1 /kafka2, "
        "broker 2 /kafka"
    )
    found = checked(replace(WELL, named=NamedPlaces(zookeeper="zk:2181")), "chroot")
    assert found.what == "the file given names the chroot /, the cluster's brokers are below /kafka"
    other = replace(WELL.dirs[0], zookeeper="zk:2181/old")
    found = checked(replace(WELL, dirs=[other]), "chroot")
    assert found.findings[0].fix == "start its broker with zookeeper.connect=zk:2181/old"
    alone = {number: ours(number, options={"zookeeper.connect": None}) for number in (1, 2)}
    found = checked(replace(WELL, brokers=alone), "chroot")
    assert found.what.startswith("no ZooKeeper")


def test_addresses_and_directories_of_other_clusters() -> None:
    found = checked(replace(WELL, reached=[HERE, Reached("h", 1, cluster_id="c2")]), "cluster id")
    assert found.what == "at h:1 answers the cluster c2, not c1"
    found = checked(with_broker(cluster_id="c3"), "cluster id")
    assert found.what == "at the address that broker 1 tells answers the cluster c3, not c1"
    foreign = replace(WELL.dirs[0], cluster_id="c9", node_id=5)
    found = checked(replace(WELL, dirs=[foreign]), "cluster id")
    assert [one.what for one in found.findings] == [
        "/d belongs to the cluster c9, the brokers are c1",
        "/d is that of broker 5, but broker 1 uses it",
    ]
    assert "zookeeper.connect=zk:2181/kafka" in (found.findings[0].fix or "")


def test_few_file_handles() -> None:
    busy = replace(WELL.processes[0], open_files=960)
    found = checked(replace(WELL, processes=[busy]), "file handles")
    assert (found.status, found.what) == (
        "degraded",
        "broker 1 has 960 of 1,000 file handles in use",
    )
    told = Reason("file_handles", "warning", "broker 1 has 850", 1)
    both = replace(WELL, processes=[busy], state=replace(STATE, signs=[told]))
    assert [one.what for one in checked(both, "file handles").findings] == ["broker 1 has 850"]


def test_a_small_cache_is_no_more_than_a_note() -> None:
    small = HealthReason("cache_small", "info", "64 MiB at most", 1, "more")
    found = checked(with_broker(health=health(small)), "memory")
    assert (found.status, found.what, found.is_healthy) == ("info", "64 MiB at most", True)


def test_clocks() -> None:
    ahead = {1: ours(1, health=health(ahead_ms=60_000)), 2: ours(2, health=health(ahead_ms=60_000))}
    found = checked(replace(WELL, brokers=ahead), "clock")
    assert found.what.startswith("this machine's clock is 60 s behind the brokers'")
    skew = Reason("clock_skew", "warning", "broker 2's clock is 9 s ahead", 2)
    found = checked(replace(WELL, state=replace(STATE, signs=[skew])), "clock")
    assert found.findings == [skew]


def test_old_and_refused_clients() -> None:
    old = HealthClient("app", "10.0.0.5", oldest=[ClientVersion("Fetch", 1)])
    odd = HealthClient("", "10.0.0.9", refused=[ClientRefusal("API key 999 is unknown", 2)])
    found = checked(with_broker(health=health(clients=[old, odd])), "clients")
    assert [(one.severity, one.what) for one in found.findings] == [
        ("warning", "a client without a name at 10.0.0.9: API key 999 is unknown (2 times)"),
        ("info", "app at 10.0.0.5: asked Fetch v1, Kafka 4 serves it from v4 on"),
    ]
    many = [HealthClient(str(n), "h", oldest=[ClientVersion("Fetch", 0)]) for n in range(30)]
    found = checked(with_broker(health=health(clients=many)), "clients")
    assert len(found.findings) == 11
    assert found.findings[-1].what == "20 more clients are old, or were refused"
    older = {number: ours(number, health=health(clients=None)) for number in (1, 2)}
    assert checked(replace(WELL, brokers=older), "clients").what == NOT_OURS


def test_zookeeper_away_from_brokers_and_from_here() -> None:
    away = Reason("zookeeper_unreached", "degraded", "broker 1 does not reach ZooKeeper", 1)
    silent = ZooKeeperServer("zk:2181", "refused")
    here = replace(WELL, zookeepers=[silent], state=replace(STATE, signs=[away]))
    found = checked(here, "zookeeper")
    assert [one.severity for one in found.findings] == ["degraded", "info"]
    assert not found.is_healthy
    assert checked(replace(WELL, zookeepers=[silent]), "zookeeper").is_healthy


def test_all_else_is_the_clusters() -> None:
    offline = replace(STATE, partitions=[PartitionState("t", 0, -1, [1, 2], [1])])
    found = checked(replace(WELL, state=offline), "cluster")
    assert [one.kind for one in found.findings] == ["offline", "behind"]
    lines = page(examined(replace(WELL, state=offline))).splitlines()
    assert lines[-1] == "UNHEALTHY: cluster"
    assert any(
        one.startswith("error     cluster       1 partition without a leader") for one in lines
    )


def test_a_finding_of_a_later_version_is_not_lost() -> None:
    later = Reason("of_a_later_version", "error", "odd", 1)
    found = checked(replace(WELL, state=replace(STATE, signs=[later])), "cluster")
    assert found.findings == [later]


def test_options_with_which_no_broker_would_start(tmp_path: Path) -> None:
    good = named_places(str(tmp_path), None)
    assert good.log_dirs == [tmp_path / "logs"]
    told = checked(replace(WELL, named=good), "options")
    assert (told.status, told.what) == (
        "ok",
        f"a broker would start with the options given, and use {tmp_path}/logs",
    )
    file = tmp_path / "server.properties"
    file.write_text(f"log.dirs={tmp_path}\nzookeeper.connect=zk:2181/kafka\n")
    read = named_places(None, str(file))
    assert (read.log_dirs, read.zookeeper) == ([tmp_path], "zk:2181/kafka")
    file.write_text("log.dirs=\n")
    found = checked(replace(WELL, named=named_places(None, str(file))), "options")
    assert found.status == "error"
    assert "names no directory" in found.what
    missing = named_places(None, str(tmp_path / "missing"))
    assert missing.refusal is not None
    assert "Cannot read" in missing.refusal[0]


def test_directories_that_were_named_are_told_and_so_is_a_missing_one(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    named = NamedPlaces([tmp_path / "a", tmp_path / "b"], is_given=True)
    dirs = [local_dir(path, None) for path in named.log_dirs]
    told = replace(WELL, named=named, dirs=dirs)
    assert checked(told, "lock").what == (
        f"the log directories are free ({tmp_path}/a, {tmp_path}/b)"
    )
    found = checked(told, "options")
    assert (found.status, [one.what for one in found.findings]) == (
        "warning",
        [f"the log directory {tmp_path}/b does not exist: no broker has written there"],
    )
    many = [LocalDir(Path(f"/d{number}")) for number in range(7)]
    what = checked(replace(WELL, dirs=many), "lock").what
    assert what.endswith("(/d0, /d1, /d2, /d3, /d4, and 2 more)")


def test_a_place_that_is_not_there_is_refused(tmp_path: Path) -> None:
    refuse_missing(str(tmp_path), None)
    for data, config in ((str(tmp_path / "no"), None), (None, str(tmp_path / "no"))):
        with pytest.raises(CliError, match="does not exist") as raised:
            refuse_missing(data, config)
        assert (raised.value.problem, raised.value.code) == (Problem.FILE_NOT_FOUND, 4)
        assert raised.value.fix is not None


# --- this machine --------------------------------------------------------------------------------


def test_addresses_of_this_machine() -> None:
    assert is_local("127.0.0.1")
    assert is_local("localhost")
    assert not is_local("192.0.2.1")
    assert not is_local("no-such-host.invalid")


def test_a_directory_and_its_holder(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=3\ncluster.id=c7\n")
    (tmp_path / ".pyrklog-metadata").write_text('{"kept": "zookeeper", "zookeeper.connect": "z/k"}')
    found = local_dir(tmp_path, 3)
    assert found == LocalDir(tmp_path, 3, None, False, "c7", 3, "z/k")
    (tmp_path / "meta.properties").write_text("version=99\n")
    assert local_dir(tmp_path, None).cluster_id is None
    assert processes([found]) == []


def test_a_holder_as_a_process(tmp_path: Path) -> None:
    folder = tmp_path / "7"
    (folder / "fd").mkdir(parents=True)
    for number in range(5):
        (folder / "fd" / str(number)).touch()
    (folder / "comm").write_text("java\n")
    ticks = 3 * os.sysconf("SC_CLK_TCK")
    (folder / "stat").write_text(f"7 (a b) c) S {'0 ' * 18}{ticks} 0 0\n")
    (tmp_path / "stat").write_text("cpu 1 2 3\nbtime 1700000000\n")
    (folder / "limits").write_text(
        "Limit                     Soft Limit           Hard Limit           Units\n"
        "Max open files            1024                 524288               files\n"
    )
    held = LocalDir(Path("/d"), 2, "pid 7")
    (found,) = processes([held, held], tmp_path)
    assert (found.pid, found.name, found.broker) == (7, "java", 2)
    assert (found.open_files, found.files_limit) == (5, 1024)
    started = datetime.fromtimestamp(1_700_000_003)
    assert found.since == started.isoformat(sep=" ", timespec="minutes")
    (folder / "limits").write_text("Max open files            unlimited            unlimited\n")
    assert processes([held], tmp_path)[0].files_limit is None
    assert processes([LocalDir(Path("/d"), 2, "pid 8")], tmp_path) == []


@pytest.fixture
def server() -> Iterator[tuple[socket.socket, list[bytes]]]:
    """Answers each connection with the next of some texts."""
    answers: list[bytes] = []
    listening = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                connection.recv(64)
                connection.sendall(answers.pop(0))

    thread = Thread(target=run)
    thread.start()
    yield listening, answers
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()
    thread.join()


def test_a_brokers_http_port_is_not_a_reason_to_end_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(peer_protocol, "ANSWER_TIMEOUT_S", 0.2)
    with deaf_peer(READY) as http, socket.create_server(("127.0.0.1", 0)) as kafka:
        port, own = int(http.rpartition(":")[2]), kafka.getsockname()[1]
        monkeypatch.setattr(http_port, "ABOVE_KAFKA", port - own)
        one = reached(("127.0.0.1", port), Settings())
    assert one.holder is None
    assert one.foreign == (
        "is the HTTP port of broker 7: metrics and health are served there, not Kafka's protocol"
    )
    # A listener that is silent may be a busy broker.
    assert one.fix == f"ask its Kafka port: -b 127.0.0.1:{own}"


def test_a_zookeeper_server_tells_its_mode(server: tuple[socket.socket, list[bytes]]) -> None:
    listening, answers = server
    address = listening.getsockname()[:2]
    where = f"127.0.0.1:{address[1]}"
    answers += [b"Zookeeper version: 3.8\nMode: leader\nNode count: 5\n"]
    answers += [b"srvr is not executed because it is not in the whitelist.\n"]
    assert zookeeper_server(address) == ZooKeeperServer(where, mode="leader")
    assert zookeeper_server(address) == ZooKeeperServer(where)


def test_nothing_that_answers_is_no_exception(server: tuple[socket.socket, list[bytes]]) -> None:
    listening, answers = server
    port = listening.getsockname()[1]
    answers += [b"HTTP/1.1 400 Bad Request\r\n\r\n"] * 9
    found = gather(Settings(f"127.0.0.1:{port},no-such-host.invalid:1", timeout_s=5), NamedPlaces())
    foreign, unknown = found.reached
    assert foreign.foreign == "speaks HTTP, not Kafka's protocol"
    assert foreign.holder is not None
    assert unknown.error == "this machine does not know the name"
    assert found.state is None
