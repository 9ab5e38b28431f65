"""Unused committed offsets expire, and in the end their group (KIP-211).

The shortest retention is a minute, so this takes one.
"""

import time
from pathlib import Path

from pyrklog.testing import TestBroker
from tests.support import jvm
from tests.support.groups import ConfluentMember, Crew, create_topic, fill
from tests.support.waiting import PATIENCE_S, wait_until

TOPIC, PARTITIONS, EACH = "t", 2, 10
RETENTION_S = 60.0
OPTIONS = {
    "offsets.retention.minutes": 1,
    "offsets.retention.check.interval.ms": 1_000,
    "group.initial.rebalance.delay.ms": 0,
}


def _groups(bootstrap: str, *arguments: str) -> str:
    """Kafka's own tool; returns both output streams."""
    tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    return jvm.run(tool, "--bootstrap-server", bootstrap, *arguments)


def test_offsets_of_an_idle_group_expire_and_those_of_a_busy_one_do_not(tmp_path: Path) -> None:
    with TestBroker(tmp_path / "data", options=OPTIONS) as broker:
        bootstrap = broker.bootstrap
        create_topic(bootstrap, TOPIC, PARTITIONS)
        fill(bootstrap, TOPIC, PARTITIONS, EACH)
        with Crew(ConfluentMember(bootstrap, "busy", TOPIC)) as busy:
            busy.poll_until(lambda: busy.owns_all(PARTITIONS), "the busy group")
            busy.members[0].commit({0: 3, 1: 4}, "kept")
            with Crew(ConfluentMember(bootstrap, "idle", TOPIC)) as idle:
                idle.poll_until(lambda: idle.owns_all(PARTITIONS), "the idle group")
                idle.members[0].commit({0: 5, 1: 6}, "forgotten")
            emptied = time.monotonic()
            assert "idle" in _groups(bootstrap, "--list").split()

            def gone() -> bool:
                busy.seen += busy.members[0].poll()
                return any("group_offsets_expired" in line for line in broker.log)

            wait_until(gone, "the idle group's offsets stay", RETENTION_S + PATIENCE_S)
            assert time.monotonic() - emptied >= RETENTION_S - 1
            assert _groups(bootstrap, "--list").split() == ["busy"]
            assert busy.members[0].committed(0) == (3, "kept")
        broker.kill()
        broker.start()
        with Crew(ConfluentMember(bootstrap, "idle", TOPIC)) as again:
            again.poll_until(lambda: again.owns_all(PARTITIONS), "the group, anew")
            assert again.members[0].committed(0) is None
