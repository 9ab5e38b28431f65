"""Apache Kafka itself, one node without ZooKeeper, for what only Kafka can write."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from pyrklog.testing.broker import free_port
from tests.support import jvm
from tests.support.waiting import wait_until_serves
from tests.support.wire import API_VERSIONS, Connection

_START_S = 90


class KafkaBroker:
    """A Kafka 3.9.1 broker and controller in ``folder``; partition folders are in ``folder/data``.

    ``data``: an existing data directory to use instead; ``options``: more of its options;
    ``port``: another than a free one.
    """

    def __init__(
        self,
        folder: Path,
        data: Path | None = None,
        options: Mapping[str, str] | None = None,
        port: int | None = None,
    ) -> None:
        self._folder = folder
        self.port, controller = free_port() if port is None else port, free_port()
        self.data = data or folder / "data"
        self._is_formatted = data is not None
        self._log = folder / "output.log"
        self._process: subprocess.Popen[bytes] | None = None
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.data),
            "offsets.topic.replication.factor": "1",
            # Fifty by default, which a broker makes for the first group.
            "offsets.topic.num.partitions": "5",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.num.partitions": "1",
            "transaction.state.log.min.isr": "1",
            "log.index.interval.bytes": "512",
            # As in Kafka's quick start; by default each group waits three seconds.
            "group.initial.rebalance.delay.ms": "0",
            **(options or {}),
        }
        folder.mkdir(parents=True)
        self._properties = folder / "server.properties"
        self._properties.write_text("".join(f"{k}={v}\n" for k, v in settings.items()))

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        return self.start()

    def start(self) -> Self:
        """Returns once it answers."""
        self.begin()
        try:
            self.wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def begin(self) -> None:
        """Starts it, and waits for nothing: one of several may need the others."""
        cluster_id = "MkU3OEVBNTcwNTJENDM2Qg"
        arguments = ("format", "-t", cluster_id, "-c", str(self._properties))
        if not self._is_formatted:
            jvm.run("kafka.tools.StorageTool", *arguments)
            self._is_formatted = True
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                jvm.command("kafka.Kafka", str(self._properties)),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def wait(self) -> None:
        """Until it answers; AssertionError with its output if it ends before."""
        assert self._process is not None
        wait_until_serves(self._process, self._log, self._answers, _START_S)

    def kill(self) -> None:
        """As kill -9; its data stays."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def restart(self) -> None:
        """With the same data; leaders get new epochs."""
        self.__exit__()
        self.start()

    def _answers(self) -> bool:
        try:
            with Connection(self.bootstrap, timeout_s=2) as connection:
                return bool(connection.request(API_VERSIONS, 0, b""))
        except OSError:
            return False
