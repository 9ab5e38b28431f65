"""InitProducerId with an id, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, TxnOffsetCommit,
WriteTxnMarkers, DescribeProducers, DescribeTransactions, ListTransactions, and Produce of a
transaction."""

from typing import Any

from tests.parity.definitions import Counted
from tests.parity.prepare import (
    coordinator,
    producer_ids,
    settled,
    topic,
    transaction_coordinator,
    transactional,
)
from tests.parity.rows import Row, Saved, Scenario, in_versions
from tests.support.wire import record_batch

TRANSACTIONAL = 16
GHOST = "raw-00000000-aaaa-bbbb-cccc-000000000000"


def init(
    name: str, transactional_id: Any, version: int = 4, save: Any = None, **fields: Any
) -> Row:
    values = {"transactionalId": transactional_id, "transactionTimeoutMs": 60_000, **fields}
    return Row(name, "InitProducerId", version, values, save=save or {}, without=("producerId",))


def mine(**changes: Any) -> dict[str, Any]:
    return {"producerId": Saved("pid"), "producerEpoch": Saved("epoch"), **changes}


def add(
    name: str,
    transactional_id: Any,
    *partitions: int,
    version: int = 3,
    topic_name: Any = "txn",
    **changes: Any,
) -> Row:
    topics = [{"name": topic_name, "partitions": list(partitions)}]
    values = {"transactionalId": transactional_id, "topics": topics, **mine(**changes)}
    fields = {f"v3AndBelow{key[0].upper()}{key[1:]}": value for key, value in values.items()}
    return Row(name, "AddPartitionsToTxn", version, fields)


def add_offsets(
    name: str, transactional_id: Any, group: Any, version: int = 3, **changes: Any
) -> Row:
    fields = {"transactionalId": transactional_id, "groupId": group, **mine(**changes)}
    return Row(name, "AddOffsetsToTxn", version, fields)


def end(
    name: str, transactional_id: Any, *, commits: bool = True, version: int = 3, **changes: Any
) -> Row:
    fields = {"transactionalId": transactional_id, "committed": commits, **mine(**changes)}
    return Row(name, "EndTxn", version, fields)


def produce(
    name: str,
    transactional_id: Any,
    first: int = 0,
    version: int = 10,
    attributes: int = TRANSACTIONAL,
    whose: Any = None,
) -> Row:
    batch = record_batch([b"v"], attributes=attributes, producer=whose or (1_000, 0, first))
    fields = {
        "transactionalId": transactional_id,
        "acks": -1,
        "timeoutMs": 9_000,
        "topicData": [{"name": "txn", "partitionData": [{"index": 0, "records": batch}]}],
    }
    return Row(name, "Produce", version, fields)


IDS = Scenario(
    "ids and epochs",
    [
        transaction_coordinator("init"),
        producer_ids,
        *in_versions((0, 1, 2, 3, 4, 5), lambda v: init("first", f"init-{v}", v)),
        init("first, with save", "init", save={"pid": "producerId", "epoch": "producerEpoch"}),
        init("again", "init"),
        init("keeps its epoch", "init", **mine(producerEpoch=Saved("epoch", 1))),
        init("once more", "init", **mine(producerEpoch=Saved("epoch", 1))),
        init(
            "once more, with another time-out",
            "init",
            **mine(producerEpoch=Saved("epoch", 1), transactionTimeoutMs=50_000),
        ),
        Row(
            "with the time-out of the last request",
            "DescribeTransactions",
            0,
            {"transactionalIds": ["init"]},
            without=("producerId",),
        ),
        init("old epoch", "init", **mine()),
        init("old epoch", "init", 3, **mine()),
        init("epoch too high", "init", **mine(producerEpoch=99)),
        init("another producer id", "init", producerId=9_999, producerEpoch=0),
        init("id without an epoch", "init", producerId=5, producerEpoch=-1),
        init("epoch without an id", "init", producerId=-1, producerEpoch=5),
        init(
            "of an unknown transactional id with producer id",
            "init-new",
            producerId=5,
            producerEpoch=1,
        ),
        init("empty transactional id", ""),
        init("empty transactional id", "", 0),
        init("time-out 0", "init-t0", transactionTimeoutMs=0),
        init("time-out -1", "init-t1", transactionTimeoutMs=-1),
        init("time-out of 15 minutes", "init-t15", transactionTimeoutMs=900_000),
        init("time-out above transaction.max.timeout.ms", "init-t16", transactionTimeoutMs=900_001),
        init("long transactional id", "x" * 32_000),
        *in_versions(
            (1, 4, 6),
            lambda v: Row(
                "a transaction",
                "FindCoordinator",
                v,
                {"keyType": 1, **({"key": "init"} if v < 4 else {"coordinatorKeys": ["init"]})},
            ),
        ),
        Row("empty transactional id", "FindCoordinator", 2, {"key": "", "keyType": 1}),
    ],
)


