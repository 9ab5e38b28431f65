"""Clients of a listener that is not advertised: served, and told of no broker, as by Kafka."""

from collections.abc import Callable

from pyrklog.errors import ErrorCode
from pyrklog.protocol.cluster import DESCRIBE_CLUSTER, DescribeClusterRequest
from pyrklog.protocol.coordinators import FIND_COORDINATOR, FindCoordinatorRequest
from pyrklog.protocol.metadata import METADATA, NO_LEADER, MetadataRequest
from pyrklog.protocol.topics import CREATE_TOPICS, CreatableTopic, CreateTopicsRequest
from pyrklog.testing import TestBroker
from pyrklog.testing.broker import free_port
from tests.support.raw_client import RawClient


def test_a_listener_that_is_not_advertised(new_broker: Callable[..., TestBroker]) -> None:
    hidden = f"127.0.0.1:{free_port()}"
    options = {
        "listeners": f"PLAINTEXT://127.0.0.1:0,HIDDEN://{hidden}",
        "listener.security.protocol.map": "HIDDEN:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "advertised.listeners": "PLAINTEXT://127.0.0.1:0",
    }
    broker = new_broker(options=options).start()
    with RawClient(broker.bootstrap) as shown, RawClient(hidden) as client:
        made = client.ask(CREATE_TOPICS, 5, CreateTopicsRequest([CreatableTopic("t", 1, 1)]))
        assert [one.error_code for one in made.topics] == [0]
        found = client.ask(METADATA, 7, MetadataRequest())
        (topic,) = [one for one in found.topics if one.name == "t"]
        (partition,) = topic.partitions
        assert (found.brokers, found.controller_id) == ([], 1)
        told = (partition.error_code, partition.leader_id, partition.isr_nodes)
        assert told == (ErrorCode.LISTENER_NOT_FOUND, NO_LEADER, [1])
        assert client.ask(DESCRIBE_CLUSTER, 0, DescribeClusterRequest()).brokers == []
        coordinator = client.ask(FIND_COORDINATOR, 2, FindCoordinatorRequest("g"))
        assert coordinator.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE

        found = shown.ask(METADATA, 7, MetadataRequest())
        assert [f"{one.host}:{one.port}" for one in found.brokers] == [broker.bootstrap]
        (topic,) = [one for one in found.topics if one.name == "t"]
        assert topic.partitions[0].leader_id == 1
