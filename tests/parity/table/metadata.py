"""Metadata, DescribeTopicPartitions, FindCoordinator, DescribeCluster, ApiVersions."""

from typing import Any

from tests.parity.definitions import Counted, Raw
from tests.parity.prepare import coordinator, topic, topic_id
from tests.parity.rows import Row, Saved, Scenario, in_versions

UNKNOWN_ID = bytes(range(1, 17))


def metadata(name: str, *topics: Any, version: int = 8, **row: Any) -> Row:
    """Creates nothing. Compared are the topics."""
    fields: dict[str, Any] = {"topics": list(topics)}
    if version >= 4:
        fields["allowAutoTopicCreation"] = False
    without = ("brokers", "controllerId")
    return Row(name, "Metadata", version, fields, without=without, **row)


TOPICS = Scenario(
    "metadata",
    [
        topic("metadata", 2),
        topic_id("metadata", "id"),
        *in_versions(
            (0, 1, 4, 5, 7, 8, 9, 10, 11, 12),
            lambda v: metadata("a topic", {"name": "metadata"}, version=v),
        ),
        *in_versions(
            (4, 7, 9, 12), lambda v: metadata("unknown topic", {"name": "metadata-none"}, version=v)
        ),
        metadata("empty name", {"name": ""}),
        metadata("empty name", {"name": ""}, version=12),
        metadata("name with a slash", {"name": "a/b"}),
        metadata("name of a dot", {"name": "."}),
        metadata("name of 249 characters", {"name": "x" * 249}),
        metadata("name of 250 characters", {"name": "x" * 250}),
        metadata("a topic twice", {"name": "metadata"}, {"name": "metadata"}),
        metadata("no topics", version=8),
        metadata("no topics", version=12),
        metadata("by id", {"topicId": Saved("id"), "name": None}, version=12),
        metadata("by unknown id", {"topicId": UNKNOWN_ID, "name": None}, version=12),
        metadata("by zero id", {"name": None}, version=12),
        metadata("by id and name", {"topicId": Saved("id"), "name": "metadata"}, version=12),
        metadata("by unknown id and name", {"topicId": UNKNOWN_ID, "name": "metadata"}, version=12),
        metadata("by id", {"topicId": Saved("id"), "name": None}, version=11),
        metadata("by id", {"topicId": Saved("id"), "name": None}, version=10),
        metadata("by id and name", {"topicId": Saved("id"), "name": "metadata"}, version=10),
        metadata(
            "by id and by name",
            {"topicId": Saved("id"), "name": None},
            {"name": "metadata"},
            version=12,
        ),
    ],
)


def find(name: str, key: Any, kind: Any = 0, version: int = 2) -> Row:
    fields: dict[str, Any] = {"coordinatorKeys": key} if version >= 4 else {"key": key}
    if version >= 1:
        fields["keyType"] = kind
    return Row(name, "FindCoordinator", version, fields)


COORDINATORS = Scenario(
    "coordinators",
    [
        coordinator("find"),
        *in_versions((0, 1, 2, 3), lambda v: find("a group", "find", version=v)),
        *in_versions((4, 5, 6), lambda v: find("a group", ["find"], version=v)),
        find("two groups", ["find", "find-2"], version=4),
        find("a group twice", ["find", "find"], version=4),
        find("no keys", [], version=4),
        find("empty group", "", version=2),
        find("empty group", [""], version=4),
        *in_versions((1, 2, 3), lambda v: find("key type 2", "find", 2, v)),
        find("key type 9", "find", 9),
        find("key type -1", "find", -1),
        find("key type 2", ["find"], 2, 4),
        find("key type 2", ["find"], 2, 6),
        find("key type 9", ["find"], 9, 6),
        find("group of 32,767 characters", "x" * 32_767),
        find("null key", None),
        find("null key", Raw(b"\0"), version=3),
        find("null keys", None, version=4),
        find("a null key", [None], version=4),
        find("huge count", Counted(2**31 - 2), version=4),
        Row("a byte missing", "FindCoordinator", 2, {"key": "find"}, cut=1),
        Row("a byte too many", "FindCoordinator", 2, {"key": "find"}, tail=b"x"),
        Row("unknown tagged field", "FindCoordinator", 3, {"key": "find"}, tags={5: b"12"}),
        Row("empty body", "FindCoordinator", 2, body=b""),
    ],
)
CLUSTER = Scenario(
    "cluster",
    [
        *in_versions((0, 1), lambda v: Row("plain", "DescribeCluster", v)),
        Row("with operations", "DescribeCluster", 0, {"includeClusterAuthorizedOperations": True}),
        Row("of controllers", "DescribeCluster", 1, {"endpointType": 2}),
        Row("endpoint type 0", "DescribeCluster", 1, {"endpointType": 0}),
        Row("endpoint type 7", "DescribeCluster", 1, {"endpointType": 7}),
        Row("endpoint type -1", "DescribeCluster", 1, {"endpointType": -1}),
        Row("a byte missing", "DescribeCluster", 0, cut=1),
        Row("a byte too many", "DescribeCluster", 1, tail=b"x"),
        Row("unknown tagged field", "DescribeCluster", 1, tags={7: b"abc"}),
        Row("empty body", "DescribeCluster", 0, body=b""),
    ],
)