def verify(name: str, *partitions: int, topic_name: str = "txn", version: int = 4) -> Row:
    """Asks as a broker whether the partitions were added."""
    one = {
        "transactionalId": "states",
        "verifyOnly": True,
        "topics": [{"name": topic_name, "partitions": list(partitions)}],
        **mine(),
    }
    return Row(name, "AddPartitionsToTxn", version, {"transactions": [one]})


STATES = Scenario(
    "states",
    [
        topic("txn", 2),
        coordinator("states"),  # makes __consumer_offsets
        transactional("states"),
        end("commit of nothing", "states"),
        end("abort of nothing", "states", commits=False),
        *in_versions((0, 1, 2, 3), lambda v: add("a partition", "states", 0, version=v)),
        add("another partition", "states", 1),
        add("no partitions", "states"),
        add("unknown partition", "states", 7),
        add("a known and an unknown partition", "states", 0, 7),
        add("unknown topic", "states", 0, topic_name="txn-none"),
        *in_versions(
            (0, 3),
            lambda v: add(
                "an internal topic", "states", 0, 99, topic_name="__consumer_offsets", version=v
            ),
        ),
        *in_versions((4, 5), lambda v: verify("asked: added", 0, 1, version=v)),
        *in_versions((4, 5), lambda v: verify("asked: unknown partition", 0, 7, version=v)),
        verify("asked: unknown topic", 0, topic_name="txn-none"),
        *in_versions(
            (4, 5),
            lambda v: verify("asked: not added", 0, topic_name="__transaction_state", version=v),
        ),
        add("empty topic name", "states", 0, topic_name=""),
        add("a partition twice", "states", 0, 0),
        add("old epoch", "states", 0, producerEpoch=-1),
        add("epoch too high", "states", 0, producerEpoch=9),
        add("epoch too high", "states", 0, version=0, producerEpoch=9),
        add("another producer id", "states", 0, producerId=9_999),
        add("unknown transactional id", "states-none", 0),
        add("empty transactional id", "", 0),
        end("epoch too high", "states", producerEpoch=9),
        end("epoch too high", "states", version=0, producerEpoch=9),
        end("another producer id", "states", producerId=9_999),
        end("unknown transactional id", "states-none"),
        end("empty transactional id", ""),
        end("commit", "states", version=0),
        settled("states"),
        *in_versions((1, 3), lambda v: end("commit once more", "states", version=v)),
        end("abort after the commit", "states", commits=False),
        end("commit again", "states"),
        add("a partition, in the next transaction", "states", 0),
        end("abort", "states", commits=False),
        settled("states"),
        end("abort again", "states", commits=False),
        end("commit after the abort", "states"),
    ],
)


def commit(
    name: str,
    transactional_id: Any,
    group: Any,
    *,
    version: int = 3,
    topic_name: Any = "txn",
    index: int = 0,
    metadata: Any = "",
    **changes: Any,
) -> Row:
    partition = {"partitionIndex": index, "committedOffset": 5, "committedMetadata": metadata}
    fields: dict[str, Any] = {
        "transactionalId": transactional_id,
        "groupId": group,
        "topics": [{"name": topic_name, "partitions": [partition]}],
        **mine(),
        **changes,
    }
    return Row(name, "TxnOffsetCommit", version, fields)


