"""What the commands and brokers say of a cluster's health while a broker is killed, and after."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.support.cluster import BrokerCluster
from tests.support.cluster_clients import create
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(180)]

HEALTHY, DIFFERS = 0, 8


def run(cluster: BrokerCluster, *words: str) -> tuple[int, str]:
    """Exit code and output of ``pyrklog cluster``."""
    command = [sys.executable, "-m", "pyrklog", "cluster", *words, "-b", cluster.bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode in (HEALTHY, DIFFERS), done.stderr
    return done.returncode, done.stdout


def ask(cluster: BrokerCluster, *words: str) -> tuple[int, str, set[str]]:
    """Exit code, level, and kinds of findings."""
    code, shown = run(cluster, *words, "-o", "json")
    (item,) = json.loads(shown)["items"]
    return code, item["level"], {reason["kind"] for reason in item["reasons"]}


def test_a_killed_broker_is_told_until_it_is_back(
    new_cluster: Callable[..., BrokerCluster], topic: str
) -> None:
    cluster = new_cluster().start()
    create(cluster, topic, 6, 3, options={"min.insync.replicas": "2"})
    assert run(cluster, "health", "--exit", "--for", "60s")[0] == HEALTHY
    for number in cluster.brokers:
        assert ask(cluster, "restart-safe", str(number))[:2] == (HEALTHY, "ok")
    victim, *others = cluster.brokers
    cluster.brokers[victim].kill()
    wait_until(lambda: "missing" in ask(cluster, "health")[2], "the loss is not told")
    assert ask(cluster, "health")[:2] == (DIFFERS, "not_safe")
    for number in others:
        # Brokers hear of the smaller ISRs one after another.
        wait_until(
            lambda n=number: "in_the_way" in ask(cluster, "restart-safe", str(n))[2],  # type: ignore[misc]
            "it may restart",
        )
        assert ask(cluster, "restart-safe", str(number))[:2] == (DIFFERS, "not_safe")
    cluster.brokers[victim].start()
    code, shown = run(cluster, "health", "--stable", "2s", "--for", "60s")
    assert code == HEALTHY, shown
    assert shown.rfind("HEALTHY") > shown.rfind("NOT SAFE"), shown
    assert ask(cluster, "restart-safe", str(others[0]))[:2] == (HEALTHY, "ok")
