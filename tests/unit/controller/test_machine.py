"""Scenarios of the controller, step by step as the design describes them (seed 000, parts 2-3)."""

import pytest

from pyrklog.cluster.image import LEADER_BEING_DELETED
from pyrklog.cluster.requests import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    Refusal,
    StopReplicaRequest,
    TopicPartition,
    UpdateMetadataRequest,
)
from pyrklog.controller.effects import Snapshot
from pyrklog.controller.state import (
    PARTITION_TRANSITIONS,
    REPLICA_TRANSITIONS,
    IllegalTransitionError,
    PartitionState,
    ReplicaState,
)
from pyrklog.errors import ErrorCode
from pyrklog.metastore.znodes import RECOVERING, Leadership
from pyrklog.protocol.inter_broker import PartitionInfo, TopicPartitions
from tests.unit.controller.runner import EPOCH, Runner, assignment, live


def created(runner: Runner, **topics: list[tuple[int, ...]]) -> list[str]:
    found = {name: assignment(*replicas) for name, replicas in topics.items()}
    names = [*runner.controller.state.topics, *topics]
    return runner.run(runner.controller.topics_changed(found, names))


# --- start ---------------------------------------------------------------------------------------


def test_an_empty_cluster_of_one() -> None:
    runner = Runner()
    assert runner.start(live(1)) == ["1 <- metadata brokers 1"]


def test_a_single_node_starts_again_without_a_write() -> None:
    """The leaders live, so ten thousand partitions cost no write."""
    runner = Runner()
    runner.states = {("t", p): (Leadership(1, 3, (1,), EPOCH - 1), 5) for p in (0, 1)}
    assert runner.start(live(1), {"t": assignment((1,), (1,))}) == [
        "1 <- metadata t-0:1@3 t-1:1@3 brokers 1",
        "1 <- lead t-0:1@3 t-1:1@3",
    ]
    request = runner.last(1, LeaderAndIsrRequest)
    assert isinstance(request, LeaderAndIsrRequest)
    assert (request.controller_epoch, request.broker_epoch) == (EPOCH, 101)
    assert request.topics[0].partitions[0].partition_epoch == 5


def test_a_crash_between_topic_and_states_is_made_good() -> None:
    """The topic's znode exists, its states do not: the partitions get their first leaders."""
    runner = Runner()
    assert runner.start(live(1), {"t": assignment((1,))}) == [
        "write t-0 leader 1 epoch 0 isr 1",
        "1 <- metadata t-0:1@0 brokers 1",
        "1 <- lead t-0:1@0 new",
    ]


def test_takeover_elects_for_leaders_that_died() -> None:
    runner = Runner()
    runner.states = {
        ("t", 0): (Leadership(3, 4, (3, 2), EPOCH - 1), 9),
        ("t", 1): (Leadership(3, 4, (3,), EPOCH - 1), 9),
    }
    assert runner.start(live(1, 2), {"t": assignment((3, 2), (3, 1))}) == [
        "failed t-1",
        "write t-0 leader 2 epoch 5 isr 2",
        "write t-1 leader -1 epoch 5 isr 3",
        "1 <- metadata t-0:2@5 offline 3 t-1:-1@5 offline 3 brokers 1,2",
        "2 <- metadata t-0:2@5 offline 3 t-1:-1@5 offline 3 brokers 1,2",
        "1 <- lead t-1:-1@5 offline 3",
        "2 <- lead t-0:2@5 offline 3",
    ]


