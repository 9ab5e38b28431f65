"""Options through ``ClusterService``, over a whole broker with a fake plane."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from pyrklog.admin.service import Administration
from pyrklog.config.broker import BrokerConfig
from pyrklog.config.entry import Source, Synonym
from pyrklog.errors import ErrorCode
from pyrklog.handlers.service import (
    OP_APPEND,
    OP_DELETE,
    OP_SET,
    OP_SUBTRACT,
    RESOURCE_BROKER,
    RESOURCE_TOPIC,
    ConfigAlteration,
    ConfigResource,
    TopicRef,
)
from pyrklog.metastore import znodes
from pyrklog.plane.seam import CleanerSettings
from pyrklog.plane.values import PartitionImage
from tests.unit.admin.option_calls import ALL_BROKERS, BROKER, T, alter, entries
from tests.unit.broker.harness import Running, running_broker

RESOURCE_GROUP = 32
BAD = ErrorCode.INVALID_REQUEST


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    async with running_broker(tmp_path) as broker:
        await broker.created("t", 1, retention_ms="1000")
        yield broker


async def test_a_topics_options(running: Running) -> None:
    found = await entries(running, T)
    assert (found["retention.ms"].value, found["retention.ms"].source) == ("1000", Source.TOPIC)
    assert found["cleanup.policy"].value == "delete"


async def test_incremental_changes_leave_the_unnamed_alone(running: Running) -> None:
    assert await alter(running, T, (OP_SET, "max.message.bytes", "77")) is ErrorCode.NONE
    # In effect before the answer.
    log = running.plane.topics["t"].log
    assert (log.max_message_bytes, log.retention_ms) == (77, 1000)
    assert await alter(running, T, (OP_DELETE, "retention.ms", None)) is ErrorCode.NONE
    log = running.plane.topics["t"].log
    assert (log.max_message_bytes, log.retention_ms) == (77, 604800000)


async def test_changes_at_the_same_time_all_count(running: Running) -> None:
    """Each change builds on the one before; none is refused for coming second."""
    names = ("retention.ms", "retention.bytes", "segment.bytes", "flush.messages", "segment.ms")
    codes: list[ErrorCode] = []

    async def change(name: str) -> None:
        codes.append(await alter(running, T, (OP_SET, name, "1001")))

    async with trio.open_nursery() as nursery:
        for name in names:
            nursery.start_soon(change, name)
    assert codes == [ErrorCode.NONE] * len(names)
    found = await entries(running, T)
    assert {found[name].value for name in names} == {"1001"}


async def test_option_change_of_a_topic_deleted_meanwhile_fails(running: Running) -> None:
    """In either order, a later topic of that name inherits nothing."""
    codes: list[ErrorCode] = []

    async def change() -> None:
        for number in range(50):
            codes.append(await alter(running, T, (OP_SET, "retention.ms", str(number))))

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(change)
            await running.service.delete_topics([TopicRef("t")], timeout_ms=10_000)
    assert set(codes) <= {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert codes[-1] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await running.created("t")
    assert (await entries(running, T))["retention.ms"].source == Source.DEFAULT


async def test_options_of_a_topic_that_the_image_still_knows(running: Running) -> None:
    """Its znode is gone but the broker has not heard: the write is not retried for ever."""
    assert isinstance(running.service, Administration)
    image = running.service._metadata.image
    image.set_partitions("gone", b"g" * 16, [PartitionImage(0, 1, 0, (1,), (1,), ())])
    gone = ConfigResource(RESOURCE_TOPIC, "gone")
    with trio.fail_after(10):
        code = await alter(running, gone, (OP_SET, "retention.ms", "1"))
    assert code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_full_replacement_resets_the_unnamed(running: Running) -> None:
    (result,) = await running.service.alter_configs(
        [(T, {"max.message.bytes": "77"})], validate_only=False
    )
    assert result.error is ErrorCode.NONE
    log = running.plane.topics["t"].log
    assert (log.max_message_bytes, log.retention_ms) == (77, 604800000)
    assert "retention.ms" not in {
        name for name, entry in (await entries(running, T)).items() if entry.source == Source.TOPIC
    }


async def test_lists_grow_and_shrink(running: Running) -> None:
    append = (OP_APPEND, "cleanup.policy", "compact")
    assert await alter(running, T, append) is ErrorCode.NONE
    assert (await entries(running, T))["cleanup.policy"].value == "delete,compact"
    assert await alter(running, T, append) is ErrorCode.NONE
    assert (await entries(running, T))["cleanup.policy"].value == "delete,compact"
    assert await alter(running, T, (OP_SUBTRACT, "cleanup.policy", "delete")) is ErrorCode.NONE
    assert (await entries(running, T))["cleanup.policy"].value == "compact"


async def test_an_unset_list_begins_with_kafkas_default(running: Running) -> None:
    """As ``ConfigAdminManager.prepareIncrementalConfigs``, whatever the brokers' default."""
    default = (OP_SET, "log.cleanup.policy", "compact")
    assert await alter(running, ALL_BROKERS, default) is ErrorCode.NONE
    assert (await entries(running, T))["cleanup.policy"].value == "compact"
    assert await alter(running, T, (OP_APPEND, "cleanup.policy", "compact")) is ErrorCode.NONE
    assert (await entries(running, T))["cleanup.policy"].value == "delete,compact"
    assert await alter(running, BROKER, (OP_APPEND, "log.cleanup.policy", "compact")) == 0
    assert (await entries(running, BROKER))["log.cleanup.policy"].value == "delete,compact"


