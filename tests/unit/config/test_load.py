import os
from pathlib import Path

import pytest

from pyrklog.base.data_home import data_home
from pyrklog.config.broker import Candidate
from pyrklog.config.entry import Source
from pyrklog.config.listeners import Endpoint
from pyrklog.config.load import load_config, unknown_variables
from pyrklog.config.topic import describe_broker_options
from pyrklog.errors import ConfigError
from pyrklog.groups.options import group_settings
from tests.support.faults.stepped_clock import SteppedClock

MEMORY_BYTES = 8 * 2**30

ZOOKEEPER_MODE = """
broker.id=4
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/var/lib/kafka/a,/var/lib/kafka/b
num.partitions=6
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
log.cleaner.threads=1
log.retention.hours=24
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
zookeeper.connect=localhost:2181
zookeeper.connection.timeout.ms=18000
group.initial.rebalance.delay.ms=0
"""

KRAFT_MODE = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL
log.dirs=/tmp/kraft-combined-logs
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "server.properties"
    path.write_text(text)
    return path


def test_without_anything_the_defaults_hold() -> None:
    config = load_config()
    assert config.integer("num.partitions") == 1
    assert config.listeners.bound == [Endpoint("PLAINTEXT", "127.0.0.1", 9092)]
    assert config.data_dir == data_home(os.environ) / "default"
    assert config.log_dirs == [config.data_dir / "logs"]
    assert config.meta_dir == config.data_dir / "meta"
    assert config.configured_node_id == -1
    assert config.notices == []


def test_the_data_directory_follows_xdg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/x")
    monkeypatch.setenv("XDG_DATA_HOME", "/d")
    assert load_config().data_dir == Path("/d/pyrklog/default")
    monkeypatch.setenv("XDG_DATA_HOME", "relative")  # which XDG requires to be ignored
    assert load_config().data_dir == Path("/home/x/.local/share/pyrklog/default")


@pytest.mark.parametrize(
    ("text", "is_kafkas"),
    [
        ("process.roles=broker\nlog.retention.hours=-1", True),
        ("zookeeper.connect=z:1", True),
        ("listeners=PLAINTEXT://:9092", False),
    ],
)
def test_a_file_of_kafkas_is_known_by_what_it_needs(
    tmp_path: Path, text: str, is_kafkas: bool
) -> None:
    config = load_config(file=write(tmp_path, text), overrides=["zookeeper.connect="])
    assert config.has_kafka_file is is_kafkas
    assert config.with_dynamic(default={}, broker={}).has_kafka_file is is_kafkas


def test_what_marks_a_file_as_kafkas_is_not_called_ignored(tmp_path: Path) -> None:
    (notice,) = load_config(file=write(tmp_path, "process.roles=broker")).notices
    assert notice.startswith("process.roles (server.properties line 1) marks the file as Kafka's")
    assert "ignored" not in notice
    (notice,) = load_config(overrides=["process.roles=broker"]).notices
    assert notice == "process.roles (--set) has no effect in this version; ignored"


def test_only_a_file_tells_what_kafka_started_with() -> None:
    assert not load_config(overrides=["process.roles=broker"]).has_kafka_file


def test_an_authorizer_is_the_first_thing_that_is_refused(tmp_path: Path) -> None:
    lines = "super.users=User:a\nno.such.option=1\nauthorizer.class.name=kafka.security.Authorizer"
    file = write(tmp_path, f"{lines}\nallow.everyone.if.no.acl.found=true")
    with pytest.raises(ConfigError, match=r"authorizer.class.name .*line 3") as refused:
        load_config(file=file)
    assert refused.value.fix is not None
    assert "remove the line, or give --set authorizer.class.name= (empty)" in refused.value.fix
    with pytest.raises(ConfigError, match=r"Unknown option no.such.option") as unknown:
        load_config(file=file, overrides=["authorizer.class.name="])
    assert unknown.value.fix == "correct the name, or remove the line"
    with pytest.raises(ConfigError) as given:
        load_config(overrides=["no.such.option=1"])
    assert given.value.fix == "correct the name, or leave --set out"