def test_takeover_without_a_live_member_waits_for_one() -> None:
    """Both sessions have ended: nobody leads, and either may."""
    runner = Runner()
    runner.states = {
        ("t", 0): (Leadership(2, 4, (1, 2), EPOCH - 1), 9),
        ("t", 1): (Leadership(2, 4, (1, 2), EPOCH - 1), 9),
    }
    runner.start(live(3), {"t": assignment((3, 1, 2), (3, 2, 1))})
    assert runner.leadership("t", 0) == "leader -1 epoch 5 isr 1,2"
    assert runner.leadership("t", 1) == "leader -1 epoch 5 isr 1,2"
    partitions = runner.controller.state.topics["t"].partitions.values()
    assert [partition.state for partition in partitions] == [PartitionState.OFFLINE] * 2
    lines = runner.run(runner.controller.brokers_changed(live(2, 3)))
    assert "write t-0 leader 2 epoch 6 isr 2" in lines
    assert "write t-1 leader 2 epoch 6 isr 2" in lines


# --- creating topics -----------------------------------------------------------------------------


def test_a_topic_is_created() -> None:
    """The first live replica leads, the ISR is the live ones; each hears of a new
    partition once."""
    runner = Runner()
    runner.start(live(1, 2, 3))
    assert created(runner, t=[(1, 2), (2, 4)]) == [
        "write t-0 leader 1 epoch 0 isr 1,2",
        "write t-1 leader 2 epoch 0 isr 2",
        "1 <- metadata t-0:1@0 t-1:2@0 offline 4 brokers 1,2,3",
        "2 <- metadata t-0:1@0 t-1:2@0 offline 4 brokers 1,2,3",
        "3 <- metadata t-0:1@0 t-1:2@0 offline 4 brokers 1,2,3",
        "1 <- lead t-0:1@0 new",
        "2 <- lead t-0:1@0 new t-1:2@0 new offline 4",
    ]
    topic = runner.controller.state.topics["t"]
    assert topic.partitions[0].state is PartitionState.ONLINE
    assert topic.partitions[0].replica_states == {1: ReplicaState.ONLINE, 2: ReplicaState.ONLINE}


def test_a_topic_without_a_live_replica_waits_for_one() -> None:
    runner = Runner()
    runner.start(live(1))
    lines = created(runner, t=[(2,)])
    assert lines == ["failed t-0", "1 <- metadata t-0:-1@-1 offline 2 brokers 1"]
    told = runner.last(1, UpdateMetadataRequest)
    assert isinstance(told, UpdateMetadataRequest)
    (info,) = told.topics[0].partitions
    assert (info.leader, info.replicas, info.isr) == (-1, (2,), ())
    assert runner.controller.state.topics["t"].partitions[0].state is PartitionState.NEW
    lines = runner.run(runner.controller.brokers_changed(live(1, 2)))
    assert "write t-0 leader 2 epoch 0 isr 2" in lines
    assert "2 <- lead t-0:2@0 new" in lines


def test_a_state_that_is_there_already_is_not_overwritten() -> None:
    runner = Runner()
    runner.start(live(1))
    runner.states[("t", 0)] = (Leadership(2, 8, (2,), EPOCH), 3)
    assert created(runner, t=[(1,)]) == ["refused t-0", "failed t-0"]
    assert runner.leadership("t", 0) == "leader 2 epoch 8 isr 2"


def test_partitions_are_added() -> None:
    runner = Runner()
    runner.start(live(1))
    created(runner, t=[(1,)])
    lines = runner.run(runner.controller.topic_changed("t", assignment((1,), (1,), (1,))))
    assert lines == [
        "write t-1 leader 1 epoch 0 isr 1",
        "write t-2 leader 1 epoch 0 isr 1",
        "1 <- metadata t-1:1@0 t-2:1@0 brokers 1",
        "1 <- lead t-1:1@0 new t-2:1@0 new",
    ]
    assert runner.run(runner.controller.topic_changed("t", assignment((1,), (1,), (1,)))) == []
    assert runner.run(runner.controller.topic_changed("strange", assignment((1,)))) == []


def test_a_topic_that_vanished_from_the_store_is_forgotten() -> None:
    runner = Runner()
    runner.start(live(1))
    created(runner, t=[(1,)])
    runner.run(runner.controller.topics_changed({}, []))
    assert runner.controller.state.topics == {}


