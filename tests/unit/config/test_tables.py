"""The tables of options are sound: documented, in bounds, unambiguous."""

import pytest

from pyrklog.config.broker import OPTIONS
from pyrklog.config.known import JVM_ONLY, WITHOUT_EFFECT
from pyrklog.config.load import environment_name
from pyrklog.config.log_options import BROKER_LOG_OPTIONS, TOPIC_OPTIONS
from pyrklog.config.option import CLUSTER_WIDE, READ_ONLY, InvalidValueError, Option
from pyrklog.config.topic import TOPIC_OPTIONS_BY_NAME

ALL = [*OPTIONS.values(), *(item.option for item in TOPIC_OPTIONS)]


@pytest.mark.parametrize("option", ALL, ids=lambda option: option.name)
def test_every_option_is_documented_and_its_default_is_a_value(option: Option) -> None:
    assert option.documentation.endswith(".")
    assert len(option.documentation) > 20
    assert option.importance in ("high", "medium", "low")
    assert option.update_mode in (READ_ONLY, CLUSTER_WIDE)
    text = option.format(option.default)
    if text is not None:
        assert option.parse(text) == option.default


def test_option_names_are_unique() -> None:
    assert len(TOPIC_OPTIONS_BY_NAME) == len(TOPIC_OPTIONS)
    assert not OPTIONS.keys() & (JVM_ONLY | WITHOUT_EFFECT)
    assert not JVM_ONLY & WITHOUT_EFFECT
    environment = {environment_name(name) for name in OPTIONS}
    assert len(environment) == len(OPTIONS)


def test_topic_options_fall_back_to_broker_options() -> None:
    fallbacks = {fallback.name for item in TOPIC_OPTIONS for fallback in item.fallbacks}
    assert fallbacks <= OPTIONS.keys()
    # Every topic default of the broker belongs to a topic option.
    assert {option.name for option in BROKER_LOG_OPTIONS} <= fallbacks


def test_options_of_the_data_plane_are_listed_as_effective() -> None:
    without = {item.option.name for item in TOPIC_OPTIONS if not item.option.effective}
    assert "retention.ms" not in without
    assert "preallocate" in without


def test_all_topic_options_of_kafka_are_known() -> None:
    kafka = """
        cleanup.policy compression.gzip.level compression.lz4.level compression.type
        compression.zstd.level delete.retention.ms file.delete.delay.ms flush.messages flush.ms
        follower.replication.throttled.replicas index.interval.bytes
        leader.replication.throttled.replicas local.retention.bytes local.retention.ms
        max.compaction.lag.ms max.message.bytes message.downconversion.enable
        message.format.version message.timestamp.after.max.ms message.timestamp.before.max.ms
        message.timestamp.difference.max.ms message.timestamp.type min.cleanable.dirty.ratio
        min.compaction.lag.ms min.insync.replicas preallocate remote.log.copy.disable
        remote.log.delete.on.disable remote.storage.enable retention.bytes retention.ms
        segment.bytes segment.index.bytes segment.jitter.ms segment.ms
        unclean.leader.election.enable
    """
    assert set(kafka.split()) | {"pyrklog.adopted.unconfirmed"} == set(TOPIC_OPTIONS_BY_NAME)


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("num.partitions", "0", "Value must be at least 1"),
        ("num.partitions", "many", "Not a number of type INT"),
        ("num.partitions", "3000000000", "Not a number of type INT"),
        ("num.partitions", "", "Not a number of type INT"),
        ("num.partitions", "１", "Not a number of type INT"),
        ("auto.create.topics.enable", "yes", "Expected value to be either true or false"),
        ("log.cleanup.policy", "delete,shrink", "String must be one of: compact, delete"),
        ("fetch.read.path", "mmap", "String must be one of: auto, sendfile, copy"),
        ("socket.send.buffer.bytes", "0", "-1 or at least 1"),
    ],
)
def test_wrong_values_are_told_in_one_sentence(name: str, text: str, why: str) -> None:
    with pytest.raises(InvalidValueError, match=why) as refused:
        OPTIONS[name].parse(text)
    assert name in str(refused.value)


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("*", True),
        ("", True),
        ("0:1,1:2", True),
        ("0", False),
        ("a:b", False),
        ("*,0:1", False),
        ("0:²", False),
        ("0:2147483648", False),
    ],
)
def test_throttled_replicas(text: str, good: bool) -> None:
    option = TOPIC_OPTIONS_BY_NAME["leader.replication.throttled.replicas"].option
    if good:
        option.parse(text)
    else:
        with pytest.raises(InvalidValueError):
            option.parse(text)


def test_numbers_and_booleans_are_trimmed() -> None:
    assert OPTIONS["num.partitions"].parse(" +7 ") == 7
    assert OPTIONS["auto.create.topics.enable"].parse(" FALSE ") is False
    assert OPTIONS["log.cleanup.policy"].parse("compact , delete") == ("compact", "delete")