def test_options_of_authorizers_and_of_kafka_4_are_known(tmp_path: Path) -> None:
    names = [
        "super.users",
        "allow.everyone.if.no.acl.found",
        "share.coordinator.state.topic.replication.factor",
        "share.coordinator.state.topic.min.isr",
    ]
    config = load_config(file=write(tmp_path, "".join(f"{name}=1\n" for name in names)))
    assert [notice.split()[0] for notice in config.notices] == names


OF_PLUG_INS = """
cruise.control.metrics.reporter.bootstrap.servers=a:1
cruise.control.metrics.reporter.kubernetes.mode=true
cruise.control.metrics.topic.num.partitions=1
client.quota.callback.static.produce=1000
log.segment.bytes.of.mine=1
a.plug.in=secret
"""


def test_settings_of_plug_ins_in_a_file_of_kafkas_are_passed_over(tmp_path: Path) -> None:
    file = write(tmp_path, f"process.roles=broker{OF_PLUG_INS}num.partitions=3")
    config = load_config(file=file)
    assert config.integer("num.partitions") == 3
    names = [line.partition("=")[0] for line in OF_PLUG_INS.split()]
    unknown = [notice for notice in config.notices if "is unknown" in notice]
    assert [notice.split()[0] for notice in unknown] == names
    assert unknown[-1] == (
        "a.plug.in (server.properties line 7) is unknown, as the settings of Kafka's plug-ins are; "
        "ignored"
    )
    assert "; did you mean log.segment.bytes?" in unknown[4]
    assert config.given["a.plug.in"].text == "secret"


@pytest.mark.parametrize(
    "wrong", ["log.retention.hour", "listener", "advertised.listener", "log.retention.minute"]
)
def test_a_likely_misspelling_is_refused_in_a_file_of_kafkas_too(
    tmp_path: Path, wrong: str
) -> None:
    file = write(tmp_path, f"zookeeper.connect=z:1\n{wrong}=1")
    with pytest.raises(ConfigError, match=rf"Unknown option {wrong} .*; did you mean {wrong}s\?"):
        load_config(file=file)


def test_unknown_names_stay_errors_elsewhere(tmp_path: Path) -> None:
    file = write(tmp_path, "zookeeper.connect=z:1\na.plug.in=1")
    with pytest.raises(ConfigError, match=r"Unknown option a.plug.in \(--set\)"):
        load_config(file=file, overrides=["a.plug.in=2"])
    with pytest.raises(ConfigError, match=r"Unknown option a.plug.in \(server"):
        load_config(file=write(tmp_path, "a.plug.in=1"))


def test_options_of_old_kafkas_are_known(tmp_path: Path) -> None:
    names = ["port", "host.name", "advertised.host.name", "advertised.port"]
    lines = "".join(f"{name}=1\n" for name in names)
    for kind in ("", "zookeeper.connect=z:1"):
        notices = load_config(file=write(tmp_path, lines + kind)).notices
        assert [notice.split(" (")[0] for notice in notices] == names
        assert all("no effect" in notice for notice in notices)


def test_a_named_cache_directory_must_be_there(tmp_path: Path) -> None:
    missing = f"pyrklog.cache.dir={tmp_path / 'none'}"
    with pytest.raises(ConfigError, match=r"pyrklog.cache.dir: .*none is not a directory"):
        load_config(overrides=[missing])
    load_config(overrides=[missing, "pyrklog.cache.max.bytes=0"])
    load_config(overrides=[f"pyrklog.cache.dir={tmp_path}"])


