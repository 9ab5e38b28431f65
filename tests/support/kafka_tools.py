"""Apache Kafka's own tools, several in one virtual machine."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.support import jvm

_PACKAGE = "org.apache.kafka.tools"
CLASSES = {
    "broker-api-versions": "kafka.admin.BrokerApiVersionsCommand",
    "console-consumer": f"{_PACKAGE}.consumer.ConsoleConsumer",
    "consumer-perf-test": f"{_PACKAGE}.ConsumerPerformance",
    "get-offsets": f"{_PACKAGE}.GetOffsetShell",
    "verifiable-consumer": f"{_PACKAGE}.VerifiableConsumer",
    "verifiable-producer": f"{_PACKAGE}.VerifiableProducer",
    "producer-perf-test": f"{_PACKAGE}.ProducerPerformance",
    "topics": f"{_PACKAGE}.TopicCommand",
    "reassign-partitions": f"{_PACKAGE}.reassign.ReassignPartitionsCommand",
    "leader-election": f"{_PACKAGE}.LeaderElectionCommand",
    "consumer-groups": f"{_PACKAGE}.consumer.group.ConsumerGroupCommand",
    "log-dirs": f"{_PACKAGE}.LogDirsCommand",
    "transactions": f"{_PACKAGE}.TransactionsCommand",
    "configs": "kafka.admin.ConfigCommand",
    "delete-records": f"{_PACKAGE}.DeleteRecordsCommand",
    "replica-verification": f"{_PACKAGE}.ReplicaVerificationTool",
}
"""Scripts of Kafka's bin/ without "kafka-" -> their main classes."""


class Output(NamedTuple):
    text: str
    status: int

    @property
    def lines(self) -> list[str]:
        """Non-empty lines with single spaces, without log lines."""
        words = (" ".join(line.split()) for line in self.text.splitlines())
        return [line for line in words if line and not re.match(r"(WARN|INFO|ERROR) ", line)]


def run(bootstrap: str, commands: Sequence[str], timeout_s: float = 100.0) -> list[Output]:
    """Each command is a script and its arguments, without the bootstrap server."""
    script = []
    for command in commands:
        name, _, arguments = command.partition(" ")
        script.append(f"{CLASSES[name]} --bootstrap-server {bootstrap} {arguments}")
    program = Path(__file__).with_name("KafkaTools.java")
    output = jvm.run(str(program), stdin="\n".join(script), timeout_s=timeout_s)
    found = []
    for section in output.split("\f")[1:]:
        text, _, status = section.partition("\n")[2].rstrip().rpartition("exit ")
        found.append(Output(text, int(status)))
    assert len(found) == len(commands), output
    return found