# --- brokers come and go -------------------------------------------------------------------------


def test_a_broker_dies() -> None:
    """Its partitions elect another leader, and it leaves the ISR of all it followed."""
    runner = Runner()
    runner.start(live(1, 2))
    created(runner, t=[(2, 1), (1, 2), (2,)])
    assert runner.run(runner.controller.brokers_changed(live(1))) == [
        "failed t-2",
        "write t-0 leader 1 epoch 1 isr 1",
        # Leaders first: clients wait for them.
        "1 <- metadata t-0:1@1 offline 2 brokers 1",
        "1 <- lead t-0:1@1 offline 2",
        "write t-1 leader 1 epoch 1 isr 1",
        "write t-2 leader -1 epoch 1 isr 2",
        "1 <- metadata t-1:1@1 offline 2 t-2:-1@1 offline 2 t-0:1@1 offline 2 brokers 1",
        "1 <- lead t-1:1@1 offline 2",
    ]
    partitions = runner.controller.state.topics["t"].partitions
    assert partitions[2].state is PartitionState.OFFLINE
    assert partitions[2].replica_states == {2: ReplicaState.OFFLINE}


def test_the_last_member_of_an_isr_stays_and_leads_again() -> None:
    runner = Runner()
    runner.start(live(1, 2))
    created(runner, t=[(2,)])
    runner.run(runner.controller.brokers_changed(live(1)))
    assert runner.leadership("t", 0) == "leader -1 epoch 1 isr 2"
    lines = runner.run(runner.controller.brokers_changed(live(1, 2)))
    assert lines == [
        "1 <- metadata brokers 1,2",
        "write t-0 leader 2 epoch 2 isr 2",
        "1 <- metadata t-0:2@2 brokers 1,2",
        "2 <- metadata t-0:2@2 brokers 1,2",
        "2 <- lead t-0:2@2",
    ]


def test_partition_is_led_again_after_its_brokers_died_together() -> None:
    runner = Runner()
    runner.start(live(1, 2, 3))
    created(runner, t=[(3, 1), (2, 3)])
    runner.run(runner.controller.brokers_changed(live(1)))
    partition = runner.controller.state.topics["t"].partitions[1]
    assert partition.state is PartitionState.OFFLINE
    assert runner.leadership("t", 1) == "leader -1 epoch 1 isr 2,3"
    runner.run(runner.controller.brokers_changed(live(1, 3)))
    assert runner.leadership("t", 1) == "leader 3 epoch 2 isr 3"


def test_a_quick_restart_shows_in_the_broker_epoch() -> None:
    """It registers again before its loss was seen: still a death and a birth."""
    runner = Runner()
    runner.start(live(1, 2))
    created(runner, t=[(2, 1)])
    lines = runner.run(runner.controller.brokers_changed({**live(1), **live(2, epoch=500)}))
    assert "write t-0 leader 1 epoch 1 isr 1" in lines
    assert lines[-1] == "2 <- lead t-0:1@1"
    assert runner.last(2, LeaderAndIsrRequest).broker_epoch == 502


def test_an_unclean_election_only_where_the_topic_allows_it() -> None:
    for unclean, expected in (
        ([], "leader -1 epoch 2 isr 2"),
        (["t"], "leader 3 epoch 2 isr 3 recovering"),
    ):
        runner = Runner(unclean=unclean)
        runner.start(live(1, 2, 3))
        created(runner, t=[(2, 3)])
        runner.run(runner.controller.brokers_changed(live(1, 2)))
        assert runner.leadership("t", 0) == "leader 2 epoch 1 isr 2"
        runner.run(runner.controller.brokers_changed(live(1, 2, 3)))
        runner.run(runner.controller.brokers_changed(live(1, 3)))
        assert runner.leadership("t", 0) == expected
    assert runner.states[("t", 0)][0].recovery_state == RECOVERING


