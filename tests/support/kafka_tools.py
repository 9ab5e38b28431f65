"""Apache Kafka's own tools, several in one virtual machine."""

from __future__ import annotations

import queue
import re
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Self

from tests.support import jvm

_PACKAGE = "org.apache.kafka.tools"
CLASSES = {
    "acls": "kafka.admin.AclCommand",
    "broker-api-versions": "kafka.admin.BrokerApiVersionsCommand",
    "client-metrics": f"{_PACKAGE}.ClientMetricsCommand",
    "console-consumer": f"{_PACKAGE}.consumer.ConsoleConsumer",
    "console-producer": "kafka.tools.ConsoleProducer",
    "consumer-perf-test": f"{_PACKAGE}.ConsumerPerformance",
    "dump-log": "kafka.tools.DumpLogSegments",
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
    "state-change-log-merger": "kafka.tools.StateChangeLogMerger",
}
"""Scripts of Kafka's bin/ without "kafka-" -> their main classes; the last has no script."""
_ENDED = ""
_PROGRAM = Path(__file__).with_name("KafkaTools.java")
_TELL_WITHOUT = (
    "producer-perf-test",
    "state-change-log-merger",
)
"""They tell their options without any: one does not know --help, the others end the machine."""
_STATUS = re.compile(r"exit (-?\d+)")


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
    output = jvm.run(str(_PROGRAM), stdin="\n".join(script), timeout_s=timeout_s)
    found = []
    for section in output.split("\f")[1:]:
        text, _, status = section.partition("\n")[2].rstrip().rpartition("exit ")
        found.append(Output(text, int(status)))
    assert len(found) == len(commands), output
    return found


def first_verdict(bootstrap: str, topic: str, offset: int) -> str:
    """What replica-verification, which runs until it is killed, says first of this end offset."""
    words = ["--broker-list", bootstrap, "--topics-include", topic, "--report-interval-ms", "100"]
    command = jvm.command(CLASSES["replica-verification"], *words)
    said = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        killer = threading.Timer(60, process.kill)
        killer.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                said.append(line)
                if "max lag is" in line and f"at offset {offset}" in line:
                    return line
        finally:
            killer.cancel()
            process.kill()
    raise AssertionError("".join(said))


class KafkaTools:
    """One virtual machine for tools as they come, as a context manager."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._inputs = 0
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            jvm.command(str(_PROGRAM)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._follower = threading.Thread(target=self._follow, daemon=True)
        self._follower.start()
        return self

    def _follow(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(_ENDED)

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._follower.join()
        self._process.communicate()

    def __call__(
        self, name: str, *arguments: str, stdin: str | None = None, timeout_s: float = 100.0
    ) -> Output:
        """Runs a tool to its end. No argument may have a space in it."""
        words = [CLASSES[name], *arguments]
        if stdin is not None:
            self._inputs += 1
            given = self._folder / f"input{self._inputs}"
            given.write_text(stdin)
            words.append(f"<{given}")
        line = " ".join(words)
        assert len(line.split(" ")) == len(words), f"a space in {arguments}"
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        told: list[str] = []
        try:
            while not (told and _STATUS.fullmatch(told[-1].rstrip())):
                told.append(self._lines.get(timeout=timeout_s))
                assert told[-1] != _ENDED, f"{line} ended the virtual machine: {''.join(told)}"
        except queue.Empty:
            raise AssertionError(f"{line} does not end: {''.join(told)}") from None
        # What an earlier tool's threads still said comes before the line itself.
        begin = next(number for number, text in enumerate(told) if text.startswith("\f"))
        status = _STATUS.fullmatch(told[-1].rstrip())
        assert status is not None
        return Output("".join(told[begin + 1 : -1]).rstrip(), int(status[1]))

    def help(self, name: str) -> str:
        """Its options, as it tells them."""
        told = self(name, *(() if name in _TELL_WITHOUT else ("--help",))).text
        assert "--" in told, f"{name} has no help: {told}"
        return told
