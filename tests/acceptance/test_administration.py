"""Rows 16, 17, 30, 35: what Apache Kafka's tools change and show."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from pyrklog.protocol.configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from tests.acceptance.sites import Site
from tests.support import kafka_tools
from tests.support.clients import TIMEOUT_S, Confluent, Record
from tests.support.cluster import BrokerCluster
from tests.support.cluster_clients import consume, produce
from tests.support.java_client import JavaMachine
from tests.support.knowing import leaders_of, told_by, wait_until_each
from tests.support.raw_client import RawClient
from tests.support.waiting import wait_until

pytestmark = pytest.mark.jvm

REASSIGN = "reassign-partitions"
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
OF_TOPIC = 1
"""The source of a topic's own options."""


def run(site: Site, *commands: str) -> list[kafka_tools.Output]:
    return kafka_tools.run(site.bootstrap, commands)


def own_options(output: kafka_tools.Output) -> dict[str, str]:
    """Those of the topic itself, of ``configs --describe``."""
    lines = [line for line in output.lines if "DYNAMIC_TOPIC_CONFIG:" in line]
    return dict(line.split()[0].split("=", 1) for line in lines)


def wait_for_options(site: Site, topic: str, wanted: dict[str, str]) -> None:
    """Until each broker tells that these are the topic's own: tools ask any of them."""
    request = DescribeConfigsRequest([DescribeConfigsResource(TOPIC_RESOURCE, topic, None)])
    found: dict[str, dict[str, Any]] = {}

    def are_told() -> bool:
        for address in site.bootstrap.split(","):
            with RawClient(address) as raw:
                (answer,) = raw.ask(DESCRIBE_CONFIGS, 4, request).results
            own = (one for one in answer.configs if one.config_source == OF_TOPIC)
            found[address] = {one.name: one.value for one in own}
        return all(one == wanted for one in found.values())

    wait_until(are_told, lambda: f"the options are {found}")


def test_row_16_alter_configs_resets_the_unnamed_and_incremental_does_not(
    site: Site, topic: str
) -> None:
    """``kafka-configs`` alters incrementally; the older call is made by librdkafka."""
    site.create(topic, retention_ms="3600000")
    of_topic = f"configs --entity-type topics --entity-name {topic}"
    run(
        site,
        f"{of_topic} --alter --add-config max.message.bytes=5000",
        f"{of_topic} --alter --add-config flush.ms=7000,segment.bytes=2000000",
    )
    altered = {"retention.ms": "3600000", "max.message.bytes": "5000", "flush.ms": "7000"}
    # The tool refuses to take away what the broker that it asks does not know yet.
    wait_for_options(site, topic, altered | {"segment.bytes": "2000000"})
    run(site, f"{of_topic} --alter --delete-config segment.bytes")
    wait_for_options(site, topic, altered)
    (described,) = run(site, f"{of_topic} --describe")
    assert own_options(described) == altered
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, set_config={"segment.ms": "60000"})
    site.admin.alter_configs([resource])[resource].result(TIMEOUT_S)
    found: list[dict[str, str]] = []

    def is_reset() -> bool:
        found.append(own_options(run(site, f"{of_topic} --describe")[0]))
        return found[-1] == {"segment.ms": "60000"}

    wait_until(is_reset, lambda: f"the options are {found[-1]}")


def test_row_17_describe_log_dirs(site: Site, topic: str) -> None:
    site.create(topic, 2)
    records = [Record(None, bytes(1_000))] * 20
    for partition in range(2):
        Confluent().produce(site.bootstrap, topic, records, partition=partition)
    brokers = [broker.node_id for broker in told_by(site.leader(topic)).brokers]

    def sizes() -> dict[tuple[int, str], int]:
        """By broker and partition; no directory has an error, and no replica lags."""
        (output,) = run(site, f"log-dirs --describe --topic-list {topic}")
        (line,) = [line for line in output.text.splitlines() if line.startswith("{")]
        found = {}
        for broker in json.loads(line)["brokers"]:
            for directory in broker["logDirs"]:
                assert directory["error"] is None
                for one in directory["partitions"]:
                    assert not one["isFuture"]
                    found[broker["broker"], one["partition"]] = one["size"]
        return found

    def are_equal() -> bool:
        found = sizes()
        names = (f"{topic}-0", f"{topic}-1")
        wanted = {(broker, name) for broker in brokers for name in names}
        return set(found) == wanted and all(20_000 < size < 25_000 for size in found.values())

    wait_until(are_equal, lambda: f"the sizes are {sizes()}")