def test_flags_before_environment_before_file_before_default(tmp_path: Path) -> None:
    file = write(tmp_path, "num.partitions=2\nnum.io.threads=2\nmin.insync.replicas=2")
    environ = {"PYRKLOG_NUM_PARTITIONS": "3", "PYRKLOG_NUM_IO_THREADS": "3", "HOME": "/x"}
    config = load_config(file=file, environ=environ, overrides=["num.partitions=4"])
    assert config.integer("num.partitions") == 4
    assert config.integer("num.io.threads") == 3
    assert config.integer("min.insync.replicas") == 2
    assert config.integer("num.network.threads") == 3
    origins = {name: origin for name, _, origin in config.explain(MEMORY_BYTES)}
    assert origins["num.partitions"] == "--set"
    assert origins["num.io.threads"] == "environment PYRKLOG_NUM_IO_THREADS"
    assert origins["min.insync.replicas"] == "server.properties line 3"
    assert origins["num.network.threads"] == "default"


def test_stray_commas_in_log_dirs_name_nothing() -> None:
    for text in ("/a,/b,", ",/a , ,/b"):
        assert load_config(overrides=[f"log.dirs={text}"]).log_dirs == [Path("/a"), Path("/b")]


def test_empty_log_dirs_are_refused_beside_a_log_dir_too() -> None:
    """As in Kafka: they do not fall back to another place."""
    with pytest.raises(ConfigError, match=r"log\.dirs \(--set\) names no directory"):
        load_config(overrides=["log.dir=/a", "log.dirs="])


def test_flags_of_serve(tmp_path: Path) -> None:
    config = load_config(
        flags={"pyrklog.data.dir": str(tmp_path), "listeners": "PLAINTEXT://0.0.0.0:0"}
    )
    assert config.log_dirs == [tmp_path / "logs"]
    assert config.meta_dir == tmp_path / "meta"
    assert config.listeners.bound[0].port == 0


def test_kafkas_own_file_for_zookeeper_mode_is_read_unchanged(tmp_path: Path) -> None:
    config = load_config(file=write(tmp_path, ZOOKEEPER_MODE))
    assert config.configured_node_id == 4
    assert config.log_dirs == [Path("/var/lib/kafka/a"), Path("/var/lib/kafka/b")]
    assert config.meta_dir == Path("/var/lib/kafka/a-meta")
    ignored = " ".join(config.notices)
    assert config.zookeeper == "localhost:2181"
    assert config.integer("zookeeper.connection.timeout.ms") == 18000
    assert "zookeeper.connect" not in ignored
    assert "log.cleaner.threads" not in ignored
    assert "num.partitions" not in ignored


