"""The topic of decisions, as the sink makes it, and as somebody else did."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from pyrklog.producing import ProducerSettings
from pyrklog.spark.connection import Connection
from pyrklog.spark.decisions import TOPIC, Decision, DecisionLogError, KafkaDecisions
from pyrklog.testing import TestBroker
from tests.support.cluster import BrokerCluster
from tests.support.cluster_clients import create

pytestmark = pytest.mark.timeout(120)

COMPACTED = {"cleanup.policy": "compact"}


def decide(bootstrap: str, number: int) -> None:
    log = KafkaDecisions(Connection(bootstrap), ProducerSettings(bootstrap, []), "sink")
    log.take_over()
    log.last()
    log.write(Decision(number))


def last(bootstrap: str) -> Decision | None:
    return KafkaDecisions(Connection(bootstrap), ProducerSettings(bootstrap, []), "sink").last()


def configs(admin: AdminClient) -> dict[str, str]:
    resource = ConfigResource(ResourceType.TOPIC, TOPIC)
    entries = admin.describe_configs([resource])[resource].result(30)
    return {name: entry.value for name, entry in entries.items()}


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_one_that_deletes_is_refused_until_it_is_compacted(
    new_broker: Callable[..., TestBroker], policy: str
) -> None:
    bootstrap = new_broker().start().bootstrap
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic(TOPIC, 16, 1, config={"cleanup.policy": policy})
    admin.create_topics([topic])[TOPIC].result(30)
    with pytest.raises(DecisionLogError, match=f"cleanup.policy={policy}, with which"):
        decide(bootstrap, 7)
    assert last(bootstrap) is None
    change = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[change])
    admin.incremental_alter_configs([resource])[resource].result(30)
    decide(bootstrap, 7)
    assert last(bootstrap) == Decision(7)


def test_one_that_is_made_needs_two_of_three_replicas(
    cluster: BrokerCluster, caplog: pytest.LogCaptureFixture
) -> None:
    decide(cluster.bootstrap, 1)
    found = configs(AdminClient({"bootstrap.servers": cluster.bootstrap}))
    assert (found["cleanup.policy"], found["min.insync.replicas"]) == ("compact", "2")
    assert TOPIC not in caplog.text


@pytest.mark.parametrize(("in_sync", "is_told"), [("1", True), ("2", False)])
def test_one_of_which_a_single_replica_suffices_is_told_once(
    cluster: BrokerCluster, caplog: pytest.LogCaptureFixture, in_sync: str, is_told: bool
) -> None:
    create(cluster, TOPIC, 16, 3, options=COMPACTED | {"min.insync.replicas": in_sync})
    with caplog.at_level(logging.WARNING, "pyrklog.spark"):
        decide(cluster.bootstrap, 1)
        decide(cluster.bootstrap, 2)
    told = [one.getMessage() for one in caplog.records if TOPIC in one.getMessage()]
    assert len(told) == is_told
    assert all("min.insync.replicas=1 with 3 replicas" in one for one in told)
    assert last(cluster.bootstrap) == Decision(2)