def test_row_30_reassignment_keeps_a_leader_that_stays_a_replica(
    new_cluster: Callable[..., BrokerCluster], topic: str, tmp_path: Path
) -> None:
    """By Kafka's tools. The leader moves by a requested preferred election."""
    # No broker dies here: a session that a busy machine ends would move the leader.
    options = {"auto.leader.rebalance.enable": False, "zookeeper.session.timeout.ms": 18_000}
    cluster = new_cluster(**options).start()
    state = f"/brokers/topics/{topic}/partitions/0/state"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, 1, replica_assignment=[[1, 2]])])[topic].result(30)
    produce(cluster, topic, 1, [b"v"] * 10)

    def plan(*replicas: int) -> str:
        """Arguments of the tool for partition 0 with these replicas."""
        one = {"topic": topic, "partition": 0, "replicas": replicas}
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.json"
        path.write_text(json.dumps({"version": 1, "partitions": [one]}))
        return f"--reassignment-json-file {path}"

    def succeed(*commands: str) -> list[kafka_tools.Output]:
        """Runs Kafka's tools, which must succeed."""
        outputs = kafka_tools.run(cluster.bootstrap, commands)
        for output in outputs:
            assert output.status == 0, output.text
        return outputs

    def leader_at(*replicas: int) -> int:
        """The leader once the partition has these replicas, all in sync."""

        def has_arrived() -> bool:
            node = cluster.json(f"/brokers/topics/{topic}")
            moves = node["adding_replicas"] or node["removing_replicas"]
            isr = set(cluster.json(state)["isr"])
            return not moves and node["partitions"]["0"] == [*replicas] and isr == {*replicas}

        wait_until(has_arrived, f"it does not come to {replicas}")
        return int(cluster.json(state)["leader"])

    assert leader_at(1, 2) == 1
    first = plan(3, 1)
    succeed(f"{REASSIGN} --execute {first}")
    assert leader_at(3, 1) == 1, "it is a target, though not the preferred one"
    verified, _ = succeed(
        f"{REASSIGN} --verify {first}",
        f"leader-election --election-type preferred --topic {topic} --partition 0",
    )
    wait_until_each(
        cluster.bootstrap, lambda told: leaders_of(told, topic) == {0: 3}, "not all know who leads"
    )
    described, _ = succeed(
        f"topics --describe --topic {topic}",
        f"{REASSIGN} --execute {plan(3, 1, 2)}",
    )
    assert f"Reassignment of partition {topic}-0 is completed." in verified.lines
    assert "Leader: 3 Replicas: 3,1" in described.lines[-1]
    assert leader_at(3, 1, 2) == 3, "one replica more"
    succeed(f"{REASSIGN} --execute {plan(3)}")
    assert leader_at(3) == 3, "two replicas less"
    succeed(f"{REASSIGN} --execute {plan(2, 1)}")
    assert leader_at(2, 1) == 2, "the leader was no target"
    assert consume(cluster, topic, 10, topic) == [b"v"] * 10


def test_row_35_delete_records_below_and_above_and_of_an_empty_partition(
    site: Site, java: JavaMachine, topic: str, tmp_path: Path
) -> None:
    site.create(topic, 2)
    Confluent().produce(site.bootstrap, topic, [Record(None, b"%d" % n) for n in range(20)])

    def plan(offset: int, partition: int = 0) -> str:
        one = {"topic": topic, "partition": partition, "offset": offset}
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.json"
        path.write_text(json.dumps({"version": 1, "partitions": [one]}))
        return f"delete-records --offset-json-file {path}"

    below, lower, above, empty, beyond_empty, everything = run(
        site, plan(15), plan(3), plan(21), plan(-1, 1), plan(1, 1), plan(-1)
    )
    assert f"partition: {topic}-0 low_watermark: 15" in below.lines
    assert f"partition: {topic}-0 low_watermark: 15" in lower.lines, "it never goes back"
    out_of_range = "OffsetOutOfRangeException"
    assert out_of_range in above.text
    assert f"partition: {topic}-1 low_watermark: 0" in empty.lines
    assert out_of_range in beyond_empty.text
    assert f"partition: {topic}-0 low_watermark: 20" in everything.lines
    for spec in ("earliest", "latest"):
        assert java.list_offset(site.bootstrap, topic, spec)[0] == 20
    Confluent().produce(site.bootstrap, topic, [Record(None, b"after")])
    assert Confluent().consume(site.bootstrap, topic, 1, start=20)[0].value == b"after"


# --- from peers' sweeps --------------------------------------------------------------------------


def test_described_options_are_never_empty(site: Site, java: JavaMachine, topic: str) -> None:
    """No names, or an empty list of names, stand for all."""
    site.create(topic)
    broker = str(told_by(site.leader(topic)).brokers[0].node_id)
    for kind, name in (("TOPIC", topic), ("BROKER", broker)):
        found = java.call("describeConfigs", bootstrap=site.bootstrap, type=kind, name=name)
        assert len(found) > 25
        assert found["min.insync.replicas"] == "1"

    def ask(kind: int, name: str, keys: list[str] | None) -> dict[str, Any]:
        request = DescribeConfigsRequest([DescribeConfigsResource(kind, name, keys)])
        address = site.leader(topic)
        for one in told_by(address).brokers:
            if kind == BROKER_RESOURCE and str(one.node_id) == name:
                address = f"{one.host}:{one.port}"
        with RawClient(address) as raw:
            (answer,) = raw.ask(DESCRIBE_CONFIGS, 4, request).results
        assert answer.error_code == 0
        return {entry.name: entry.value for entry in answer.configs}

    for number, name in ((TOPIC_RESOURCE, topic), (BROKER_RESOURCE, broker)):
        everything = ask(number, name, None)
        assert len(everything) > 25
        assert ask(number, name, []) == everything
        assert ask(number, name, ["min.insync.replicas"]) == {"min.insync.replicas": "1"}