def test_kafkas_own_file_for_kraft_mode_is_read_unchanged(tmp_path: Path) -> None:
    config = load_config(file=write(tmp_path, KRAFT_MODE))
    assert config.configured_node_id == 1
    assert config.listeners.bound == [Endpoint("PLAINTEXT", "", 9092)]
    assert config.listeners.advertised == [Endpoint("PLAINTEXT", "localhost", 9092)]
    assert any("CONTROLLER is left out" in notice for notice in config.notices)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            "broker.id=1\nlisteners=SSL://:9093",
            "PLAINTEXT only (listeners: server.properties line 2).",
        ),
        ("listeners=:9092", "NAME://HOST:PORT (listeners: server.properties line 1)."),
        (
            "listeners=PLAINTEXT://:9092\nadvertised.listeners=A://b:1",
            "does not (listeners: server.properties line 1, advertised.listeners: "
            "server.properties line 2).",
        ),
        (
            "listener.security.protocol.map=PLAINTEXT",
            "NAME:PROTOCOL (listener.security.protocol.map: server.properties line 1).",
        ),
    ],
)
def test_errors_of_listeners_name_their_lines(tmp_path: Path, lines: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(file=write(tmp_path, lines))
    assert refused.value.what.endswith(said)


def test_advertised_listeners_of_the_file_beside_other_listeners_are_told(tmp_path: Path) -> None:
    file = write(tmp_path, "listeners=PLAINTEXT://:9092\nadvertised.listeners=PLAINTEXT://k:9092\n")
    other = {"listeners": "PLAINTEXT://127.0.0.1:9095"}
    (notice,) = load_config(file=file, flags=other).notices
    assert notice.startswith(
        "advertised.listeners (server.properties line 2) holds beside --listen: clients are told "
        "PLAINTEXT://k:9092;"
    )
    (notice,) = load_config(file=file, overrides=["listeners=PLAINTEXT://:9095"]).notices
    assert "holds beside listeners (--set): clients" in notice
    for harmless in ("", "PLAINTEXT://127.0.0.1:9095"):
        advertised = [f"advertised.listeners={harmless}"]
        assert load_config(file=file, flags=other, overrides=advertised).notices == []
    same = {"listeners": "PLAINTEXT://k:9092"}
    assert load_config(file=file, flags=same).notices == []
    assert load_config(file=file).notices == []


def test_a_guessed_listener_between_brokers_is_told() -> None:
    two = "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT", "listeners=A://:1,B://:2"
    (notice,) = load_config(overrides=two).notices
    assert "other brokers use A, the first one" in notice
    assert load_config(overrides=[*two, "inter.broker.listener.name=b"]).notices == []


def test_a_given_protocol_between_brokers_counts_even_if_it_is_the_default() -> None:
    protocol = "security.inter.broker.protocol=PLAINTEXT"
    assert load_config(overrides=[protocol]).notices == []
    with pytest.raises(ConfigError, match="Only one of"):
        load_config(overrides=[protocol, "inter.broker.listener.name=PLAINTEXT"])
    with pytest.raises(ConfigError, match="no listener of that name"):
        load_config(overrides=["security.inter.broker.protocol=SASL_SSL"])
    with pytest.raises(ConfigError, match="must be one of"):
        load_config(overrides=["security.inter.broker.protocol=plaintext"])


def test_passwords_are_never_shown() -> None:
    config = load_config(overrides=["pyrklog.zookeeper.digest=me:secret"])
    assert config.string("pyrklog.zookeeper.digest") == "me:secret"
    assert "secret" not in str(config.explain(MEMORY_BYTES))
    shown = describe_broker_options(
        config,
        {"pyrklog.zookeeper.digest"},
    )
    assert [(item.value, item.sensitive) for item in shown] == [(None, True)]
    assert "secret" not in str(shown)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("log.retention.hour=3", "did you mean log.retention.hours"),
        ("listener=PLAINTEXT://:1", "did you mean listeners"),
        ("completely.elsewhere=1", r"Unknown option completely.elsewhere \(--set\)\."),
        ("num.partitions", "KEY=VALUE"),
        ("=1", "KEY=VALUE"),
        ("num.partitions=none", "num.partitions"),
        ("authorizer.class.name=kafka.security.Authorizer", "open to everyone"),
        ("listeners=SSL://:9093", "serves PLAINTEXT only"),
        ("log.dirs= , ", r"log\.dirs \(--set\) names no directory"),
        ("log.dirs=", r"log\.dirs \(--set\) names no directory"),
        ("log.dir=", r"log\.dir \(--set\) names no directory"),
        ("node.id=-2", "at least -1"),
        ("log.retention.ms=0", "log.retention.ms: must be -1"),
        ("log.retention.minutes=0", r"log.retention.minutes \(--set\) must be -1"),
        ("log.retention.hours=0", r"log.retention.hours \(--set\) must be -1"),
        ("replica.lag.time.max.ms=499", r"replica.fetch.wait.max.ms \(500\) is more than"),
        ("replica.fetch.wait.max.ms=30001", r"replica.lag.time.max.ms \(30000\)"),
        ("log.cleaner.dedupe.buffer.size=1048576", "at least 1MB per cleaner thread"),
        ("log.cleaner.threads=128", "at least 1MB per cleaner thread"),
    ],
)
def test_mistakes_are_told_in_one_sentence(override: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        load_config(overrides=[override])
    assert refused.value.exit_code == 78
    assert "\n" not in str(refused.value)


def test_least_memory_for_compaction() -> None:
    """Each thread has more than a MiB, also one that does not run."""
    size = "log.cleaner.dedupe.buffer.size"
    for threads in (0, 1, 3):
        share = max(threads, 1) * (2**20 + 1)
        load_config(overrides=[f"log.cleaner.threads={threads}", f"{size}={share}"])
        with pytest.raises(ConfigError, match=size):
            load_config(overrides=[f"log.cleaner.threads={threads}", f"{size}={share - 1}"])


def test_an_empty_range_of_compaction_lag() -> None:
    def lag(least: int, most: int) -> list[str]:
        values = {"min": least, "max": most}
        return [f"log.cleaner.{end}.compaction.lag.ms={value}" for end, value in values.items()]

    load_config(overrides=lag(100, 100))
    with pytest.raises(ConfigError) as refused:
        load_config(overrides=lag(100, 50))
    assert str(refused.value) == (
        "log.cleaner.min.compaction.lag.ms (100) is more than "
        "log.cleaner.max.compaction.lag.ms (50)."
    )


def test_two_numbers_for_one_broker() -> None:
    with pytest.raises(ConfigError, match="must be equal") as refused:
        load_config(overrides=["broker.id=1", "node.id=2"])
    assert refused.value.fix == "leave one of them out, or give both the same number"
    assert load_config(overrides=["broker.id=2", "node.id=2"]).configured_node_id == 2


def test_a_wrong_value_names_its_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"server.properties line 2"):
        load_config(file=write(tmp_path, "\nnum.partitions=x"))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Cannot read"):
        load_config(file=tmp_path / "none")


