"""DescribeLogDirs, ElectLeaders, AlterPartitionReassignments, ListPartitionReassignments,
InitProducerId, AlterReplicaLogDirs."""

from typing import Any

from tests.parity.definitions import Counted
from tests.parity.prepare import producer_ids, records, topic
from tests.parity.rows import Row, Saved, Scenario, in_versions


def log_dirs(name: str, *partitions: int, topic_name: Any = "dirs", version: int = 4) -> Row:
    one = {"topic": topic_name, "partitions": list(partitions)}
    return Row(name, "DescribeLogDirs", version, {"topics": [one]}, without=("partitionSize",))


LOG_DIRS = Scenario(
    "log directories",
    [
        topic("dirs", 2),
        records("dirs"),
        *in_versions((1, 2, 3, 4), lambda v: log_dirs("a partition", 0, version=v)),
        log_dirs("a partition twice", 0, 0),
        log_dirs("both partitions", 0, 1),
        log_dirs("unknown partition", 7),
        log_dirs("negative partition", -7),
        log_dirs("no partitions"),
        log_dirs("unknown topic", 0, topic_name="dirs-none"),
        log_dirs("empty name", 0, topic_name=""),
        log_dirs("null name", 0, topic_name=None, version=1),
        Row("no topics", "DescribeLogDirs", 4, {"topics": []}),
        Row("everything", "DescribeLogDirs", 4, {"topics": None}, only=("errorCode",)),
        Row("huge count", "DescribeLogDirs", 1, {"topics": Counted(2**31 - 2)}),
        Row("huge count", "DescribeLogDirs", 4, {"topics": Counted(2**31 - 2)}),
        Row("a byte missing", "DescribeLogDirs", 1, {"topics": []}, cut=1),
        Row("a byte too many", "DescribeLogDirs", 1, {"topics": []}, tail=b"x"),
        Row("unknown tagged field", "DescribeLogDirs", 4, {"topics": []}, tags={8: b"x"}),
    ],
)
PREFERRED, UNCLEAN = 0, 1


def elect(
    name: str, *partitions: int, kind: int = PREFERRED, topic_name: Any = "elect", version: int = 2
) -> Row:
    one = {"topic": topic_name, "partitions": list(partitions)}
    fields: dict[str, Any] = {"topicPartitions": [one], "timeoutMs": 20_000}
    if version >= 1:
        fields["electionType"] = kind
    return Row(name, "ElectLeaders", version, fields)


ELECTIONS = Scenario(
    "elections",
    [
        topic("elect", 2),
        *in_versions((0, 1, 2), lambda v: elect("of the preferred leader", 0, version=v)),
        *in_versions((1, 2), lambda v: elect("unclean", 0, kind=UNCLEAN, version=v)),
        *[elect(f"type {kind}", 0, kind=kind) for kind in (2, -1, 127)],
        *in_versions(
            (0, 2), lambda v: elect("unknown topic", 0, topic_name="elect-none", version=v)
        ),
        elect("unknown topic, unclean", 0, topic_name="elect-none", kind=UNCLEAN),
        elect("unknown partition", 5),
        elect("negative partition", -5),
        elect("a good and an unknown partition", 0, 5),
        elect("a partition twice", 0, 0),
        elect("no partitions"),
        elect("empty name", 0, topic_name=""),
        Row("no topics", "ElectLeaders", 2, {"topicPartitions": [], "timeoutMs": 9_000}),
        Row("null name", "ElectLeaders", 1, {"topicPartitions": [{"topic": None}]}),
        Row("huge count", "ElectLeaders", 1, {"topicPartitions": Counted(2**31 - 2)}),
        Row("huge count", "ElectLeaders", 2, {"topicPartitions": Counted(2**31 - 2)}),
        Row("a byte missing", "ElectLeaders", 1, {"topicPartitions": []}, cut=1),
        Row(
            "a byte too many",
            "ElectLeaders",
            1,
            {"topicPartitions": [], "timeoutMs": 9_000},
            tail=b"x",
        ),
        Row(
            "unknown tagged field",
            "ElectLeaders",
            2,
            {"topicPartitions": [], "timeoutMs": 9_000},
            tags={8: b"x"},
        ),
    ],
)


def reassign(name: str, replicas: Any, index: int = 0, topic_name: Any = "reassign") -> Row:
    one = {"name": topic_name, "partitions": [{"partitionIndex": index, "replicas": replicas}]}
    return Row(name, "AlterPartitionReassignments", 0, {"topics": [one]})


