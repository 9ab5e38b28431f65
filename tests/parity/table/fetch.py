"""Fetch, ListOffsets and OffsetForLeaderEpoch: places, epochs, ids, sessions, broken requests."""

from typing import Any

from tests.parity.definitions import Counted, Raw
from tests.parity.prepare import records, topic, topic_id
from tests.parity.rows import Row, Saved, Scenario, in_versions

NO_ID = bytes(16)
UNKNOWN_ID = bytes(range(1, 17))


def place(index: int = 0, offset: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "partition": index,
        "fetchOffset": offset,
        "partitionMaxBytes": 1 << 20,
        **more,
    }


def fetch(
    name: str,
    *places: dict[str, Any],
    version: int = 11,
    topic_name: Any = "fetch",
    topics: Any = None,
    save: Any = None,
    **more: Any,
) -> Row:
    if topics is None:
        key = "topicId" if version >= 13 else "topic"
        topics = [{key: topic_name, "partitions": list(places or (place(),))}]
    fields = {"maxWaitMs": 0, "minBytes": 1, "topics": topics, **more}
    if version >= 3:
        fields.setdefault("maxBytes", 1 << 20)
    if version < 15:
        fields.setdefault("replicaId", -1)
    return Row(name, "Fetch", version, fields, save=save or {}, without=("records",))


PLACES = Scenario(
    "fetch",
    [
        topic("fetch", 2),
        records("fetch", 3),
        topic_id("fetch", "id"),
        *in_versions((4, 5, 7, 9, 11, 12), lambda v: fetch("from the beginning", version=v)),
        *in_versions(
            (13, 15, 16, 17),
            lambda v: fetch("from the beginning", version=v, topic_name=Saved("id")),
        ),
        fetch("at the end", place(offset=3)),
        *in_versions((4, 11, 12), lambda v: fetch("above the end", place(offset=4), version=v)),
        fetch("above the end by id", place(offset=4), version=17, topic_name=Saved("id")),
        fetch("negative offset", place(offset=-1)),
        fetch("lowest offset", place(offset=-(2**63))),
        fetch("highest offset", place(offset=2**63 - 1)),
        *in_versions((4, 12), lambda v: fetch("unknown topic", version=v, topic_name="fetch-none")),
        fetch("unknown partition", place(2)),
        fetch("negative partition", place(-1)),
        fetch("empty name", topic_name=""),
        fetch("name with a slash", topic_name="a/b"),
        fetch("unknown id", version=13, topic_name=UNKNOWN_ID),
        fetch("unknown id", version=17, topic_name=UNKNOWN_ID),
        fetch("zero id", version=13, topic_name=NO_ID),
        fetch("unknown partition by id", place(7), version=13, topic_name=Saved("id")),
        fetch("negative partition by id", place(-7), version=17, topic_name=Saved("id")),
        fetch("leader epoch above the present", place(currentLeaderEpoch=50)),
        fetch(
            "leader epoch above the present",
            place(currentLeaderEpoch=50),
            version=17,
            topic_name=Saved("id"),
        ),
        fetch("leader epoch -2", place(currentLeaderEpoch=-2)),
        fetch("last fetched epoch above the present", place(lastFetchedEpoch=9), version=12),
        fetch(
            "last fetched epoch, offset above the end",
            place(offset=9, lastFetchedEpoch=0),
            version=12,
        ),
        fetch("max bytes 0", maxBytes=0),
        fetch("max bytes negative", maxBytes=-1),
        fetch("partition max bytes 0", place(partitionMaxBytes=0)),
        fetch("partition max bytes negative", place(partitionMaxBytes=-5)),
        fetch("min bytes negative", minBytes=-1),
        fetch("max wait negative", maxWaitMs=-1, minBytes=10),
        fetch("isolation level 1", isolationLevel=1),
        fetch("isolation level 7", isolationLevel=7),
        fetch("no topics", topics=[]),
        fetch("no partitions", topics=[{"topic": "fetch", "partitions": []}]),
        fetch("a partition twice", place(), place()),
        fetch("a good and a bad partition", place(), place(9)),
        fetch("log start offset of a consumer", place(logStartOffset=2)),
        fetch("replica 99", replicaId=99),
        fetch("replica -2", replicaId=-2),
        fetch("replica -3", replicaId=-3),
    ],
)
SESSIONS = Scenario(
    "fetch sessions",
    [
        topic("fetch-session"),
        records("fetch-session", 3),
        fetch("unknown session", topic_name="fetch-session", sessionId=1234, sessionEpoch=1),
        fetch("session without epoch", topic_name="fetch-session", sessionId=1234, sessionEpoch=-1),
        fetch("epoch without session", topic_name="fetch-session", sessionId=0, sessionEpoch=5),
        fetch(
            "opens a session",
            topic_name="fetch-session",
            sessionId=0,
            sessionEpoch=0,
            save={"session": "sessionId"},
        ),
        fetch("skips an epoch", topics=[], sessionId=Saved("session"), sessionEpoch=5),
        fetch("goes on", topics=[], sessionId=Saved("session"), sessionEpoch=1),
        fetch("same epoch again", topics=[], sessionId=Saved("session"), sessionEpoch=1),
        fetch(
            "forgets an unknown topic",
            topics=[],
            sessionId=Saved("session"),
            sessionEpoch=2,
            forgottenTopicsData=[{"topic": "fetch-none", "partitions": [3]}],
        ),
        fetch(
            "ids in a session of names",
            topics=[],
            version=13,
            sessionId=Saved("session"),
            sessionEpoch=3,
        ),
        fetch("negative session", topics=[], sessionId=-7, sessionEpoch=1),
        fetch("closes it", topics=[], sessionId=Saved("session"), sessionEpoch=-1),
        fetch("closed", topics=[], sessionId=Saved("session"), sessionEpoch=3),
    ],
)