async def test_validation_changes_nothing(running: Running) -> None:
    (result,) = await running.service.incremental_alter_configs(
        [(T, [ConfigAlteration(OP_SET, "retention.ms", "5")])], validate_only=True
    )
    assert result.error is ErrorCode.NONE
    assert running.plane.topics["t"].log.retention_ms == 1000


@pytest.mark.parametrize(
    ("resource", "operation", "code"),
    [
        (T, (OP_SET, "retention.ms", "x"), ErrorCode.INVALID_CONFIG),
        (T, (OP_SET, "retention", "1"), ErrorCode.INVALID_CONFIG),
        (T, (OP_SET, "retention.ms", None), ErrorCode.INVALID_REQUEST),
        (T, (OP_APPEND, "retention.ms", "1"), ErrorCode.INVALID_CONFIG),
        (T, (OP_SUBTRACT, "none", "1"), ErrorCode.INVALID_CONFIG),
        (T, (9, "retention.ms", "1"), ErrorCode.INVALID_REQUEST),
        (
            ConfigResource(RESOURCE_TOPIC, "none"),
            (OP_SET, "retention.ms", "1"),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ),
        (
            ConfigResource(RESOURCE_TOPIC, "a/b"),
            (OP_SET, "retention.ms", "1"),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ),
        (
            ConfigResource(RESOURCE_TOPIC, ""),
            (OP_SET, "retention.ms", "1"),
            ErrorCode.INVALID_REQUEST,
        ),
        (BROKER, (OP_SET, "num.partitions", "1"), ErrorCode.INVALID_REQUEST),
        (BROKER, (OP_SET, "log.retention.msx", "1"), ErrorCode.INVALID_CONFIG),
        (BROKER, (OP_SET, "log.retention.ms", "x"), ErrorCode.INVALID_REQUEST),
        (BROKER, (OP_SET, "num.io.threads", "0"), ErrorCode.INVALID_REQUEST),
        (BROKER, (OP_SET, "max.connections.per.ip", "0"), ErrorCode.INVALID_REQUEST),
        (BROKER, (OP_SET, "advertised.listeners", "A://b:1"), ErrorCode.INVALID_REQUEST),
        (
            ConfigResource(RESOURCE_BROKER, "2"),
            (OP_SET, "log.retention.ms", "1"),
            ErrorCode.INVALID_REQUEST,
        ),
        (
            ConfigResource(RESOURCE_BROKER, "one"),
            (OP_SET, "log.retention.ms", "1"),
            ErrorCode.INVALID_REQUEST,
        ),
        (
            ConfigResource(RESOURCE_GROUP, "g"),
            (OP_SET, "consumer.session.timeout.ms", "1"),
            ErrorCode.INVALID_REQUEST,
        ),
    ],
)
async def test_refused_changes(
    running: Running,
    resource: ConfigResource,
    operation: tuple[int, str, str | None],
    code: ErrorCode,
) -> None:
    assert await alter(running, resource, operation) is code
    assert running.plane.topics["t"].log.retention_ms == 1000


