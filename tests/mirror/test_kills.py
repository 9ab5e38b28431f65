"""The mirror, its source and its target are killed in the middle: nothing is lost, nothing doubled,
and each partition keeps its order."""

from __future__ import annotations

import random
import subprocess
from collections import Counter
from collections.abc import Callable

import pytest

from pyrklog.testing import TestBroker
from tests.support.groups import create_topic
from tests.support.mirroring import Pair, copied_more, fill, rows, values, wait_for_values

pytestmark = pytest.mark.timeout(240)

RECORDS = 40_000
KILLS = 6
SLOW = ("--rate", "400kB/s", "--commit", "0.05", "--interval", "0.05")
"""So that a kill meets transactions in all states. A record has about 20 bytes."""


@pytest.fixture
def sides(new_broker: Callable[..., TestBroker]) -> tuple[TestBroker, TestBroker]:
    return new_broker().start(), new_broker().start()


@pytest.fixture
def pair(sides: tuple[TestBroker, TestBroker], topic: str) -> Pair:
    create_topic(sides[0].bootstrap, topic, 3)
    return Pair(sides[0].bootstrap, sides[1].bootstrap, topic)


def check(pair: Pair, topic: str, wanted: Counter[bytes]) -> None:
    assert values(pair.target, f"east.{topic}") == wanted
    columns = ["key", "value", "timestamp"]
    assert rows(pair.target, f"east.{topic}", columns) == rows(pair.source, topic, columns)
    pair.verified()


def test_a_mirror_that_is_killed_goes_on(pair: Pair, topic: str) -> None:
    wanted = fill(pair.source, topic, RECORDS)
    chance = random.Random(topic)
    there = 0
    for _ in range(KILLS):
        running = pair.start("--topics", topic, *SLOW)
        try:
            there = copied_more(pair, topic, there)
            with_luck = chance.uniform(0, 0.3)
            with pytest.raises(subprocess.TimeoutExpired):
                running.wait(with_luck)
        finally:
            running.kill()
            running.wait()
    assert there < RECORDS, "killed too late to show anything"
    pair.once("--topics", topic)
    check(pair, topic, wanted)


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_broker_that_is_killed_stops_nothing(
    sides: tuple[TestBroker, TestBroker], pair: Pair, topic: str, side: str
) -> None:
    wanted = fill(pair.source, topic, RECORDS)
    victim = sides[side == "target"]
    running = pair.start("--topics", topic, *SLOW)
    try:
        there = 0
        for _ in range(3):
            there = copied_more(pair, topic, there)
            victim.kill()
            victim.start()
        assert there < RECORDS, "killed too late to show anything"
        wanted += fill(pair.source, topic, 300, first=RECORDS)
        wait_for_values(pair.target, f"east.{topic}", wanted)
        assert running.poll() is None
    finally:
        running.kill()
        running.wait()
    check(pair, topic, wanted)
