"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs."""

from typing import Any

from tests.parity.definitions import Counted, Raw
from tests.parity.prepare import topic
from tests.parity.rows import Row, Scenario, in_versions

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
NODE = "1"


def describe(name: str, kind: int, resource: Any, *keys: str, version: int = 3) -> Row:
    """Without keys only the resources' codes are compared: brokers know different options."""
    one = {"resourceType": kind, "resourceName": resource, "configurationKeys": list(keys)}
    without = ("synonyms",) if keys else ("configs",)
    return Row(name, "DescribeConfigs", version, {"resources": [one]}, without=without)


DESCRIBING = Scenario(
    "describing options",
    [
        topic("describe", configs={"retention.ms": "1000"}),
        *in_versions(
            (0, 1, 2, 3, 4),
            lambda v: describe(
                "of a topic", TOPIC, "describe", "retention.ms", "cleanup.policy", version=v
            ),
        ),
        *in_versions(
            (0, 3, 4),
            lambda v: describe("unknown option", TOPIC, "describe", "nonsense", version=v),
        ),
        describe("an option twice", TOPIC, "describe", "retention.ms", "retention.ms"),
        describe("everything", TOPIC, "describe"),
        *in_versions(
            (0, 4), lambda v: describe("unknown topic", TOPIC, "describe-none", version=v)
        ),
        describe("empty topic name", TOPIC, ""),
        describe("topic name with a slash", TOPIC, "a/b"),
        describe("topic name of 250 characters", TOPIC, "x" * 250),
        describe("of the broker", BROKER, NODE, "num.io.threads"),
        describe("everything of the broker", BROKER, NODE),
        describe("of all brokers", BROKER, "", "num.io.threads"),
        *in_versions((0, 4), lambda v: describe("unknown broker", BROKER, "77", version=v)),
        describe("negative broker", BROKER, "-1"),
        describe("broker that is no number", BROKER, "one"),
        describe("broker that is too large a number", BROKER, "99999999999"),
        describe("loggers of an unknown broker", LOGGER, "77"),
        describe("loggers of no broker", LOGGER, ""),
        describe("loggers of a broker that is no number", LOGGER, "x"),
        describe("unknown type 0", 0, "x"),
        describe("unknown type 1", 1, "x"),
        describe("unknown type 3", 3, "x"),
        describe("type 99", 99, "x"),
        describe("type -1", -1, "x"),
        describe("metrics of nobody", METRICS, ""),
        describe("empty group", GROUP, ""),
        Row("no resources", "DescribeConfigs", 3, {"resources": []}),
        Row("null resources", "DescribeConfigs", 3, {"resources": None}),
        Row(
            "null name",
            "DescribeConfigs",
            3,
            {"resources": [{"resourceType": TOPIC, "resourceName": None}]},
        ),
        Row(
            "null option",
            "DescribeConfigs",
            3,
            {
                "resources": [
                    {"resourceType": TOPIC, "resourceName": "describe", "configurationKeys": [None]}
                ]
            },
        ),
        Row("huge count", "DescribeConfigs", 3, {"resources": Counted(2**31 - 2)}),
        Row("huge count", "DescribeConfigs", 4, {"resources": Counted(2**31 - 2)}),
        Row(
            "huge count of options",
            "DescribeConfigs",
            3,
            {
                "resources": [
                    {
                        "resourceType": TOPIC,
                        "resourceName": "describe",
                        "configurationKeys": Counted(2**31 - 2),
                    }
                ]
            },
        ),
        Row("a byte missing", "DescribeConfigs", 3, {"resources": []}, cut=1),
        Row("a byte too many", "DescribeConfigs", 3, {"resources": []}, tail=b"x"),
        Row("unknown tagged field", "DescribeConfigs", 4, {"resources": []}, tags={8: b"x"}),
    ],
)


def incremental(
    name: str,
    key: Any,
    value: Any,
    operation: int = SET,
    *,
    kind: int = TOPIC,
    resource: Any = "incremental",
    version: int = 1,
    check: bool = False,
) -> Row:
    option = {"name": key, "configOperation": operation, "value": value}
    one = {"resourceType": kind, "resourceName": resource, "configs": [option]}
    fields = {"resources": [one], "validateOnly": check}
    return Row(name, "IncrementalAlterConfigs", version, fields)


