"""The Java client and Apache Kafka 3.9.1's own command-line tools."""

import json
import re
from pathlib import Path

import pytest

from tests.support import jvm
from tests.support.clients import CODECS, Confluent, Record

pytestmark = pytest.mark.jvm

TOOLS = "org.apache.kafka.tools"


def test_java_client(bootstrap: str, topic: str) -> None:
    """Client.java makes its own checks; among others it reads what librdkafka compressed."""
    for turn, codec in enumerate(CODECS):
        values = [b"python %d" % (10 * turn + number) for number in range(10)]
        records = [Record(None, value) for value in values]
        Confluent().produce(bootstrap, f"{topic}-from-python", records, codec=codec)
    program = Path(__file__).with_name("Client.java")
    output = jvm.run(str(program), bootstrap, f"{topic}-", timeout_s=120)
    checks = re.findall(r"^    static void (\w+)\(\) ", program.read_text(), re.MULTILINE)
    assert output.split("\n")[:-1] == [f"ok {name}" for name in checks]


def test_producer_performance(bootstrap: str, topic: str) -> None:
    arguments = ["--num-records", "100000", "--record-size", "100", "--throughput", "-1"]
    properties = [f"bootstrap.servers={bootstrap}", "acks=all", "compression.type=lz4"]
    output = jvm.run(
        f"{TOOLS}.ProducerPerformance",
        *["--topic", topic, *arguments, "--producer-props", *properties],
    )
    assert "100000 records sent" in output.splitlines()[-1]
    read = jvm.run(
        f"{TOOLS}.GetOffsetShell", "--bootstrap-server", bootstrap, "--topic-partitions", topic
    )
    assert read == f"{topic}:0:100000\n"


def test_verifiable_producer(bootstrap: str, topic: str) -> None:
    count = 2_000
    output = jvm.run(
        f"{TOOLS}.VerifiableProducer",
        *["--bootstrap-server", bootstrap, "--topic", topic, "--max-messages", str(count)],
        *["--acks", "-1"],
    )
    events = [json.loads(line) for line in output.splitlines()]
    acknowledged = {e["offset"]: e["value"] for e in events if e["name"] == "producer_send_success"}
    assert sorted(acknowledged) == list(range(count))
    values = [record.value for record in Confluent().consume(bootstrap, topic, count)]
    assert values == [acknowledged[offset].encode() for offset in range(count)]


def test_console_clients(bootstrap: str, topic: str) -> None:
    lines = "".join(f"key{number}\tvalue {number}\n" for number in range(50))
    jvm.run(
        "kafka.tools.ConsoleProducer",
        *["--bootstrap-server", bootstrap, "--topic", topic, "--property", "parse.key=true"],
        *["--compression-codec", "zstd"],
        stdin=lines,
    )
    output = jvm.run(
        f"{TOOLS}.consumer.ConsoleConsumer",
        *["--bootstrap-server", bootstrap, "--topic", topic, "--partition", "0"],
        *["--offset", "earliest", "--max-messages", "50", "--property", "print.key=true"],
        *["--timeout-ms", "30000"],
    )
    assert output == lines


def test_console_consumer_in_a_group(bootstrap: str, topic: str) -> None:
    values = [b"%d" % number for number in range(40)]
    Confluent().produce(bootstrap, topic, [Record(None, value) for value in values])

    def read(count: int) -> list[str]:
        output = jvm.run(
            f"{TOOLS}.consumer.ConsoleConsumer",
            *["--bootstrap-server", bootstrap, "--topic", topic, "--group", f"{topic}-group"],
            *["--from-beginning", "--max-messages", str(count), "--timeout-ms", "30000"],
        )
        return output.split()

    assert read(25) + read(15) == [value.decode() for value in values]


def topics(bootstrap: str, *arguments: str) -> str:
    return jvm.run(f"{TOOLS}.TopicCommand", "--bootstrap-server", bootstrap, *arguments)


def test_kafka_topics(bootstrap: str, topic: str) -> None:
    created = topics(
        bootstrap,
        *["--create", "--topic", topic, "--partitions", "2", "--config", "retention.ms=100000"],
    )
    assert created.strip() == f"Created topic {topic}."
    assert topic in topics(bootstrap, "--list").split()
    topics(bootstrap, "--alter", "--topic", topic, "--partitions", "3")
    described = topics(bootstrap, "--describe", "--topic", topic)
    assert re.search(
        r"PartitionCount: 3\s+ReplicationFactor: 1\s+Configs: .*retention.ms=100000", described
    )
    assert len(re.findall(r"Leader: \d+\s+Replicas: \d+\s+Isr: \d+", described)) == 3
    topics(bootstrap, "--delete", "--topic", topic)
    assert topic not in topics(bootstrap, "--list").split()


def test_kafka_configs(bootstrap: str, topic: str) -> None:
    topics(bootstrap, "--create", "--topic", topic)

    def configs(*arguments: str) -> str:
        place = ["--bootstrap-server", bootstrap, "--entity-type", "topics"]
        return jvm.run("kafka.admin.ConfigCommand", *place, "--entity-name", topic, *arguments)

    configs("--alter", "--add-config", "segment.bytes=2000000,cleanup.policy=[compact,delete]")
    described = configs("--describe")
    assert "segment.bytes=2000000 " in described
    assert "cleanup.policy=compact,delete " in described
    configs("--alter", "--delete-config", "segment.bytes")
    described = configs("--describe", "--all")
    assert re.search(r"segment.bytes=1073741824 .*synonyms=\{.*DEFAULT_CONFIG", described)


def test_broker_api_versions(bootstrap: str) -> None:
    output = jvm.run("kafka.admin.BrokerApiVersionsCommand", "--bootstrap-server", bootstrap)
    assert output.startswith(bootstrap)
    assert re.search(r"Produce\(0\): 0 to \d+ \[usable: \d+\]", output)