def offsets(
    name: str,
    timestamp: int = -1,
    *,
    version: int = 5,
    index: int = 0,
    topic_name: Any = "list-offsets",
    topics: Any = None,
    replica: int = -1,
    isolation: int = 0,
    **more: Any,
) -> Row:
    partition = {"partitionIndex": index, "timestamp": timestamp, **more}
    fields: dict[str, Any] = {"replicaId": replica}
    fields["topics"] = (
        [{"name": topic_name, "partitions": [partition]}] if topics is None else topics
    )
    if version >= 2:
        fields["isolationLevel"] = isolation
    return Row(name, "ListOffsets", version, fields)


OFFSETS = Scenario(
    "list offsets",
    [
        topic("list-offsets"),
        topic("list-empty"),
        records("list-offsets", 4),
        *in_versions((1, 2, 4, 6, 7, 8, 9), lambda v: offsets("latest", version=v)),
        *in_versions((1, 5, 9), lambda v: offsets("earliest", -2, version=v)),
        *in_versions((5, 6, 7, 9), lambda v: offsets("largest timestamp", -3, version=v)),
        *in_versions((5, 7, 8, 9), lambda v: offsets("earliest local", -4, version=v)),
        *in_versions((5, 8, 9), lambda v: offsets("latest tiered", -5, version=v)),
        offsets("timestamp -6", -6, version=9),
        offsets("timestamp -6", -6, version=2),
        offsets("lowest timestamp", -(2**63), version=9),
        offsets("timestamp 0", 0),
        offsets("highest timestamp", 2**63 - 1),
        offsets("largest timestamp of nothing", -3, version=7, topic_name="list-empty"),
        offsets("timestamp 0 of nothing", 0, topic_name="list-empty"),
        *in_versions(
            (1, 5, 9), lambda v: offsets("unknown topic", version=v, topic_name="list-none")
        ),
        offsets("unknown partition", index=1),
        offsets("negative partition", index=-1),
        offsets("empty name", topic_name=""),
        offsets("epoch above the present", currentLeaderEpoch=9),
        offsets("epoch above the present", version=9, currentLeaderEpoch=9),
        offsets("epoch -2", currentLeaderEpoch=-2),
        offsets("read committed", isolation=1),
        offsets("isolation level 9", isolation=9),
        offsets("replica 99", replica=99),
        offsets("replica -2", replica=-2),
        offsets("no topics", topics=[]),
        offsets(
            "a partition twice",
            topics=[
                {
                    "name": "list-offsets",
                    "partitions": [
                        {"partitionIndex": 0, "timestamp": -1},
                        {"partitionIndex": 0, "timestamp": -2},
                    ],
                }
            ],
        ),
    ],
)


