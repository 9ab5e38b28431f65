"""The simulated expansion, as a small one."""

import pytest

from benches.expansion_world import Scale, World, WorldAdmin
from benches.simulated_expansion import main
from pyrklog.errors import ErrorCode

SMALL = ["--brokers", "12", "--added", "3", "--partitions", "90", "--mean-gb", "2", "--dead", "3"]


def test_new_brokers_get_their_share_as_predicted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--batch-gb", "40"]) == 0, capsys.readouterr()
    out = capsys.readouterr().out
    assert out.startswith("12 + 3 brokers, 90 partitions · plan of ")
    assert "brokers that die for 30 s: [" in out
    assert "predicted at 80 MB/s: " in out
    assert "measured for 10 s: " in out


def test_what_a_wrong_prediction_tells(capsys: pytest.CaptureFixture[str]) -> None:
    """New brokers that are away for most of the time are in no prediction."""
    assert main([*SMALL, "--batch-gb", "40", "--dead-s", "600"]) == 1
    assert "off by -" in capsys.readouterr().err


def test_copies_share_the_rate_of_brokers_and_replicas_join() -> None:
    world = World(Scale(4, 1, 2, rate_bytes=1000, written_bytes=0.0))
    first, second = ("t0", 0), ("t0", 1)
    world.sizes = {first: 4_000.0, second: 16_000.0}
    admin = WorldAdmin(world)
    assert admin.placement()[0] == {first: (1, 2, 3), second: (2, 3, 4)}
    begun = admin.alter({first: (1, 2, 5), second: (2, 3, 5)})
    assert begun == dict.fromkeys((first, second), (ErrorCode.NONE, None))
    world.pass_(7)
    assert admin.moving().keys() == {first, second}
    assert world.there == {(first, 5): 3_000.0, (second, 5): 3_000.0}
    world.pass_(3)
    assert admin.placement()[0][first] == (1, 2, 5)
    assert admin.moving().keys() == {second}
    world.pass_(15)
    assert admin.moving() == {}
    assert world.store.states[second][0].isr == (2, 3, 5)
    assert world.moved_bytes == 20_000.0
    assert world.store.spent.events > 0


def test_broker_that_dies_leads_nothing_and_comes_back() -> None:
    scale = Scale(4, 1, 2, rate_bytes=1000, written_bytes=0.0)
    world = World(scale, {1: 2.0})
    admin = WorldAdmin(world)
    key = ("t0", 0)
    world.sizes[key] = 8_000.0
    admin.alter({key: (2, 3, 5)})
    world.pass_(3)
    assert admin.leaders()[key] == 2
    copied = world.there[key, 5]
    world.pass_(4)
    assert world.there[key, 5] == copied + 4_000, "from the next leader"
    world.pass_(scale.dead_s + 20)
    assert admin.placement()[0][key] == (2, 3, 5)
    assert 1 in world.store.controller.state.brokers
