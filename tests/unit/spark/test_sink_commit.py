"""The driver's part of the sink dies, is overtaken and runs out of time at each of its steps."""

from __future__ import annotations

import logging

import pytest

from pyrklog.producing import ProduceError
from pyrklog.spark.decisions import Decision, decoded, encoded
from pyrklog.spark.sink_commit import LostTransactionError, NotDecidedError, StaleNumberError
from pyrklog.spark.sink_task import Attempt
from tests.support.sink_world import SINK, TIMEOUT_S, Died, Stream, World

STEPS_MAX = 60


def steps_of_a_commit() -> int:
    world = World()
    stream = Stream(world)
    stream.run_next()
    attempts = stream.attempts(1)
    before = world.steps
    stream.committer().commit(1, attempts)
    return world.steps - before


STEPS = steps_of_a_commit()


def finish(stream: Stream, numbers: int) -> None:
    stream.world.at_step = lambda step: None
    while stream.done + 1 < numbers:
        stream.run_next()
    assert stream.world.visible == stream.expected(numbers)
    assert stream.world.open_ids() == []


def test_numbers_follow_each_other() -> None:
    assert 10 < STEPS < STEPS_MAX
    finish(Stream(World()), 5)


@pytest.mark.parametrize("same_workers", [True, False])
@pytest.mark.parametrize("step", range(1, STEPS + 1))
def test_the_driver_dies(step: int, same_workers: bool) -> None:
    """At each step, and the next driver at each of its own; then a third one goes on. Workers may
    outlive the driver."""
    for next_step in range(1, STEPS_MAX):
        stream = Stream(World())
        stream.run_next()
        for die_at in (step, next_step):
            attempts = stream.attempts(1)
            stream.world.die_at(die_at)
            try:
                stream.committer().commit(1, attempts)
            except Died:
                pass
            stream.world.at_step = lambda step: None
            if not same_workers:
                stream.start()
        finish(stream, 4)


@pytest.mark.parametrize("step", range(1, STEPS + 1))
def test_the_driver_fails_and_aborts(step: int) -> None:
    """A step raises, Spark calls abort, which may fail at any step as well, and the query ends."""

    def fail() -> None:
        raise ProduceError("the cluster is away")

    for abort_step in range(1, STEPS_MAX):
        stream = Stream(World())
        stream.run_next()
        attempts = stream.attempts(1)
        stream.world.once_at(step, fail)
        try:
            stream.committer().commit(1, attempts)
        except ProduceError:
            stream.world.once_at(abort_step, fail)
            stream.committer().abort(1, attempts)
        stream.world.at_step = lambda step: None
        stream.start()
        finish(stream, 4)


@pytest.mark.parametrize("numbers", [2, 3])
@pytest.mark.parametrize("step", range(1, STEPS + 1))
def test_a_driver_is_overtaken(step: int, numbers: int) -> None:
    """It stops for a while, another one does its work, or the next number too, and it goes on."""
    stream = Stream(World())
    stream.run_next()
    attempts = stream.attempts(1)
    zombie = stream.committer()
    stream.start()

    def overtake() -> None:
        while stream.done + 1 < numbers:
            stream.run_next()

    stream.world.once_at(step, overtake)
    try:
        zombie.commit(1, attempts)
    except ProduceError:
        zombie.abort(1, attempts)
    stream.done = max(stream.done, 1) if stream.world.visible["1a"] else stream.done
    finish(stream, 4)


