"""One session of Apache Kafka's tools against our broker, and against Apache's.

Each tool must end with the same status and print the same, except ids, addresses, times and rates.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer

from pyrklog.testing import TestBroker
from tests.support import jvm, kafka_tools, zookeeper_kafka

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(600)]

OPTIONS = (
    "group.initial.rebalance.delay.ms=0",
    "transaction.state.log.replication.factor=1",
    "transaction.state.log.min.isr=1",
    "transaction.state.log.num.partitions=1",
)
RECORDS = 20
TOPICS = (
    "topics --create --topic a --partitions 2 --replication-factor 1 --config retention.ms=100000",
    "topics --create --topic a --partitions 1",
    "topics --create --topic a --partitions 1 --if-not-exists",
    "topics --create --topic b --partitions 1 --replication-factor 2",
    "topics --create --topic b --partitions 1 --config retention.ms=never",
    "topics --create --topic b --partitions 1 --config no.such.option=1",
    "topics --create --topic b/b --partitions 1",
    "topics --create --topic a.b --partitions 1",
    "topics --create --topic perf --partitions 1",
    "topics --create --topic verifiable --partitions 1",
    "topics --create --topic assigned --replica-assignment 1,1",
    "topics --create --topic assigned --replica-assignment 1:1",
    "topics --create --topic assigned --replica-assignment 7",
    "topics --create --topic assigned --replica-assignment 1 --partitions 1",
    "topics --create --topic many --partitions 0",
    "topics --create --topic a_b --partitions 1",
    "topics --create --topic b --partitions 1 --config cleanup.policy=squash",
    "topics --create --topic b --partitions 1 --config min.insync.replicas=0",
    "topics --create --topic b --partitions 1 --config segment.bytes=1",
    "topics --alter --topic a --partitions 3",
    "topics --alter --topic a --partitions 1",
    "topics --alter --topic missing --partitions 3",
    "topics --delete --topic missing",
    "topics --list",
    "topics --describe --topic a",
    "topics --describe --topic missing",
    "topics --describe --topics-with-overrides",
    "topics --describe --unavailable-partitions",
    "topics --delete --topic a.b",
)
READING = (
    "get-offsets --topic a",
    "get-offsets --topic a --time -2",
    "get-offsets --topic a --time -3",
    "get-offsets --topic a --time 1000",
    "get-offsets --topic a --time 1",
    "get-offsets --topic-partitions a:0,a:2",
    "get-offsets --topic missing",
    "console-consumer --topic a --partition 0 --offset earliest --max-messages 3 "
    "--property print.key=true --property print.offset=true --property print.timestamp=true "
    "--property print.headers=true --property print.partition=true",
    f"console-consumer --topic a --group g --from-beginning --max-messages {RECORDS} "
    "--property print.value=true",
)
GROUPS = (
    "consumer-groups --list",
    "consumer-groups --list --state",
    "consumer-groups --describe --group g",
    "consumer-groups --describe --group g --members --verbose",
    "consumer-groups --describe --group g --state",
    "consumer-groups --describe --group missing",
    "consumer-groups --reset-offsets --group g --topic a --to-earliest --dry-run",
    "consumer-groups --reset-offsets --group g --topic a:0 --to-earliest --execute",
    "consumer-groups --reset-offsets --group g --topic a:0 --shift-by 4 --execute",
    "consumer-groups --reset-offsets --group g --topic a:0 --to-offset 100 --execute",
    "consumer-groups --reset-offsets --group g --topic a:1 --to-datetime 1970-01-01T00:00:01.000 "
    "--execute",
    "consumer-groups --reset-offsets --group new --topic a --to-latest --execute",
    "consumer-groups --reset-offsets --group g --all-topics --to-current --export",
    "consumer-groups --describe --all-groups --offsets",
    "consumer-groups --delete-offsets --group g --topic a:0",
    "consumer-groups --delete-offsets --group missing --topic a",
    "consumer-groups --describe --group g",
    "consumer-groups --delete --group new",
    "consumer-groups --delete --group missing",
    "consumer-groups --list",
)
CONFIGS = (
    "configs --describe --entity-type topics --entity-name a",
    "configs --alter --entity-type topics --entity-name a --add-config "
    "max.message.bytes=10000,cleanup.policy=[compact,delete]",
    "configs --describe --entity-type topics --entity-name a",
    "configs --alter --entity-type topics --entity-name a --delete-config max.message.bytes",
    "configs --alter --entity-type topics --entity-name a --delete-config cleanup.policy",
    "configs --alter --entity-type topics --entity-name a --add-config max.message.bytes=-2",
    "configs --alter --entity-type topics --entity-name a --add-config no.such.option=1",
    "configs --alter --entity-type topics --entity-name missing --add-config retention.ms=1",
    "configs --alter --entity-type topics --entity-name a --add-config cleanup.policy=squash",
    "configs --alter --entity-type topics --entity-name a --add-config retention.ms=[1,2]",
    "configs --alter --entity-type topics --entity-name a --add-config retention.ms",
    "configs --alter --entity-type topics --entity-name a --delete-config no.such.option",
    "configs --alter --entity-type topics --entity-name a --delete-config segment.ms",
    "configs --describe --entity-type topics --entity-name a",
    "configs --alter --entity-type brokers --entity-default --add-config log.retention.ms=5000000",
    "configs --describe --entity-type brokers --entity-default",
    "configs --alter --entity-type brokers --entity-default --delete-config log.retention.ms",
    "configs --alter --entity-type brokers --entity-name 1 --add-config log.retention.ms=never",
    "configs --alter --entity-type brokers --entity-name 1 --add-config num.io.threads=0",
    "configs --alter --entity-type brokers --entity-name x --add-config num.io.threads=4",
    "configs --alter --entity-type brokers --entity-name 1 --add-config broker.rack=r",
)
REPLICAS = (
    "log-dirs --describe --topic-list a",
    "log-dirs --describe --topic-list a --broker-list 1",
    "delete-records --offset-json-file {folder}/records.json",
    "get-offsets --topic a --time -2",
    "delete-records --offset-json-file {folder}/beyond.json",
    "leader-election --election-type preferred --topic a --partition 0",
    "leader-election --election-type preferred --topic missing --partition 0",
    "leader-election --election-type unclean --all-topic-partitions",
    "reassign-partitions --generate --topics-to-move-json-file {folder}/topics.json "
    "--broker-list 1",
    "reassign-partitions --execute --reassignment-json-file {folder}/plan.json",
    "reassign-partitions --verify --reassignment-json-file {folder}/plan.json",
    "reassign-partitions --list",
    "reassign-partitions --cancel --reassignment-json-file {folder}/plan.json",
)
TRANSACTIONS = (
    "transactions list",
    "transactions list --duration-filter 1000000",
    "transactions describe --transactional-id open",
    "transactions describe --transactional-id missing",
    "transactions describe-producers --topic a --partition 0",
    "transactions find-hanging --broker-id 1",
    "transactions abort --topic a --partition 0 --start-offset 1000",
)
SPEEDS = (
    "consumer-perf-test --topic perf --messages 1000 --timeout 30000 --group perf --hide-header",
)


ALONE = (
    (
        "producer-perf-test",
        "--topic perf --num-records 1000 --record-size 100 --throughput -1 "
        "--producer-props bootstrap.servers={bootstrap}",
    ),
    (
        "verifiable-producer",
        "--bootstrap-server {bootstrap} --topic verifiable --max-messages 40 --throughput 1000",
    ),
    (
        "verifiable-consumer",
        "--bootstrap-server {bootstrap} --topic verifiable --group-id v --max-messages 40 "
        "--reset-policy earliest",
    ),
)
WORDS = (
    "Created topic a.",
    "already exists",
    "value19",
    "has no active members",
    "DYNAMIC_TOPIC_CONFIG",
    "low_watermark: 2",
    "is completed",
    "Ongoing 600000",
    "1000 records sent",
    "producer_send_success",
    "offsets_committed",
)
OF_BROKERS = {
    "LeaderAndIsr",
    "StopReplica",
    "UpdateMetadata",
    "ControlledShutdown",
    "AlterPartition",
    "Envelope",
    "AllocateProducerIds",
}
"""Between Apache's brokers."""
NOT_SERVED = {
    "CreateDelegationToken",
    "RenewDelegationToken",
    "ExpireDelegationToken",
    "DescribeDelegationToken",
    "DescribeClientQuotas",
    "AlterClientQuotas",
    "DescribeUserScramCredentials",
    "AlterUserScramCredentials",
    "UpdateFeatures",
    "ConsumerGroupHeartbeat",
    "ConsumerGroupDescribe",
}
"""``skipped.md`` has the reasons."""
OTHER_VERSIONS = {
    "Produce": "0 to 12",
    "EndTxn": "0 to 5",
    "TxnOffsetCommit": "0 to 5",
    "WriteTxnMarkers": "1 to 2",
}
"""Transactions of version 2 (KIP-890)."""
WITHOUT_ZOOKEEPER = {"DescribeTopicPartitions", "ListClientMetricsResources"}
"""Apache's brokers serve these without ZooKeeper only."""
_VARIABLE = (
    (r"TopicId: \S+", "TopicId: ID"),
    # With ZooKeeper Apache's brokers do not serve DescribeTopicPartitions.
    (r"Elr: N/A", "Elr:"),
    (r'"logDir":"[^"]+"', '"logDir":"DIR"'),
    (r"\b1[0-9]{12}\b", "TIME"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}", "TIME"),
    (r"(?<=Ongoing 600000 TIME )\d+", "AGE"),
    (r"\b\d+(\.\d+)? (?=records/sec|ms |MB/sec)", "RATE "),
    (r'"avg_throughput":[0-9.]+', '"avg_throughput":RATE'),
    (r"(?<=TIME, TIME, ).*", "RATES"),
)
_WITHOUT_ZOOKEEPER = (
    (r"Invalid config value for resource ConfigResource\(type=TOPIC, name='a'\): ", ""),
    (
        r"Replication factor: 2 larger than available brokers: 1\.",
        "Unable to replicate the partition 2 time(s): The target replication factor of 2 cannot be "
        "reached because only 1 broker(s) are registered.",
    ),
    (r"(?<=collides with existing topic)s(?=: )", ""),
    (
        r"Topic currently has 3 partitions, which is higher than the requested 1\.",
        "The topic a currently has 3 partition(s); 1 would not be an increase.",
    ),
)
"""What Apache's broker says, and what it says without ZooKeeper, as ours does."""


