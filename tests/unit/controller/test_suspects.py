"""The consequences of a broker whose port refuses connections."""

from pyrklog.controller.cached_states import leaderless
from pyrklog.metastore.znodes import RECOVERED, Leadership
from pyrklog.protocol.inter_broker import PartitionInfo, TopicPartitions
from tests.unit.controller.runner import EPOCH, Runner, assignment, live


def started(*topics: tuple[str, tuple[int, ...], int, tuple[int, ...]], **runs: object) -> Runner:
    """Brokers 1 to 3 live; each topic has one partition: name, replicas, leader, ISR."""
    runner = Runner(**runs)  # type: ignore[arg-type]
    runner.states = {
        (name, 0): (Leadership(leader, 4, isr, EPOCH), 9) for name, _, leader, isr in topics
    }
    runner.start(live(1, 2, 3), {name: assignment(replicas) for name, replicas, _, _ in topics})
    runner.sent.clear()
    return runner


def test_leaderships_move_and_the_suspect_leaves_the_isr_and_hears_of_it() -> None:
    runner = started(("t", (2, 3, 1), 2, (2, 3, 1)), ("u", (3, 2), 3, (3, 2)))
    assert runner.run(runner.controller.suspects.suspect(2)) == [
        "write t-0 leader 3 epoch 5 isr 3,1",
        "write u-0 leader 3 epoch 5 isr 3",
        *(f"{b} <- metadata t-0:3@5 u-0:3@5 brokers 1,2,3" for b in (1, 2, 3)),
        "1 <- lead t-0:3@5",
        "2 <- lead t-0:3@5 u-0:3@5",
        "3 <- lead t-0:3@5 u-0:3@5",
    ]
    assert runner.run(runner.controller.suspects.suspect(2)) == []


def test_suspicion_changes_nothing_without_another_in_sync_replica() -> None:
    """Not even if the topic allows an unclean election."""
    runner = started(("t", (2, 3), 2, (2,)), ("u", (2,), 2, (2,)), unclean={"t", "u"})
    assert runner.run(runner.controller.suspects.suspect(2)) == []
    assert runner.leadership("t", 0) == "leader 2 epoch 4 isr 2"


def test_a_suspect_is_the_last_to_be_elected() -> None:
    runner = started(("t", (1, 2, 3), 1, (1, 2, 3)), ("u", (1, 2), 1, (1, 2)))
    runner.run(runner.controller.suspects.suspect(2))
    # It left both ISRs, and then returns to one by itself.
    leadership, version = runner.states["t", 0]
    runner.states["t", 0] = (leadership._replace(isr=(1, 2, 3)), version)
    partition = runner.controller.state.partition(("t", 0))
    assert partition is not None
    partition.lead(*runner.states["t", 0])
    runner.run(runner.controller.brokers_changed(live(2, 3)))
    assert runner.leadership("t", 0).startswith("leader 3 epoch 6 isr 3")


def test_a_suspect_leads_where_the_others_are_proven_dead() -> None:
    runner = started(("t", (1, 2), 1, (1, 2)))
    runner.controller.state.suspects.add(2)
    runner.run(runner.controller.brokers_changed(live(2, 3)))
    assert runner.leadership("t", 0) == "leader 2 epoch 5 isr 2"


def test_preferred_elections_wait_until_it_is_trusted() -> None:
    runner = started(("t", (2, 3), 2, (2, 3)))
    runner.run(runner.controller.suspects.suspect(2))
    leadership, version = runner.states["t", 0]
    runner.states["t", 0] = (leadership._replace(isr=(3, 2)), version)
    partition = runner.controller.state.partition(("t", 0))
    assert partition is not None
    partition.lead(*runner.states["t", 0])
    assert runner.run(runner.controller.rebalance_leaders(10)) == []
    assert runner.run(runner.controller.suspects.trust(2)) == []
    runner.run(runner.controller.rebalance_leaders(10))
    assert runner.leadership("t", 0) == "leader 2 epoch 6 isr 3,2"


def test_new_registration_of_a_suspect_is_not_suspected() -> None:
    runner = started(("t", (2, 3), 2, (2, 3)))
    runner.run(runner.controller.suspects.suspect(2))
    runner.run(runner.controller.brokers_changed({**live(1, 3), **live(2, epoch=200)}))
    assert runner.controller.state.suspects == set()


def test_dead_broker_is_not_suspected() -> None:
    runner = started(("t", (2, 3), 2, (2, 3)))
    runner.run(runner.controller.brokers_changed(live(1, 3)))
    assert runner.run(runner.controller.suspects.suspect(2)) == []


def test_suspicion_does_not_change_a_topic_being_deleted() -> None:
    runner = started(("t", (2, 3), 2, (2, 3)))
    runner.controller.state.to_delete.add("t")
    assert runner.run(runner.controller.suspects.suspect(2)) == []


def test_a_state_that_somebody_else_wrote_is_read_again() -> None:
    """By compare-and-set: the controller's memory may be old."""
    runner = started(("t", (2, 3, 1), 2, (2, 3, 1)))
    runner.states["t", 0] = (Leadership(2, 4, (2, 1), EPOCH), 10)
    lines = runner.run(runner.controller.suspects.suspect(2))
    assert lines[:3] == ["refused t-0", "read t-0", "write t-0 leader 1 epoch 5 isr 1"]


def _info(isr: tuple[int, ...], replicas: tuple[int, ...]) -> PartitionInfo:
    return PartitionInfo(0, EPOCH - 1, 2, 4, isr, 9, replicas, (), (), (), False, RECOVERED)


def test_a_deposed_controller_is_suspected_from_the_first_election_on() -> None:
    """Before the store is read. It learns of it like the others."""
    runner = Runner()
    topics = {"t": assignment((2, 3, 1)), "u": assignment((2,))}
    runner.states = {
        ("t", 0): (Leadership(2, 4, (2, 3, 1), EPOCH - 1), 9),
        ("u", 0): (Leadership(2, 4, (2,), EPOCH - 1), 9),
    }
    told = [
        TopicPartitions(name, b"i" * 16, [_info(isr, topics[name].replicas[0])])
        for name, isr in (("t", (2, 3, 1)), ("u", (2,)))
    ]
    brokers = live(1, 2, 3)
    leaders_gone = leaderless(told, {b: brokers[b] for b in (1, 3)})
    steps = runner.controller.elect_by_memory(brokers, topics, leaders_gone, {2})
    assert runner.run(steps) == [
        "write t-0 leader 3 epoch 5 isr 3,1",
        *(f"{b} <- metadata t-0:3@5 brokers 1,2,3" for b in (1, 2, 3)),
        *(f"{b} <- lead t-0:3@5" for b in (1, 2, 3)),
    ]
