"""What a scenario's broker has before the rows: topics, coordinators, records, members."""

from collections.abc import Mapping
from typing import Any

from tests.parity.rows import Setup
from tests.parity.session import Session
from tests.support.waiting import wait_until
from tests.support.wire import record_batch

_UNKNOWN_MEMBER_ID = 25
_TOPIC_ALREADY_EXISTS = 36
_INVALID_MAPPING = 49


def topic(name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> Setup:
    """A topic each of whose partitions is led."""

    def prepare(session: Session) -> None:
        options = [{"name": key, "value": value} for key, value in (configs or {}).items()]
        wanted = {
            "name": name,
            "numPartitions": partitions,
            "replicationFactor": 1,
            "configs": options,
        }
        asked = {"topics": [wanted], "timeoutMs": 30_000}

        def answered() -> dict[str, Any] | None:
            answer = session.ask("CreateTopics", 4, asked)
            # With ZooKeeper a topic that is gone may still be marked for deletion.
            return None if answer["topics"][0]["errorCode"] == _TOPIC_ALREADY_EXISTS else answer

        answer = wait_until(answered, f"{name} exists")
        assert answer["topics"][0]["errorCode"] == 0, answer
        led(name, partitions)(session)

    return prepare


def led(name: str, partitions: int = 1) -> Setup:
    """Waits until each partition is led."""

    def prepare(session: Session) -> None:
        wanted = [{"partitionIndex": index, "timestamp": -1} for index in range(partitions)]
        asked = {"replicaId": -1, "topics": [{"name": name, "partitions": wanted}]}

        def is_led() -> bool:
            answer = session.ask("ListOffsets", 2, asked)
            return not any(one["errorCode"] for one in answer["topics"][0]["partitions"])

        wait_until(is_led, f"{name} has no leaders")

    return prepare


def gone(name: str) -> Setup:
    """Waits until the broker knows no topic of this name."""

    def prepare(session: Session) -> None:
        asked = {"topics": [{"name": name}], "allowAutoTopicCreation": False}

        def is_gone() -> bool:
            answer = session.ask("Metadata", 4, asked)
            return bool(answer["topics"][0]["errorCode"] == 3)

        wait_until(is_gone, f"{name} stays")

    return prepare


def topic_id(name: str, saved_as: str) -> Setup:
    """Saves the topic's id."""

    def prepare(session: Session) -> None:
        asked = {"topics": [{"name": name}], "allowAutoTopicCreation": False}
        session.saved[saved_as] = session.ask("Metadata", 12, asked)["topics"][0]["topicId"]

    return prepare


def records(name: str, count: int = 3, partition: int = 0) -> Setup:
    """Appends a batch of so many records."""

    def prepare(session: Session) -> None:
        batch = record_batch([b"value %d" % number for number in range(count)])
        partitions = [{"index": partition, "records": batch}]
        asked = {
            "acks": -1,
            "timeoutMs": 30_000,
            "topicData": [{"name": name, "partitionData": partitions}],
        }
        answer = session.ask("Produce", 7, asked)
        assert answer["responses"][0]["partitionResponses"][0]["errorCode"] == 0, answer

    return prepare


def coordinator(group: str) -> Setup:
    """Waits until the broker coordinates the group."""

    def prepare(session: Session) -> None:
        asked = {"groupId": group, "generationId": 1, "memberId": "nobody"}

        def has_loaded() -> bool:
            found = session.ask("FindCoordinator", 2, {"key": group, "keyType": 0})
            if found["errorCode"]:
                return False
            return bool(session.ask("Heartbeat", 2, asked)["errorCode"] == _UNKNOWN_MEMBER_ID)

        wait_until(has_loaded, f"no coordinator for {group}")

    return prepare


def join_fields(group: str, **changes: Any) -> dict[str, Any]:
    """JoinGroup of a consumer."""
    fields: dict[str, Any] = {
        "groupId": group,
        "sessionTimeoutMs": 30_000,
        "rebalanceTimeoutMs": 60_000,
        "memberId": "",
        "protocolType": "consumer",
        "protocols": [{"name": "range", "metadata": SUBSCRIPTION}],
    }
    return fields | changes


SUBSCRIPTION = bytes(10)
"""Of no topics, version 0, without user data."""


def subscription(*topics: str) -> bytes:
    """A consumer's metadata."""
    out = b"\0\0" + len(topics).to_bytes(4, "big")
    for name in topics:
        out += len(name).to_bytes(2, "big") + name.encode()
    return out + bytes(4)


def member(
    group: str,
    saved_as: str = "member",
    *,
    topics: tuple[str, ...] = (),
    instance: str | None = None,
) -> Setup:
    """A group with one member in state Stable; saves its id and, as ``generation``, the
    generation."""

    def prepare(session: Session) -> None:
        coordinator(group)(session)
        protocols = [{"name": "range", "metadata": subscription(*topics)}]
        static = {} if instance is None else {"groupInstanceId": instance}
        version = 3 if instance is None else 5
        fields = join_fields(group, protocols=protocols, **static)
        joined = session.ask("JoinGroup", version, fields)
        assert joined["errorCode"] == 0, joined
        session.saved[saved_as] = joined["memberId"]
        session.saved["generation"] = joined["generationId"]
        mine = {"memberId": joined["memberId"], "assignment": b"mine"}
        asked = {
            "groupId": group,
            "generationId": joined["generationId"],
            "memberId": joined["memberId"],
            "assignments": [mine],
            **static,
        }
        synced = session.ask("SyncGroup", 2 if instance is None else 3, asked)
        assert synced["errorCode"] == 0, synced

    return prepare


def committed(group: str, topic_name: str, offset: int = 5, partition: int = 0) -> Setup:
    """An offset committed from outside of the group."""

    def prepare(session: Session) -> None:
        coordinator(group)(session)
        partitions = [{"partitionIndex": partition, "committedOffset": offset}]
        asked = {
            "groupId": group,
            "generationIdOrMemberEpoch": -1,
            "memberId": "",
            "topics": [{"name": topic_name, "partitions": partitions}],
        }
        answer = session.ask("OffsetCommit", 5, asked)
        assert answer["topics"][0]["partitions"][0]["errorCode"] == 0, answer

    return prepare


def transaction_coordinator(transactional_id: str) -> Setup:
    """Waits until the broker coordinates the transactional id."""

    def prepare(session: Session) -> None:
        asked = {"transactionalId": transactional_id, "producerId": 1, "producerEpoch": 0}

        def has_loaded() -> bool:
            found = session.ask("FindCoordinator", 2, {"key": transactional_id, "keyType": 1})
            if found["errorCode"]:
                return False
            return bool(session.ask("EndTxn", 3, asked)["errorCode"] == _INVALID_MAPPING)

        wait_until(has_loaded, f"no coordinator for {transactional_id}")

    return prepare


def transactional(transactional_id: str) -> Setup:
    """A producer without a transaction; saves its id as ``pid`` and its ``epoch``. Answers name it
    by its transactional id."""

    def prepare(session: Session) -> None:
        transaction_coordinator(transactional_id)(session)
        asked = {"transactionalId": transactional_id, "transactionTimeoutMs": 60_000}
        made = session.ask("InitProducerId", 2, asked)
        assert made["errorCode"] == 0, made
        session.saved |= {"pid": made["producerId"], "epoch": made["producerEpoch"]}
        session.producers[made["producerId"]] = transactional_id

    return prepare


def settled(transactional_id: str) -> Setup:
    """Waits until no transaction is being ended."""

    def prepare(session: Session) -> None:
        asked = {"transactionalIds": [transactional_id]}

        def is_settled() -> bool:
            answer = session.ask("DescribeTransactions", 0, asked)
            return not answer["transactionStates"][0]["transactionState"].startswith("Prepare")

        wait_until(is_settled, f"{transactional_id} stays in a transaction")

    return prepare


def idempotent(saved_as: str) -> Setup:
    """A producer without transactions; saves its id. Answers name it so."""

    def prepare(session: Session) -> None:
        asked = {"transactionalId": None, "transactionTimeoutMs": 60_000}

        def is_made() -> bool:
            made = session.ask("InitProducerId", 2, asked)
            session.saved[saved_as] = made["producerId"]
            return bool(made["errorCode"] == 0)

        wait_until(is_made, "no producer id")
        session.producers[session.saved[saved_as]] = saved_as

    return prepare


def producer_ids(session: Session) -> None:
    """Waits until the broker has producer ids to give."""
    asked = {"transactionalId": None, "transactionTimeoutMs": 60_000}

    def has_some() -> bool:
        return bool(session.ask("InitProducerId", 2, asked)["errorCode"] == 0)

    wait_until(has_some, "no producer ids")