@pytest.mark.parametrize(
    ("resource", "name", "value"),
    [
        (BROKER, "sasl.kerberos.min.time.before.relogin", "70000"),
        (BROKER, "background.threads", "12"),
        (ALL_BROKERS, "background.threads", "12"),
        (ALL_BROKERS, "log.cleaner.io.buffer.size", "600000"),
        (BROKER, "listener.name.external.ssl.keystore.location", "/keys"),
        (BROKER, "listener.name.external.num.network.threads", "2"),
        (ALL_BROKERS, "listener.name.external.num.network.threads", "2"),
        (BROKER, "ssl.cipher.suites", "a,b"),
    ],
)
async def test_options_that_kafka_changes_at_run_time_are_kept_without_effect(
    running: Running, resource: ConfigResource, name: str, value: str
) -> None:
    assert await alter(running, resource, (OP_SET, name, value)) is ErrorCode.NONE
    mine = (await entries(running, resource))[name]
    # Kafka shows options with a listener's prefix as read-only, although they may be altered.
    assert (mine.value, mine.read_only) == (value, name.startswith("listener.name."))
    is_own = resource == BROKER
    assert mine.source == (Source.DYNAMIC_BROKER if is_own else Source.DYNAMIC_DEFAULT_BROKER)
    assert await alter(running, resource, (OP_DELETE, name, None)) is ErrorCode.NONE
    assert not await is_set(running, resource, name)


async def is_set(running: Running, resource: ConfigResource, name: str) -> bool:
    """Whether the option has a value of its own; some are shown with a default."""
    found = (await entries(running, resource)).get(name)
    return found is not None and found.source != Source.DEFAULT


@pytest.mark.parametrize(
    ("resource", "name", "value", "code", "why"),
    [
        (BROKER, "background.threads", "x", ErrorCode.INVALID_REQUEST, "Not a number of type INT"),
        (BROKER, "listener.name.x.max.connections", "-1", ErrorCode.INVALID_REQUEST, "least 0"),
        (BROKER, "background.threads", "0", ErrorCode.INVALID_REQUEST, "at least 1"),
        (BROKER, "remote.log.index.file.cache.total.size.bytes", "-1", BAD, "at least 1"),
        (BROKER, "remote.log.manager.copy.max.bytes.per.second", "0", BAD, "at least 1"),
        (BROKER, "remote.log.manager.fetch.max.bytes.per.second", "0", BAD, "at least 1"),
        (BROKER, "log.flush.interval.ms", "-1", BAD, "at least 0"),
        (BROKER, "background.treads", "1", ErrorCode.INVALID_CONFIG, "Unknown broker option"),
        (BROKER, "listener.name.x.treads", "1", ErrorCode.INVALID_CONFIG, "Unknown"),
        (BROKER, "quota.window.num", "1", ErrorCode.INVALID_REQUEST, "dynamically: Set(quota"),
        (BROKER, "zookeeper.clientCnxnSocket", "a", ErrorCode.INVALID_REQUEST, "dynamically"),
        (BROKER, "ssl.keystore.location", "/k", ErrorCode.INVALID_REQUEST, "only per-listener"),
        (ALL_BROKERS, "ssl.cipher.suites", "a", ErrorCode.INVALID_REQUEST, "default cluster level"),
        (
            ALL_BROKERS,
            "listener.name.x.ssl.cipher.suites",
            "a",
            ErrorCode.INVALID_REQUEST,
            "default cluster level",
        ),
        (
            ALL_BROKERS,
            "listener.name.x.background.threads",
            "5",
            ErrorCode.INVALID_REQUEST,
            "default cluster level",
        ),
        (BROKER, "sasl.jaas.config", "secret", ErrorCode.INVALID_REQUEST, "in the clear"),
        (
            BROKER,
            "listener.name.x.plain.sasl.jaas.config",
            "secret",
            ErrorCode.INVALID_REQUEST,
            "in the clear",
        ),
    ],
)
async def test_broker_options_that_are_refused(
    running: Running, resource: ConfigResource, name: str, value: str, code: ErrorCode, why: str
) -> None:
    changes = [(resource, [ConfigAlteration(OP_SET, name, value)])]
    (result,) = await running.service.incremental_alter_configs(changes, validate_only=False)
    assert result.error is code
    assert why in (result.message or "")
    assert not await is_set(running, resource, name)