def test_a_state_changed_by_another_is_read_again() -> None:
    """A leader shrank its ISR meanwhile: the compare-and-set fails, and the election sees it."""
    runner = Runner()
    runner.start(live(1, 2, 3))
    created(runner, t=[(2, 1, 3)])
    leadership, version = runner.states[("t", 0)]
    runner.states[("t", 0)] = (leadership._replace(isr=(2, 3)), version + 1)
    lines = runner.run(runner.controller.brokers_changed(live(1, 3)))
    assert lines[:3] == ["refused t-0", "read t-0", "write t-0 leader 3 epoch 1 isr 3"]


def test_changed_endpoints_are_told_to_all() -> None:
    runner = Runner()
    runner.start(live(1, 2))
    brokers = live(1, 2)
    moved = brokers[2].image._replace(endpoints=[("PLAINTEXT", "elsewhere", 9999)])
    brokers[2] = brokers[2]._replace(image=moved)
    lines = runner.run(runner.controller.brokers_changed(brokers))
    assert lines == ["1 <- metadata brokers 1,2", "2 <- metadata brokers 1,2"]
    told = runner.last(1, UpdateMetadataRequest)
    assert isinstance(told, UpdateMetadataRequest)
    assert told.brokers[1] == moved


def metadata_told(runner: Runner, broker: int) -> list[tuple[int, bool]]:
    """(number, names every topic) of each UpdateMetadata to a broker; forgets what was sent."""
    told = [r for b, r in runner.sent if b == broker and isinstance(r, UpdateMetadataRequest)]
    runner.sent.clear()
    return [(request.number, request.is_full) for request in told]


def fullness(runner: Runner, broker: int) -> set[bool]:
    return {is_full for _, is_full in metadata_told(runner, broker)}


def test_update_metadata_with_every_topic_is_marked_full() -> None:
    runner = Runner()
    runner.start(live(1, 2))
    assert fullness(runner, 1) == {True}
    created(runner, t=[(1, 2)])
    assert fullness(runner, 1) == {False}
    runner.run(runner.controller.brokers_changed(live(1)))
    assert fullness(runner, 1) == {False}
    runner.run(runner.controller.brokers_changed(live(1, 2)))
    assert fullness(runner, 2) == {True}


@pytest.mark.parametrize("unreadable", [[], ["bad"]])
def test_a_new_registration_is_told_everything_first(unreadable: list[str]) -> None:
    """Where nothing else has changed, too: its own session had ended and began again."""
    runner = Runner()
    runner.start(live(1, 2))
    created(runner, t=[(1,)], u=[(1,)])
    runner.controller.state.unreadable.update(unreadable)
    runner.sent.clear()
    runner.run(runner.controller.brokers_changed({**live(1), **live(2, epoch=500)}))
    told = [r for b, r in runner.sent if b == 2 and isinstance(r, UpdateMetadataRequest)]
    first = next(r for r in told if r.broker_epoch == 502)
    assert first is told[0]
    assert [topic.topic for topic in first.topics] == ["t", "u"]
    assert [one.id for one in first.brokers] == [1, 2]


def test_update_metadata_requests_are_numbered_in_order() -> None:
    runner = Runner()
    runner.start(live(1, 2))
    numbers = [number for number, _ in metadata_told(runner, 1)]
    replicas: list[tuple[int, ...]] = [(1, 2)]
    for name in "abc":
        created(runner, **{name: replicas})
        numbers += [number for number, _ in metadata_told(runner, 1)]
    assert len(numbers) >= 4
    assert numbers == sorted(set(numbers))
    assert numbers[0] > 0


def test_elections_from_cached_states_send_only_their_changes() -> None:
    runner = Runner()
    info = PartitionInfo(0, 1, 3, 5, (3, 1), 4, (3, 1), (), (), (), False, 0)
    topics = {"t": assignment((3, 1))}
    runner.states[("t", 0)] = (Leadership(3, 5, (3, 1), 1), 4)
    told = [TopicPartitions("t", b"i" * 16, [info])]
    runner.run(runner.controller.elect_by_memory(live(1, 2), topics, told))
    assert fullness(runner, 1) == {False}


