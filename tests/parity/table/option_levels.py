"""An option's levels: the topic's value, the broker's, that of all brokers, the default, and what
stands under other names. All is taken back."""

from dataclasses import replace

from tests.parity.prepare import topic
from tests.parity.rows import Row, Scenario, Setup
from tests.parity.table.broker_options import (
    ALL,
    BROKER,
    DELETE,
    NODE,
    SET,
    TOPIC,
    describe,
    put,
)

APPEND, SUBTRACT = 2, 3
NAME, OTHER = "option-levels", "option-levels-other"
LISTS, REPLACED = "option-levels-lists", "option-levels-replaced"
POLICY, RETENTION = "cleanup.policy", "retention.ms"
# Long enough to delete no record of any scenario.
DAYS_8, DAYS_9, DAYS_10 = "691200000", "777600000", "864000000"
OF_TOPIC = (
    RETENTION,
    POLICY,
    "segment.ms",
    "segment.jitter.ms",
    "segment.bytes",
    "min.insync.replicas",
    "flush.ms",
    "message.timestamp.before.max.ms",
    "message.timestamp.difference.max.ms",
    "compression.type",
    "compression.gzip.level",
    "leader.replication.throttled.replicas",
    "max.message.bytes",
)
OF_BROKER = (
    "log.retention.ms",
    "log.retention.minutes",
    "log.retention.hours",
    "log.roll.ms",
    "log.roll.hours",
    "log.segment.bytes",
    "log.cleanup.policy",
    "min.insync.replicas",
    "message.max.bytes",
    "log.flush.interval.ms",
    "log.flush.scheduler.interval.ms",
    "log.message.timestamp.before.max.ms",
    "log.message.timestamp.difference.max.ms",
)
FOR_ALL = {
    "log.retention.ms": DAYS_9,
    "log.roll.ms": "86400000",
    "log.cleanup.policy": "compact",
    "min.insync.replicas": "1",
    "message.max.bytes": "2000000",
}
FOR_ONE = {"log.retention.ms": DAYS_10, "log.segment.bytes": "100000"}


def levels(name: str, kind: int, resource: str, *keys: str) -> Row:
    """The highest level comes first."""
    return replace(describe(name, kind, resource, *keys), ordered=("synonyms",))


def topics(when: str) -> list[Row]:
    return [
        levels(f"{when}, a topic with options", TOPIC, NAME, *OF_TOPIC),
        levels(f"{when}, a topic without", TOPIC, OTHER, *OF_TOPIC),
    ]


def brokers(when: str) -> list[Row]:
    everything = {"resourceType": BROKER, "resourceName": ALL, "configurationKeys": None}
    asked = {"resources": [everything], "includeSynonyms": True}
    return [
        levels(f"{when}, the broker", BROKER, NODE, *OF_BROKER),
        Row(f"{when}, all brokers", "DescribeConfigs", 3, asked, ordered=("synonyms",)),
    ]


def change(
    name: str, resource: str, *changes: tuple[str, int, str | None], checks: bool = False
) -> Row:
    configs = [
        {"name": key, "configOperation": operation, "value": value}
        for key, operation, value in changes
    ]
    one = {"resourceType": TOPIC, "resourceName": resource, "configs": configs}
    fields = {"resources": [one], "validateOnly": checks}
    return Row(name, "IncrementalAlterConfigs", 1, fields)


def alter(name: str, resource: str, *options: tuple[str, str], checks: bool = False) -> Row:
    """In place of all that the topic had."""
    configs = [{"name": key, "value": value} for key, value in options]
    one = {"resourceType": TOPIC, "resourceName": resource, "configs": configs}
    return Row(name, "AlterConfigs", 2, {"resources": [one], "validateOnly": checks})


def applied(resource: str, number: int) -> Setup:
    """Waits until the topic's changes so far are seen: another that follows them is."""
    return put("flush.messages", str(number), resource, TOPIC)


LEVELS = Scenario(
    "levels",
    [
        topic(NAME, configs={RETENTION: DAYS_8, POLICY: "compact,delete"}),
        topic(OTHER),
        *topics("at first"),
        *brokers("at first"),
        *[put(key, value, ALL) for key, value in FOR_ALL.items()],
        *topics("set for all brokers"),
        *brokers("set for all brokers"),
        *[put(key, value) for key, value in FOR_ONE.items()],
        *topics("set for the broker too"),
        *brokers("set for the broker too"),
        *[put(key, None, ALL) for key in FOR_ALL],
        *topics("set for the broker only"),
        *brokers("set for the broker only"),
        *[put(key, None) for key in FOR_ONE],
        *topics("taken back"),
        *brokers("taken back"),
    ],
)


def policy(name: str) -> Row:
    return levels(name, TOPIC, LISTS, POLICY)


def list_change(name: str, operation: int, value: str) -> Row:
    return change(name, LISTS, (POLICY, operation, value))


APPENDED = Scenario(
    "lists",
    [
        topic(LISTS),
        list_change("appends to the default", APPEND, "compact"),
        applied(LISTS, 1_001),
        policy("appended to the default"),
        list_change("appends what is in it", APPEND, "delete"),
        applied(LISTS, 1_002),
        policy("appended what is in it"),
        list_change("sets one", SET, "delete"),
        list_change("subtracts what is not in it", SUBTRACT, "compact"),
        applied(LISTS, 1_003),
        policy("subtracted what is not in it"),
        list_change("subtracts the last", SUBTRACT, "delete"),
        applied(LISTS, 1_004),
        policy("subtracted the last"),
        list_change("appends to nothing", APPEND, "compact,delete"),
        applied(LISTS, 1_005),
        policy("appended to nothing"),
        change("removes it", LISTS, (POLICY, DELETE, None)),
        applied(LISTS, 1_006),
        policy("removed"),
        put("log.cleanup.policy", "compact", ALL),
        list_change("appends to that of all brokers", APPEND, "compact"),
        applied(LISTS, 1_007),
        policy("appended to that of all brokers"),
        put("log.cleanup.policy", None, ALL),
        policy("that of all brokers removed"),
    ],
)
KEPT = (RETENTION, POLICY, "segment.ms", "flush.ms")


def kept(name: str) -> Row:
    return levels(name, TOPIC, REPLACED, *KEPT)


REPLACING = Scenario(
    "options that are replaced",
    [
        topic(REPLACED, configs={RETENTION: DAYS_8, POLICY: "compact,delete"}),
        change("removes one that is not set", REPLACED, ("flush.ms", DELETE, None)),
        change("sets one, checked", REPLACED, (RETENTION, SET, DAYS_9), checks=True),
        change("removes one, checked", REPLACED, (RETENTION, DELETE, None), checks=True),
        alter("replaces all, checked", REPLACED, ("segment.ms", "77000"), checks=True),
        applied(REPLACED, 1_001),
        kept("only checked"),
        alter("replaces all", REPLACED, ("segment.ms", "77000")),
        applied(REPLACED, 1_002),
        kept("replaced"),
        change(
            "sets two and removes one",
            REPLACED,
            (RETENTION, SET, DAYS_10),
            ("flush.ms", SET, "5000"),
            ("segment.ms", DELETE, None),
        ),
        applied(REPLACED, 1_003),
        kept("two set and one removed"),
        alter("removes all", REPLACED),
        applied(REPLACED, 1_004),
        kept("none set"),
    ],
)
SCENARIOS = (LEVELS, APPENDED, REPLACING)
