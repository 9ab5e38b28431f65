"""CreateTopics, DeleteTopics, CreatePartitions, DeleteRecords."""

from typing import Any

from tests.parity.definitions import Counted, Raw
from tests.parity.prepare import coordinator, gone, records, topic, topic_id
from tests.parity.rows import Row, Saved, Scenario, in_versions

UNKNOWN_ID = bytes(range(1, 17))


def new(name: Any, partitions: int = 1, factor: int = 1, **more: Any) -> dict[str, Any]:
    return {"name": name, "numPartitions": partitions, "replicationFactor": factor, **more}


def create(name: str, *topics: Any, version: int = 5, check: bool = False, **row: Any) -> Row:
    fields: dict[str, Any] = {"topics": list(topics), "timeoutMs": 30_000}
    if version >= 1:
        fields["validateOnly"] = check
    # The options of a created topic are as many as a broker knows.
    return Row(name, "CreateTopics", version, fields, without=("configs",), **row)


def assigned(name: str, *replicas: Any) -> dict[str, Any]:
    found = [{"partitionIndex": index, "brokerIds": ids} for index, ids in enumerate(replicas)]
    return new(name, -1, -1, assignments=found)


def option(name: str, key: Any, value: Any) -> dict[str, Any]:
    return new(name, configs=[{"name": key, "value": value}])


CREATING = Scenario(
    "creating topics",
    [
        topic("create-there"),
        topic("create.dots"),
        coordinator("creating"),  # makes __consumer_offsets
        *in_versions(
            (0, 1, 2, 3, 4, 5, 6, 7), lambda v: create("a topic", new(f"create-{v}"), version=v)
        ),
        *in_versions((0, 4, 7), lambda v: create("it exists", new("create-there"), version=v)),
        create("it exists, checked only", new("create-there"), check=True),
        create("checked only", new("create-checked"), check=True),
        create("a name that differs in a dot", new("create_dots")),
        *[
            create(f"name: {text[:12] or 'empty'}", new(text))
            for text in ("", ".", "..", "a/b", "a b", "ä", "x" * 250, "a\0b", "a:b")
        ],
        create("name of 249 characters", new("y" * 249), check=True),
        create("an internal name", new("__consumer_offsets")),
        create("a topic twice", new("create-twice"), new("create-twice")),
        create("a topic twice, differently", new("create-twice"), new("create-twice", 5)),
        create("a good and a bad one", new("create-good"), new("a/b")),
        *in_versions(
            (0, 3, 4, 7), lambda v: create("no partitions", new("create-p0", 0), version=v)
        ),
        create("partitions -2", new("create-p-2", -2)),
        create("default partitions and factor", new("create-default", -1, -1), check=True),
        create(
            "default partitions in version 3", new("create-default", -1, -1), version=3, check=True
        ),
        create("factor 0", new("create-f0", 1, 0)),
        create("factor 2", new("create-f2", 1, 2)),
        create("factor -2", new("create-f-2", 1, -2)),
        create("factor 32767", new("create-f", 1, 32_767)),
        create("assigned", assigned("create-assigned", [1], [1]), check=True),
        create("assigned to an unknown broker", assigned("create-a99", [99])),
        create("assigned to a negative broker", assigned("create-a-1", [-1])),
        create("assigned to no broker", assigned("create-a0", [])),
        create("assigned twice to a broker", assigned("create-a11", [1, 1])),
        create("assigned unevenly", assigned("create-a-uneven", [1], [1, 99])),
        create(
            "assigned with a gap",
            {**assigned("create-gap"), "assignments": [{"partitionIndex": 1, "brokerIds": [1]}]},
        ),
        create(
            "a partition assigned twice",
            {
                **assigned("create-gap"),
                "assignments": [{"partitionIndex": 0, "brokerIds": [1]}] * 2,
            },
        ),
        create(
            "a negative partition assigned",
            {**assigned("create-gap"), "assignments": [{"partitionIndex": -1, "brokerIds": [1]}]},
        ),
        create(
            "assigned and counted",
            new("create-both", 1, -1, assignments=[{"partitionIndex": 0, "brokerIds": [1]}]),
        ),
        create(
            "assigned with a factor",
            new("create-both", -1, 1, assignments=[{"partitionIndex": 0, "brokerIds": [1]}]),
        ),
        *[
            create(f"option {key}={value}", option("create-option", key, value))
            for key, value in [
                ("nonsense", "1"),
                ("", "1"),
                ("retention.ms", "abc"),
                ("retention.ms", "-2"),
                ("retention.ms", ""),
                ("cleanup.policy", "shred"),
                ("min.insync.replicas", "0"),
                ("max.message.bytes", "-1"),
                ("compression.type", "rar"),
                ("segment.bytes", "1"),
                ("message.timestamp.type", "Never"),
                ("unclean.leader.election.enable", "maybe"),
                ("min.cleanable.dirty.ratio", "2"),
                ("retention.bytes", "99999999999999999999"),
                ("leader.replication.throttled.replicas", "x"),
            ]
        ],
        create("null value of an option", option("create-null", "retention.ms", None)),
        create("null value of an unknown option", option("create-null", "nonsense", None)),
        create(
            "an option twice",
            new(
                "create-o2",
                configs=[
                    {"name": "retention.ms", "value": "1"},
                    {"name": "retention.ms", "value": "2"},
                ],
            ),
            check=True,
        ),
        create("no topics"),
        Row(
            "time-out 0",
            "CreateTopics",
            5,
            {"topics": [new("create-t0")], "timeoutMs": 0},
            without=(
                "configs",
                "errorCode",
                "numPartitions",
                "replicationFactor",
                "topicConfigErrorCode",
            ),
        ),
        Row("null topics", "CreateTopics", 5, {"topics": Raw(b"\0")}),
        Row("huge count", "CreateTopics", 4, {"topics": Counted(2**31 - 2)}),
        Row("huge count", "CreateTopics", 7, {"topics": Counted(2**31 - 2)}),
        Row(
            "huge count of assignments",
            "CreateTopics",
            4,
            {"topics": [{**new("x"), "assignments": Counted(2**31 - 2)}]},
        ),
        create("null name", new(None), version=4),
        create("name not UTF-8", new(Raw(b"\0\1\xff")), version=4),
        create("null option name", option("create-null", None, "x"), version=4),
        Row("a byte missing", "CreateTopics", 4, {"topics": []}, cut=1),
        Row("a byte too many", "CreateTopics", 4, {"topics": []}, tail=b"x"),
        Row("unknown tagged field", "CreateTopics", 5, {"topics": []}, tags={8: b"x"}),
    ],
)


