import pytest

from pyrklog.config.broker import BrokerConfig
from pyrklog.config.entry import ConfigEntry, OptionType, Source, Synonym
from pyrklog.config.load import load_config
from pyrklog.config.option import InvalidValueError
from pyrklog.config.topic import (
    TopicDefaults,
    check_topic_options,
    describe_broker_options,
    describe_topic_options,
)

HOUR_MS = 3_600_000


def broker(*overrides: str) -> BrokerConfig:
    return load_config(overrides=overrides)


def retention_ms(*overrides: str) -> int:
    return TopicDefaults(broker(*overrides)).resolve({}).log.retention_ms


def test_milliseconds_before_minutes_before_hours() -> None:
    assert retention_ms() == 168 * HOUR_MS
    assert retention_ms("log.retention.hours=1") == HOUR_MS
    assert retention_ms("log.retention.hours=1", "log.retention.minutes=2") == 120_000
    assert retention_ms("log.retention.minutes=2", "log.retention.ms=3") == 3
    assert retention_ms("log.retention.hours=-1") == -1


def test_segment_age_and_jitter() -> None:
    log = TopicDefaults(broker("log.roll.hours=2", "log.roll.jitter.hours=5")).resolve({}).log
    assert log.segment_ms == 2 * HOUR_MS
    assert log.segment_jitter_ms == 2 * HOUR_MS, "never more than the age itself"


def test_the_flush_interval_has_its_own_fall_back() -> None:
    assert TopicDefaults(broker("log.flush.scheduler.interval.ms=7")).resolve({}).log.flush_ms == 7


def test_overrides_stand_over_defaults() -> None:
    defaults = TopicDefaults(broker("log.retention.ms=5", "min.insync.replicas=2"))
    resolved = defaults.resolve(
        {"retention.ms": "-1", "cleanup.policy": "compact", "max.message.bytes": "77"}
    )
    assert resolved.log.retention_ms == -1
    assert (resolved.log.cleanup_delete, resolved.log.cleanup_compact) == (False, True)
    assert resolved.log.max_message_bytes == 77
    assert resolved.min_insync_replicas == 2
    assert not resolved.unclean_leader_election
    assert defaults.resolve({"unclean.leader.election.enable": "true"}).unclean_leader_election


def test_conversion_for_old_clients_is_on_unless_broker_or_topic_forbids_it() -> None:
    def converts(*overrides: str, **options: str) -> bool:
        topic = {name.replace("_", "."): value for name, value in options.items()}
        log = TopicDefaults(broker(*overrides)).resolve(topic).log
        return log.message_downconversion_enable

    assert converts()
    assert not converts("log.message.downconversion.enable=false")
    assert not converts(message_downconversion_enable="false")
    never = "log.message.downconversion.enable=false"
    assert converts(never, message_downconversion_enable="true")


def test_throttled_replicas_are_read() -> None:
    defaults = TopicDefaults(broker())
    assert defaults.resolve({}).throttled == ((), ())
    overrides = {
        "leader.replication.throttled.replicas": "0:1, 12:3",
        "follower.replication.throttled.replicas": "*",
    }
    throttled = defaults.resolve(overrides).throttled
    assert throttled.leading == ((0, 1), (12, 3))
    assert throttled.following is None, "all"


def test_unreadable_topic_option_falls_back_to_the_default() -> None:
    """A metadata store filled by another program must not stop a topic."""
    defaults = TopicDefaults(broker())
    assert defaults.resolve({"retention.ms": "soon", "no.such": "x"}) == defaults.resolve({})


def test_the_older_timestamp_bound_counts_where_the_newer_are_not_given() -> None:
    defaults = TopicDefaults(broker())
    log = defaults.resolve(
        {"message.timestamp.difference.max.ms": "9", "message.timestamp.after.max.ms": "4"}
    ).log
    assert (log.message_timestamp_before_max_ms, log.message_timestamp_after_max_ms) == (9, 4)


