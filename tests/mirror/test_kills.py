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

RECORDS = 150_000
KILLS = 6
SLOW = ("--rate", "100kB/s", "--commit", "1", "--interval", "0.05")
"""A record has about 16 bytes: a batch of 64 KiB takes half a second, a transaction has several,
and all together take 24 s. So a kill meets open transactions and others."""


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
        with running:
            try:
                there = copied_more(pair, topic, there)
                with pytest.raises(subprocess.TimeoutExpired):
                    running.wait(chance.uniform(0, 0.5))
            finally:
                running.kill()
    assert values(pair.target, f"east.{topic}").total() < RECORDS, "killed too late"
    pair.once("--topics", topic)
    check(pair, topic, wanted)


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_broker_that_is_killed_stops_nothing(
    sides: tuple[TestBroker, TestBroker], pair: Pair, topic: str, side: str
) -> None:
    wanted = fill(pair.source, topic, RECORDS)
    victim = sides[side == "target"]
    with pair.start("--topics", topic, *SLOW) as running:
        try:
            there = 0
            for _ in range(3):
                there = copied_more(pair, topic, there)
                victim.kill()
                victim.start()
            assert values(pair.target, f"east.{topic}").total() < RECORDS, "killed too late"
            wanted += fill(pair.source, topic, 300, first=RECORDS)
            wait_for_values(pair.target, f"east.{topic}", wanted)
            assert running.poll() is None
        finally:
            running.kill()
    check(pair, topic, wanted)
