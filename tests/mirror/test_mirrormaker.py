"""Checkpoints of ``pyrklog mirror``, read with MirrorMaker's own ``RemoteClusterUtils``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import pyrklog
from pyrklog.mirror import Policy
from pyrklog.testing import TestBroker
from tests.support import jvm
from tests.support.groups import create_topic
from tests.support.mirroring import Pair, commit, fill

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(240)]

PROGRAM = Path(__file__).with_name("RemoteOffsets.java")
POLICIES = {
    Policy.PREFIX: "org.apache.kafka.connect.mirror.DefaultReplicationPolicy",
    Policy.IDENTITY: "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
}


@pytest.fixture
def pair(tmp_path: Path, topic: str) -> Iterator[Pair]:
    """Of brokers of its own: all mirrors of an alias write to the same topic of checkpoints."""
    with TestBroker(tmp_path / "east") as east, TestBroker(tmp_path / "west") as west:
        yield Pair(east.bootstrap, west.bootstrap, topic)


def value_at(bootstrap: str, topic: str, partition: int, offset: int) -> bytes:
    found = pyrklog.scan(
        {topic: [partition]},
        start=offset,
        columns=["offset", "value"],
        bootstrap_servers=bootstrap,
    )
    rows = found.reader().read_all().to_pylist()
    value: bytes = min(rows, key=lambda row: row["offset"])["value"]
    return value


@pytest.mark.parametrize("policy", POLICIES)
def test_mirrormakers_reader_translates_a_groups_offsets(
    pair: Pair, topic: str, policy: Policy
) -> None:
    create_topic(pair.source, topic, 2)
    mirrored = topic if policy is Policy.IDENTITY else f"east.{topic}"
    copying = ("--topics", topic, "--policy", policy, "--groups", ".*")
    # Behind each run lies the marker of its transaction: offsets there are not those of the source.
    for number in range(3):
        fill(pair.source, topic, 100, first=100 * number, partitions=2)
        pair.once(*copying)
    committed = {0: 120, 1: 50}
    commit(pair.source, "other", topic, {0: 7})
    commit(pair.source, "group", topic, committed)
    pair.once(*copying)
    told = jvm.run(
        str(PROGRAM), pair.target, "east", "group", POLICIES[policy], jars=jvm.CONNECT_JARS
    ).splitlines()
    assert "topic east.checkpoints.internal" in told
    offsets = [line.split()[1:] for line in told if line.startswith("offset ")]
    assert [(name, int(partition)) for name, partition, _ in sorted(offsets)] == [
        (mirrored, 0),
        (mirrored, 1),
    ]
    for name, partition, offset in offsets:
        at_source = committed[int(partition)]
        assert int(offset) > at_source
        wanted = value_at(pair.source, topic, int(partition), at_source)
        assert value_at(pair.target, name, int(partition), int(offset)) == wanted