def test_the_brokers_older_timestamp_bound_beats_a_topics() -> None:
    older, before = "message.timestamp.difference.max.ms", "message.timestamp.before.max.ms"
    config = broker(f"log.{older}=5", "log.message.timestamp.after.max.ms=3")
    defaults = TopicDefaults(config)

    def bounds(**options: str) -> tuple[int, int]:
        topic = {f"message.timestamp.{name}.max.ms": value for name, value in options.items()}
        log = defaults.resolve(topic).log
        return log.message_timestamp_before_max_ms, log.message_timestamp_after_max_ms

    assert bounds() == (5, 3)
    assert bounds(difference="9") == (5, 3)
    assert bounds(before="7", after="8") == (7, 8)
    # With its own newer bound at infinity the topic's older one counts.
    assert bounds(difference="9", before=str(2**63 - 1)) == (9, 3)
    found = described(config, {}, before)
    default = Synonym(f"log.{before}", str(2**63 - 1), Source.DEFAULT)
    assert (found.value, found.source, found.synonyms) == ("5", Source.DEFAULT, [default])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"retention.mss": "1"}, "Unknown topic config name: retention.mss"),
        ({"retention.ms": None}, "Null value not supported"),
        ({"retention.ms": "-2"}, "at least -1"),
        ({"cleanup.policy": "none"}, "String must be one of: compact, delete"),
        ({"remote.storage.enable": "true"}, "Tiered Storage functionality is disabled"),
        ({"retention.ms": "x", "retention.mss": "1"}, "Unknown topic config name: retention.mss"),
        ({"x": None, "retention.ms": None}, "Null value not supported for .*: x,retention.ms$"),
        ({"min.compaction.lag.ms": "100", "max.compaction.lag.ms": "50"}, "conflict topic config"),
        ({"message.format.version": "9.9"}, "is not a valid version"),
        ({"message.format.version": "3.0-IV"}, "is not a valid version"),
    ],
)
def test_wrong_topic_options(options: dict[str, str | None], said: str) -> None:
    with pytest.raises(InvalidValueError, match=said):
        check_topic_options(options)


@pytest.mark.parametrize("name", ["remote.log.copy.disable", "remote.log.delete.on.disable"])
def test_remote_storage_is_not_to_be_left_with_zookeeper(name: str) -> None:
    check_topic_options({name: "true"}, TopicDefaults(broker()))
    in_cluster = TopicDefaults(broker("zookeeper.connect=z:2181"))
    check_topic_options({name: "false"}, in_cluster)
    with pytest.raises(InvalidValueError, match="under Zookeeper's mode"):
        check_topic_options({name: "true"}, in_cluster)


def test_a_topics_compaction_lag_goes_with_the_brokers() -> None:
    least, most = "min.compaction.lag.ms", "max.compaction.lag.ms"
    check_topic_options({least: "100", most: "100"})
    check_topic_options({least: "100"})
    defaults = TopicDefaults(broker(f"log.cleaner.{most}=50"))
    check_topic_options({least: "50"}, defaults)
    check_topic_options({least: "100", most: "100"}, defaults)
    with pytest.raises(InvalidValueError) as refused:
        check_topic_options({least: "100"}, defaults)
    assert str(refused.value) == f"conflict topic config setting {least} (100) > {most} (50)"
    with pytest.raises(InvalidValueError, match="conflict"):
        check_topic_options({most: "5"}, TopicDefaults(broker(f"log.cleaner.{least}=6")))


@pytest.mark.parametrize("version", ["0.8.0", "0.10.2.1", "0.11.0-IV2", "2.8", "3.0-IV1", "3.9.1"])
def test_known_record_format_versions_are_accepted(version: str) -> None:
    check_topic_options(
        {
            "message.format.version": version,
            "min.compaction.lag.ms": "50",
            "max.compaction.lag.ms": "50",
            "remote.log.copy.disable": "false",
        }
    )


def entry(entries: list[ConfigEntry], name: str) -> ConfigEntry:
    (found,) = [item for item in entries if item.name == name]
    return found


def described(config: BrokerConfig, overrides: dict[str, str], name: str) -> ConfigEntry:
    entries = describe_topic_options(overrides, TopicDefaults(config), None)
    return entry(entries, name)


def test_synonyms_of_a_default() -> None:
    found = described(broker(), {}, "retention.bytes")
    assert found.value == "-1"
    assert (found.source, found.type, found.read_only) == (Source.DEFAULT, OptionType.LONG, False)
    assert found.synonyms == [Synonym("log.retention.bytes", "-1", Source.DEFAULT)]
    assert found.documentation


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("retention.ms", "log.retention.hours=24", 24 * HOUR_MS),
        ("retention.ms", "log.retention.minutes=3", 180_000),
        ("segment.ms", "log.roll.hours=2", 2 * HOUR_MS),
        ("segment.jitter.ms", "log.roll.jitter.hours=1", HOUR_MS),
        ("flush.ms", "log.flush.scheduler.interval.ms=7", 7),
    ],
)
def test_the_synonyms_begin_with_the_first_of_the_brokers_options(
    name: str, given: str, value: int
) -> None:
    """As in Kafka: where others are given there are none, and the value is called a default."""
    assert described(broker(), {}, name).synonyms == []
    found = described(broker(given), {}, name)
    assert (found.value, found.source, found.synonyms) == (str(value), Source.DEFAULT, [])


