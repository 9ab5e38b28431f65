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


def test_heartbeats_of_others_are_copied_unless_their_topic_would_be_our_own() -> None:
    topics = ["heartbeats", "north.heartbeats", "west.heartbeats", "t", "u"]
    wanted = Patterns(["t"], "--topics")
    assert chosen(NAMES, wanted, topics) == ["t"]
    found = chosen(NAMES, wanted, topics, has_heartbeats=True)
    assert found == ["heartbeats", "north.heartbeats", "t"]
    identity = Names("east", "west", Policy.IDENTITY, "east")
    every = Patterns([".*"], "--topics")
    assert chosen(identity, every, topics, has_heartbeats=True) == ["t", "u"]
