"""A real PostgreSQL for tests, from the archive that ``make test`` fetched."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any, Self

import psycopg

from pyrklog.testing.broker import free_port
from tests.support.jvm import ROOT
from tests.support.waiting import PATIENCE_S, wait_until_serves

ARCHIVE = ROOT / ".cache" / "postgres"
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "wal_level": "logical",
    # Tests end processes, not machines.
    "fsync": "off",
    "max_replication_slots": "200",
}


class PostgresServer:
    """One server with a folder of its own; it can be killed and started again. A context manager.

    It refuses to run as root: as another user then, who may not reach this checkout, so that
    programs and data are in a short folder of that user's.
    """

    def __init__(self, **settings: str) -> None:
        """``settings`` go before those that a test needs."""
        self._settings = _SETTINGS | settings
        self._folder = Path(tempfile.mkdtemp(prefix="pyrklog-pg-"))
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._user: dict[str, Any] = {}
        if os.getuid() == 0:
            nobody = pwd.getpwnam("nobody")
            self._user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            os.chown(self._folder, nobody.pw_uid, nobody.pw_gid)
        _unpack(self._folder / "server")
        subprocess.run(
            [
                *(self._folder / "server/bin/initdb", "-D", self._folder / "data"),
                *("-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"),
            ],
            **self._placed(),
            capture_output=True,
            check=True,
            timeout=PATIENCE_S,
        )

    @property
    def conninfo(self) -> str:
        return self.of("postgres")

    def of(self, database: str) -> str:
        return f"host=127.0.0.1 port={self._port} user=postgres dbname={database}"

    def connect(self, database: str = "postgres") -> psycopg.Connection[Any]:
        """Each statement is a transaction of its own. The caller closes it."""
        return psycopg.connect(self.of(database), autocommit=True)

    def new_database(self, name: str) -> str:
        """How it is reached."""
        with self.connect() as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return self.of(name)

    def start(self) -> Self:
        """Returns once it serves."""
        command = [str(self._folder / "server/bin/postgres"), "-D", str(self._folder / "data")]
        command += ["-p", str(self._port)]
        command += [f"--{name}={value}" for name, value in self._settings.items()]
        log = self._folder / "server.log"
        with log.open("ab") as output:
            process: subprocess.Popen[bytes] = subprocess.Popen(
                command,
                **self._placed(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._process = process
        wait_until_serves(process, log, self._serves, PATIENCE_S)
        return self

    def log(self) -> str:
        return (self._folder / "server.log").read_text()

    def crash(self) -> None:
        """All its processes end at once, without a word to the disk; data stays."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(PATIENCE_S)
            self._process = None

    def close(self) -> None:
        self.crash()
        shutil.rmtree(self._folder)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _serves(self) -> bool:
        try:
            self.connect().close()
        except psycopg.OperationalError:
            return False
        return True

    def _placed(self) -> dict[str, Any]:
        return self._user | {"cwd": self._folder, "env": {"LC_ALL": "C", "TZ": "UTC"}}


def _unpack(folder: Path) -> None:
    jars = list(ARCHIVE.glob("*.jar"))
    assert len(jars) == 1, f"no archive in {ARCHIVE}: run `make .cache/postgres.done`"
    folder.mkdir()
    folder.chmod(0o755)
    with zipfile.ZipFile(jars[0]) as jar:
        (name,) = (one for one in jar.namelist() if one.endswith(".txz"))
        with jar.open(name) as packed, tarfile.open(fileobj=packed, mode="r|xz") as files:
            # Python before 3.11.4 has no filters; later ones want to be told that none is meant.
            files.extraction_filter = lambda member, path: member
            files.extractall(folder)