REASSIGNMENTS = Scenario(
    "reassignments",
    [
        topic("reassign"),
        reassign("to where it is", [1]),
        reassign("to an unknown broker", [99]),
        reassign("to a negative broker", [-1]),
        reassign("to nobody", []),
        reassign("twice to a broker", [1, 1]),
        reassign("to one more, unknown", [1, 99]),
        reassign("ends none", None),
        reassign("unknown partition", [1], 5),
        reassign("negative partition", [1], -5),
        reassign("unknown topic", [1], topic_name="reassign-none"),
        reassign("ends that of an unknown topic", None, topic_name="reassign-none"),
        reassign("empty name", [1], topic_name=""),
        Row(
            "a partition twice",
            "AlterPartitionReassignments",
            0,
            {
                "topics": [
                    {
                        "name": "reassign",
                        "partitions": [
                            {"partitionIndex": 0, "replicas": [1]},
                            {"partitionIndex": 0, "replicas": [99]},
                        ],
                    }
                ]
            },
        ),
        Row("no topics", "AlterPartitionReassignments", 0, {"topics": []}),
        Row("no partitions", "AlterPartitionReassignments", 0, {"topics": [{"name": "reassign"}]}),
        Row("huge count", "AlterPartitionReassignments", 0, {"topics": Counted(2**31 - 2)}),
        Row("null topics", "AlterPartitionReassignments", 0, {"topics": None}),
        Row("a byte missing", "AlterPartitionReassignments", 0, {"topics": []}, cut=1),
        Row("a byte too many", "AlterPartitionReassignments", 0, {"topics": []}, tail=b"x"),
        Row(
            "unknown tagged field", "AlterPartitionReassignments", 0, {"topics": []}, tags={8: b"x"}
        ),
        Row("all", "ListPartitionReassignments", 0, {"topics": None}),
        Row(
            "of a topic",
            "ListPartitionReassignments",
            0,
            {"topics": [{"name": "reassign", "partitionIndexes": [0]}]},
        ),
        Row(
            "of an unknown topic",
            "ListPartitionReassignments",
            0,
            {"topics": [{"name": "reassign-none", "partitionIndexes": [0]}]},
        ),
        Row(
            "of an unknown partition",
            "ListPartitionReassignments",
            0,
            {"topics": [{"name": "reassign", "partitionIndexes": [8, -8]}]},
        ),
        Row("no topics", "ListPartitionReassignments", 0, {"topics": []}),
        Row("huge count", "ListPartitionReassignments", 0, {"topics": Counted(2**31 - 2)}),
        Row("a byte missing", "ListPartitionReassignments", 0, {"topics": []}, cut=1),
        Row("a byte too many", "ListPartitionReassignments", 0, {"topics": []}, tail=b"x"),
        Row(
            "unknown tagged field", "ListPartitionReassignments", 0, {"topics": []}, tags={8: b"x"}
        ),
    ],
)


def producer_id(name: str, version: int, **fields: Any) -> Row:
    """Without a transactional id."""
    values = {"transactionalId": None, "transactionTimeoutMs": 60_000, **fields}
    return Row(name, "InitProducerId", version, values, without=("producerId",))


PRODUCER_IDS = Scenario(
    "producer ids",
    [
        producer_ids,
        *in_versions((0, 1, 2, 3, 4, 5), lambda v: producer_id("a new one", v)),
        producer_id("time-out 0", 2, transactionTimeoutMs=0),
        producer_id("time-out -1", 2, transactionTimeoutMs=-1),
        producer_id("largest time-out", 4, transactionTimeoutMs=2**31 - 1),
        producer_id("id without an epoch", 3, producerId=5, producerEpoch=-1),
        producer_id("epoch without an id", 3, producerId=-1, producerEpoch=5),
        producer_id("epoch without an id", 5, producerId=-1, producerEpoch=5),
        producer_id("id and epoch", 3, producerId=5, producerEpoch=5),
        producer_id("id -2", 3, producerId=-2, producerEpoch=-1),
        Row("a byte missing", "InitProducerId", 1, {"transactionalId": None}, cut=1),
        Row(
            "a byte too many",
            "InitProducerId",
            1,
            {"transactionalId": None},
            tail=b"x",
            without=("producerId",),
        ),
        Row(
            "unknown tagged field",
            "InitProducerId",
            4,
            {"transactionalId": None},
            tags={8: b"x"},
            without=("producerId",),
        ),
        Row("empty body", "InitProducerId", 1, body=b""),
    ],
)


def move(name: str, path: Any, *partitions: int, topic_name: Any = "move", version: int = 2) -> Row:
    topics = [{"name": topic_name, "partitions": list(partitions)}]
    return Row(name, "AlterReplicaLogDirs", version, {"dirs": [{"path": path, "topics": topics}]})


MOVES = Scenario(
    "moves between log directories",
    [
        topic("move"),
        *in_versions((0, 1, 2), lambda v: move("unknown directory", "/nowhere", 0, version=v)),
        move("relative path", "logs", 0),
        move("empty path", "", 0),
        move("unknown topic, unknown directory", "/nowhere", 0, topic_name="move-none"),
        move("unknown partition, unknown directory", "/nowhere", 9),
        Row(
            "its directory",
            "DescribeLogDirs",
            4,
            {"topics": []},
            only=("errorCode",),
            save={"dir": "results.0.logDir"},
        ),
        move("the directory that it is in", Saved("dir"), 0),
        move("unknown topic", Saved("dir"), 0, topic_name="move-none"),
        move("unknown partition", Saved("dir"), 9),
        move("negative partition", Saved("dir"), -1),
        move("a good and an unknown partition", Saved("dir"), 0, 9),
        Row("no directories", "AlterReplicaLogDirs", 1, {"dirs": []}),
        Row("huge count", "AlterReplicaLogDirs", 1, {"dirs": Counted(2**31 - 2)}),
        Row("null path", "AlterReplicaLogDirs", 1, {"dirs": [{"path": None}]}),
        Row("a byte missing", "AlterReplicaLogDirs", 1, {"dirs": []}, cut=1),
    ],
)
SCENARIOS = (LOG_DIRS, ELECTIONS, REASSIGNMENTS, PRODUCER_IDS, MOVES)
