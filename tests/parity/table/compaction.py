"""Three cleanings of a compacted topic: what a reader finds after each, and what the broker knows
of producers and offsets.

``min.cleanable.dirty.ratio`` lets a cleaning begin, so that each has the same records before it.
"""

import time

from tests.parity.batches import DELETE_HORIZON
from tests.parity.prepare import idempotent, settled, topic, transactional
from tests.parity.rows import Reading, Row, Scenario, Setup
from tests.parity.session import Session
from tests.parity.table.broker_options import TOPIC, put
from tests.parity.table.fetch import offsets
from tests.parity.table.transactions import TRANSACTIONAL, add, end
from tests.support.clock import START_MS
from tests.support.waiting import wait_until
from tests.support.wire import NO_PRODUCER, batch_headers, record, record_batch

NAME = "compaction"
# Shown as the names of producers.
TRANSACTIONS, IDEMPOTENT = "compaction-transactions", "compaction-idempotent"
READ_COMMITTED = 1
DIRTY_RATIO, NEVER, SOON = "min.cleanable.dirty.ratio", "1.0", "0.01"
CONFIGS = {
    "cleanup.policy": "compact",
    DIRTY_RATIO: NEVER,
    "segment.bytes": "150",
    "delete.retention.ms": "3000",
    "flush.messages": "1",
}


def append(
    *pairs: tuple[bytes, bytes | None],
    at: int = 0,
    whose: str = "",
    first: int = -1,
    transactional_id: str | None = None,
) -> Setup:
    """A batch, ``at`` ms after the table's start. ``whose``: what its producer id is saved as,
    ``first``: its first sequence."""

    def prepare(session: Session) -> None:
        batch = record_batch(
            [b""] * len(pairs),
            payload=b"".join(record(delta, *pair) for delta, pair in enumerate(pairs)),
            timestamp_ms=START_MS + at,
            attributes=TRANSACTIONAL if transactional_id else 0,
            producer=(session.saved[whose], 0, first) if whose else NO_PRODUCER,
        )
        asked = {
            "transactionalId": transactional_id,
            "acks": -1,
            "timeoutMs": 30_000,
            "topicData": [{"name": NAME, "partitionData": [{"index": 0, "records": batch}]}],
        }
        answer = session.ask("Produce", 11, asked)
        assert answer["responses"][0]["partitionResponses"][0]["errorCode"] == 0, answer

    return prepare


def in_transaction(*pairs: tuple[bytes, bytes | None], at: int, first: int) -> Setup:
    return append(*pairs, at=at, whose="pid", first=first, transactional_id=TRANSACTIONS)


def segments_of_one_key(at: int) -> list[Setup]:
    """Three segments of one record each. A cleaning keeps the second and the third, which is the
    active segment; it removes the first after everything else."""
    return [append((b"last", b"x" * 30), at=at + number) for number in range(3)]


def cleaned(removed: int) -> list[Setup]:
    """Lets a cleaning begin, and waits until it has removed the record at this offset."""

    def wait(session: Session) -> None:
        def is_gone() -> bool:
            heads = batch_headers(session.read(NAME).records)
            return removed not in {head.base_offset for head in heads}

        wait_until(is_gone, f"the record at {removed} stays")

    return [put(DIRTY_RATIO, SOON, NAME, TOPIC), wait, put(DIRTY_RATIO, NEVER, NAME, TOPIC)]


def past_horizons(session: Session) -> None:
    """Waits until tombstones and markers with a delete horizon may go."""
    heads = batch_headers(session.read(NAME).records)
    horizon_ms = max(one.base_timestamp_ms for one in heads if one.attributes & DELETE_HORIZON)
    wait_until(lambda: time.time() * 1000 > horizon_ms + 1, "the clock does not go on")


def next_millisecond(session: Session) -> None:
    """Two markers have two times."""
    before_ms = int(time.time() * 1000)
    wait_until(lambda: time.time() * 1000 >= before_ms + 1, "the clock does not go on")


def fetch_one(name: str, offset: int) -> Row:
    """So few bytes that one batch comes."""
    place = {"partition": 0, "fetchOffset": offset, "partitionMaxBytes": 100}
    topics = [{"topic": NAME, "partitions": [place]}]
    fields = {"replicaId": -1, "maxBytes": 1 << 20, "topics": topics}
    return Row(name, "Fetch", 11, fields)


def all_known(when: str) -> list[Row | Reading]:
    """Batches, offsets and producers."""
    one = [{"name": NAME, "partitionIndexes": [0]}]
    return [
        Reading(f"{when}, all", NAME),
        Reading(f"{when}, committed", NAME, READ_COMMITTED),
        *[
            offsets(f"{when}, {what}", timestamp, version=7, topic_name=NAME)
            for what, timestamp in [
                ("earliest", -2),
                ("latest", -1),
                ("largest timestamp", -3),
                ("start+1", START_MS + 1),
                ("start+5", START_MS + 5),
                ("start+21", START_MS + 21),
            ]
        ],
        Row(
            f"{when}, producers",
            "DescribeProducers",
            0,
            {"topics": one},
            without=("lastTimestamp",),
        ),
    ]


CLEANINGS = Scenario(
    "cleanings",
    [
        topic(NAME, configs=CONFIGS),
        idempotent(IDEMPOTENT),
        transactional(TRANSACTIONS),
        append((b"a", b"1"), (b"b", b"1")),
        append((b"a", b"2"), at=1, whose=IDEMPOTENT, first=0),
        append((b"c", b"1"), at=2, whose=IDEMPOTENT, first=1),
        append((b"b", None), at=3),
        add("a transaction", TRANSACTIONS, 0, topic_name=NAME),
        in_transaction((b"d", b"1"), (b"a", b"3"), at=4, first=0),
        end("commits it", TRANSACTIONS),
        settled(TRANSACTIONS),
        next_millisecond,
        add("another transaction", TRANSACTIONS, 0, topic_name=NAME),
        in_transaction((b"d", b"2"), (b"c", b"9"), at=5, first=2),
        end("aborts it", TRANSACTIONS, commits=False),
        settled(TRANSACTIONS),
        append((b"d", b"4"), (b"e", b"1"), at=6),
        append((b"e", b"2"), at=7),
        append((b"a", b"5"), at=8, whose=IDEMPOTENT, first=2),
        append((b"f", b"1"), at=9),
        *segments_of_one_key(10),  # from 16
        *all_known("before"),
        *cleaned(16),
        *all_known("first"),
        *[fetch_one(f"first, from {offset}", offset) for offset in (0, 1, 2, 5, 6, 9, 12, 16)],
        past_horizons,
        append((b"f", None), at=20),
        *segments_of_one_key(21),  # from 20
        *cleaned(20),
        *all_known("second"),
        past_horizons,
        *segments_of_one_key(30),  # from 23
        *cleaned(23),
        *all_known("third"),
    ],
)
SCENARIOS = (CLEANINGS,)