def test_weaker_options_of_the_broker_follow_the_first() -> None:
    config = broker("log.roll.ms=5", "log.roll.hours=2")
    synonyms = [
        Synonym("log.roll.ms", "5", Source.STATIC_BROKER),
        Synonym("log.roll.hours", "2", Source.STATIC_BROKER),
        Synonym("log.roll.hours", "168", Source.DEFAULT),
    ]
    found = described(config, {}, "segment.ms")
    assert (found.value, found.source, found.synonyms) == ("5", Source.STATIC_BROKER, synonyms)
    entries = describe_broker_options(config, None)
    assert entry(entries, "log.roll.ms").synonyms == synonyms
    assert entry(entries, "log.roll.hours").synonyms == synonyms[1:]


def test_a_brokers_option_shows_the_weaker_ones_of_its_meaning() -> None:
    config = broker("log.retention.minutes=3", "log.flush.scheduler.interval.ms=9")
    changed = config.with_dynamic(default={}, broker={"log.flush.interval.ms": "4"})
    entries = describe_broker_options(changed, None)
    hours = Synonym("log.retention.hours", "168", Source.DEFAULT)
    minutes = Synonym("log.retention.minutes", "3", Source.STATIC_BROKER)
    scheduler = "log.flush.scheduler.interval.ms"
    static = [
        Synonym(scheduler, "9", Source.STATIC_BROKER),
        Synonym(scheduler, str(2**63 - 1), Source.DEFAULT),
    ]
    flush = Synonym("log.flush.interval.ms", "4", Source.DYNAMIC_BROKER)
    shown = {
        "log.retention.ms": [],
        "log.retention.minutes": [minutes, hours],
        "log.retention.hours": [hours],
        "log.flush.interval.ms": [flush, *static],
        scheduler: static,
    }
    assert {name: entry(entries, name).synonyms for name in shown} == shown
    unset = entry(entries, "log.retention.ms")
    assert (unset.value, unset.source) == (None, Source.DEFAULT)


def test_options_that_no_broker_option_changes_have_no_synonym() -> None:
    assert described(broker(), {}, "follower.replication.throttled.replicas").synonyms == []


@pytest.mark.parametrize(
    ("name", "of_broker", "default", "given"),
    [
        ("delete.retention.ms", "log.cleaner.delete.retention.ms", "86400000", "5"),
        ("local.retention.bytes", "log.local.retention.bytes", "-2", "5"),
        ("local.retention.ms", "log.local.retention.ms", "-2", "5"),
        ("max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms", str(2**63 - 1), "5"),
        ("min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio", "0.5", "0.1"),
        ("min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms", "0", "5"),
        ("preallocate", "log.preallocate", "false", "true"),
    ],
)
def test_options_show_the_brokers_value_with_and_without_effect(
    name: str, of_broker: str, default: str, given: str
) -> None:
    unset = Synonym(of_broker, default, Source.DEFAULT)
    found = described(broker(), {}, name)
    assert (found.value, found.source, found.synonyms) == (default, Source.DEFAULT, [unset])
    config = broker(f"{of_broker}={given}")
    is_told = any(f"{of_broker} (--set) has no effect" in notice for notice in config.notices)
    assert is_told is not of_broker.startswith("log.cleaner.")
    static = Synonym(of_broker, given, Source.STATIC_BROKER)
    found = described(config, {}, name)
    assert (found.value, found.source) == (given, Source.STATIC_BROKER)
    assert found.synonyms == [static, unset]
    found = described(config, {name: default}, name)
    assert (found.value, found.source) == (default, Source.TOPIC)
    assert found.synonyms == [Synonym(name, default, Source.TOPIC), static, unset]


def test_topics_do_not_follow_the_brokers_record_format() -> None:
    of_broker = "log.message.format.version"
    found = described(broker(f"{of_broker}=2.8"), {}, "message.format.version")
    assert (found.value, found.source) == ("3.0-IV1", Source.STATIC_BROKER)
    assert found.synonyms == [
        Synonym(of_broker, "2.8", Source.STATIC_BROKER),
        Synonym(of_broker, "3.0-IV1", Source.DEFAULT),
    ]