@pytest.mark.parametrize("step", range(1, STEPS + 1))
def test_a_zombie_between_two_drivers_steps(step: int) -> None:
    """A former driver begins a commit of its own attempts at each step of the new one: the new one
    may fail, but nothing is lost or doubled."""
    stream = Stream(World())
    stream.run_next()
    of_zombie = stream.attempts(1)
    zombie = stream.committer()
    stream.start()
    attempts = stream.attempts(1)

    def interfere() -> None:
        try:
            zombie.commit(1, of_zombie)
        except ProduceError:
            zombie.abort(1, of_zombie)

    stream.world.once_at(step, interfere)
    try:
        stream.committer().commit(1, attempts)
    except LostTransactionError:
        # Two live drivers on one checkpoint: noticed, never silent.
        return
    except ProduceError:
        stream.committer().abort(1, attempts)
    finish(stream, 4)


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
@pytest.mark.parametrize("step", range(1, STEPS + 1))
def test_time_runs_out(
    step: int, fail_on_data_loss: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Before the decision the number is written again. After it the loss is told, each time."""
    world = World()
    stream = Stream(world, fail_on_data_loss=fail_on_data_loss)
    stream.run_next()
    attempts = stream.attempts(1)
    world.once_at(step, world.expire)
    try:
        with caplog.at_level(logging.WARNING):
            stream.committer().commit(1, attempts)
        stream.done = 1
    except NotDecidedError:
        assert not any(record.startswith("1") for record in world.visible)
    except LostTransactionError:
        for _ in range(2):
            with pytest.raises(LostTransactionError, match="batch 1 of stream query are lost"):
                stream.run_next()
        return
    lost = "are lost" in caplog.text
    assert lost <= (not fail_on_data_loss)
    if lost:
        while stream.done < 3:
            stream.run_next()
        missing = stream.expected(4) - world.visible
        assert missing
        assert all(record.startswith("1") for record in missing)
        assert world.visible <= stream.expected(4)
        return
    finish(stream, 4)


def test_transactions_that_are_over_are_not_decided() -> None:
    """Else their records would be lost, and the query could not go on."""
    stream = Stream(World())
    stream.run_next()
    attempts = stream.attempts(1)
    stream.world.expire()
    with pytest.raises(NotDecidedError, match="is not decided, and nothing of it is written"):
        stream.committer().commit(1, attempts)
    finish(stream, 3)


def test_time_runs_out_between_decision_and_restart() -> None:
    """The driver dies after its decision, and stays away for too long."""
    seen = set()
    for step in range(1, STEPS + 1):
        stream = Stream(World())
        stream.run_next()
        attempts = stream.attempts(1)
        stream.world.die_at(step)
        try:
            stream.committer().commit(1, attempts)
        except Died:
            pass
        stream.world.at_step = lambda step: None
        stream.world.expire()
        stream.start()
        try:
            finish(stream, 3)
            seen.add("written")
        except LostTransactionError:
            seen.add("told")
    assert seen == {"written", "told"}


def test_without_a_list_of_transactions_nothing_else_changes() -> None:
    """Before Kafka 3.0: what a dead attempt left stays open until its time is over."""
    stream = Stream(World())
    stream.world.can_list = False
    for _ in range(3):
        stream.run_next()
    assert stream.world.visible == stream.expected(3)
    assert stream.world.open_ids()
    stream.world.expire()
    assert stream.world.visible == stream.expected(3)


def test_an_older_number_of_a_stream_is_refused() -> None:
    stream = Stream(World())
    for _ in range(3):
        stream.run_next()
    slot = stream.slots[0].take(SINK, 1, 2)
    again = Attempt(SINK, 1, 1, stream.world.write(slot.transactional_id, ["1a"]))
    with pytest.raises(StaleNumberError, match="batch 1 of stream query is older than batch 2"):
        stream.committer().commit(1, [again])
    assert stream.world.visible == stream.expected(3)
    assert stream.world.open_ids() == []


def test_decisions_that_vanish_are_noticed() -> None:
    """Between the tasks, which found the number decided, and the driver."""
    stream = Stream(World())
    stream.run_next()
    skipped = stream.attempts(0)
    stream.world.decisions.clear()
    with pytest.raises(NotDecidedError, match="was the topic of decisions deleted"):
        stream.committer().commit(0, skipped)


def test_a_number_without_rows_is_done_at_once() -> None:
    stream = Stream(World())
    stream.committer().commit(0, [Attempt(SINK, 0), Attempt(SINK, 0)])
    assert len(stream.world.decisions) == 1
    stream.done = 0
    stream.run_next()


def test_settling_ends_what_is_decided() -> None:
    """Of a batch write: before anything of the next one begins."""
    for step in range(1, STEPS + 1):
        stream = Stream(World())
        attempts = stream.attempts(0)
        stream.world.die_at(step)
        try:
            stream.committer().commit(0, attempts)
        except Died:
            pass
        stream.world.at_step = lambda step: None
        finished = stream.committer().settle()
        assert finished == (0 if stream.world.decisions else -1)
        assert bool(stream.world.visible) == (finished == 0)


@pytest.mark.parametrize("step", range(1, 12))
def test_settling_hides_nothing_that_another_driver_decides(step: int) -> None:
    """Two drivers of an application: one settles while the other writes the next number."""
    stream = Stream(World())
    decided = [one.transaction for one in stream.attempts(0) if one.transaction is not None]
    stream.world.decisions.append(encoded(Decision(0, tuple(decided))))
    stream.start()
    acts: list[int] = []

    def interfere() -> None:
        acts.append(step)
        stream.committer().settle()
        stream.committer().commit(1, stream.attempts(1))

    stream.world.once_at(step, interfere)
    try:
        stream.committer().settle()
    except ProduceError:
        assert acts
    stream.world.at_step = lambda step: None
    stream.committer().settle()
    last = decoded(stream.world.decisions[-1])
    assert (last.number, last.is_done) == (len(acts), True)
    assert stream.world.visible == stream.expected(1 + len(acts))


def test_aborting_a_number_ends_what_was_decided_before() -> None:
    stream = Stream(World())
    decided = [one.transaction for one in stream.attempts(0) if one.transaction is not None]
    stream.world.decisions.append(encoded(Decision(0, tuple(decided))))
    stream.start()
    stream.committer().abort(1, stream.attempts(1))
    assert stream.world.visible == stream.expected(1)
    assert stream.world.open_ids() == []


@pytest.mark.parametrize(("age_s", "is_decided"), [(0.7, True), (0.8, False), (3.0, False)])
def test_what_would_time_out_before_it_is_ended_is_not_decided(
    age_s: float, is_decided: bool
) -> None:
    stream = Stream(World())
    stream.run_next()
    attempts = stream.attempts(1)
    stream.world.now_s += age_s * TIMEOUT_S
    decisions = len(stream.world.decisions)
    if is_decided:
        stream.committer().commit(1, attempts)
        stream.done = 1
    else:
        with pytest.raises(NotDecidedError, match=r"kafka\.transaction\.timeout\.ms.* again"):
            stream.committer().commit(1, attempts)
        assert len(stream.world.decisions) == decisions
        written = {one.transaction.transactional_id for one in attempts if one.transaction}
        assert not written & set(stream.world.open_ids())
    finish(stream, 4)


def test_a_clock_that_goes_behind_stops_nothing() -> None:
    stream = Stream(World())
    attempts = stream.attempts(0)
    stream.world.now_s -= 10 * TIMEOUT_S
    stream.committer().commit(0, attempts)
    stream.done = 0
    finish(stream, 2)


def test_transactions_end_while_the_topic_of_decisions_is_looked_at() -> None:
    """That may take a minute: they are looked at afterwards, and none is decided and lost."""
    stream = Stream(World())
    stream.run_next()
    attempts = stream.attempts(1)
    stream.world.while_asked = stream.world.expire
    with pytest.raises(NotDecidedError):
        stream.committer().commit(1, attempts)
    stream.world.while_asked = lambda: None
    finish(stream, 4)
