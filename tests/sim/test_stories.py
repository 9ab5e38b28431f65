"""Stories that leader epochs bring to a good end, and how they ended without.

A is broker 1, B is broker 2; 3 is the controller, 4 may become it. The partition is on A and B.
"""

from collections.abc import Callable

import pytest

from pyrklog.errors import ErrorCode
from tests.sim.cluster import Violation
from tests.sim.stage import Stage, stage_world

A, B, CONTROLLER, OTHER = 1, 2, 3, 4
NONE, OUT_OF_RANGE = ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE
CHECKPOINT_SECONDS = 7.0
"""After this long the high watermarks are in their checkpoints."""

Story = Callable[[Stage], None]


def tell(story: Story, *injected: str, seed: int = 0) -> None:
    """Plays a story. Raises :class:`Violation` if it ends badly."""
    world = stage_world((A, B, CONTROLLER, OTHER), injected, seed=seed)
    with world.running():
        stage = Stage(world)
        stage.begin(CONTROLLER)
        story(stage)
        stage.heal()
        for broker in world.brokers:
            world.start(broker)
        stage.until("a whole cluster", lambda: world.checker.unsettled() is None)


def a_restarted_follower_leads(stage: Stage) -> None:
    """Lost data: B has an acknowledged record without knowing it, restarts, and A dies."""
    assert stage.produce(A) == NONE
    stage.until("B's high watermark", lambda: stage.mark(B) == 1)
    stage.wait(CHECKPOINT_SECONDS)
    assert stage.produce(A) == NONE
    stage.cut(A, B)
    assert (stage.mark(A), stage.mark(B)) == (2, 1)
    # Nobody sees B restart: the next controller finds it in the ISR.
    stage.world.kill(CONTROLLER)
    stage.world.kill(B)
    stage.end_session(B)
    stage.world.start(B)
    stage.until("B's return", lambda: "/brokers/ids/2" in stage.world.zookeeper.tree.entries)
    stage.succeed(CONTROLLER, OTHER)
    stage.until("B follows", lambda: stage.role(B)[0] == "Follower")
    assert set(stage.state().isr) == {A, B}
    stage.world.kill(A)
    stage.end_session(A)
    stage.until("B leads", lambda: stage.role(B)[0] == "Leader")
    assert stage.epochs(B) == [0, 0]


def test_acknowledged_record_survives_a_follower_restart() -> None:
    tell(a_restarted_follower_leads)


def test_truncating_to_the_high_watermark_loses_an_acknowledged_record() -> None:
    with pytest.raises(Violation, match=r"\(1, 0\) cuts off: broker 2"):
        tell(a_restarted_follower_leads, "truncate_to_high_watermark")


def the_log_of_the_first_to_return(stage: Stage) -> None:
    """Diverging logs: both machines go down; B comes back without the last record, and leads."""
    assert stage.produce(A) == NONE
    assert stage.produce(A) == NONE
    stage.wait(CHECKPOINT_SECONDS)
    # B's power failure may lose what only B and the dead A had. The story is about their logs
    # afterwards.
    stage.world.checker.forgives_losses = True
    stage.world.kill(A)
    stage.end_session(A)
    stage.until("B leads", lambda: stage.role(B) == ("Leader", 1))
    stage.world.kill(B, loses_power=True)
    stage.end_session(B)
    stage.world.start(B)
    stage.until("B leads again", lambda: stage.role(B)[0] == "Leader")
    stage.until("B's log", lambda: stage.world.checker.replicas[B, 0].is_known)
    if stage.epochs(B) != [0]:
        raise LookupError("B's disk has lost something else")
    assert stage.produce(B) == NONE
    stage.world.start(A)
    stage.until("A follows", lambda: stage.role(A)[0] == "Follower")
    stage.until("both in sync", lambda: set(stage.state().isr) == {A, B})
    assert stage.produce(B) == NONE


def tell_of_a_half_lost_log(*injected: str) -> None:
    """Chance decides how much of the unsynced tail is lost: tries until it is the last record."""
    for seed in range(60):
        try:
            return tell(the_log_of_the_first_to_return, *injected, seed=seed)
        except LookupError:
            continue
    raise AssertionError("no seed loses the last record alone")


def test_returning_replica_truncates_what_the_new_leader_lacks() -> None:
    tell_of_a_half_lost_log()


def test_truncating_to_the_high_watermark_lets_logs_diverge() -> None:
    with pytest.raises(Violation, match="logs differ before"):
        tell_of_a_half_lost_log("truncate_to_high_watermark")


def leadership_goes_there_and_back(stage: Stage) -> None:
    """KIP-279: each has a record of an epoch that the other does not know."""
    assert stage.produce(A) == NONE
    stage.cut(A, B)
    assert stage.produce(A, acks=1) == NONE
    stage.elect(B)
    stage.until("B leads", lambda: stage.role(B) == ("Leader", 1))
    assert stage.produce(B, acks=1) == NONE
    stage.elect(A)
    stage.until("A leads", lambda: stage.role(A) == ("Leader", 2))
    assert stage.produce(A, acks=1) == NONE
    assert (stage.epochs(A), stage.epochs(B)) == ([0, 0, 2], [0, 1])
    stage.heal()
    stage.until("the same logs", lambda: stage.epochs(B)[-1] == 2)
    assert stage.epochs(B) == [0, 0, 2]