OFFSETS = Scenario(
    "offsets",
    [
        topic("txn-offsets"),
        coordinator("txn-group"),
        transactional("offsets"),
        *in_versions((0, 1, 3), lambda v: add_offsets("a group", "offsets", "txn-group", v)),
        add_offsets("empty group id", "offsets", ""),
        add_offsets("old epoch", "offsets", "txn-group", producerEpoch=-1),
        add_offsets("epoch too high", "offsets", "txn-group", producerEpoch=9),
        add_offsets("epoch too high", "offsets", "txn-group", 0, producerEpoch=9),
        add_offsets("another producer id", "offsets", "txn-group", producerId=9_999),
        add_offsets("unknown transactional id", "offsets-none", "txn-group"),
        add_offsets("empty transactional id", "", "txn-group"),
        *in_versions(
            (0, 1, 2, 3, 4),
            lambda v: commit(
                "an offset", "offsets", "txn-group", version=v, topic_name="txn-offsets"
            ),
        ),
        commit("unknown topic", "offsets", "txn-group", topic_name="txn-none"),
        commit("unknown partition", "offsets", "txn-group", topic_name="txn-offsets", index=9),
        commit(
            "metadata too long",
            "offsets",
            "txn-group",
            topic_name="txn-offsets",
            metadata="x" * 5_000,
        ),
        commit(
            "unknown member",
            "offsets",
            "txn-group",
            topic_name="txn-offsets",
            memberId=GHOST,
            generationId=4,
        ),
        commit(
            "generation without a member",
            "offsets",
            "txn-group",
            topic_name="txn-offsets",
            generationId=4,
        ),
        commit(
            "unknown instance",
            "offsets",
            "txn-group",
            topic_name="txn-offsets",
            groupInstanceId="i",
            memberId=GHOST,
            generationId=1,
        ),
        commit("empty group id", "offsets", "", topic_name="txn-offsets"),
        commit("epoch too high", "offsets", "txn-group", topic_name="txn-offsets", producerEpoch=9),
        commit("no topics", "offsets", "txn-group", topics=[]),
        Row(
            "stable offsets meanwhile",
            "OffsetFetch",
            7,
            {
                "groupId": "txn-group",
                "topics": [{"name": "txn-offsets", "partitionIndexes": [0]}],
                "requireStable": True,
            },
        ),
        Row("a delete meanwhile", "DeleteGroups", 1, {"groupsNames": ["txn-group"]}),
        end("commit", "offsets"),
    ],
)
BATCHES = Scenario(
    "batches",
    [
        topic("txn-batches"),
        *in_versions((3, 10, 11), lambda v: produce("never added", "never", version=v)),
        produce("without a transactional id", None),
        produce(
            "not transactional, with a transactional id", "never", attributes=0, whose=(1_001, 0, 0)
        ),
        produce("without a producer id", "never", whose=(-1, -1, -1)),
    ],
)


def markers(
    name: str,
    *,
    whose: int = 4_000,
    epoch: int = 0,
    topic_name: Any = "markers",
    index: int = 0,
    version: int = 1,
    coordinator_epoch: int = 0,
) -> Row:
    one = {
        "producerId": whose,
        "producerEpoch": epoch,
        "transactionResult": True,
        "topics": [{"name": topic_name, "partitionIndexes": [index]}],
        "coordinatorEpoch": coordinator_epoch,
    }
    return Row(name, "WriteTxnMarkers", version, {"markers": [one]})


