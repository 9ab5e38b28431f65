"""A Spark standalone cluster: a master and workers, each a process, from the pyspark package."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pyspark

from tests.support.waiting import wait_until

HOME = Path(pyspark.__file__).parent
WORKER_MEMORY = "1g"
_MASTER_AT = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = "Successfully registered with master"


class StandaloneCluster:
    """Workers of one core each. Logs and work folders are in ``folder``."""

    def __init__(self, folder: Path, workers: int) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self._start("master.Master", "master.log")
        self.url = self._found("master.log", _MASTER_AT)
        for number in range(workers):
            place = folder / f"worker{number}"
            options = ["--cores", "1", "--memory", WORKER_MEMORY, "--work-dir", str(place)]
            self._start("worker.Worker", f"worker{number}.log", *options, self.url)
        for number in range(workers):
            self._found(f"worker{number}.log", re.compile(f"({_REGISTERED})"))

    def _start(self, name: str, log: str, *arguments: str) -> None:
        options = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        with (self._folder / log).open("wb") as errors:
            process = subprocess.Popen(
                [
                    str(HOME / "bin" / "spark-class"),
                    f"org.apache.spark.deploy.{name}",
                    *options,
                    *arguments,
                ],
                stdout=errors,
                stderr=errors,
                env=environment() | {"SPARK_DAEMON_MEMORY": "256m"},
                start_new_session=True,
            )
        self._processes.append(process)

    def _found(self, log: str, pattern: re.Pattern[str]) -> str:
        path = self._folder / log
        found: list[str] = []

        def is_found() -> bool:
            text = path.read_text(errors="replace")
            found[:] = pattern.findall(text)
            return bool(found)

        wait_until(is_found, lambda: path.read_text(errors="replace")[-3000:])
        return found[0]

    def kill_worker(self, number: int) -> None:
        """With its executor."""
        self._kill(self._processes[1 + number])

    def executors(self, number: int) -> list[Path]:
        """Folders of those that a worker has started."""
        return sorted((self._folder / f"worker{number}").glob("app-*/*"))

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def close(self) -> None:
        for process in reversed(self._processes):
            self._kill(process)

    def __enter__(self) -> StandaloneCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def environment() -> dict[str, str]:
    """Of all processes of a cluster: they are on one machine, and have one interpreter."""
    return os.environ | {
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }


def program(
    cluster: StandaloneCluster, module: str, *arguments: str
) -> tuple[list[str], dict[str, str]]:
    """Command and environment of a program that knows nothing of the cluster."""
    settings = {
        "spark.executor.memory": "512m",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
    }
    options = [f"--conf {name}={value}" for name, value in settings.items()]
    submit = " ".join(["--master", cluster.url, *options, "pyspark-shell"])
    command = [sys.executable, "-m", module, *arguments]
    return command, environment() | {"PYSPARK_SUBMIT_ARGS": submit}
