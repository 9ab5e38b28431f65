"""Requests for a group's offset: where a processor has come to."""

from __future__ import annotations

from pyrklog.errors import ErrorCode
from pyrklog.protocol.offsets import OFFSET_FETCH, OffsetFetchRequest, OffsetFetchRequestTopic
from tests.sim.settings import TOPIC
from tests.sim.transactions.client import Client

COUNT_PARTITION, SENTINEL_PARTITION = 0, 1
"""Under which partition of the topic the number is committed, and another offset."""
FETCH_VERSION = 7


def group_of(name: str) -> str:
    return f"group-{name}"


async def fetch_offset(
    client: Client, broker: int, name: str, *, require_stable: bool
) -> tuple[ErrorCode | None, int]:
    """An error, None if there is no answer; and the offset, 0 without one."""
    topics = [OffsetFetchRequestTopic(TOPIC, [COUNT_PARTITION])]
    request = OffsetFetchRequest(
        group_id=group_of(name), topics=topics, require_stable=require_stable
    )
    answer = await client.ask(broker, OFFSET_FETCH, FETCH_VERSION, request)
    if answer is None:
        return None, 0
    if answer.error_code:
        return ErrorCode(answer.error_code), 0
    (found,) = answer.topics[0].partitions
    return ErrorCode(found.error_code), max(0, found.committed_offset)
