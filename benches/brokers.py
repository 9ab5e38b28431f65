"""The brokers and the floor: setup, start, stop and settings."""

import base64
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path

from benches import process, spent
from benches.metadata_probe import BrokerEnded, wait_for_metadata

ROOT = Path(__file__).parents[1]
KAFKA_JARS = ROOT / ".cache" / "kafka"
KAFKA_VERSION = "3.9.1"
# The defaults of Kafka's own start script.
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
_STOP_TIMEOUT_S = 180.0
# Kafka keeps every segment open; its documentation asks for this many.
_OPEN_FILES = 100_000
# A finished case's data must be gone before the next one begins.
_DELETE_DELAY = ("log.segment.delete.delay.ms", "1000")
# Kafka's default, and pyrklog's in a cluster: members of a new group wait for each other.
_REBALANCE_DELAY = ("group.initial.rebalance.delay.ms", "3000")


class BenchError(Exception):
    """A benchmark cannot continue; the message is for the user."""


class Unavailable(BenchError):
    """This machine cannot run the case; others can continue."""


class Broker(ABC):
    """One broker on the loopback interface, with its data in a folder of its own.

    ``start`` and ``stop`` may be repeated on the same data; ``remove`` ends it for good. ``topics``
    lists a case's topics, which are removed after it. ``unwritten_max_bytes`` limits data that is
    in neither a file nor the page cache.
    """

    name: str
    unwritten_max_bytes = 0

    def __init__(self, folder: Path, log_dirs: Sequence[Path] = ()) -> None:
        self.folder = folder
        self.port = free_port()
        self.topics: list[str] = []
        self._given_log_dirs = tuple(log_dirs)
        self._process: subprocess.Popen[bytes] | None = None
        self._is_asked = False

    @property
    def bootstrap(self) -> str:
        """For ``bootstrap.servers``."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise BenchError(f"{self.name} is not running")
        return self._process.pid

    @abstractmethod
    def prepare(self) -> None:
        """Prepares the folder for the first start."""

    @abstractmethod
    def command(self) -> list[str]:
        """The command line; it must become the broker's process itself."""

    @abstractmethod
    def describe(self) -> list[str]:
        """The settings, line by line, for the report."""

    @abstractmethod
    def default_log_dir(self) -> Path:
        """The log directory unless others were given."""

    def forget_cache(self) -> None:
        """Removes the block cache of a process that has ended."""
        for marker in (log_dir / ".pyrklog-arena" for log_dir in self.log_dirs):
            if marker.exists():
                found = [line.partition("=") for line in marker.read_text().splitlines()]
                for name, _, path in found:
                    if name == "path":
                        Path(path).unlink(missing_ok=True)
                marker.unlink()

    @property
    def log_dirs(self) -> tuple[Path, ...]:
        return self._given_log_dirs or (self.default_log_dir(),)

    def partition_folder(self, topic: str, partition: int) -> Path:
        """The partition's folder, or its future place."""
        places = [log_dir / f"{topic}-{partition}" for log_dir in self.log_dirs]
        return next((place for place in places if place.exists()), places[0])

    def start(self, enter_group: Callable[[], None] | None, timeout_s: float = 60.0) -> float:
        """Starts the process; seconds from its creation to a Metadata reply that names a broker."""
        output = self.folder / "output.log"
        started = self.execute(enter_group)
        child = self._process
        assert child is not None
        try:
            deadline = started + timeout_s
            ready = wait_for_metadata(self.port, deadline, lambda: child.poll() is None)
        except (BrokerEnded, TimeoutError) as error:
            self.kill()
            text = output.read_text(errors="replace")[-2_000:]
            raise BenchError(f"{self.name} did not start ({error!r}):\n{text}") from None
        return ready - started

    def execute(self, enter_group: Callable[[], None] | None) -> float:
        """Creates the process without waiting; returns the monotonic time just before."""

        def prepare_process() -> None:
            if enter_group is not None:
                enter_group()
            raise_open_files()

        self._is_asked = False
        with (self.folder / "output.log").open("ab") as sink:
            started = time.monotonic()
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                preexec_fn=prepare_process,
            )
        return started

    def ask_to_stop(self) -> None:
        if self._process is not None:
            self._is_asked = True
            self._process.send_signal(signal.SIGTERM)

    def stop(self) -> float:
        """SIGTERM; returns the seconds until its end. A process that hangs is killed, which is an
        error."""
        if self._process is None:
            return 0.0
        began = time.monotonic()
        # Our broker ends at once at a second signal.
        if not self._is_asked:
            self.ask_to_stop()
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BenchError(f"{self.name} did not stop within {_STOP_TIMEOUT_S} s") from None
        self._process = None
        return time.monotonic() - began

    def kill(self) -> None:
        """SIGKILL to all its processes, parents first, so that none starts another."""
        if self._process is None:
            return
        for pid in process.tree(self._process.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # it ended with its parent
        self._process.wait()
        self._process = None

    def pause(self) -> None:
        """Stops the process like a machine that hangs; its child processes continue."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def kill_alone(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def remove(self) -> None:
        """Ends it and releases its data's space."""
        self.kill()
        spent.empty(self.folder)


class Kafka(Broker):
    """Apache Kafka as one KRaft node, with its distribution's settings."""

    name = "kafka"

    def __init__(self, folder: Path, log_dirs: Sequence[Path] = ()) -> None:
        super().__init__(folder, log_dirs)
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
            "log.dirs": ",".join(map(str, self.log_dirs)),
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
            _DELETE_DELAY[0]: _DELETE_DELAY[1],
        }

    def prepare(self) -> None:
        self.write_files()
        cluster = uuid.uuid4().bytes
        cluster_id = base64.urlsafe_b64encode(cluster).decode().rstrip("=")
        format_command = [
            *java(self.folder),
            "kafka.tools.StorageTool",
            *("format", f"--cluster-id={cluster_id}"),  # it may begin with a hyphen
            *("--config", str(self.folder / "server.properties")),
        ]
        done = subprocess.run(format_command, capture_output=True, text=True, cwd=self.folder)
        if done.returncode:
            raise BenchError(f"kafka-storage format failed:\n{done.stdout}{done.stderr}")

    def write_files(self) -> None:
        """Writes its settings and its log configuration."""
        self.folder.mkdir(parents=True)
        lines = [f"{name}={value}" for name, value in self.settings().items()]
        (self.folder / "server.properties").write_text("\n".join(lines) + "\n")
        (self.folder / "log4j.properties").write_text(
            "log4j.rootLogger=INFO, out\n"
            "log4j.appender.out=org.apache.log4j.ConsoleAppender\n"
            "log4j.appender.out.layout=org.apache.log4j.PatternLayout\n"
            "log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n\n"
        )

    def command(self) -> list[str]:
        return [*java(self.folder), "kafka.Kafka", str(self.folder / "server.properties")]

    def describe(self) -> list[str]:
        settings = [f"{name}={value}" for name, value in self.settings().items()]
        return [f"Apache Kafka {KAFKA_VERSION}, KRaft", " ".join(JVM_FLAGS), *settings]

    def default_log_dir(self) -> Path:
        return self.folder / "logs"