def delete(name: str, *topics: Any, version: int = 5, **row: Any) -> Row:
    key = "topics" if version >= 6 else "topicNames"
    return Row(name, "DeleteTopics", version, {key: list(topics), "timeoutMs": 30_000}, **row)


DELETING = Scenario(
    "deleting topics",
    [
        *[topic(f"delete-{name}") for name in ("0", "3", "5", "6", "id", "twice", "both", "good")],
        topic_id("delete-id", "id"),
        topic_id("delete-both", "both"),
        *in_versions((0, 3, 5), lambda v: delete("a topic", f"delete-{v}", version=v)),
        delete("a topic", {"name": "delete-6"}, version=6),
        *[gone(f"delete-{one}") for one in (0, 3, 5, 6)],
        *in_versions((0, 1, 3, 5), lambda v: delete("it is gone", f"delete-{v}", version=v)),
        delete("by id", {"name": None, "topicId": Saved("id")}, version=6),
        gone("delete-id"),
        delete("by id again", {"name": None, "topicId": Saved("id")}, version=6),
        delete("unknown id", {"name": None, "topicId": UNKNOWN_ID}, version=6),
        delete("zero id, no name", {"name": None}, version=6),
        delete("id and name", {"name": "delete-both", "topicId": Saved("both")}, version=6),
        delete(
            "id, and name beside it",
            {"name": "delete-both"},
            {"name": None, "topicId": Saved("both")},
            version=6,
        ),
        delete(
            "an id twice",
            {"name": None, "topicId": Saved("both")},
            {"name": None, "topicId": Saved("both")},
            version=6,
        ),
        delete("a topic twice", "delete-twice", "delete-twice"),
        delete("a topic twice", {"name": "delete-twice"}, {"name": "delete-twice"}, version=6),
        delete("an unknown topic twice", "delete-none", "delete-none"),
        delete("a good and an unknown one", "delete-good", "delete-none"),
        delete("empty name", ""),
        delete("name with a slash", "a/b"),
        delete("name of 250 characters", "x" * 250),
        delete("no topics"),
        delete("no topics", version=6),
        delete("null name", None),
        delete("name not UTF-8", Raw(b"\0\1\xff"), version=3),
        Row("null names", "DeleteTopics", 3, {"topicNames": None}),
        Row("huge count", "DeleteTopics", 3, {"topicNames": Counted(2**31 - 2)}),
        Row("huge count", "DeleteTopics", 6, {"topics": Counted(2**31 - 2)}),
        Row("a byte missing", "DeleteTopics", 3, {"topicNames": []}, cut=1),
        Row("a byte too many", "DeleteTopics", 3, {"topicNames": []}, tail=b"x"),
        Row("unknown tagged field", "DeleteTopics", 6, {"topics": []}, tags={8: b"x"}),
    ],
)


def grow(
    name: str,
    topic_name: Any,
    count: int,
    replicas: Any = None,
    *,
    version: int = 3,
    check: bool = False,
) -> Row:
    found = None if replicas is None else [{"brokerIds": ids} for ids in replicas]
    one = {"name": topic_name, "count": count, "assignments": found}
    fields = {"topics": [one], "timeoutMs": 30_000, "validateOnly": check}
    return Row(name, "CreatePartitions", version, fields)