def test_a_file_in_latin_1(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_bytes("broker.rack=Zürich".encode("latin-1"))
    assert load_config(file=path).string("broker.rack") == "Zürich"


def test_a_key_given_twice_is_mentioned(tmp_path: Path) -> None:
    config = load_config(file=write(tmp_path, "num.partitions=1\nnum.partitions=5"))
    assert config.integer("num.partitions") == 5
    assert "again in line 2" in config.notices[0]


def test_foreign_environment_variables_are_mentioned_not_refused() -> None:
    config = load_config(environ={"PYRKLOG_NUM_PARTITION": "3"})
    assert config.integer("num.partitions") == 1
    assert "did you mean PYRKLOG_NUM_PARTITIONS" in config.notices[0]


def test_a_default_of_compaction_is_followed_without_a_word() -> None:
    for policy in ("delete,compact", "compact", "delete"):
        assert load_config(overrides=[f"log.cleanup.policy={policy}"]).notices == []


def test_variables_of_other_commands_cause_no_notice() -> None:
    environ = {"PYRKLOG_BOOTSTRAP": "127.0.0.1:9092", "PYRKLOG_TRACEBACK": "1"}
    assert load_config(environ=environ).notices == load_config(environ={}).notices


def test_our_own_options_in_the_environment_lose_their_prefix() -> None:
    assert load_config(environ={"PYRKLOG_DATA_DIR": "/x"}).data_dir == Path("/x")


def test_the_metadata_stays_out_of_the_log_directories() -> None:
    with pytest.raises(ConfigError, match="choose a place outside"):
        load_config(overrides=["log.dirs=/x", "pyrklog.meta.dir=/x/meta"])


def test_receive_buffers_hold_at_least_one_request() -> None:
    config = load_config()
    largest = config.integer("socket.request.max.bytes")
    assert config.receive_buffers_max_bytes(2**34) == 2**31
    assert config.receive_buffers_max_bytes(2**20) > config.request_max_bytes(2**20)
    small = load_config(overrides=["queued.max.request.bytes=1"])
    assert small.receive_buffers_max_bytes(2**34) == largest
    for unbounded in (0, -7):
        given = load_config(overrides=[f"queued.max.request.bytes={unbounded}"])
        assert given.receive_buffers_max_bytes(2**34) == 2**31


def test_the_largest_request_is_less_where_there_is_little_memory() -> None:
    mib = 2**20
    config = load_config()
    assert config.request_max_bytes(2**34) == config.integer("socket.request.max.bytes")
    assert config.request_max_bytes(512 * mib) == 32 * mib
    assert config.receive_buffers_max_bytes(512 * mib) == 64 * mib
    assert config.request_max_bytes(64 * mib) == 16 * mib
    given = load_config(overrides=["socket.request.max.bytes=100000000"])
    assert given.request_max_bytes(512 * mib) == 100_000_000
    assert given.receive_buffers_max_bytes(512 * mib) > 100_000_000


def test_send_buffers_are_smaller_where_there_is_little_memory() -> None:
    config = load_config()
    assert config.send_buffer_bytes(2**33) == config.integer("socket.send.buffer.bytes") == 212_992
    assert config.send_buffer_bytes(2**30) == 102_400
    for given in (-1, 50_000):
        chosen = load_config(overrides=[f"socket.send.buffer.bytes={given}"])
        assert chosen.send_buffer_bytes(2**30) == chosen.send_buffer_bytes(2**33) == given


def test_overridden_retention_of_zero_is_accepted() -> None:
    config = load_config(overrides=["log.retention.hours=0", "log.retention.ms=-5"])
    assert config.integer("log.retention.ms") == -5


def test_run_time_changes_stand_over_static_ones() -> None:
    config = load_config(overrides=["log.retention.ms=1000"])
    changed = config.with_dynamic(
        default={"log.retention.ms": "2000", "num.partitions": "9"},
        broker={"message.max.bytes": "5"},
    )
    assert changed.integer("log.retention.ms") == 2000
    assert changed.integer("message.max.bytes") == 5
    assert changed.integer("num.partitions") == 1, "may not change at run time"
    assert config.integer("log.retention.ms") == 1000


def test_zookeeper_acls_need_an_identity() -> None:
    cluster = ["zookeeper.connect=localhost:2181", "zookeeper.set.acl=true"]
    with pytest.raises(ConfigError, match="ZooKeeper knows this broker"):
        load_config(overrides=cluster)
    certificate = "zookeeper.ssl.keystore.location=/etc/broker.pem"
    with pytest.raises(ConfigError, match="ZooKeeper knows this broker"):
        load_config(overrides=[*cluster, certificate])
    tls = "zookeeper.ssl.client.enable=true"
    for known in (["pyrklog.zookeeper.digest=user:secret"], [tls, certificate]):
        assert load_config(overrides=[*cluster, *known]).boolean("zookeeper.set.acl")


def test_initial_rebalance_delay_defaults_to_zero_on_a_lone_broker() -> None:
    name = "group.initial.rebalance.delay.ms"
    cluster = {"zookeeper.connect": "z:2181"}
    alone = load_config()
    assert alone.integer(name) == group_settings(alone, 2**34).initial_rebalance_delay_ms == 0
    assert alone.candidates(name) == [Candidate("0", Source.DEFAULT)]
    assert alone.with_dynamic(default={}, broker={}).integer(name) == 0
    in_cluster = load_config(flags=cluster)
    assert in_cluster.integer(name) == 3000
    assert in_cluster.candidates(name) == [Candidate("3000", Source.DEFAULT)]
    for flags in ({}, cluster):
        assert load_config(flags=flags, overrides=[f"{name}=7"]).integer(name) == 7


def test_overridden_bad_value_is_accepted(tmp_path: Path) -> None:
    file = write(tmp_path, "authorizer.class.name=kafka.security.Authorizer")
    with pytest.raises(ConfigError, match="line 1"):
        load_config(file=file)
    load_config(file=file, overrides=["authorizer.class.name="])
    with pytest.raises(ConfigError, match="--set"):
        load_config(file=file, overrides=["authorizer.class.name=other"])


def test_a_broker_with_a_stepped_clock_is_warned_of_no_variable(tmp_path: Path) -> None:
    """The tests' own variables do not look like its options."""
    own = SteppedClock(tmp_path, "clock").environment.keys() - os.environ.keys()
    assert own
    assert unknown_variables(own) == []


def test_a_variable_like_one_of_the_commands_is_proposed() -> None:
    (told,) = unknown_variables(["PYRKLOG_BOOTSTRA", "PYRKLOG_BOOTSTRAP", "HOME"])
    assert told.endswith("; did you mean PYRKLOG_BOOTSTRAP?")
    assert load_config(environ={"PYRKLOG_BOOTSTRA": "x"}).notices == [told]