async def test_a_password_is_refused_when_it_would_be_kept(running: Running) -> None:
    """Like a Kafka without ``password.encoder.secret``, which fails when it writes."""
    item = ConfigAlteration(OP_SET, "listener.name.x.ssl.key.password", "secret")
    codes = {}
    for validate_only in (True, False):
        (result,) = await running.service.incremental_alter_configs(
            [(BROKER, [item])], validate_only=validate_only
        )
        codes[validate_only] = result.error
    assert codes == {True: ErrorCode.NONE, False: ErrorCode.INVALID_REQUEST}
    assert item.name not in await entries(running, BROKER)


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("num.io.threads", 4, 16),
        ("num.network.threads", 1, 6),
        ("num.replica.fetchers", 1, 2),
        ("num.recovery.threads.per.data.dir", 8, 32),
    ],
)
@pytest.mark.parametrize("resource", [BROKER, ALL_BROKERS])
async def test_numbers_of_threads_double_or_halve_at_most(
    running: Running, resource: ConfigResource, name: str, least: int, most: int
) -> None:
    async def answer(value: int) -> str:
        item = ConfigAlteration(OP_SET, name, str(value))
        (result,) = await running.service.incremental_alter_configs(
            [(resource, [item])], validate_only=False
        )
        assert result.error is (ErrorCode.INVALID_REQUEST if result.message else ErrorCode.NONE)
        return result.message or ""

    assert "greater than double the current value" in await answer(most + 1)
    assert "at least" in await answer(least - 1)
    assert name not in await entries(running, ALL_BROKERS)
    assert await answer(most) == ""
    assert await answer(2 * most) == ""
    assert "greater than double" in await answer(4 * most + 1)


async def test_going_back_to_the_default_is_a_change_of_threads_too(running: Running) -> None:
    name = "num.io.threads"
    for value in ("16", "32"):
        assert await alter(running, BROKER, (OP_SET, name, value)) is ErrorCode.NONE
    assert await alter(running, BROKER, (OP_DELETE, name, None)) is ErrorCode.INVALID_REQUEST
    # A broker's own value hides the default of all brokers.
    assert await alter(running, ALL_BROKERS, (OP_SET, name, "1")) is ErrorCode.NONE
    assert await alter(running, ALL_BROKERS, (OP_SET, name, "20")) is ErrorCode.NONE
    assert await alter(running, BROKER, (OP_DELETE, name, None)) is ErrorCode.NONE


async def test_behind_a_listeners_prefix_the_plain_name_is_a_synonym(running: Running) -> None:
    name, plain = "listener.name.x.max.connections", "max.connections"
    assert await alter(running, BROKER, (OP_SET, name, "5")) is ErrorCode.NONE
    assert await alter(running, ALL_BROKERS, (OP_SET, name, "6"), (OP_SET, plain, "7")) == 0
    synonyms = [
        Synonym(name, "5", Source.DYNAMIC_BROKER),
        Synonym(name, "6", Source.DYNAMIC_DEFAULT_BROKER),
        Synonym(plain, "7", Source.DYNAMIC_DEFAULT_BROKER),
        Synonym(plain, str(2**31 - 1), Source.DEFAULT),
    ]
    assert (await entries(running, BROKER))[name].synonyms == synonyms
    assert (await entries(running, ALL_BROKERS))[name].synonyms == synonyms[1:3]