def test_a_follower_goes_back_to_the_last_epoch_that_both_know() -> None:
    tell(leadership_goes_there_and_back)


def test_answering_for_unknown_epochs_lets_logs_diverge() -> None:
    with pytest.raises(Violation, match="is shown, but lacks on: broker 2"):
        tell(leadership_goes_there_and_back, "answer_for_unknown_epoch")


def lead_around_a(stage: Stage) -> None:
    """B leads in epoch 1 and has a second record; A has heard of neither."""
    assert stage.produce(A) == NONE
    for broker in (B, CONTROLLER, OTHER):
        stage.cut(A, broker)
    stage.elect(B)
    stage.until("B leads", lambda: stage.role(B) == ("Leader", 1))
    stage.until("B alone in sync", lambda: stage.state().isr == (B,))
    assert stage.produce(B) == NONE
    assert stage.role(A) == ("Leader", 0)


def consumer_asks_a_former_leader(stage: Stage) -> None:
    """KIP-320: A has not heard that B leads; a consumer that has read from B comes to A."""
    lead_around_a(stage)
    error, size = stage.fetch(B, 1, 1)
    assert error == NONE
    assert size > 0
    error, _ = stage.fetch(A, 2, 1)
    if error == OUT_OF_RANGE:
        stage.world.violated("the consumer would begin anew: nothing is at 2, it was told")
    assert error == ErrorCode.UNKNOWN_LEADER_EPOCH


def new_consumer_asks_a_former_leader(stage: Stage) -> None:
    """It has the group's offset, beyond A's end, and knows only A's epoch."""
    lead_around_a(stage)
    error, size = stage.fetch(A, 2, 0)
    if error == OUT_OF_RANGE:
        stage.world.violated("the consumer would begin anew: nothing is at 2, it was told")
    assert (error, size) == (NONE, 0)
    # The true leader reports an offset that does not exist.
    assert stage.fetch(B, 9, 1) == (OUT_OF_RANGE, 0)
    stage.heal()
    stage.until("A follows", lambda: stage.role(A) == ("Follower", 1))
    assert stage.fetch(A, 2, 0)[0] == ErrorCode.FENCED_LEADER_EPOCH
    stage.until("both in sync", lambda: set(stage.state().isr) == {A, B})
    assert stage.fetch(B, 9, 1) == (OUT_OF_RANGE, 0)


def test_former_leader_does_not_answer_out_of_range() -> None:
    tell(new_consumer_asks_a_former_leader)


def test_out_of_range_from_a_former_leader_resets_a_consumer() -> None:
    with pytest.raises(Violation, match="would begin anew"):
        tell(new_consumer_asks_a_former_leader, "out_of_range_in_doubt")


def test_former_leader_refuses_an_unknown_leader_epoch() -> None:
    tell(consumer_asks_a_former_leader)


def test_ignoring_the_leader_epoch_resets_a_consumer() -> None:
    with pytest.raises(Violation, match="would begin anew"):
        tell(
            consumer_asks_a_former_leader,
            "accept_any_leader_epoch",
            "out_of_range_in_doubt",
        )


def a_leader_breaks_an_invariant(stage: Stage) -> None:
    """A goes offline with this partition alone: B leads until A has been started again."""
    assert stage.produce(A) == NONE
    stage.until("B's high watermark", lambda: stage.mark(B) == 1)
    stage.break_invariant(A)
    assert stage.produce(A) == ErrorCode.KAFKA_STORAGE_ERROR
    stage.until("B leads", lambda: stage.role(B) == ("Leader", 1))
    stage.until("B alone in sync", lambda: stage.state().isr == (B,))
    assert stage.produce(B) == NONE
    stage.wait(CHECKPOINT_SECONDS)
    assert stage.state().isr == (B,)
    assert stage.role(A)[0] == "Offline"
    restart(stage, A)


def a_follower_breaks_an_invariant(stage: Stage) -> None:
    stage.break_invariant(B)
    stage.until("A alone in sync", lambda: stage.state().isr == (A,))
    assert stage.produce(A) == NONE
    restart(stage, B)


def the_only_member_breaks_an_invariant(stage: Stage) -> None:
    """Nobody leads until A is back: B lacks what A has acknowledged."""
    stage.cut(A, B)
    stage.until("A alone in sync", lambda: stage.state().isr == (A,))
    assert stage.produce(A) == NONE
    stage.break_invariant(A)
    stage.until("no leader", lambda: stage.state().leader == -1)
    stage.heal()
    stage.wait(CHECKPOINT_SECONDS)
    assert (stage.state().leader, stage.state().isr) == (-1, (A,))
    restart(stage, A)
    stage.until("A leads", lambda: stage.role(A)[0] == "Leader")
    assert stage.mark(A) == 1


def restart(stage: Stage, broker: int) -> None:
    stage.world.kill(broker)
    stage.end_session(broker)
    stage.world.start(broker)


def test_another_replica_leads_when_a_leader_breaks_an_invariant() -> None:
    tell(a_leader_breaks_an_invariant)


def test_a_follower_that_breaks_an_invariant_leaves_the_isr() -> None:
    tell(a_follower_breaks_an_invariant)


def test_nobody_leads_when_the_only_member_breaks_an_invariant() -> None:
    tell(the_only_member_breaks_an_invariant)
