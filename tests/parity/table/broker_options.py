"""DescribeConfigs with synonyms, and run-time changes of a broker's options; all are taken back."""

from typing import Any

from tests.parity.prepare import topic
from tests.parity.rows import Row, Scenario, Setup
from tests.parity.session import Session
from tests.support.waiting import wait_until

TOPIC, BROKER = 2, 4
SET, DELETE = 0, 1
_OF_TOPIC, _OF_BROKER, _OF_ALL = 1, 2, 3  # sources of values
NODE, ALL = "1", ""
NAME, OTHER = "broker-options", "broker-options-checked"
AGES = ("retention.ms", "segment.ms", "segment.jitter.ms", "flush.ms")
AGES_OF_BROKER = (
    "log.retention.ms",
    "log.retention.minutes",
    "log.retention.hours",
    "log.roll.ms",
    "log.roll.hours",
    "log.roll.jitter.ms",
    "log.roll.jitter.hours",
    "log.flush.interval.ms",
    "log.flush.scheduler.interval.ms",
)
BOUNDS = tuple(f"message.timestamp.{which}.max.ms" for which in ("before", "after", "difference"))
THROTTLE = "follower.replication.throttled.rate"
MAX_LAG = "log.cleaner.max.compaction.lag.ms"
BUFFER = "log.cleaner.dedupe.buffer.size"


def _described(kind: int, resource: str, *keys: str) -> dict[str, Any]:
    one = {"resourceType": kind, "resourceName": resource, "configurationKeys": list(keys)}
    return {"resources": [one], "includeSynonyms": True}


def describe(name: str, kind: int, resource: str, *keys: str) -> Row:
    return Row(name, "DescribeConfigs", 3, _described(kind, resource, *keys))


def _altered(kind: int, resource: str, key: str, value: str | None) -> dict[str, Any]:
    option = {"name": key, "configOperation": DELETE if value is None else SET, "value": value}
    return {"resources": [{"resourceType": kind, "resourceName": resource, "configs": [option]}]}


def check(key: str, value: str, *, kind: int = BROKER, resource: str = NODE, name: str = "") -> Row:
    """A change that is only checked."""
    fields = {**_altered(kind, resource, key, value), "validateOnly": True}
    return Row(name or f"{key}={value}", "IncrementalAlterConfigs", 1, fields)


def checked_of_topic(key: str, value: str) -> Row:
    return check(key, value, kind=TOPIC, resource=OTHER)


def put(key: str, value: str | None, resource: str = NODE, kind: int = BROKER) -> Setup:
    """Sets an option, or removes it, and waits until that is seen."""
    source = _OF_TOPIC if kind == TOPIC else _OF_ALL if resource == ALL else _OF_BROKER

    def prepare(session: Session) -> None:
        answer = session.ask("IncrementalAlterConfigs", 1, _altered(kind, resource, key, value))
        assert answer["responses"][0]["errorCode"] == 0, answer

        def is_seen() -> bool:
            (found,) = session.ask("DescribeConfigs", 3, _described(kind, resource, key))["results"]
            synonyms = [one for entry in found["configs"] for one in entry["synonyms"]]
            values = [one["value"] for one in synonyms if one["source"] == source]
            return values == ([] if value is None else [value])

        wait_until(is_seen, f"{key} is not {value}")

    return prepare


def create(name: str, *options: tuple[str, str]) -> Row:
    configs = [{"name": key, "value": value} for key, value in options]
    wanted = {"name": NAME + "-new", "numPartitions": 1, "replicationFactor": 1, "configs": configs}
    fields = {"topics": [wanted], "timeoutMs": 30_000, "validateOnly": True}
    return Row(name, "CreateTopics", 4, fields)


