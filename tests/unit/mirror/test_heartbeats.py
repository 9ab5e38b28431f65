"""Heartbeats as MirrorMaker 2 writes them."""

from pyrklog.mirror.heartbeats import Heartbeats, heartbeat
from pyrklog.mirror.names import Names, Patterns, Policy, chosen
from pyrklog.mirror.state import Row

NAMES = Names("east", "west", Policy.PREFIX, "east")


def test_bytes() -> None:
    assert heartbeat(NAMES, 258) == Row(
        "heartbeats", b"\0\4east\0\4west", b"\0\0" + b"\0\0\0\0\0\0\1\2"
    )


def test_one_is_due_at_once_and_then_each_interval() -> None:
    now = 100.0
    beats = Heartbeats(NAMES, 2.0, clock=lambda: now)
    assert len(beats.due()) == 1
    now += 1.9
    assert beats.due() == []
    now += 10.0
    assert len(beats.due()) == 1
    assert beats.due() == []


IDENTITY = Names("east", "west", Policy.IDENTITY, "east")
EVERY = Patterns([".*"], "--topics")


def test_heartbeats_of_others_are_copied() -> None:
    topics = ["heartbeats", "north.heartbeats", "west.heartbeats", "t", "u"]
    wanted = Patterns(["t"], "--topics")
    assert chosen(NAMES, wanted, topics) == ["t"]
    found = chosen(NAMES, wanted, topics, has_heartbeats=True)
    assert found == ["heartbeats", "north.heartbeats", "t"]
    found = chosen(IDENTITY, wanted, topics, has_heartbeats=True)
    assert found == ["heartbeats", "north.heartbeats", "t"]


def test_copies_of_heartbeats_tell_their_cluster_whatever_the_policy() -> None:
    """As with MirrorMaker's IdentityReplicationPolicy: there the topic ``heartbeats`` is the
    target's own."""
    assert IDENTITY.at_target("heartbeats") == "east.heartbeats"
    assert IDENTITY.at_target("north.heartbeats") == "east.north.heartbeats"
    assert IDENTITY.at_target("sensor-heartbeats") == "sensor-heartbeats"
    topics = ["heartbeats", "west.heartbeats", "east.heartbeats", "west.orders"]
    assert chosen(IDENTITY, EVERY, topics) == ["heartbeats", "west.orders"]
    assert heartbeat(IDENTITY, 258) == heartbeat(NAMES, 258)