async def test_defaults_of_all_brokers_are_shown_for_each(running: Running) -> None:
    name = "background.threads"
    assert await alter(running, ALL_BROKERS, (OP_SET, name, "12")) is ErrorCode.NONE
    found = (await entries(running, BROKER))[name]
    assert (found.value, found.source) == ("12", Source.DYNAMIC_DEFAULT_BROKER)
    assert await alter(running, BROKER, (OP_SET, name, "13")) is ErrorCode.NONE
    found = (await entries(running, BROKER))[name]
    assert (found.value, found.source) == ("13", Source.DYNAMIC_BROKER)
    assert list(found.synonyms) == [
        Synonym(name, "13", Source.DYNAMIC_BROKER),
        Synonym(name, "12", Source.DYNAMIC_DEFAULT_BROKER),
        Synonym(name, "10", Source.DEFAULT),
    ]


async def test_options_that_act_from_the_next_start_on(tmp_path: Path) -> None:
    """Kafka changes them at run time. A stored bad value is ignored."""
    changes = {"num.io.threads": "4", "num.replica.fetchers": "2", "num.network.threads": "2"}
    operations = [(OP_SET, name, value) for name, value in changes.items()]
    async with running_broker(tmp_path) as running:
        assert await alter(running, ALL_BROKERS, *operations) is ErrorCode.NONE
        assert await alter(running, BROKER, (OP_SET, "num.io.threads", "5")) is ErrorCode.NONE
        found = await entries(running, BROKER)
        assert [(one.value, one.source) for one in found["num.io.threads"].synonyms] == [
            ("5", Source.DYNAMIC_BROKER),
            ("4", Source.DYNAMIC_DEFAULT_BROKER),
            ("8", Source.DEFAULT),
        ]
        settings = running.plane.settings
        assert settings is not None
        assert (settings.reader_threads, settings.network_threads) == (8, 3)
    async with running_broker(tmp_path) as running:
        settings = running.plane.settings
        assert settings is not None
        assert (settings.reader_threads, settings.network_threads) == (5, 2)
        assert isinstance(running.service, Administration)
        path = znodes.broker_config_path("1")
        kept = {
            "num.io.threads": "none",
            "num.network.threads": "6",
            "max.connections.per.ip": "0",
        }
        await running.service._topics._store.set(path, znodes.encode_config(kept))
    async with running_broker(tmp_path) as running:
        settings = running.plane.settings
        assert settings is not None
        # Only the bad value is left out; for the threads the default of all brokers applies.
        assert (settings.reader_threads, settings.network_threads) == (4, 6)
        # Without overrides 0 would let nobody in to change it back.
        assert settings.max_connections_per_ip == 2**31 - 1


async def test_doubled_keys_and_resources(running: Running) -> None:
    twice = (OP_SET, "retention.ms", "1")
    assert await alter(running, T, twice, twice) is ErrorCode.INVALID_REQUEST
    results = await running.service.alter_configs([(T, {}), (T, {})], validate_only=False)
    assert {result.error for result in results} == {ErrorCode.INVALID_REQUEST}


