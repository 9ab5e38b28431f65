"""Which partitions are looked at, and what of it becomes history."""

import pytest

from pyrklog.lag import sampler
from pyrklog.lag.histories import PartitionKey
from pyrklog.lag.sampler import BATCH_MAX
from pyrklog.lag.turns import in_turns
from tests.unit.lag.rig import START, TOPIC_ID, Broker


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each change of the metadata is seen at once."""
    monkeypatch.setattr(sampler, "CHOOSE_REST", 0)


async def test_a_rate_becomes_seconds() -> None:
    broker = Broker()
    broker.lead("t", {0: 0})
    await broker.sampler.look()
    for _ in range(100):
        await broker.second(t=50)
    [told] = (await broker.led.answer({("t", 0): [5000, 4000, 1025, 6000]})).values()
    assert told.log_end == 5000
    ages = [age.ms / 1000 for age in told.ages if age is not None]
    assert ages == pytest.approx([0, 20, 79.5, 0], abs=0.3)


async def test_partitions_elsewhere_and_internal_ones_have_no_history() -> None:
    broker = Broker(node_id=3)
    broker.image.put("t", {0: 1})
    broker.plane.ends["t", 0] = 5
    broker.image.put("__consumer_offsets", {0: 3})
    broker.plane.ends["__consumer_offsets", 0] = 5
    await broker.sampler.look()
    assert not broker.histories.by_key


async def test_followers_have_histories_too() -> None:
    broker = Broker(node_id=2)
    broker.image.put("t", {0: 1})
    broker.plane.ends["t", 0] = 5
    await broker.sampler.look()
    assert [key.topic for key in broker.histories.by_key] == ["t"]


async def test_leader_tells_what_was_written_since_it_leads() -> None:
    """It has copied the log before."""
    broker = Broker(node_id=2)
    broker.image.put("t", {0: 1})
    broker.plane.ends["t", 0] = 0
    await broker.sampler.look()
    for _ in range(10):
        await broker.second(t=5000)
    broker.lead("t", {0: 50_000})
    await broker.second()
    [told] = (await broker.led.answer({("t", 0): []}, back_ms=60_000)).values()
    assert told.past == (0, 50_000)
    for _ in range(20):
        await broker.second(t=10)
    [told] = (await broker.led.answer({("t", 0): []}, back_ms=60_000)).values()
    assert told.past is not None
    assert told.past.age_ms == pytest.approx(20_000, abs=1_000)
    assert told.past.end == pytest.approx(50_000, abs=20)
    broker.image.put("t", {0: 1})
    await broker.second()
    [name] = broker.histories.by_key
    assert broker.sampler.led_since(name) is None


async def test_a_topic_created_anew_begins_anew() -> None:
    broker = Broker()
    broker.lead("t", {0: 100})
    await broker.sampler.look()
    await broker.second(t=10)
    broker.image.put("t", {0: 1}, bytes(16))
    broker.plane.ends["t", 0] = 3
    await broker.second()
    assert {key.topic_id for key in broker.histories.by_key} == {bytes(16)}
    [told] = (await broker.led.answer({("t", 0): [1]})).values()
    [age] = told.ages
    assert age is not None
    assert age.is_least


async def test_a_deleted_topic_is_forgotten() -> None:
    broker = Broker()
    broker.lead("t", {0: 100})
    broker.lead("u", {0: 100})
    await broker.sampler.look()
    del broker.image.topics["t"]
    broker.image.version += 1
    await broker.sampler.look()
    assert list(broker.histories.by_key) == [PartitionKey("u", TOPIC_ID, 0)]


async def test_led_partitions_come_first_at_the_bound() -> None:
    broker = Broker(partitions_max=2)
    broker.image.put("followed", {0: 2, 1: 2})
    broker.plane.ends.update({("followed", 0): 1, ("followed", 1): 1})
    broker.lead("led", {0: 1})
    await broker.sampler.look()
    assert {key.topic for key in broker.histories.by_key} == {"led", "followed"}
    assert broker.sampler.left_out == 1
    assert len(broker.histories) == 2


async def test_a_log_that_is_not_open_is_passed_over() -> None:
    broker = Broker()
    broker.lead("t", {0: 1})
    end = broker.plane.ends.pop(("t", 0))
    await broker.sampler.look()
    assert not broker.histories.by_key
    broker.plane.ends["t", 0] = end
    await broker.second()
    assert broker.histories.by_key[PartitionKey("t", TOPIC_ID, 0)].first == (START + 1000, 1)


async def test_looks_are_in_short_turns() -> None:
    broker = Broker(partitions_max=10_000)
    broker.lead("t", dict.fromkeys(range(2 * BATCH_MAX + 7), 0))
    await broker.sampler.look()
    assert [len(one) for one in broker.plane.looks] == [BATCH_MAX, BATCH_MAX, 7]


async def test_what_was_loaded_goes_on() -> None:
    """The broker was away for a minute, in which nothing can have been appended."""
    broker = Broker()
    broker.lead("t", {0: 0})
    await broker.sampler.look()
    await broker.second(t=100)
    again = Broker()
    await in_turns(again.histories.restore(broker.histories.by_key))
    again.sampler.looked_ms = broker.now_ms
    again.now_ms = broker.now_ms + 60_000
    again.lead("t", {0: 100})
    await again.sampler.look()
    await again.second(t=100)
    [told] = (await again.led.answer({("t", 0): [50, 100]})).values()
    ages = [age.ms / 1000 for age in told.ages if age is not None]
    assert ages == pytest.approx([61.5, 1], abs=0.1)
