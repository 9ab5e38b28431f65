"""What each broker for itself tells: one hears of a change some milliseconds after another.

librdkafka asks any broker that it knows, so its answer says nothing of the others.
"""

from collections.abc import Callable

from pyrklog.protocol.metadata import METADATA, MetadataRequest, MetadataResponse
from tests.support.asking import Asker
from tests.support.waiting import wait_until

_VERSION = 7


def told_by(address: str) -> MetadataResponse:
    """All that one broker knows; raises :class:`OSError` where none answers."""
    with Asker(address) as asker:
        found: MetadataResponse = asker.ask(METADATA, _VERSION, MetadataRequest())
        return found


def wait_until_each(
    bootstrap: str, tells: Callable[[MetadataResponse], bool], otherwise: str
) -> None:
    """Waits until every broker of a list tells so."""
    addresses = bootstrap.split(",")
    wait_until(lambda: all(tells(told_by(address)) for address in addresses), otherwise)


def leaders_of(told: MetadataResponse, topic: str) -> dict[int, int]:
    """Leader of each partition by number; empty where the topic is not known."""
    return {
        one.partition_index: one.leader_id
        for found in told.topics
        if found.name == topic
        for one in found.partitions
    }
