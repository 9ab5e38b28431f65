"""The two brokers: how each is set up, started and stopped, and what it is given."""

import base64
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

from benches.metadata_probe import BrokerEnded, wait_for_metadata

ROOT = Path(__file__).parents[1]
KAFKA_JARS = ROOT / ".cache" / "kafka"
KAFKA_VERSION = "3.9.1"
# As Kafka's own start script sets them when nothing else is asked.
JVM_FLAGS = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
)
_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 30.0


class BenchError(Exception):
    """A benchmark cannot go on; the message is for the user."""


class Broker(ABC):
    """One broker on the loopback interface, with its data in a folder of its own.

    `start` and `stop` may be repeated on the same data; `remove` ends it for good.
    """

    name: str

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """For `bootstrap.servers`."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The process id of the running broker."""
        if self._process is None:
            raise BenchError(f"{self.name} is not running")
        return self._process.pid

    @abstractmethod
    def prepare(self) -> None:
        """Makes the folder ready for the first start."""

    @abstractmethod
    def command(self) -> list[str]:
        """The command line; it must become the broker's process itself."""

    @abstractmethod
    def describe(self) -> list[str]:
        """What was set, line by line, for the report."""

    @abstractmethod
    def partition_folder(self, topic: str, partition: int) -> Path:
        """Where the partition's segments lie."""

    def start(self, enter_group: Callable[[], None] | None) -> float:
        """Starts the process; seconds from its creation to a Metadata reply that names a broker."""
        output = self.folder / "output.log"
        with output.open("ab") as sink:
            started = time.monotonic()
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                preexec_fn=enter_group,
            )
        process = self._process
        try:
            deadline = started + _START_TIMEOUT_S
            ready = wait_for_metadata(self.port, deadline, lambda: process.poll() is None)
        except (BrokerEnded, TimeoutError) as error:
            self.kill()
            text = output.read_text(errors="replace")[-2_000:]
            raise BenchError(f"{self.name} did not start ({error!r}):\n{text}") from None
        return ready - started

    def stop(self) -> float:
        """SIGTERM and wait; seconds that it took. One that hangs is killed, which is an error."""
        if self._process is None:
            return 0.0
        began = time.monotonic()
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BenchError(f"{self.name} did not stop within {_STOP_TIMEOUT_S} s") from None
        self._process = None
        return time.monotonic() - began

    def kill(self) -> None:
        """SIGKILL, for the way out of an error."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def remove(self) -> None:
        """Ends it and deletes its data."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class Kafka(Broker):
    """Apache Kafka as one KRaft node, with the settings that its distribution ships."""

    name = "kafka"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._controller_port = free_port()

    def settings(self) -> dict[str, str]:
        """server.properties of the distribution (config/kraft), with our ports and folder."""
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller_port}",
            "listeners": (
                f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self._controller_port}"
            ),
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.folder / "logs"),
            "num.network.threads": "3",
            "num.io.threads": "8",
            "socket.send.buffer.bytes": "102400",
            "socket.receive.buffer.bytes": "102400",
            "socket.request.max.bytes": "104857600",
            "num.recovery.threads.per.data.dir": "1",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "log.segment.bytes": "1073741824",
            "log.retention.hours": "168",
        }

    def prepare(self) -> None:
        self.folder.mkdir(parents=True)
        lines = [f"{name}={value}" for name, value in self.settings().items()]
        (self.folder / "server.properties").write_text("\n".join(lines) + "\n")
        (self.folder / "log4j.properties").write_text(
            "log4j.rootLogger=INFO, out\n"
            "log4j.appender.out=org.apache.log4j.ConsoleAppender\n"
            "log4j.appender.out.layout=org.apache.log4j.PatternLayout\n"
            "log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n\n"
        )
        cluster = uuid.uuid4().bytes
        cluster_id = base64.urlsafe_b64encode(cluster).decode().rstrip("=")
        format_command = [
            *self._java(),
            "kafka.tools.StorageTool",
            *("format", "--cluster-id", cluster_id),
            *("--config", str(self.folder / "server.properties")),
        ]
        done = subprocess.run(format_command, capture_output=True, text=True, cwd=self.folder)
        if done.returncode:
            raise BenchError(f"kafka-storage format failed:\n{done.stdout}{done.stderr}")

    def _java(self) -> list[str]:
        if not any(KAFKA_JARS.glob("kafka_2.13-*.jar")):
            raise BenchError(f"no Kafka jars in {KAFKA_JARS}: run `make bench`, which fetches them")
        java = shutil.which("java")
        if java is None:
            raise BenchError("java is not on the PATH: the reference Kafka needs JDK 17")
        log4j = f"-Dlog4j.configuration=file:{self.folder / 'log4j.properties'}"
        return [java, *JVM_FLAGS, log4j, "-cp", f"{KAFKA_JARS}/*"]

    def command(self) -> list[str]:
        return [*self._java(), "kafka.Kafka", str(self.folder / "server.properties")]

    def describe(self) -> list[str]:
        settings = [f"{name}={value}" for name, value in self.settings().items()]
        return [f"Apache Kafka {KAFKA_VERSION}, KRaft", " ".join(JVM_FLAGS), *settings]

    def partition_folder(self, topic: str, partition: int) -> Path:
        return self.folder / "logs" / f"{topic}-{partition}"


class Pyrklog(Broker):
    """pyrklog as `pip install` gives it, with its defaults."""

    name = "pyrklog"

    def prepare(self) -> None:
        self.folder.mkdir(parents=True)

    def command(self) -> list[str]:
        program = Path(sys.executable).with_name("pyrklog")
        if not program.exists():
            raise BenchError(f"{program} is missing: run `make build` first")
        listen = f"127.0.0.1:{self.port}"
        return [str(program), "serve", "--listen", listen, "--data", str(self.folder / "data")]

    def describe(self) -> list[str]:
        return ["pyrklog, release build, defaults"]

    def partition_folder(self, topic: str, partition: int) -> Path:
        return self.folder / "data" / "logs" / f"{topic}-{partition}"


BROKERS: dict[str, type[Broker]] = {"kafka": Kafka, "pyrklog": Pyrklog}


def free_port() -> int:
    """A port that is free now, below those that Linux gives to outgoing connections."""
    for port in random.sample(range(12_000, 32_000), 200):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise BenchError("no free port between 12000 and 32000")