@pytest.mark.parametrize(
    ("name", "text", "shown"),
    [
        ("min.cleanable.dirty.ratio", " 1e-4f ", "1.0E-4"),
        ("cleanup.policy", " compact, delete ", "compact,delete"),
        ("min.cleanable.dirty.ratio", "0.50", "0.5"),
        ("preallocate", "TRUE", "true"),
        ("retention.ms", " +7 ", "7"),
        ("retention.ms", "soon", "soon"),
    ],
)
def test_an_override_is_shown_as_it_is_read(name: str, text: str, shown: str) -> None:
    found = described(broker(), {name: text}, name)
    assert found.value == shown
    assert found.synonyms[0] == Synonym(name, shown, Source.TOPIC)


def test_synonyms_from_all_sources_strongest_first() -> None:
    config = broker("log.retention.minutes=3").with_dynamic(
        default={"log.retention.ms": "4"}, broker={}
    )
    found = described(config, {"retention.ms": "5"}, "retention.ms")
    assert found.value == "5"
    assert found.synonyms == [
        Synonym("retention.ms", "5", Source.TOPIC),
        Synonym("log.retention.ms", "4", Source.DYNAMIC_DEFAULT_BROKER),
        Synonym("log.retention.minutes", "3", Source.STATIC_BROKER),
        Synonym("log.retention.hours", "168", Source.DEFAULT),
    ]


def test_describe_returns_only_the_named_options() -> None:
    entries = describe_topic_options(
        {},
        TopicDefaults(broker()),
        {"retention.ms", "no.such"},
    )
    assert [item.name for item in entries] == ["retention.ms"]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (("pyrklog.data.dir=/d",), "/d/logs"),
        (("log.dirs=/a,/b",), "/a,/b"),
        (("log.dir=/c",), "/c"),
    ],
)
def test_log_dirs_are_shown_wherever_they_come_from(given: tuple[str, ...], shown: str) -> None:
    entries = describe_broker_options(broker(*given), {"log.dirs"})
    assert entry(entries, "log.dirs").value == shown


def test_broker_id_in_use_is_shown_although_not_configured() -> None:
    entries = describe_broker_options(broker(), None, node_id=7)
    for name in ("broker.id", "node.id"):
        found = entry(entries, name)
        assert (found.value, found.source) == ("7", Source.STATIC_BROKER)
        assert found.synonyms == [
            Synonym(name, "7", Source.STATIC_BROKER),
            Synonym(name, "-1", Source.DEFAULT),
        ]


def test_broker_options_say_whether_they_may_change() -> None:
    entries = describe_broker_options(broker("num.partitions=3"), None)
    count = entry(entries, "num.partitions")
    assert (count.value, count.source, count.read_only) == ("3", Source.STATIC_BROKER, True)
    assert count.synonyms[1] == Synonym("num.partitions", "1", Source.DEFAULT)
    retention = entry(entries, "log.retention.ms")
    assert (retention.value, retention.read_only) == (None, False)


@pytest.mark.parametrize("given", [None, "52428800"])
@pytest.mark.parametrize(
    ("name", "in_force"),
    [("socket.request.max.bytes", 32 * 2**20), ("socket.send.buffer.bytes", 102_400)],
)
def test_options_that_depend_on_memory_show_the_value_in_force(
    name: str, in_force: int, given: str | None
) -> None:
    mib = 2**20
    overrides = [] if given is None else [f"{name}={given}"]
    (entry,) = describe_broker_options(
        load_config(overrides=overrides),
        {name},
        memory_bytes=512 * mib,
    )
    default = Synonym(name, str(in_force), Source.DEFAULT)
    static = [] if given is None else [Synonym(name, given, Source.STATIC_BROKER)]
    assert list(entry.synonyms) == [*static, default]
    assert entry.value == (given or default.value)


def test_options_of_compaction_reach_the_log() -> None:
    defaults = TopicDefaults(broker("log.cleaner.min.compaction.lag.ms=7"))
    given = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "1",
        "max.compaction.lag.ms": "9",
        "delete.retention.ms": "11",
    }
    log = defaults.resolve(given).log
    assert (log.min_cleanable_dirty_ratio, log.delete_retention_ms) == (1.0, 11)
    assert (log.min_compaction_lag_ms, log.max_compaction_lag_ms) == (7, 9)