class Place(NamedTuple):
    bootstrap: str
    data: Path


class Told(NamedTuple):
    command: str
    status: int
    lines: list[str]


@contextmanager
def apache(folder: Path) -> Iterator[Place]:
    home = folder / "apache"
    home.mkdir()
    with (
        zookeeper_kafka.zookeeper(home) as address,
        zookeeper_kafka.kafka(home, address, 1, OPTIONS) as broker,
    ):
        yield Place(broker.bootstrap, broker.data)


@contextmanager
def ours(folder: Path) -> Iterator[Place]:
    options = dict(option.split("=") for option in OPTIONS)
    with TestBroker(folder / "ours", options=options, arguments=["--broker-id", "1"]) as broker:
        yield Place(broker.bootstrap, broker.data)


def write_plans(folder: Path) -> None:
    def offsets(offset: int) -> object:
        return {"partitions": [{"topic": "a", "partition": 0, "offset": offset}], "version": 1}

    plan = [{"topic": "a", "partition": 0, "replicas": [1], "log_dirs": ["any"]}]
    for name, content in {
        "records": offsets(2),
        "beyond": offsets(1_000_000),
        "topics": {"version": 1, "topics": [{"topic": "a"}]},
        "plan": {"version": 1, "partitions": plan},
    }.items():
        (folder / f"{name}.json").write_text(json.dumps(content))


