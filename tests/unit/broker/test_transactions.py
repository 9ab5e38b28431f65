"""A transaction in a whole broker: from FindCoordinator to the marker, over a fake plane."""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path
from typing import Any

import trio

from pyrklog.errors import ErrorCode
from pyrklog.protocol.coordinators import FindCoordinatorRequest
from pyrklog.protocol.producer_ids import InitProducerIdRequest
from pyrklog.protocol.registry import find_api
from pyrklog.protocol.transactions import (
    AddPartitionsTopic,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
)
from pyrklog.testing.fake_plane import FakeRequest
from pyrklog.testing.fake_transactions import FakeVerifyTransaction
from pyrklog.transactions.manager import TRANSACTION_TOPIC
from tests.unit.broker.harness import Running, running_broker

FIND, INIT, ADD, END = 10, 22, 24, 26
RETRIED = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}
OPTIONS = ("transaction.state.log.num.partitions=3",)
_ids = itertools.count(1)


async def ask(running: Running, key: int, version: int, message: Any) -> Any:
    """Retries as clients do."""
    api = find_api(key)
    while True:
        number = next(_ids)
        request: Any = FakeRequest(number, key, version, api.encode_request(message, version))
        running.plane.request(request)
        replies = running.plane.replies
        with trio.fail_after(30):
            await running.plane.wait_until(partial(replies.__contains__, number))
        answer = api.decode_response(replies[number], version)
        if getattr(answer, "error_code", 0) not in RETRIED:
            return answer
        # Nothing tells when the coordinator serves; a client waits as well.
        await trio.sleep(0.01)


async def test_a_transaction_from_its_coordinator_to_its_marker(tmp_path: Path) -> None:
    async with running_broker(tmp_path, *OPTIONS) as running:
        await running.created("t")
        found = await ask(running, FIND, 3, FindCoordinatorRequest("x", 1))
        assert (found.error_code, found.node_id) == (0, 1)
        topic = running.plane.topics[TRANSACTION_TOPIC]
        assert (topic.internal, len(topic.partitions)) == (True, 3)
        assert topic.min_insync_replicas == 1, "as many as it has"
        begun = await ask(running, INIT, 4, InitProducerIdRequest("x"))
        assert (begun.error_code, begun.producer_epoch) == (0, 0)
        producer = begun.producer_id

        topics = [AddPartitionsTopic("t", [0])]
        added = await ask(running, ADD, 3, AddPartitionsToTxnRequest([], "x", producer, 0, topics))
        [result] = added.results_by_topic_v3_and_below[0].results_by_partition
        assert result.partition_error_code == 0
        asked = FakeVerifyTransaction(7, "x", producer, 0, [("t", 0), ("t", 1)])
        running.plane.verify_transaction(asked)
        verified = running.plane.transactions.verified
        await running.plane.wait_until(lambda: 7 in verified)
        assert verified[7] == [0, ErrorCode.TRANSACTION_ABORTABLE]

        ended = await ask(running, END, 3, EndTxnRequest("x", producer, 0, True))
        assert ended.error_code == 0
        again = await ask(running, INIT, 4, InitProducerIdRequest("x"))
        assert (again.producer_id, again.producer_epoch) == (producer, 1)
        [marker] = running.plane.transactions.markers
        assert (marker.topic, marker.producer_id, marker.is_commit) == ("t", producer, True)