def versions(name: str, version: int, fields: dict[str, Any] | None = None, **row: Any) -> Row:
    """Compared is the error code: what is served is not equal."""
    return Row(name, "ApiVersions", version, fields or {}, only=("errorCode",), **row)


SOFTWARE = {"clientSoftwareName": "raw", "clientSoftwareVersion": "1.0"}
VERSIONS = Scenario(
    "versions",
    [
        *in_versions((0, 1, 2), lambda v: versions("plain", v)),
        *in_versions((3, 4), lambda v: versions("plain", v, SOFTWARE)),
        *[
            versions(name, 3, {**SOFTWARE, "clientSoftwareName": text})
            for name, text in [
                ("empty name", ""),
                ("name with a space", "a b"),
                ("name of a hyphen", "-"),
                ("name that ends in a hyphen", "raw-"),
                ("name with dots", "a.b-c"),
                ("long name", "x" * 40_000),
            ]
        ],
        versions("empty version", 3, {**SOFTWARE, "clientSoftwareVersion": ""}),
        versions("version with a slash", 4, {**SOFTWARE, "clientSoftwareVersion": "1/2"}),
        versions("null name", 3, {**SOFTWARE, "clientSoftwareName": None}),
        versions("unknown tagged field", 3, SOFTWARE, tags={3: b"1"}),
        versions("a byte too many", 0, tail=b"x"),
        versions("a byte too many", 3, SOFTWARE, tail=b"x"),
        versions("a byte missing", 3, SOFTWARE, cut=1),
        versions("version 3 with an empty body", 3, body=b""),
    ],
)
BROKEN = Scenario(
    "broken requests",
    [
        *in_versions(
            (0, 1, 8, 9, 12),
            lambda v: Row("huge count", "Metadata", v, {"topics": Counted(2**31 - 2)}),
        ),
        Row("null topics", "Metadata", 0, {"topics": None}),
        Row("count -2", "Metadata", 8, {"topics": Counted(-2)}),
        Row("null name", "Metadata", 8, {"topics": [{"name": None}]}),
        Row("null name", "Metadata", 9, {"topics": [{"name": None}]}),
        Row(
            "name not UTF-8",
            "Metadata",
            8,
            {"topics": [{"name": Raw(b"\0\1\xff")}], "allowAutoTopicCreation": False},
            without=("brokers", "controllerId"),
        ),
        Row("name longer than the frame", "Metadata", 8, {"topics": [{"name": Raw(b"\x70\0x")}]}),
        Row("a byte missing", "Metadata", 8, {"topics": []}, cut=1),
        Row("a byte too many", "Metadata", 8, {"topics": []}, tail=b"x", only=("topics",)),
        Row(
            "unknown tagged field", "Metadata", 9, {"topics": []}, tags={0: b"x"}, only=("topics",)
        ),
        Row("empty body", "Metadata", 8, body=b""),
    ],
)


def parts(name: str, *topics: str, limit: int = 100, cursor: Any = None) -> Row:
    fields = {
        "topics": [{"name": one} for one in topics],
        "responsePartitionLimit": limit,
        "cursor": cursor,
    }
    return Row(name, "DescribeTopicPartitions", 0, fields)


PARTITIONS = Scenario(
    "partitions of topics",
    [
        topic("parts", 3),
        parts("a topic", "parts"),
        parts("unknown topic", "parts-none"),
        parts("empty name", ""),
        parts("name with a slash", "a/b"),
        parts("a topic twice", "parts", "parts"),
        parts("limit of two", "parts", limit=2),
        parts("limit of zero", "parts", limit=0),
        parts("negative limit", "parts", limit=-1),
        parts("cursor", "parts", cursor={"topicName": "parts", "partitionIndex": 1}),
        parts("negative cursor", "parts", cursor={"topicName": "parts", "partitionIndex": -1}),
        parts("cursor in another topic", "parts", cursor={"topicName": "a", "partitionIndex": 0}),
        Row("huge count", "DescribeTopicPartitions", 0, {"topics": Counted(2**31 - 2)}),
        Row("a byte missing", "DescribeTopicPartitions", 0, {"topics": []}, cut=1),
    ],
)
SCENARIOS = (TOPICS, COORDINATORS, CLUSTER, VERSIONS, BROKEN, PARTITIONS)
