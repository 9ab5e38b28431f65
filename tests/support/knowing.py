"""What each single broker tells: brokers hear of a change at slightly different times.

librdkafka asks any known broker, so its answer says nothing about the others.
"""

from collections.abc import Callable

from pyrklog.protocol.metadata import METADATA, MetadataRequest, MetadataResponse
from tests.support.raw_client import RawClient
from tests.support.waiting import wait_until

_VERSION = 7


def told_by(address: str) -> MetadataResponse:
    """One broker's metadata; raises :class:`OSError` if it does not answer."""
    with RawClient(address) as raw:
        found: MetadataResponse = raw.ask(METADATA, _VERSION, MetadataRequest())
        return found


def wait_until_each(
    bootstrap: str, tells: Callable[[MetadataResponse], bool], otherwise: str
) -> None:
    """Waits until ``tells`` holds for every broker of a list."""
    addresses = bootstrap.split(",")
    wait_until(lambda: all(tells(told_by(address)) for address in addresses), otherwise)


def leaders_of(told: MetadataResponse, topic: str) -> dict[int, int]:
    """Leader of each partition; empty if the topic is unknown."""
    return {
        one.partition_index: one.leader_id
        for found in told.topics
        if found.name == topic
        for one in found.partitions
    }