class Pyrklog(Broker):
    """pyrklog as ``pip install`` gives it, with its defaults."""

    name = "pyrklog"
    # Half of its block cache, which is 60 % of the memory cgroup.
    unwritten_max_bytes = 750_000_000

    def prepare(self) -> None:
        self.folder.mkdir(parents=True)

    def command(self) -> list[str]:
        program = Path(sys.executable).with_name("pyrklog")
        if not program.exists():
            raise BenchError(f"{program} is missing: run `make build` first")
        settings = ["=".join(_DELETE_DELAY), "=".join(_REBALANCE_DELAY)]
        if self._given_log_dirs:
            settings.append("log.dirs=" + ",".join(map(str, self.log_dirs)))
        return [
            *(str(program), "serve", "--listen", self.bootstrap),
            *("--data", str(self.folder / "data")),
            *(word for setting in settings for word in ("--set", setting)),
        ]

    def describe(self) -> list[str]:
        settings = map("=".join, (_DELETE_DELAY, _REBALANCE_DELAY))
        return ["pyrklog, release build, defaults", *settings]

    def remove(self) -> None:
        """Also removes the block cache that outlives a SIGKILL."""
        self.kill()
        self.forget_cache()
        super().remove()

    def default_log_dir(self) -> Path:
        return self.folder / "data" / "logs"


class Floor(Broker):
    """No broker: benches/floors, which does only the unavoidable work."""

    name = "floor"
    unwritten_max_bytes = 375_000_000
    # Bytes kept in memory; older ones are read from files. None: only as much as memory holds.
    reads_files_beyond_bytes: int | None = None

    def prepare(self) -> None:
        self.folder.mkdir(parents=True)

    def command(self) -> list[str]:
        data = str(self.default_log_dir())
        command = [str(floors()), "--listen", self.bootstrap, "--data", data]
        if self.reads_files_beyond_bytes is not None:
            memory = str(self.reads_files_beyond_bytes)
            command += ["--read-files", "--memory-bytes", memory]
        return command

    def describe(self) -> list[str]:
        return ["benches/floors: receive, CRC, copy, answer, write behind; send from memory"]

    def default_log_dir(self) -> Path:
        return self.folder / "logs"


BROKERS: dict[str, type[Broker]] = {"kafka": Kafka, "pyrklog": Pyrklog, "floor": Floor}


def java(folder: Path, flags: Sequence[str] = JVM_FLAGS, jars: Path = KAFKA_JARS) -> list[str]:
    """A Java command with Kafka's classes and logs in ``folder``. Raises BenchError if there is no
    Java."""
    if not any(jars.glob("kafka-clients-*.jar")):
        raise BenchError(f"no Kafka jars in {jars}: run `make bench`, which fetches them")
    program = shutil.which("java")
    if program is None:
        raise BenchError("java is not on the PATH: the reference Kafka needs JDK 17")
    log4j = f"-Dlog4j.configuration=file:{folder / 'log4j.properties'}"
    return [program, *flags, log4j, "-cp", f"{jars}/*"]


def floors() -> Path:
    program = ROOT / "target" / "release" / "pyrklog-floors"
    if not program.exists():
        raise BenchError(f"{program} is missing: `cargo build --release -p pyrklog-floors`")
    return program


def raise_open_files() -> None:
    """Runs between fork and exec: raises the limit of open files to a broker's need, if allowed."""
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (_OPEN_FILES, _OPEN_FILES))
    except (ValueError, OSError):
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def free_port() -> int:
    """A port that is free now, below Linux's range for outgoing connections."""
    for port in random.sample(range(12_000, 32_000), 200):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise BenchError("no free port between 12000 and 32000")