def epoch_end(
    name: str,
    epoch: int = 0,
    *,
    version: int = 3,
    index: int = 0,
    topic_name: str = "epochs",
    **more: Any,
) -> Row:
    partition = {"partition": index, "leaderEpoch": epoch, **more}
    fields: dict[str, Any] = {"topics": [{"topic": topic_name, "partitions": [partition]}]}
    if version >= 3:
        fields["replicaId"] = -1
    return Row(name, "OffsetForLeaderEpoch", version, fields)


EPOCHS = Scenario(
    "offsets for leader epochs",
    [
        topic("epochs"),
        records("epochs", 2),
        *in_versions((2, 3, 4), lambda v: epoch_end("present epoch", version=v)),
        *in_versions((2, 4), lambda v: epoch_end("future epoch", 7, version=v)),
        epoch_end("epoch -1", -1),
        epoch_end("epoch -5", -5),
        epoch_end("present epoch above the leader's", currentLeaderEpoch=5),
        epoch_end("present epoch above the leader's", version=4, currentLeaderEpoch=5),
        epoch_end("unknown topic", topic_name="epochs-none"),
        epoch_end("unknown topic", version=4, topic_name="epochs-none"),
        epoch_end("unknown partition", index=3),
        epoch_end("negative partition", index=-3),
    ],
)


def broken(name: str, api: str, version: int, fields: dict[str, Any], **row: Any) -> Row:
    return Row(name, api, version, fields, without=("records",), **row)


ONE = {"name": "list-offsets", "partitions": [{"partitionIndex": 0, "timestamp": -1}]}
BROKEN = Scenario(
    "broken requests",
    [
        topic("fetch-broken"),
        *in_versions(
            (4, 11, 12, 17),
            lambda v: broken("huge count", "Fetch", v, {"topics": Counted(2**31 - 2)}),
        ),
        broken("null topics", "Fetch", 11, {"topics": None}),
        broken("null topics", "Fetch", 17, {"topics": None}),
        broken("null topic name", "Fetch", 11, {"topics": [{"topic": None}]}),
        broken("count -2", "Fetch", 11, {"topics": Counted(-2)}),
        broken(
            "huge count of forgotten topics",
            "Fetch",
            11,
            {"forgottenTopicsData": Counted(9_999_999)},
        ),
        broken("null forgotten topics", "Fetch", 11, {"forgottenTopicsData": None}),
        broken("null rack", "Fetch", 11, {"rackId": None}),
        broken("a byte missing", "Fetch", 11, {}, cut=1),
        broken("a byte too many", "Fetch", 11, {}, tail=b"\0"),
        broken("unknown tagged field", "Fetch", 12, {}, tags={88: b"x"}),
        broken("empty body", "Fetch", 11, {}, body=b""),
        *in_versions(
            (1, 6, 9),
            lambda v: broken("huge count", "ListOffsets", v, {"topics": Counted(2**31 - 2)}),
        ),
        broken("null topics", "ListOffsets", 5, {"topics": None}),
        broken("null name", "ListOffsets", 5, {"topics": [{"name": None}]}),
        broken("name not UTF-8", "ListOffsets", 5, {"topics": [{"name": Raw(b"\0\1\xff")}]}),
        broken("a byte missing", "ListOffsets", 5, {"topics": [ONE]}, cut=1),
        broken("a byte too many", "ListOffsets", 5, {"topics": []}, tail=b"\0"),
        broken("unknown tagged field", "ListOffsets", 7, {"topics": []}, tags={9: b""}),
        broken("huge count", "OffsetForLeaderEpoch", 3, {"topics": Counted(2**31 - 2)}),
        broken("huge count", "OffsetForLeaderEpoch", 4, {"topics": Counted(2**31 - 2)}),
        broken("null topics", "OffsetForLeaderEpoch", 3, {"topics": None}),
        broken("a byte missing", "OffsetForLeaderEpoch", 3, {"topics": []}, cut=1),
        broken("a byte too many", "OffsetForLeaderEpoch", 4, {"topics": []}, tail=b"x"),
    ],
)
SCENARIOS = (PLACES, SESSIONS, OFFSETS, EPOCHS, BROKEN)