SHOWING = Scenario(
    "synonyms",
    [
        topic(NAME),
        describe("ages of a topic", TOPIC, NAME, *AGES),
        describe("ages of the broker", BROKER, NODE, *AGES_OF_BROKER),
        put("log.retention.ms", "777000"),
        put("log.roll.ms", "888000", ALL),
        put("log.flush.interval.ms", "999"),
        describe("ages of a topic, some set", TOPIC, NAME, *AGES),
        describe("ages of the broker, some set", BROKER, NODE, *AGES_OF_BROKER),
        put("log.retention.ms", None),
        put("log.roll.ms", None, ALL),
        put("log.flush.interval.ms", None),
        put("log.message.timestamp.difference.max.ms", "5000"),
        describe("bounds of timestamps", TOPIC, NAME, *BOUNDS),
        put("message.timestamp.difference.max.ms", "77", NAME, TOPIC),
        describe("bounds of timestamps, the older one set", TOPIC, NAME, *BOUNDS),
        put("log.message.timestamp.difference.max.ms", None),
        put("message.timestamp.difference.max.ms", None, NAME, TOPIC),
        put(THROTTLE, "1000"),
        put(THROTTLE, "2000", ALL),
        describe("a throttle", BROKER, NODE, THROTTLE),
        describe("a throttle of all brokers", BROKER, ALL, THROTTLE),
        put(THROTTLE, None),
        put(THROTTLE, None, ALL),
        describe("no throttle", BROKER, NODE, THROTTLE),
        describe(
            "doubles",
            BROKER,
            NODE,
            "log.cleaner.io.max.bytes.per.second",
            "log.cleaner.min.cleanable.ratio",
        ),
        put("log.cleaner.io.max.bytes.per.second", "1.0E8"),
        describe("a large double", BROKER, NODE, "log.cleaner.io.max.bytes.per.second"),
        put("log.cleaner.io.max.bytes.per.second", None),
        describe(
            "internal options",
            BROKER,
            NODE,
            "log.initial.task.delay.ms",
            "server.max.startup.time.ms",
            "unstable.api.versions.enable",
        ),
    ],
)
LIMITS = ("max.connections", "max.connection.creation.rate")
CHECKING = Scenario(
    "checking options",
    [
        topic(OTHER),
        *[check(name, "0") for name in LIMITS],
        *[check(f"listener.name.plaintext.{name}", "0") for name in LIMITS],
        *[check(f"listener.name.elsewhere.{name}", "0") for name in LIMITS],
        *[check(BUFFER, size) for size in ("-1", "0", "1", "1048576", "1048577")],
        *[check("log.cleaner.threads", count) for count in ("0", "2", "3")],
        put(BUFFER, "1048577"),
        check("log.cleaner.threads", "2", name="two cleaners with little memory"),
        put(BUFFER, None),
        *[check("background.threads", count) for count in ("0", "1", "20", "21")],
        check("listener.name.plaintext.num.network.threads", "100"),
        check("remote.log.index.file.cache.total.size.bytes", "-1"),
        check("remote.log.manager.copy.max.bytes.per.second", "0"),
        check("remote.log.manager.fetch.max.bytes.per.second", "0"),
        check("remote.fetch.max.wait.ms", "0"),
        check("log.cleaner.io.buffer.size", "-1"),
        check("metric.reporters", "no.such.Reporter"),
        check("principal.builder.class", "no.such.Builder"),
        check("log.flush.interval.ms", "-1"),
        checked_of_topic("remote.log.copy.disable", "true"),
        checked_of_topic("remote.log.delete.on.disable", "true"),
        checked_of_topic("min.cleanable.dirty.ratio", "0.5f"),
        checked_of_topic("min.cleanable.dirty.ratio", "NaN"),
        checked_of_topic("min.cleanable.dirty.ratio", "0x1p-2"),
        checked_of_topic("min.cleanable.dirty.ratio", "1_0"),
        checked_of_topic("min.cleanable.dirty.ratio", "inf"),
        put(MAX_LAG, "50"),
        checked_of_topic("min.compaction.lag.ms", "50"),
        checked_of_topic("min.compaction.lag.ms", "51"),
        create("lag above the broker's", ("min.compaction.lag.ms", "51")),
        create(
            "lag within its own", ("min.compaction.lag.ms", "51"), ("max.compaction.lag.ms", "51")
        ),
        put("log.cleaner.min.compaction.lag.ms", "51"),
        checked_of_topic("retention.ms", "5"),
        create("the broker's lags conflict", ("retention.ms", "5")),
        create("the broker's lags conflict, no options"),
        put("log.cleaner.min.compaction.lag.ms", None),
        put(MAX_LAG, None),
    ],
)
SCENARIOS = (SHOWING, CHECKING)