def test_update_metadata_names_topics_without_a_leader() -> None:
    """A broker that misses it in the image would take it for deleted."""
    runner = Runner()
    runner.start(live(1), {"unled": assignment((9,)), "marked": assignment((9,))}, ["marked"])
    (told,) = (r for _, r in runner.sent if isinstance(r, UpdateMetadataRequest) and r.is_full)
    shown = {
        topic.topic: [(p.leader, p.replicas) for p in topic.partitions] for topic in told.topics
    }
    assert shown == {"unled": [(-1, (9,))], "marked": [(LEADER_BEING_DELETED, (9,))]}


def test_update_metadata_is_not_full_while_a_topic_is_unreadable() -> None:
    runner = Runner()
    snapshot = Snapshot({}, {}, [], ["bad"])
    runner.run(runner.controller.start(live(1), snapshot))
    runner.run(runner.controller.brokers_changed(live(1, 2)))
    assert fullness(runner, 2) == {False}
    runner.run(runner.controller.topics_changed({}, ["bad", "worse"]))
    assert runner.controller.state.unreadable == {"bad", "worse"}
    runner.run(runner.controller.topics_changed({}, []))
    runner.run(runner.controller.brokers_changed(live(1)))
    runner.run(runner.controller.brokers_changed(live(1, 2)))
    assert fullness(runner, 2) == {True}


# --- log directories -----------------------------------------------------------------------------


def test_a_failed_log_directory_takes_its_replicas_offline() -> None:
    """The broker is asked about its replicas; those it cannot serve leave, the others stay."""
    runner = Runner()
    runner.start(live(1, 2))
    created(runner, t=[(2, 1)])
    assert runner.run(runner.controller.log_dirs_failed([2, 9])) == [
        "1 <- metadata t-0:2@0 brokers 1,2",
        "2 <- metadata t-0:2@0 brokers 1,2",
        "2 <- lead t-0:2@0",
    ]
    assert runner.lead_answered(2, ErrorCode.KAFKA_STORAGE_ERROR) == [
        "write t-0 leader 1 epoch 1 isr 1",
        "1 <- metadata t-0:1@1 offline 2 brokers 1,2",
        "2 <- metadata t-0:1@1 offline 2 brokers 1,2",
        "1 <- lead t-0:1@1 offline 2",
        "1 <- metadata t-0:1@1 offline 2 brokers 1,2",
        "2 <- metadata t-0:1@1 offline 2 brokers 1,2",
        "2 <- stop t-0@1",
    ]
    assert runner.lead_answered(2, ErrorCode.KAFKA_STORAGE_ERROR) == [], "it is known"


def test_directory_failure_of_a_dropped_replica_changes_nothing() -> None:
    runner = Runner()
    runner.start(live(1, 2, 3), {"t": assignment((1, 2))})
    results: dict[TopicPartition, Refusal] = {}
    runner.run(runner.controller.reassignments.alter({("t", 0): (1, 3)}, results))
    leadership, version = runner.states[("t", 0)]
    partition = runner.controller.state.topics["t"].partitions[0]
    runner.states[("t", 0)] = (leadership._replace(isr=(1, 2, 3)), version + 1)
    partition.lead(*runner.states[("t", 0)])
    runner.run(runner.controller.reassignments.complete([partition]))
    assert partition.replicas == (1, 3)
    late = LeaderAndIsrResponse(ErrorCode.NONE, {("t", 0): ErrorCode.KAFKA_STORAGE_ERROR})
    assert runner.run(runner.controller.leader_and_isr_answered(2, late)) == []
    assert not runner.controller.state.failed_replicas[2]


