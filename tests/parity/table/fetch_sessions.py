"""Incremental fetch sessions over many requests: what each tells, and what it leaves out."""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.parity.prepare import gone, records, topic, topic_id
from tests.parity.rows import Row, Saved, Scenario
from tests.parity.table.fetch import UNKNOWN_ID, place

FIRST, SECOND, NONE = "session-first", "session-second", "session-none"
MOVED, BY_ID = "session-moved", "session-by-id"
SESSION = Saved("session")


def of(name: str, *places: Mapping[str, Any]) -> dict[str, Any]:
    return {"topic": name, "partitions": list(places)}


def by_id(topic_id: Any) -> dict[str, Any]:
    return {"topicId": topic_id, "partitions": [place()]}


def fetch(
    name: str,
    epoch: int,
    *topics: Mapping[str, Any],
    session: Any = SESSION,
    forgets: Sequence[Mapping[str, Any]] = (),
    version: int = 11,
    saved_as: str = "session",
) -> Row:
    """In the session of an id; one that epoch 0 opens is saved."""
    fields = {
        "maxWaitMs": 0,
        "minBytes": 1,
        "maxBytes": 1 << 20,
        "sessionId": session,
        "sessionEpoch": epoch,
        "topics": list(topics),
        "forgottenTopicsData": list(forgets),
    }
    if version < 15:
        fields["replicaId"] = -1
    save = {} if epoch else {saved_as: "sessionId"}
    return Row(name, "Fetch", version, fields, save=save, kept=("sessionId",))


def forgets(name: str, *partitions: int) -> dict[str, Any]:
    return {"topic": name, "partitions": list(partitions)}


def delete_records(name: str, which: str, offset: int) -> Row:
    one = {"name": which, "partitions": [{"partitionIndex": 0, "offset": offset}]}
    return Row(name, "DeleteRecords", 2, {"topics": [one], "timeoutMs": 30_000})


CHANGES = Scenario(
    "a session that changes",
    [
        topic(FIRST, 2),
        topic(SECOND),
        records(FIRST, 1),
        fetch("opens", 0, of(FIRST, place(0), place(1)), of(NONE, place()), session=0),
        fetch("the same record again", 1),
        fetch("advances", 2, of(FIRST, place(0, 1))),
        fetch("nothing new", 3),
        records(FIRST, 1, 1),
        fetch("a record of the other partition", 4),
        fetch("adds one and forgets another", 5, of(SECOND, place()), forgets=[forgets(NONE, 0)]),
        fetch("without the forgotten one", 6),
        fetch("leader epoch above the present", 7, of(SECOND, place(currentLeaderEpoch=9))),
        fetch("leader epoch above the present, still", 8),
        fetch("present leader epoch", 9, of(SECOND, place(currentLeaderEpoch=0))),
        fetch("offset out of range", 10, of(SECOND, place(0, 7))),
        fetch("offset out of range, still", 11),
        fetch("offset in range", 12, of(SECOND, place())),
        fetch("adds and forgets the same", 13, of(SECOND, place()), forgets=[forgets(SECOND, 0)]),
        records(SECOND, 1),
        fetch("without it", 14),
        fetch("adds it again", 15, of(SECOND, place())),
        fetch("forgets all", 16, forgets=[forgets(FIRST, 0, 1), forgets(SECOND, 0)]),
        fetch("closed with the last", 17),
    ],
)
STARTS = Scenario(
    "log starts and reopened sessions",
    [
        topic(MOVED),
        records(MOVED, 1),
        fetch("opens at the end", 0, of(MOVED, place(0, 1)), session=0),
        fetch("nothing new", 1),
        delete_records("moves the log start", MOVED, 1),
        fetch("the log start moved", 2),
        fetch("told once", 3),
        fetch("opens anew", 0, of(MOVED, place(0, 1)), saved_as="newer"),
        fetch("the older session", 4),
        fetch("the newer session", 1, session=Saved("newer")),
        records(MOVED, 2),
        fetch("records in the newer session", 2, session=Saved("newer")),
        delete_records("deletes what is read", MOVED, 3),
        fetch("below the log start", 3, session=Saved("newer")),
        fetch("below the log start, still", 4, session=Saved("newer")),
        fetch("opens with nothing", 0, session=0),
        fetch("adds to nothing", 1, of(MOVED, place(0, 3))),
        fetch("an epoch twice", 1),
        fetch("the epoch after it", 2),
    ],
)
IDS = Scenario(
    "sessions by ids",
    [
        topic(BY_ID),
        records(BY_ID, 1),
        topic_id(BY_ID, "id"),
        fetch("opens", 0, by_id(Saved("id")), by_id(UNKNOWN_ID), session=0, version=15),
        fetch("goes on", 1, version=15),
        Row("the topic", "DeleteTopics", 4, {"topicNames": [BY_ID], "timeoutMs": 30_000}),
        gone(BY_ID),
        fetch("the topic is deleted", 2, version=15),
        fetch("the topic is deleted, still", 3, version=15),
        topic(BY_ID),
        fetch("another topic of its name", 4, version=15),
        topic_id(BY_ID, "other"),
        fetch("adds the other topic", 5, by_id(Saved("other")), version=15),
        fetch(
            "forgets the deleted topic",
            6,
            forgets=[{"topicId": Saved("id"), "partitions": [0]}],
            version=15,
        ),
        fetch("names in a session of ids", 7),
    ],
)
SCENARIOS = (CHANGES, STARTS, IDS)