async def test_brokers_defaults_change_at_run_time(running: Running) -> None:
    """For all brokers, then this one's value over it; topics without overrides follow at once."""
    await running.created("follows")
    assert await alter(running, ALL_BROKERS, (OP_SET, "log.retention.ms", "5")) is ErrorCode.NONE
    assert running.plane.topics["follows"].log.retention_ms == 5
    assert running.plane.topics["t"].log.retention_ms == 1000
    assert await alter(running, BROKER, (OP_SET, "log.retention.ms", "6")) is ErrorCode.NONE
    assert running.plane.topics["follows"].log.retention_ms == 6

    default = await entries(running, ALL_BROKERS)
    assert list(default) == ["log.retention.ms"]
    mine = (await entries(running, BROKER))["log.retention.ms"]
    assert (mine.value, mine.source, mine.read_only) == ("6", Source.DYNAMIC_BROKER, False)
    assert list(mine.synonyms) == [
        Synonym("log.retention.ms", "6", Source.DYNAMIC_BROKER),
        Synonym("log.retention.ms", "5", Source.DYNAMIC_DEFAULT_BROKER),
        Synonym("log.retention.hours", "168", Source.DEFAULT),
    ]
    assert await alter(running, BROKER, (OP_DELETE, "log.retention.ms", None)) is ErrorCode.NONE
    assert running.plane.topics["follows"].log.retention_ms == 5


async def test_topics_show_a_brokers_run_time_value_of_an_option_without_effect(
    running: Running,
) -> None:
    name = "log.local.retention.ms"
    assert await alter(running, ALL_BROKERS, (OP_SET, name, "5")) is ErrorCode.NONE
    assert await alter(running, BROKER, (OP_SET, name, "x")) is ErrorCode.INVALID_REQUEST
    shown = (await entries(running, T))["local.retention.ms"]
    assert (shown.value, shown.source) == ("5", Source.DYNAMIC_DEFAULT_BROKER)
    synonyms = [
        Synonym(name, "5", Source.DYNAMIC_DEFAULT_BROKER),
        Synonym(name, "-2", Source.DEFAULT),
    ]
    assert list(shown.synonyms) == synonyms
    mine = (await entries(running, BROKER))[name]
    assert (mine.value, mine.read_only, list(mine.synonyms)) == ("5", False, synonyms)
    assert await alter(running, BROKER, (OP_SET, "log.message.format.version", "2.8")) is (
        ErrorCode.INVALID_REQUEST
    )


async def test_replication_rates_reach_the_plane_at_run_time(running: Running) -> None:
    leader, follower = "leader.replication.throttled.rate", "follower.replication.throttled.rate"

    async def rates_after(
        *change: tuple[int, str, str | None], of: ConfigResource = BROKER
    ) -> tuple[int | None, int | None]:
        assert await alter(running, of, *change) is ErrorCode.NONE
        return running.plane.replication_rates

    assert await rates_after((OP_SET, leader, "10"), of=ALL_BROKERS) == (10, None)
    assert await rates_after((OP_SET, follower, "0")) == (10, 0)
    assert await rates_after((OP_DELETE, follower, None)) == (10, None)
    refused = await alter(running, BROKER, (OP_SET, leader, "-1"))
    assert refused is ErrorCode.INVALID_REQUEST
    assert await rates_after((OP_SET, leader, "9")) == (9, None)
    assert running.plane.replication_window_ms == 10_000


async def test_rate_of_back_fills_reaches_the_plane_at_run_time(running: Running) -> None:
    name = "pyrklog.expansion.rate"
    assert running.plane.back_fill_rate == 20_000_000
    for of, text, rate in ((ALL_BROKERS, "10", 10), (BROKER, "0", 0)):
        assert await alter(running, of, (OP_SET, name, text)) is ErrorCode.NONE
        assert running.plane.back_fill_rate == rate
    assert await alter(running, BROKER, (OP_SET, name, "-1")) is ErrorCode.INVALID_REQUEST
    assert await alter(running, BROKER, (OP_DELETE, name, None)) is ErrorCode.NONE
    assert running.plane.back_fill_rate == 10


async def test_replication_rates_are_averages_over_the_given_window(tmp_path: Path) -> None:
    samples = {("11", "3"): 30_000, ("2", "5"): 5_000, ("1", "5"): 5_000}
    for (count, seconds), window_ms in samples.items():
        options = (
            f"replication.quota.window.num={count}",
            f"replication.quota.window.size.seconds={seconds}",
        )
        async with running_broker(tmp_path, *options) as running:
            assert running.plane.replication_window_ms == window_ms


