"""Pipelines on a Spark cluster of several processes, one of whose workers is killed under way."""

from __future__ import annotations

import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyrklog.testing import TestBroker
from tests.support import flights_input
from tests.support.sinking import values, wait_for_values
from tests.support.spark_cluster import StandaloneCluster, program
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.jvm, pytest.mark.spark, pytest.mark.timeout(240)]

PROGRAM_S = 150
RECORDS_A_BATCH = 1_500


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[StandaloneCluster]:
    with StandaloneCluster(tmp_path, 2) as started:
        yield started


def run_and_kill_a_worker(
    cluster: StandaloneCluster, folder: Path, queries: list[str], *arguments: str
) -> None:
    """Kills it once all queries have committed something, and waits for the program's end."""
    command, env = program(
        cluster, "pyrklog.spark.pipelines", *arguments, "--records", str(RECORDS_A_BATCH)
    )
    log = folder.with_suffix(".log")
    with log.open("wb") as errors:
        process = subprocess.Popen(
            command, stdout=errors, stderr=errors, env=env, start_new_session=True
        )

    def is_under_way() -> bool:
        assert process.poll() is None, log.read_text()[-3000:]
        commits = [folder / "checkpoints" / name / "commits" for name in queries]
        return all(list(one.glob("[0-9]*")) for one in commits)

    try:
        wait_until(is_under_way, lambda: log.read_text()[-3000:], PROGRAM_S)
        assert [len(cluster.executors(number)) for number in (0, 1)] == [1, 1]
        cluster.kill_worker(0)
        assert process.wait(PROGRAM_S) == 0, log.read_text()[-3000:]
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_state_and_a_topic_exactly_once(
    broker: TestBroker, cluster: StandaloneCluster, tmp_path: Path
) -> None:
    flights_input.create_topics(broker.bootstrap, ["flights-twice", "flights-once"])
    again = flights_input.twice(flights_input.read().flights)
    flights_input.produce(broker.bootstrap, "flights-twice", again, "tailnum")
    folder = tmp_path / "duplicates"
    run_and_kill_a_worker(
        cluster, folder, ["flights-once"], "duplicates", broker.bootstrap, str(folder)
    )
    sent = values(broker.bootstrap, "flights-twice")
    assert max(sent.values()) == 2
    wait_for_values(broker.bootstrap, "flights-once", Counter(set(sent)))