def produce(bootstrap: str) -> None:
    """One batch a partition, at fixed times, so that sizes and offsets are equal everywhere."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1000, "acks": "all"})
    for number in range(RECORDS):
        producer.produce(
            "a", f"value{number}", f"key{number % 5}", number % 3, timestamp=1_000 + number
        )
    assert producer.flush(60) == 0


def play(place: Place, folder: Path) -> list[Told]:
    told: list[Told] = []

    def go(*commands: str) -> None:
        commands = tuple(command.replace("{folder}", str(folder)) for command in commands)
        found = kafka_tools.run(place.bootstrap, commands)
        told.extend(
            Told(command, output.status, comparable(output, place.bootstrap))
            for command, output in zip(commands, found, strict=True)
        )

    write_plans(folder)
    go(*TOPICS)
    produce(place.bootstrap)
    go(*READING, *GROUPS, *CONFIGS, *REPLICAS)
    open_producer = Producer(
        {
            "bootstrap.servers": place.bootstrap,
            "transactional.id": "open",
            "transaction.timeout.ms": 600_000,
        }
    )
    open_producer.init_transactions()
    open_producer.begin_transaction()
    open_producer.produce("a", b"open", partition=0)
    open_producer.flush(30)
    go(*TRANSACTIONS)
    open_producer.abort_transaction()
    go("broker-api-versions", *SPEEDS)
    told.extend(alone(place.bootstrap, *each) for each in ALONE)
    return told


def alone(bootstrap: str, name: str, arguments: str) -> Told:
    """A tool that ends its virtual machine by itself, or that prints from other threads."""
    words = arguments.replace("{bootstrap}", bootstrap).split()
    output = jvm.run(kafka_tools.CLASSES[name], *words)
    return Told(name, 0, comparable(kafka_tools.Output(output, 0), bootstrap))


def comparable(output: kafka_tools.Output, bootstrap: str) -> list[str]:
    """Without ids, addresses, times, rates and Java's stack."""
    shown = []
    for line in output.lines:
        if line.startswith(("at ", "Suppressed")):
            continue
        line = line.replace(bootstrap, "ADDRESS")
        for pattern, replacement in _VARIABLE:
            line = re.sub(pattern, replacement, line)
        shown.append(line)
    return shown