def test_on_a_single_node_the_partition_is_without_a_leader() -> None:
    runner = Runner()
    runner.start(live(1))
    created(runner, t=[(1,)])
    runner.lead_answered(1, ErrorCode.KAFKA_STORAGE_ERROR)
    assert runner.leadership("t", 0) == "leader -1 epoch 1 isr 1"


def test_leader_and_isr_answers_without_failures_change_nothing() -> None:
    runner = Runner()
    runner.start(live(1))
    created(runner, t=[(1,)])
    assert runner.lead_answered(1) == []
    assert runner.lead_answered(1, ErrorCode.STALE_CONTROLLER_EPOCH) == []


# --- deleting topics -----------------------------------------------------------------------------


def test_a_topic_is_deleted() -> None:
    """Clients are told first (leader -2), then the replicas go, then the nodes."""
    runner = Runner()
    runner.start(live(1, 2))
    created(runner, t=[(1, 2)], kept=[(1,)])
    assert runner.run(runner.controller.deletion_asked(["t"])) == [
        "1 <- metadata t-0:-2@0 brokers 1,2",
        "2 <- metadata t-0:-2@0 brokers 1,2",
        "1 <- stop t-0@-2 delete",
        "2 <- stop t-0@-2 delete",
    ]
    assert runner.run(runner.controller.deletion_asked(["t"])) == [], "under way already"
    assert runner.stop_answered(1) == []
    assert runner.stop_answered(2) == ["delete nodes t"]
    assert set(runner.controller.state.topics) == {"kept"}
    assert runner.controller.state.to_delete == set()


def test_topics_that_end_together_are_forgotten_together() -> None:
    runner = Runner()
    runner.start(live(1))
    created(runner, a=[(1,)], b=[(1,)], c=[(1,)])
    runner.run(runner.controller.deletion_asked(["b", "a"]))
    assert runner.stop_answered(1) == ["delete nodes a b"]
    assert set(runner.controller.state.topics) == {"c"}


def test_a_deleted_topic_can_be_created_again() -> None:
    runner = Runner()
    runner.start(live(1))
    for _ in range(2):
        lines = created(runner, t=[(1,)])
        assert lines[0] == "write t-0 leader 1 epoch 0 isr 1"
        runner.run(runner.controller.deletion_asked(["t"]))
        told = runner.last(1, StopReplicaRequest)
        assert isinstance(told, StopReplicaRequest)
        (replica,) = told.replicas
        assert replica.topic_id == runner.controller.state.topics["t"].id, "not of another t"
        assert runner.stop_answered(1) == ["delete nodes t"]


def test_a_broker_dies_while_it_deletes() -> None:
    runner = Runner()
    runner.start(live(1, 2))
    created(runner, t=[(1, 2)])
    runner.run(runner.controller.deletion_asked(["t"]))
    runner.stop_answered(1)
    runner.run(runner.controller.brokers_changed(live(1)))
    replicas = runner.controller.state.topics["t"].partitions[0].replica_states
    assert replicas[2] is ReplicaState.DELETION_INELIGIBLE
    lines = runner.run(runner.controller.brokers_changed(live(1, 2, epoch=300)))
    assert "2 <- stop t-0@-2 delete" in lines
    assert "1 <- stop t-0@-2 delete" not in lines
    assert runner.stop_answered(2) == ["delete nodes t"]


def test_deletion_survives_a_broker_restart() -> None:
    """The simulation's seed 783: its replica waited for the other's for ever."""
    runner = Runner()
    runner.start(live(1, 2))
    created(runner, t=[(1, 2)])
    runner.run(runner.controller.deletion_asked(["t"]))
    lines = runner.run(runner.controller.brokers_changed(live(1) | live(2, epoch=300)))
    assert [line for line in lines if "delete" in line] == ["2 <- stop t-0@-2 delete"]
    assert runner.stop_answered(2) == []
    assert runner.stop_answered(1) == ["delete nodes t"]