async def test_options_of_compaction_reach_the_plane_at_run_time(running: Running) -> None:
    def cleaner() -> CleanerSettings:
        settings = running.plane.cleaner
        assert settings is not None
        return settings

    before = cleaner()
    assert (before.is_enabled, before.threads, before.backoff_ms) == (True, 1, 15_000)
    threads, rate = "log.cleaner.threads", "log.cleaner.io.max.bytes.per.second"
    done = await alter(running, ALL_BROKERS, (OP_SET, threads, "2"), (OP_SET, rate, "1e6"))
    assert done is ErrorCode.NONE
    assert cleaner() == before._replace(threads=2, io_max_bytes_per_second=1e6)
    assert await alter(running, BROKER, (OP_SET, "log.cleaner.backoff.ms", "7")) is ErrorCode.NONE
    assert cleaner().backoff_ms == 7
    for refused in ((threads, "0"), (threads, "5"), ("log.cleaner.dedupe.buffer.size", "-1")):
        assert await alter(running, ALL_BROKERS, (OP_SET, *refused)) is ErrorCode.INVALID_REQUEST
    size = "log.cleaner.dedupe.buffer.size"
    for resource in (BROKER, ALL_BROKERS):
        for bytes_ in ("1", str(2**21 + 1)):
            assert await alter(running, resource, (OP_SET, size, bytes_)) is BAD
    assert await alter(running, BROKER, (OP_SET, size, str(2**21 + 2))) is ErrorCode.NONE
    # The rule holds with the other option's value, whichever level it is set at.
    assert await alter(running, ALL_BROKERS, (OP_SET, threads, "3")) is BAD
    assert await alter(running, BROKER, (OP_DELETE, size, None)) is ErrorCode.NONE
    off = (OP_SET, "log.cleaner.enable", "false")
    assert await alter(running, ALL_BROKERS, off) is ErrorCode.INVALID_REQUEST
    assert await alter(running, ALL_BROKERS, (OP_DELETE, threads, None)) is ErrorCode.NONE
    assert cleaner().threads == 1


@pytest.mark.parametrize(
    "name",
    [
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    ],
)
async def test_throttles_are_options_of_a_broker_while_they_are_set(
    running: Running, name: str
) -> None:
    """As in Kafka, no reader sees before and after."""
    assert name not in await entries(running, BROKER)
    assert await alter(running, BROKER, (OP_SET, name, "-1")) is ErrorCode.INVALID_REQUEST
    assert await alter(running, BROKER, (OP_SET, name, "1000")) is ErrorCode.NONE
    mine = (await entries(running, BROKER))[name]
    assert (mine.value, mine.source, mine.read_only) == ("1000", Source.DYNAMIC_BROKER, True)
    assert await alter(running, ALL_BROKERS, (OP_SET, name, "2000")) is ErrorCode.NONE
    assert (await entries(running, ALL_BROKERS))[name].read_only
    assert await alter(running, ALL_BROKERS, (OP_DELETE, name, None)) is ErrorCode.NONE
    assert [synonym.source for synonym in mine.synonyms] == [Source.DYNAMIC_BROKER]
    assert await alter(running, BROKER, (OP_DELETE, name, None)) is ErrorCode.NONE
    assert name not in await entries(running, BROKER)
    config = BrokerConfig({})
    assert config.integer(name) == 2**63 - 1
    changed = config.with_dynamic(default={name: "5"}, broker={name: "7"})
    assert changed.integer(name) == 7


async def test_run_time_changes_survive_a_restart(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as running:
        await running.created("t")
        await alter(running, ALL_BROKERS, (OP_SET, "min.insync.replicas", "2"))
    async with running_broker(tmp_path) as running:
        assert running.plane.topics["t"].min_insync_replicas == 2
