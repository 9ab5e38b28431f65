"""Where pyrklog answers otherwise than Apache Kafka without ZooKeeper, and why.

``test_answers.py`` checks that each entry is still true, and needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, NamedTuple

from tests.parity.session import CLOSED


@dataclass(frozen=True)
class Whole:
    """Another answer altogether."""

    answer: Any


AS_ZOOKEEPER = Whole(None)
"""pyrklog answers as Kafka with ZooKeeper."""
Change = Whole | Mapping[str, Any]
"""The mapping: what differs in the answer, by place (``topics.0.errorCode``)."""


class Departure(NamedTuple):
    """``requests`` are patterns of "module / scenario / title"; ``*`` stands for anything."""

    reason: str
    requests: Mapping[str, Change]


def _all(requests: Iterable[str], change: Change) -> dict[str, Change]:
    return dict.fromkeys(requests, change)


_CLOSED = Whole(CLOSED)
_BATCH = "responses.0.partitionResponses.0"
_FETCHED = "responses.0.partitions.0"
_LISTED = "topics.0.partitions.0"
_FETCHED_ALL = {
    f"{_FETCHED}.errorCode": 0,
    f"{_FETCHED}.highWatermark": 3,
    f"{_FETCHED}.lastStableOffset": 3,
    f"{_FETCHED}.logStartOffset": 0,
}
_TWICE = {"topics.0.partitions": [{"partitionIndex": 0, "errorCode": 0}] * 2}


def _refused_batch(topic: str, **more: Any) -> Whole:
    """INVALID_RECORD."""
    partition = {"index": 0, "errorCode": 87, "baseOffset": -1, **more}
    return Whole({"responses": [{"name": topic, "partitionResponses": [partition]}]})


DEPARTURES: tuple[Departure, ...] = (
    Departure(
        "A string that is not UTF-8 closes the connection. Kafka puts U+FFFD into it, so that two"
        " names may become one.",
        {"* not UTF-8": _CLOSED},
    ),
    Departure(
        "Missing records are INVALID_RECORD. Kafka's exception leaves the client without an"
        " answer.",
        {
            "produce / batches / Produce v7: null records": _refused_batch("produce-batches"),
            "produce / batches / Produce v9: null records": _refused_batch(
                "produce-batches", recordErrors=[]
            ),
            "produce / *: negative length of records": _refused_batch("produce"),
        },
    ),
    Departure(
        "Missing records of an old version are an empty message set. Kafka's exception leaves the"
        " client without an answer.",
        {
            "old_versions / message sets / Produce v2: null records": Whole(
                {
                    "responses": [
                        {
                            "name": "old",
                            "partitionResponses": [{"index": 0, "errorCode": 0, "baseOffset": -1}],
                        }
                    ]
                }
            )
        },
    ),
    Departure(
        "Message sets that cannot be read are INVALID_RECORD. Kafka answers UNKNOWN_SERVER_ERROR to"
        " what its code throws.",
        _all(
            (
                "old_versions / message sets / *: key longer than the message",
                "old_versions / message sets / *: value longer than the message",
                "old_versions / compressed message sets / *: empty value",
                "old_versions / compressed message sets / *: no gzip",
                "old_versions / compressed message sets / *: no snappy",
                "old_versions / compressed message sets / *: no lz4",
            ),
            {f"{_BATCH}.errorCode": 87},
        ),
    ),
    Departure(
        "Timestamps below -1 are stored, as those of record batches. Kafka's conversion throws.",
        {
            "old_versions / message sets / Produce v2: time -2": {
                f"{_BATCH}.errorCode": 0,
                f"{_BATCH}.baseOffset": 35,
            }
        },
    ),
    Departure(
        "ListOffsets 0 for a negative number of offsets names none. Kafka's exception is"
        " UNKNOWN_SERVER_ERROR.",
        {"old_versions / old fetches / *: a negative number": {f"{_LISTED}.errorCode": 0}},
    ),
    Departure(
        "OffsetCommit 0 is UNSUPPORTED_VERSION for each partition, also of unknown topics.",
        {
            "old_versions / old commits / OffsetCommit v0: in ZooKeeper, unknown topic": {
                "topics.0.partitions.0.errorCode": 35
            }
        },
    ),
    Departure(
        "Records that cannot be decompressed are INVALID_RECORD. Kafka answers UNKNOWN_SERVER_ERROR"
        " to what its libraries throw.",
        _all(
            (
                "produce / records / *: gzip that is none",
                "produce / records / *: gzip cut short",
                "produce / records / *: snappy that is none",
                "produce / records / *: lz4 that is none",
                "produce / records / Produce v7: zstd that is none",
                "produce / records / *: no bytes, with gzip",
                "produce / records / *: a record's length without end",
            ),
            {f"{_BATCH}.errorCode": 87},
        ),
    ),
    Departure(
        "An unknown codec is UNSUPPORTED_COMPRESSION_TYPE; Kafka answers UNKNOWN_SERVER_ERROR.",
        _all(
            (
                "produce / records / *: unknown codec",
                "produce / records / *: codec 7",
                "old_versions / compressed message sets / *: unknown codec",
            ),
            {f"{_BATCH}.errorCode": 76},
        ),
    ),
    Departure(
        "Offset deltas that are not 0, 1, 2… are refused. Kafka appends them if they are not"
        " compressed, and consumers see offsets twice or never.",
        {"produce / records / *offset deltas*": _refused_batch("produce-records")},
    ),
    Departure(
        "A negative number of bytes means none, an unknown isolation level read_committed. Kafka"
        " answers UNKNOWN_SERVER_ERROR.",
        {
            "fetch / fetch / *max bytes negative": _FETCHED_ALL,
            "fetch / fetch / *: isolation level 7": {"errorCode": 0, **_FETCHED_ALL},
            "fetch / list offsets / *: isolation level 9": {
                f"{_LISTED}.errorCode": 0,
                f"{_LISTED}.offset": 4,
                f"{_LISTED}.leaderEpoch": 0,
            },
        },
    ),
    Departure(
        "Of a partition that ListOffsets names twice one error is answered, not two.",
        {
            "fetch / list offsets / *: a partition twice": {
                "topics.0.partitions": [
                    {
                        "partitionIndex": 0,
                        "errorCode": 42,
                        "timestamp": -1,
                        "offset": -1,
                        "leaderEpoch": -1,
                    }
                ]
            }
        },
    ),
    Departure(
        "A search by time passes over segments and batches that a cleaning left empty. Kafka ends"
        " it in the first segment that is late enough, and finds nothing there.",
        {
            f"compaction / cleanings / ListOffsets v7: {asked}": {
                f"{_LISTED}.timestamp": "<time>",
                f"{_LISTED}.offset": offset,
                f"{_LISTED}.leaderEpoch": 0,
            }
            for asked, offset in (
                ("first, start+1", 3),
                ("first, start+5", 7),
                ("first, start+21", 7),
                ("third, start+5", 10),
            )
        },
    ),
    Departure(
        "A topic without name and id is INVALID_REQUEST; Kafka answers UNKNOWN_SERVER_ERROR.",
        {"metadata / metadata / Metadata v12: by zero id": {"topics.0.errorCode": 42}},
    ),
    Departure(
        "An empty name is that of no topic. Kafka's check of permissions throws at it.",
        {
            "metadata / partitions of topics / *: empty name": {
                "topics.0.errorCode": 17,
                "topics.0.topicAuthorizedOperations": 3576,
            }
        },
    ),
    Departure(
        "Share groups have no coordinator: INVALID_REQUEST. Kafka 3.9, which has none either,"
        " answers COORDINATOR_NOT_AVAILABLE to version 6, which clients repeat.",
        {
            "metadata / coordinators / FindCoordinator v6: key type 2": {
                "coordinators.0.errorCode": 42
            }
        },
    ),
    Departure(
        "A member id that was given to a dynamic member is unknown as a static member's. Kafka"
        " answers UNKNOWN_SERVER_ERROR.",
        {
            "groups / a member id that is given / *: with an instance id": {
                "errorCode": 25,
                "memberId": "raw-<uuid>",
            }
        },
    ),
    Departure(
        "Each partition that OffsetCommit or OffsetDelete names is answered, and topics without"
        " partitions too. Kafka names a partition once and leaves such topics out.",
        {
            "offsets / commits / OffsetCommit v7: a partition twice": _TWICE,
            "offsets / commits / OffsetCommit v7: no partitions": {
                "topics": [{"name": "committed", "partitions": []}]
            },
            "offsets / deletes of offsets / OffsetDelete v0: a partition twice": _TWICE,
            "offsets / deletes of offsets / OffsetDelete v0: no partitions": {
                "topics": [{"name": "deleted", "partitions": []}]
            },
        },
    ),
    Departure(
        "OffsetFetch of no groups is answered; Kafka never answers.",
        _all(
            (
                "offsets / *OffsetFetch v8: no groups",
                "offsets / *OffsetFetch v8: unknown tagged field",
            ),
            Whole({"groups": []}),
        ),
    ),
    Departure(
        "A group that is named twice is answered once.",
        {
            "offsets / *OffsetFetch v8: a group twice": {
                "groups": [
                    {
                        "groupId": "fetches",
                        "topics": [
                            {
                                "name": "fetched",
                                "partitions": [
                                    {
                                        "partitionIndex": 0,
                                        "committedOffset": 6,
                                        "committedLeaderEpoch": -1,
                                        "metadata": "",
                                        "errorCode": 0,
                                    }
                                ],
                            }
                        ],
                        "errorCode": 0,
                    }
                ]
            },
            "group_admin / *DescribeGroups v4: a group twice": {
                "groups": [
                    {
                        "errorCode": 0,
                        "groupId": "described-none",
                        "groupState": "Dead",
                        "protocolType": "",
                        "protocolData": "",
                        "members": [],
                        "authorizedOperations": -(2**31),
                    }
                ]
            },
        },
    ),
    Departure(
        "A topic's name is checked when its options are described, not when they are altered: it is"
        " unknown then. So answers Kafka with ZooKeeper.",
        {"configs / altering *: topic name with a slash": AS_ZOOKEEPER},
    ),
    Departure(
        "Elections and reassignments name a partition once and leave out topics without partitions;"
        " a reassignment of an unknown topic cannot be ended, since none is in progress. So answers"
        " Kafka with ZooKeeper.",
        _all(
            (
                "replicas / elections / *: a partition twice",
                "replicas / elections / *: no partitions",
                "replicas / reassignments / *: a partition twice",
                "replicas / reassignments / *: no partitions",
                "replicas / reassignments / *: ends that of an unknown topic",
            ),
            AS_ZOOKEEPER,
        ),
    ),
    Departure(
        "Unknown options of brokers are refused; Kafka stores them.",
        {"configs / *: unknown option of the broker": {"responses.0.errorCode": 40}},
    ),
    Departure(
        "A resource that AlterConfigs names twice is INVALID_REQUEST; Kafka never answers.",
        {
            "configs / altering all options / *: a resource twice": Whole(
                {
                    "responses": [
                        {"errorCode": 42, "resourceType": 2, "resourceName": "alter"},
                        {"errorCode": 42, "resourceType": 2, "resourceName": "alter"},
                    ]
                }
            )
        },
    ),
    Departure(
        "DescribeConfigs 0 tells which values are defaults; Kafka calls none so.",
        {"configs / *DescribeConfigs v0: of a topic": {"results.0.configs.0.isDefault": True}},
    ),
    Departure(
        "An unknown operation on an option is INVALID_REQUEST; Kafka answers UNKNOWN_SERVER_ERROR.",
        {"configs / *IncrementalAlterConfigs v1: operation *": {"responses.0.errorCode": 42}},
    ),
    Departure(
        "A batch of a transaction without a producer id is refused: it would belong to no"
        " transaction. Kafka appends it.",
        {
            "transactions / batches / Produce v10: without a producer id": Whole(
                {
                    "responses": [
                        {
                            "name": "txn",
                            "partitionResponses": [
                                {
                                    "index": 0,
                                    "errorCode": 48,
                                    "baseOffset": -1,
                                    "recordErrors": [],
                                    "currentLeader": {},
                                }
                            ],
                        }
                    ],
                    "nodeEndpoints": [],
                }
            )
        },
    ),
    Departure(
        "A marker without a producer is refused. Kafka fails with an exception.",
        {
            f"transactions / * / WriteTxnMarkers v1: {what}": {
                "markers.0.topics.0.partitions.0.errorCode": 42
            }
            for what in ("no producer", "no producer id", "no producer epoch")
        },
    ),
    Departure(
        "A question in version 4 comes from a broker before 3.8, which does not know"
        " TRANSACTION_ABORTABLE. It gets INVALID_TXN_STATE.",
        {
            "transactions / states / AddPartitionsToTxn v4: asked: not added": {
                "resultsByTransaction.0.topicResults.0.resultsByPartition.0.partitionErrorCode": 48
            }
        },
    ),
    Departure(
        "Options without effect are checked for their type and their least value. Kafka also looks"
        " for classes, and for numbers of threads that more than double or halve.",
        _all(
            (
                f"broker_options / checking options / IncrementalAlterConfigs v1: {what}"
                for what in (
                    "background.threads=1",
                    "background.threads=21",
                    "listener.name.plaintext.num.network.threads=100",
                    "metric.reporters=no.such.Reporter",
                    "principal.builder.class=no.such.Builder",
                )
            ),
            {"responses.0.errorCode": 0},
        ),
    ),
    Departure(
        "log.flush.interval.ms below 0 is refused. Kafka refuses it at a start only, and does not"
        " follow it.",
        {
            "broker_options / *: log.flush.interval.ms=-1": {"responses.0.errorCode": 42},
        },
    ),
    Departure(
        "Numbers with fractions are not NaN, with which no number compares, and have no hexadecimal"
        " digits.",
        _all(
            (f"broker_options / *: min.cleanable.dirty.ratio={text}" for text in ("NaN", "0x1p-2")),
            {"responses.0.errorCode": 40},
        ),
    ),
    Departure(
        "Internal topics keep their number of partitions. In Kafka groups may lose their offsets"
        " once it has changed and brokers were restarted.",
        {
            "topics / * / CreatePartitions v3: of an internal topic, checked only": {
                "results.0.errorCode": 42
            }
        },
    ),
    Departure(
        "Offsets of an epoch that no coordinator gave are refused. Kafka keeps them for a"
        " transaction that cannot end.",
        {
            "transactions / offsets / TxnOffsetCommit v3: epoch too high": {
                "topics.0.partitions.0.errorCode": 47
            }
        },
    ),
)


@cache
def find(module: str, scenario: str, title: str) -> tuple[str, Change] | None:
    """The first that matches: its pattern, and the change."""
    name = f"{module} / {scenario} / {title}"
    for one in DEPARTURES:
        for pattern, change in one.requests.items():
            if fnmatchcase(name, pattern):
                return pattern, change
    return None


def changed(answer: Any, with_zookeeper: Any, change: Change) -> Any:
    """pyrklog's answer, from Kafka's without and with ZooKeeper."""
    if change is AS_ZOOKEEPER:
        return with_zookeeper
    if isinstance(change, Whole):
        return change.answer
    ours = deepcopy(answer)
    for place, value in change.items():
        _put(ours, place.split("."), value)
    return ours


def _put(answer: Any, place: list[str], value: Any) -> None:
    first, *rest = place
    key = int(first) if isinstance(answer, list) else first
    if rest:
        _put(answer[key], rest, value)
    else:
        answer[key] = value