def test_a_new_controller_goes_on_deleting() -> None:
    runner = Runner()
    runner.states = {("t", 0): (Leadership(1, 0, (1,), EPOCH - 1), 0)}
    lines = runner.start(live(1), {"t": assignment((1,))}, ["t", "gone"])
    assert lines == [
        "1 <- metadata t-0:-2@0 brokers 1",
        "delete /admin/delete_topics/gone",
        "1 <- metadata t-0:-2@0 brokers 1",
        "1 <- stop t-0@-2 delete",
    ]
    assert runner.stop_answered(1) == ["delete nodes t"]


def test_a_replica_that_cannot_be_deleted_blocks_its_topic() -> None:
    runner = Runner()
    runner.start(live(1))
    created(runner, t=[(1,)])
    runner.run(runner.controller.deletion_asked(["t"]))
    assert runner.stop_answered(1, ErrorCode.KAFKA_STORAGE_ERROR) == []
    assert "t" in runner.controller.state.topics


def test_deletion_may_be_turned_off() -> None:
    runner = Runner(delete_topic_enable=False)
    runner.start(live(1))
    created(runner, t=[(1,)])
    assert runner.run(runner.controller.deletion_asked(["t"])) == ["delete /admin/delete_topics/t"]
    assert "t" in runner.controller.state.topics


# --- leadership ----------------------------------------------------------------------------------


def test_leadership_goes_back_to_the_preferred_replica() -> None:
    runner = Runner()
    runner.start(live(1, 2))
    created(runner, t=[(2, 1)])
    runner.run(runner.controller.brokers_changed(live(1)))
    runner.run(runner.controller.brokers_changed(live(1, 2)))
    assert runner.controller.imbalance_percent(2) == 100
    assert runner.run(runner.controller.rebalance_leaders(10)) == [], "it is not in sync yet"
    leadership, version = runner.states[("t", 0)]
    partition = runner.controller.state.topics["t"].partitions[0]
    partition.lead(leadership._replace(isr=(1, 2)), version)
    assert runner.run(runner.controller.rebalance_leaders(10)) == [
        "write t-0 leader 2 epoch 2 isr 1,2",
        "1 <- metadata t-0:2@2 brokers 1,2",
        "2 <- metadata t-0:2@2 brokers 1,2",
        "1 <- lead t-0:2@2",
        "2 <- lead t-0:2@2",
    ]
    assert runner.controller.imbalance_percent(2) == 0
    assert runner.run(runner.controller.rebalance_leaders(10)) == []


def test_named_partitions_only() -> None:
    runner = Runner()
    runner.start(live(1, 2))
    created(runner, t=[(2, 1), (2, 1)])
    for partition in runner.controller.state.topics["t"].partitions.values():
        partition.lead(Leadership(1, 1, (1, 2), EPOCH), 0)
    lines = runner.run(runner.controller.elect_preferred([("t", 1), ("none", 0)]))
    assert [line for line in lines if line.startswith("write")] == [
        "write t-1 leader 2 epoch 2 isr 1,2"
    ]


# --- the tables ----------------------------------------------------------------------------------


def test_transitions_are_those_of_the_table_and_no_others() -> None:
    runner = Runner()
    runner.start(live(1))
    created(runner, t=[(1,)])
    partition = runner.controller.state.topics["t"].partitions[0]
    for state in PartitionState:
        for before in PartitionState:
            partition.state = before
            if before in PARTITION_TRANSITIONS[state]:
                assert partition.enter(state) is before
            else:
                with pytest.raises(IllegalTransitionError):
                    partition.enter(state)
    for replica_state in ReplicaState:
        for replica_before in ReplicaState:
            partition.replica_states = {1: replica_before}
            if replica_before in REPLICA_TRANSITIONS[replica_state]:
                assert partition.enter_replica(1, replica_state) is replica_before
            else:
                with pytest.raises(IllegalTransitionError):
                    partition.enter_replica(1, replica_state)