def several(name: str, *options: tuple[str, int, Any], version: int = 1) -> Row:
    configs = [{"name": key, "configOperation": op, "value": value} for key, op, value in options]
    one = {"resourceType": TOPIC, "resourceName": "incremental", "configs": configs}
    return Row(name, "IncrementalAlterConfigs", version, {"resources": [one]})


POLICY, RETENTION = "cleanup.policy", "retention.ms"
INCREMENTAL = Scenario(
    "altering single options",
    [
        topic("incremental"),
        *in_versions((0, 1), lambda v: incremental("sets", RETENTION, "5000", version=v)),
        incremental("sets, checked only", RETENTION, "5000", check=True),
        incremental("appends", POLICY, "compact", APPEND),
        incremental("appends again", POLICY, "compact", APPEND),
        incremental(
            "subtracts what is not there", "leader.replication.throttled.replicas", "0:1", SUBTRACT
        ),
        incremental("subtracts", POLICY, "compact", SUBTRACT),
        incremental("deletes", RETENTION, None, DELETE),
        incremental("deletes what is not set", RETENTION, None, DELETE),
        incremental("deletes with a value", RETENTION, "1", DELETE),
        incremental("deletes an unknown option", "nonsense", None, DELETE),
        *in_versions((0, 1), lambda v: incremental("unknown option", "nonsense", "1", version=v)),
        incremental("empty option", "", "1"),
        incremental("null value", RETENTION, None),
        incremental("empty value", RETENTION, ""),
        incremental("value that is no number", RETENTION, "abc"),
        incremental("value out of range", RETENTION, "-2"),
        incremental("value that no list has", POLICY, "shred"),
        incremental("appends a bad value", POLICY, "shred", APPEND),
        incremental("appends null", POLICY, None, APPEND),
        incremental("appends to what is no list", RETENTION, "1", APPEND),
        incremental("subtracts from what is no list", RETENTION, "1", SUBTRACT),
        incremental(
            "throttled replicas that are none", "leader.replication.throttled.replicas", "x"
        ),
        *[incremental(f"operation {number}", RETENTION, "1", number) for number in (4, 99, -1)],
        incremental("unknown topic", RETENTION, "1", resource="incremental-none"),
        incremental(
            "unknown topic, checked only", RETENTION, "1", resource="incremental-none", check=True
        ),
        incremental("empty topic name", RETENTION, "1", resource=""),
        incremental("topic name with a slash", RETENTION, "1", resource="a/b"),
        incremental("unknown broker", "background.threads", "9", kind=BROKER, resource="77"),
        incremental(
            "broker that is no number", "background.threads", "9", kind=BROKER, resource="x"
        ),
        incremental(
            "unknown option of the broker", "nonsense", "1", kind=BROKER, resource=NODE, check=True
        ),
        incremental("fixed option of the broker", "log.dirs", "/x", kind=BROKER, resource=NODE),
        incremental("fixed option of all brokers", "broker.id", "3", kind=BROKER, resource=""),
        incremental(
            "option of one broker for all", "listeners", "PLAINTEXT://:1", kind=BROKER, resource=""
        ),
        incremental("too many threads", "num.io.threads", "10000", kind=BROKER, resource=""),
        incremental("threads that are no number", "num.io.threads", "x", kind=BROKER, resource=""),
        incremental("no threads", "num.io.threads", "0", kind=BROKER, resource=""),
        incremental("type 0", RETENTION, "1", kind=0),
        incremental("type 1", RETENTION, "1", kind=1),
        incremental("type 3", RETENTION, "1", kind=3),
        incremental("type 99", RETENTION, "1", kind=99),
        incremental("logger of an unknown broker", "kafka", "INFO", kind=LOGGER, resource="77"),
        several("an option twice", (RETENTION, SET, "1"), (RETENTION, SET, "2")),
        several("sets and deletes one", (RETENTION, SET, "1"), (RETENTION, DELETE, None)),
        several("a good and a bad one", (RETENTION, SET, "1"), ("nonsense", SET, "2")),
        several("none"),
        Row(
            "a resource twice",
            "IncrementalAlterConfigs",
            1,
            {
                "resources": [
                    {
                        "resourceType": TOPIC,
                        "resourceName": "incremental",
                        "configs": [{"name": RETENTION, "configOperation": SET, "value": "7000"}],
                    }
                ]
                * 2
            },
        ),
        Row("no resources", "IncrementalAlterConfigs", 1, {"resources": []}),
        Row("null resources", "IncrementalAlterConfigs", 0, {"resources": None}),
        Row(
            "null name",
            "IncrementalAlterConfigs",
            0,
            {"resources": [{"resourceType": TOPIC, "resourceName": None}]},
        ),
        Row(
            "null option",
            "IncrementalAlterConfigs",
            0,
            {
                "resources": [
                    {
                        "resourceType": TOPIC,
                        "resourceName": "incremental",
                        "configs": [{"name": None}],
                    }
                ]
            },
        ),
        Row("huge count", "IncrementalAlterConfigs", 0, {"resources": Counted(2**31 - 2)}),
        Row("huge count", "IncrementalAlterConfigs", 1, {"resources": Counted(2**31 - 2)}),
        Row("a byte missing", "IncrementalAlterConfigs", 0, {"resources": []}, cut=1),
        Row("a byte too many", "IncrementalAlterConfigs", 0, {"resources": []}, tail=b"x"),
        Row(
            "unknown tagged field", "IncrementalAlterConfigs", 1, {"resources": []}, tags={8: b"x"}
        ),
    ],
)


