"""What commands tell of partitions without a leader, beside others."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from pyrklog.cli.connection import Connection
from pyrklog.cli.options import Settings
from pyrklog.cli.topic_watch import see_topics
from tests.support.clients import Confluent, Record
from tests.support.cluster import BrokerCluster
from tests.support.cluster_clients import leaders
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(180)]

TIMEOUT_S = 15


def command(bootstrap: str, *words: str) -> list[str]:
    base = [sys.executable, "-m", "pyrklog", "-b", bootstrap]
    return [*base, "--timeout", f"{TIMEOUT_S}", *words]


def run(bootstrap: str, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command(bootstrap, *words), capture_output=True, text=True, timeout=90)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def test_one_partition_without_a_leader_hides_no_others(
    new_cluster: Callable[..., BrokerCluster], topic: str
) -> None:
    cluster = new_cluster().start()
    first, _, victim = cluster.brokers
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    new = NewTopic(topic, 2, replica_assignment=[[first], [victim]])
    admin.create_topics([new])[topic].result(30)
    wait_until(lambda: min(leaders(admin, topic).values()) > 0, "no leaders")
    for partition, value in enumerate((b"there", b"away")):
        Confluent().produce(cluster.bootstrap, topic, [Record(None, value)], partition=partition)
    assert run(cluster.bootstrap, "consume", topic, "-e", "-g", topic).returncode == 0
    cluster.brokers[victim].kill()
    wait_until(lambda: leaders(admin, topic)[1] < 0, "still led")
    bootstrap = cluster.brokers[first].bootstrap

    def ends() -> dict[int, tuple[int | None, int | None]]:
        shown = run(bootstrap, "group", "describe", topic, "-o", "json").stdout
        rows = json.loads(shown)["items"][0]["partitions"]
        return {one["partition"]: (one["end"], one["lag"]) for one in rows}

    seen = see_topics(Connection(Settings(bootstrap)), [topic])[topic]
    assert seen is not None
    assert seen.partitions == {0: True, 1: False}
    assert ends() == {0: (1, 0), 1: (None, None)}
    done = run(bootstrap, "consume", topic, "-e", code=9)
    assert done.stdout == "there\n"
    assert f"note: {topic} [1]: left out, without a leader" in done.stderr
    assert f"{topic} [1] was not read: there is no leader" in done.stderr
    done = run(bootstrap, "consume", topic, "-e", "-p", "1", code=7)
    assert "error[PK80]" in done.stderr
    with subprocess.Popen(
        command(bootstrap, "consume", topic, "-n", "2"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as reader:
        try:
            assert reader.stdout is not None
            assert reader.stderr is not None
            assert reader.stdout.readline() == "there\n"
            cluster.brokers[victim].start()
            assert reader.stdout.readline() == "away\n"
            assert reader.wait(60) == 0
            assert f"note: {topic} [1]: read now, as there is a leader" in reader.stderr.read()
        finally:
            reader.kill()