def without_zookeeper(told: Told) -> Told:
    lines = told.lines
    for pattern, replacement in _WITHOUT_ZOOKEEPER:
        lines = [re.sub(pattern, replacement, line) for line in lines]
    return told._replace(lines=lines)


def versions(told: list[Told]) -> dict[str, str]:
    """Of each API, as in "Fetch(1): 4 to 17 [usable: 17]"."""
    (output,) = (one for one in told if one.command == "broker-api-versions")
    found = (re.fullmatch(r"(\w+)\(\d+\): (\d+(?: to \d+)?) .*", line) for line in output.lines)
    return {match[1]: match[2] for match in found if match}


def test_apaches_tools_tell_no_difference(tmp_path: Path) -> None:
    with apache(tmp_path) as place:
        theirs = play(place, tmp_path)
    with ours(tmp_path) as place:
        mine = play(place, tmp_path)
    for reference, told in zip(theirs, mine, strict=True):
        if told.command != "broker-api-versions":
            assert told == without_zookeeper(reference), told.command
    everything = "\n".join(line for told in theirs for line in told.lines)
    assert all(re.search(pattern, everything) for pattern, _ in _WITHOUT_ZOOKEEPER)
    assert all(word in everything for word in WORDS), "Apache's session was another one"
    served, reference_versions = versions(mine), versions(theirs)
    assert reference_versions.keys() - served.keys() == OF_BROKERS | NOT_SERVED
    assert served.keys() - reference_versions.keys() == WITHOUT_ZOOKEEPER
    both = served.keys() & reference_versions.keys()
    other = {name for name in both if served[name] != reference_versions[name]}
    assert {name: served[name] for name in other} == OTHER_VERSIONS