def alter(
    name: str, key: Any, value: Any, *, kind: int = TOPIC, resource: Any = "alter", version: int = 1
) -> Row:
    one = {
        "resourceType": kind,
        "resourceName": resource,
        "configs": [{"name": key, "value": value}],
    }
    return Row(name, "AlterConfigs", version, {"resources": [one]})


ALTERING = Scenario(
    "altering all options",
    [
        topic("alter"),
        *in_versions((0, 1, 2), lambda v: alter("sets", RETENTION, "5000", version=v)),
        *in_versions((0, 2), lambda v: alter("unknown option", "nonsense", "5", version=v)),
        alter("null value", RETENTION, None),
        alter("value that is no number", RETENTION, "abc"),
        alter("value out of range", "min.insync.replicas", "0"),
        *in_versions(
            (0, 2),
            lambda v: alter("unknown topic", RETENTION, "1", resource="alter-none", version=v),
        ),
        alter("topic name with a slash", RETENTION, "1", resource="a/b"),
        alter("empty topic name", RETENTION, "1", resource=""),
        alter("unknown broker", "background.threads", "9", kind=BROKER, resource="77"),
        alter("broker that is no number", "background.threads", "9", kind=BROKER, resource="x"),
        alter("fixed option of the broker", "log.dirs", "/x", kind=BROKER, resource=NODE),
        alter("loggers", "kafka", "INFO", kind=LOGGER, resource=NODE),
        alter("type 0", RETENTION, "1", kind=0),
        alter("type 99", RETENTION, "1", kind=99),
        alter("type 1", RETENTION, "1", kind=1),
        Row(
            "an option twice",
            "AlterConfigs",
            1,
            {
                "resources": [
                    {
                        "resourceType": TOPIC,
                        "resourceName": "alter",
                        "configs": [
                            {"name": RETENTION, "value": "1"},
                            {"name": RETENTION, "value": "2"},
                        ],
                    }
                ]
            },
        ),
        Row(
            "a resource twice",
            "AlterConfigs",
            1,
            {
                "resources": [
                    {
                        "resourceType": TOPIC,
                        "resourceName": "alter",
                        "configs": [{"name": RETENTION, "value": "1"}],
                    }
                ]
                * 2
            },
        ),
        Row("no resources", "AlterConfigs", 1, {"resources": []}),
        Row("null resources", "AlterConfigs", 1, {"resources": None}),
        Row(
            "resource name not UTF-8",
            "AlterConfigs",
            1,
            {"resources": [{"resourceType": TOPIC, "resourceName": Raw(b"\0\1\xff")}]},
        ),
        Row("huge count", "AlterConfigs", 1, {"resources": Counted(2**31 - 2)}),
        Row("huge count", "AlterConfigs", 2, {"resources": Counted(2**31 - 2)}),
        Row("a byte missing", "AlterConfigs", 1, {"resources": []}, cut=1),
        Row("a byte too many", "AlterConfigs", 1, {"resources": []}, tail=b"x"),
        Row("unknown tagged field", "AlterConfigs", 2, {"resources": []}, tags={8: b"x"}),
    ],
)
SCENARIOS = (DESCRIBING, INCREMENTAL, ALTERING)