GROWING = Scenario(
    "creating partitions",
    [
        topic("grow", 2),
        coordinator("growing"),  # makes __consumer_offsets
        grow("of an internal topic, checked only", "__consumer_offsets", 77, check=True),
        grow("fewer, of an internal topic", "__consumer_offsets", 1),
        *in_versions(
            (0, 1, 2, 3), lambda v: grow("one more, checked only", "grow", 3, version=v, check=True)
        ),
        *in_versions((0, 3), lambda v: grow("as many", "grow", 2, version=v)),
        grow("fewer", "grow", 1),
        grow("none", "grow", 0),
        grow("negative", "grow", -1),
        *in_versions((0, 3), lambda v: grow("unknown topic", "grow-none", 3, version=v)),
        grow("unknown topic, checked only", "grow-none", 3, check=True),
        grow("empty name", "", 3),
        grow("name with a slash", "a/b", 3),
        grow("assigned", "grow", 3, [[1]], check=True),
        grow("too few assigned", "grow", 4, [[1]]),
        grow("too many assigned", "grow", 3, [[1], [1]]),
        grow("none assigned", "grow", 3, []),
        grow("assigned to nobody", "grow", 3, [[]]),
        grow("assigned to an unknown broker", "grow", 3, [[99]]),
        grow("assigned twice to a broker", "grow", 3, [[1, 1]]),
        grow("assigned to another number of brokers", "grow", 4, [[1], [1, 99]]),
        grow("null name", None, 3),
        grow("one more", "grow", 3),
        Row(
            "a topic twice",
            "CreatePartitions",
            3,
            {
                "topics": [{"name": "grow", "count": 9, "assignments": None}] * 2,
                "timeoutMs": 30_000,
            },
        ),
        Row(
            "an unknown topic twice",
            "CreatePartitions",
            3,
            {
                "topics": [{"name": "grow-none", "count": 9, "assignments": None}] * 2,
                "timeoutMs": 30_000,
            },
        ),
        Row("no topics", "CreatePartitions", 3, {"topics": [], "timeoutMs": 1}),
        Row("huge count", "CreatePartitions", 1, {"topics": Counted(2**31 - 2)}),
        Row("huge count", "CreatePartitions", 3, {"topics": Counted(2**31 - 2)}),
        Row("null topics", "CreatePartitions", 1, {"topics": None}),
        Row("a byte missing", "CreatePartitions", 1, {"topics": []}, cut=1),
        Row("a byte too many", "CreatePartitions", 1, {"topics": []}, tail=b"x"),
        Row("unknown tagged field", "CreatePartitions", 2, {"topics": []}, tags={8: b"x"}),
    ],
)


def trim(
    name: str, offset: int, index: int = 0, *, topic_name: Any = "trim", version: int = 1
) -> Row:
    one = {"name": topic_name, "partitions": [{"partitionIndex": index, "offset": offset}]}
    return Row(name, "DeleteRecords", version, {"topics": [one], "timeoutMs": 10_000})


TRIMMING = Scenario(
    "deleting records",
    [
        topic("trim"),
        topic("trim-compact", configs={"cleanup.policy": "compact"}),
        records("trim", 5),
        *in_versions((0, 1, 2), lambda v: trim(f"up to {v + 1}", v + 1, version=v)),
        trim("up to less", 1),
        trim("up to the end", 5),
        trim("up to the high watermark", -1),
        *in_versions((0, 2), lambda v: trim("beyond the end", 6, version=v)),
        trim("up to -2", -2),
        trim("unknown partition", 0, 4),
        trim("negative partition", 0, -4),
        *in_versions((0, 2), lambda v: trim("unknown topic", 0, topic_name="trim-none", version=v)),
        trim("compacted topic", 0, topic_name="trim-compact"),
        trim("internal topic", 0, topic_name="__consumer_offsets"),
        trim("empty name", 0, topic_name=""),
        trim("null name", 0, topic_name=None),
        Row(
            "a partition twice",
            "DeleteRecords",
            1,
            {
                "topics": [
                    {
                        "name": "trim",
                        "partitions": [
                            {"partitionIndex": 0, "offset": 1},
                            {"partitionIndex": 0, "offset": 9},
                        ],
                    }
                ],
                "timeoutMs": 9_000,
            },
        ),
        Row("no topics", "DeleteRecords", 1, {"topics": [], "timeoutMs": 9_000}),
        Row(
            "no partitions", "DeleteRecords", 1, {"topics": [{"name": "trim"}], "timeoutMs": 9_000}
        ),
        Row("huge count", "DeleteRecords", 1, {"topics": Counted(2**31 - 2)}),
        Row("huge count", "DeleteRecords", 2, {"topics": Counted(2**31 - 2)}),
        Row("null topics", "DeleteRecords", 1, {"topics": None}),
        Row("a byte missing", "DeleteRecords", 1, {"topics": []}, cut=1),
        Row("a byte too many", "DeleteRecords", 1, {"topics": []}, tail=b"x"),
        Row("unknown tagged field", "DeleteRecords", 2, {"topics": []}, tags={8: b"x"}),
    ],
)
SCENARIOS = (CREATING, DELETING, GROWING, TRIMMING)
