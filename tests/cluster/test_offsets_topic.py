"""``__consumer_offsets`` of a cluster that starts broker by broker."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka.admin import AdminClient

from benches.group_members import Member
from pyrklog.errors import ErrorCode
from pyrklog.groups.partitioner import OFFSETS_TOPIC
from pyrklog.protocol.coordinators import FIND_COORDINATOR, FindCoordinatorRequest
from pyrklog.testing import TestBroker
from tests.support.cluster import OFFSETS_REPLICAS, BrokerCluster
from tests.support.cluster_clients import described
from tests.support.waiting import wait_until


def test_a_client_that_asks_while_a_cluster_starts_fixes_no_lower_replication_factor(
    new_cluster: Callable[..., BrokerCluster],
) -> None:
    brokers = list(new_cluster().brokers.values())
    for broker in brokers[:-1]:
        broker.start()
        assert _find(broker) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    brokers[-1].start()

    def is_there() -> bool:
        error = _find(brokers[0])
        assert error in (ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return error == ErrorCode.NONE

    wait_until(is_there, "nobody coordinates")
    partitions = described(AdminClient({"bootstrap.servers": brokers[0].bootstrap}), OFFSETS_TOPIC)
    assert {len(one.replicas) for one in partitions.values()} == {OFFSETS_REPLICAS}


def _find(broker: TestBroker) -> int:
    asking = Member(broker.port, "g")
    found = asking.ask(FIND_COORDINATOR, FindCoordinatorRequest(coordinator_keys=["g"]))
    asking.socket.close()
    error: int = found.coordinators[0].error_code
    return error
