"""Checkpoints and heartbeats of ``pyrklog mirror``, read with MirrorMaker's own classes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

import pyrklog
from pyrklog.mirror import Policy
from pyrklog.testing import TestBroker
from tests.support import jvm
from tests.support.groups import create_topic
from tests.support.mirroring import Pair, commit, fill
from tests.support.waiting import PATIENCE_S

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(240)]

PROGRAM = Path(__file__).with_name("RemoteOffsets.java")
HEARTBEATS = Path(__file__).with_name("RemoteHeartbeats.java")
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
    commit(pair.source, "group", topic, committed, "batch 7")
    pair.once(*copying)
    told = jvm.run(
        str(PROGRAM), pair.target, "east", "group", POLICIES[policy], jars=jvm.CONNECT_JARS
    ).splitlines()
    assert "topic east.checkpoints.internal" in told
    offsets = [line.split(maxsplit=4)[1:] for line in told if line.startswith("offset ")]
    assert [(name, int(partition)) for name, partition, *_ in sorted(offsets)] == [
        (mirrored, 0),
        (mirrored, 1),
    ]
    for name, partition, offset, metadata in offsets:
        assert metadata == "batch 7"
        at_source = committed[int(partition)]
        assert int(offset) > at_source
        wanted = value_at(pair.source, topic, int(partition), at_source)
        assert value_at(pair.target, name, int(partition), int(offset)) == wanted


def heartbeats_at(bootstrap: str, topic: str, policy: Policy) -> list[list[str]]:
    """What MirrorMaker's reader tells: first upstream clusters, then the topic's heartbeats."""
    arguments = (bootstrap, topic, POLICIES[policy])
    told = jvm.run(str(HEARTBEATS), *arguments, jars=jvm.CONNECT_JARS)
    return [line.split() for line in told.splitlines()]


@pytest.mark.parametrize("policy", POLICIES)
def test_mirrormakers_reader_finds_heartbeats_of_a_single_mirror(
    pair: Pair, topic: str, policy: Policy
) -> None:
    """But no upstream cluster: only copies of heartbeats tell that."""
    create_topic(pair.source, topic, 1)
    before_ms = time.time_ns() // 1_000_000
    pair.once("--topics", topic, "--policy", policy, "--heartbeats", "1")
    own = heartbeats_at(pair.target, "heartbeats", policy)
    assert [one[:3] for one in own] == [["heartbeat", "east", "west"]] * len(own)
    assert before_ms <= int(own[0][3]) <= time.time_ns() // 1_000_000


@pytest.mark.parametrize("policy", POLICIES)
def test_mirrormakers_reader_finds_upstream_clusters_of_two_mirrors(
    pair: Pair, topic: str, policy: Policy
) -> None:
    """Heartbeats of the way back are copied, and show that what is written there arrives."""
    back = Pair(pair.target, pair.source, topic)
    places = ("--from", f"west={pair.target}", "--to", f"east={pair.source}")
    back.between = (*places, "--name", topic)
    copying = ("--policy", policy, "--heartbeats", "1")
    create_topic(pair.source, topic, 1)
    back.once("--topics", "heartbeats", *copying)
    pair.once("--topics", topic, *copying)
    upstream, *own = heartbeats_at(pair.target, "heartbeats", policy)
    assert upstream == ["upstream", "east", "1"]
    assert {tuple(one[:3]) for one in own} == {("heartbeat", "east", "west")}
    told = heartbeats_at(pair.target, "east.heartbeats", policy)
    assert told[-1][:3] == ["heartbeat", "west", "east"]
    # And on: the copy of a copy comes back to neither.
    for one, word in ((back, "heartbeats"), (pair, topic)):
        one.once("--topics", word, *copying)
    names = AdminClient({"bootstrap.servers": pair.source}).list_topics(timeout=PATIENCE_S).topics
    found = {name for name in names if name.endswith("heartbeats")}
    assert found == {"heartbeats", "west.heartbeats"}