MARKERS = Scenario(
    "markers and descriptions",
    [
        topic("markers"),
        transactional("described"),
        markers("of an unknown producer", coordinator_epoch=3),
        markers("the same again", coordinator_epoch=3),
        markers("next epoch", epoch=1, coordinator_epoch=3),
        markers("old producer epoch", epoch=0, coordinator_epoch=3),
        markers("old coordinator", epoch=1, coordinator_epoch=2),
        markers("no producer", whose=-1, epoch=-1),
        markers("no producer id", whose=-1),
        markers("no producer epoch", epoch=-1),
        markers("unknown topic", topic_name="markers-none"),
        markers("unknown partition", index=8),
        Row("no markers", "WriteTxnMarkers", 1, {"markers": []}),
        Row("huge count", "WriteTxnMarkers", 1, {"markers": Counted(2**31 - 2)}),
        *[
            Row(
                name,
                "DescribeProducers",
                0,
                {"topics": [{"name": which, "partitionIndexes": [index]}]},
                without=("lastTimestamp",),
            )
            for name, which, index in [
                ("a partition", "markers", 0),
                ("unknown partition", "markers", 9),
                ("negative partition", "markers", -9),
                ("unknown topic", "markers-none", 0),
                ("empty name", "", 0),
            ]
        ],
        Row("no topics", "DescribeProducers", 0, {"topics": []}),
        Row("huge count", "DescribeProducers", 0, {"topics": Counted(2**31 - 2)}),
        Row(
            "a transactional id",
            "DescribeTransactions",
            0,
            {"transactionalIds": ["described"]},
            without=("producerId", "transactionStartTimeMs"),
        ),
        Row(
            "unknown transactional id",
            "DescribeTransactions",
            0,
            {"transactionalIds": ["described-none"]},
        ),
        Row("empty transactional id", "DescribeTransactions", 0, {"transactionalIds": [""]}),
        Row(
            "an unknown one twice",
            "DescribeTransactions",
            0,
            {"transactionalIds": ["described-none"] * 2},
        ),
        Row("none", "DescribeTransactions", 0, {"transactionalIds": []}),
        Row("huge count", "DescribeTransactions", 0, {"transactionalIds": Counted(2**31 - 2)}),
        Row("a byte missing", "DescribeTransactions", 0, {"transactionalIds": []}, cut=1),
        *in_versions((0, 1), lambda v: Row("all", "ListTransactions", v, only=("errorCode",))),
        Row("unknown state", "ListTransactions", 0, {"stateFilters": ["Nonsense"]}),
        Row(
            "unknown and known state",
            "ListTransactions",
            0,
            {"stateFilters": ["Nonsense", "PrepareAbort"]},
        ),
        Row("unknown producer", "ListTransactions", 0, {"producerIdFilters": [123_456]}),
        Row(
            "older than a day",
            "ListTransactions",
            1,
            {"durationFilter": 86_400_000},
            only=("errorCode",),
        ),
        Row("duration -5", "ListTransactions", 1, {"durationFilter": -5}, only=("errorCode",)),
        Row("huge count", "ListTransactions", 0, {"stateFilters": Counted(2**31 - 2)}),
    ],
)
BROKEN = Scenario(
    "broken requests",
    [
        transaction_coordinator("broken"),
        Row("huge count", "AddPartitionsToTxn", 3, {"v3AndBelowTopics": Counted(2**31 - 2)}),
        Row("huge count", "AddPartitionsToTxn", 0, {"v3AndBelowTopics": Counted(2**31 - 2)}),
        Row("null topics", "AddPartitionsToTxn", 0, {"v3AndBelowTopics": None}),
        Row("null transactional id", "AddPartitionsToTxn", 0, {"v3AndBelowTransactionalId": None}),
        Row("a byte missing", "AddPartitionsToTxn", 0, cut=1),
        Row("a byte too many", "AddPartitionsToTxn", 0, tail=b"x"),
        Row("a byte missing", "AddOffsetsToTxn", 0, cut=1),
        Row("null group id", "AddOffsetsToTxn", 0, {"groupId": None}),
        Row("a byte missing", "EndTxn", 0, cut=1),
        Row("null transactional id", "EndTxn", 0, {"transactionalId": None}),
        Row("huge count", "TxnOffsetCommit", 0, {"topics": Counted(2**31 - 2)}),
        Row("null topics", "TxnOffsetCommit", 0, {"topics": None}),
        Row("a byte missing", "TxnOffsetCommit", 0, cut=1),
        Row("unknown tagged field", "EndTxn", 3, tags={8: b"x"}),
    ],
)
SCENARIOS = (IDS, STATES, OFFSETS, BATCHES, MARKERS, BROKEN)
