"""A real ZooKeeper for tests, from the jars in the pyspark package: no extra download."""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from pyrklog.testing.broker import free_port
from tests.support import jvm
from tests.support.certificates import Certificates
from tests.support.waiting import wait_until_serves

_START_S = 60
_MAIN = "org.apache.zookeeper.server.ZooKeeperServerMain"
_JARS = (
    "zookeeper-*",
    "netty-*",
    "slf4j-api-*",
    "log4j-*",
    "metrics-core-*",
    "snappy-java-*",
    "commons-io-*",
    "commons-cli-*",
)


class ZooKeeperServer:
    """One server with a folder and port of its own; it can be killed and restarted."""

    def __init__(
        self,
        folder: Path,
        certificates: Certificates | None = None,
        host: str = "127.0.0.1",
        wrapper: Sequence[str] = (),
    ) -> None:
        """With ``certificates`` it also listens at ``secure_address``, and requires client
        certificates there. ``wrapper`` is a command prefix that must exec the command."""
        self.folder = folder
        self.port = free_port()
        self.address = f"{host}:{self.port}"
        self._host = host
        self._wrapper = list(wrapper)
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        settings = [
            f"dataDir={folder / 'data'}",
            f"clientPort={self.port}",
            f"clientPortAddress={host}",
            "tickTime=500",
            # Some tests show what does not wait for the end of a session.
            "maxSessionTimeout=600000",
            "maxClientCnxns=0",
            "admin.enableServer=false",
            "4lw.commands.whitelist=srvr",
        ]
        if certificates is not None:
            secure_port = free_port()
            self.secure_address = f"{host}:{secure_port}"
            settings += [
                f"secureClientPort={secure_port}",
                "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
                "authProvider.x509=org.apache.zookeeper.server.auth.X509AuthenticationProvider",
                f"ssl.keyStore.location={certificates.server}",
                f"ssl.trustStore.location={certificates.ca}",
                "ssl.clientAuth=need",
            ]
        (folder / "zoo.cfg").write_text("".join(f"{line}\n" for line in settings))

    def start(self) -> None:
        """Returns once it serves."""
        with (self.folder / "zoo.log").open("ab") as output:
            command = [jvm.java(), *jvm.FLAGS, "-Xmx256m", "-cp", _classpath(), _MAIN]
            self._process = subprocess.Popen(
                [*self._wrapper, *command, str(self.folder / "zoo.cfg")],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        wait_until_serves(self._process, self.folder / "zoo.log", self._serves, _START_S)

    def _serves(self) -> bool:
        try:
            with socket.create_connection((self._host, self.port), timeout=2) as connection:
                connection.sendall(b"srvr")
                return b"Mode:" in connection.recv(4096)
        except OSError:
            return False

    def pause(self) -> None:
        """Stops it with its connections open."""
        self._running().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._running().send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Ends it at once; its data stays."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "it does not run"
        return self._process


def _classpath() -> str:
    found = find_spec("pyspark")
    assert found is not None, "the package pyspark is not installed"
    assert found.origin is not None, "the package pyspark has no folder"
    jars = Path(found.origin).parent / "jars"
    return ":".join(str(jar) for pattern in _JARS for jar in sorted(jars.glob(f"{pattern}.jar")))
