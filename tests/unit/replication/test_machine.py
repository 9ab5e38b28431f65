"""Which control requests a broker obeys."""

from pyrklog.cluster.requests import (
    EPOCH_DURING_DELETE,
    EPOCH_NONE,
    NO_TOPIC_ID,
    LeaderAndIsrRequest,
    StopReplica,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from pyrklog.errors import ErrorCode
from pyrklog.plane.values import FollowerSpec, LeaderSpec
from pyrklog.protocol.inter_broker import PartitionInfo, TopicPartitions
from pyrklog.replication.machine import LeadershipDecision, Replicas, StopDecision

ME, OTHER = 1, 2
TOPIC_ID = b"t" * 16
KEY = ("t", 0)


def info(
    leader: int = ME,
    leader_epoch: int = 0,
    *,
    partition: int = 0,
    replicas: tuple[int, ...] = (ME, OTHER),
    is_new: bool = False,
    partial: tuple[int, ...] = (),
) -> PartitionInfo:
    return PartitionInfo(
        partition=partition,
        controller_epoch=1,
        leader=leader,
        leader_epoch=leader_epoch,
        isr=replicas,
        partition_epoch=0,
        replicas=replicas,
        adding=(),
        removing=(),
        offline=(),
        is_new=is_new,
        recovery_state=0,
        partial=partial,
    )


def told(
    replicas: Replicas,
    *infos: PartitionInfo,
    controller_epoch: int = 1,
    broker_epoch: int = 10,
    topic_id: bytes = TOPIC_ID,
) -> LeadershipDecision:
    topics = [TopicPartitions("t", topic_id, list(infos))]
    return replicas.leadership_told(
        LeaderAndIsrRequest(OTHER, controller_epoch, broker_epoch, topics)
    )


def stop(
    replicas: Replicas,
    leader_epoch: int,
    *,
    delete: bool = False,
    controller_epoch: int = 1,
    topic_id: bytes = NO_TOPIC_ID,
) -> StopDecision:
    item = StopReplica("t", 0, leader_epoch, delete, topic_id)
    return replicas.stop_told(StopReplicaRequest(OTHER, controller_epoch, 10, [item]))


def hosting() -> Replicas:
    replicas = Replicas(ME)
    replicas.broker_epoch = 10
    decision = told(replicas, info(leader_epoch=5))
    replicas.done(decision.lead, [0])
    return replicas


def test_new_leader_serves_after_its_log_is_open() -> None:
    replicas = Replicas(ME)
    decision = told(replicas, info(is_new=True))
    assert decision.lead == [LeaderSpec("t", 0, 0, (ME, OTHER), (ME, OTHER), True)]
    assert (decision.error, decision.errors, decision.follow) == (ErrorCode.NONE, {}, [])
    assert not replicas.is_serving(KEY), "not before the plane says so"
    replicas.done(decision.lead, [ErrorCode.NONE])
    assert replicas.is_serving(KEY)


def test_outcome_overtaken_by_a_later_epoch_keeps_the_partition() -> None:
    replicas = Replicas(ME)
    first = told(replicas, info(leader_epoch=5)).lead
    told(replicas, info(leader_epoch=6))
    assert replicas.done(first, [ErrorCode.NOT_LEADER_OR_FOLLOWER]) == {KEY}
    assert KEY in replicas.hosted


def test_leader_becomes_follower_when_another_broker_leads() -> None:
    replicas = hosting()
    decision = told(replicas, info(OTHER, 6))
    assert decision.lead == []
    assert decision.follow == [FollowerSpec("t", 0, OTHER, 6, (ME, OTHER), (ME, OTHER), False)]
    assert not replicas.is_serving(KEY)


def test_leader_epochs_fence() -> None:
    replicas = hosting()
    for epoch in (4, 5):
        decision = told(replicas, info(leader_epoch=epoch))
        assert decision.errors == {KEY: ErrorCode.STALE_CONTROLLER_EPOCH}
        assert decision.lead == []
    assert replicas.is_serving(KEY)
    assert len(told(replicas, info(leader_epoch=6)).lead) == 1


def test_a_leader_that_stays_one_serves_on() -> None:
    """Another broker left the ISR: coordinators here stay."""
    replicas = hosting()
    decision = told(replicas, info(leader_epoch=6))
    assert replicas.serving_since(KEY) == 5
    replicas.done(decision.lead, [ErrorCode.NONE])
    assert replicas.serving_since(KEY) == 5
    decision = told(replicas, info(leader_epoch=7))
    replicas.done(decision.lead, [ErrorCode.UNKNOWN_SERVER_ERROR])
    assert not replicas.is_serving(KEY), "the plane did not take it"
    replicas = hosting()
    told(replicas, info(OTHER, 6))
    decision = told(replicas, info(leader_epoch=7))
    assert not replicas.is_serving(KEY), "it has followed in between"
    replicas.done(decision.lead, [ErrorCode.NONE])
    assert replicas.serving_since(KEY) == 7


def test_controller_epochs_fence() -> None:
    replicas = hosting()
    assert told(replicas, info(leader_epoch=6), controller_epoch=3).error is ErrorCode.NONE
    refused = told(replicas, info(leader_epoch=7), controller_epoch=2)
    assert refused.error is ErrorCode.STALE_CONTROLLER_EPOCH
    assert refused.lead == []
    assert stop(replicas, 9, controller_epoch=2).error is ErrorCode.STALE_CONTROLLER_EPOCH
    old = UpdateMetadataRequest(OTHER, 2, 10, [], [])
    assert replicas.metadata_told(old) is ErrorCode.STALE_CONTROLLER_EPOCH
    assert replicas.metadata_told(old._replace(controller_epoch=4)) is ErrorCode.NONE


def test_orders_for_an_earlier_life_are_refused() -> None:
    replicas = hosting()
    assert (
        told(replicas, info(leader_epoch=6), broker_epoch=9).error is ErrorCode.STALE_BROKER_EPOCH
    )
    assert told(replicas, info(leader_epoch=6), broker_epoch=-1).error is ErrorCode.NONE
    assert told(replicas, info(leader_epoch=7), broker_epoch=11).error is ErrorCode.NONE


def test_partition_of_other_brokers_or_topics_is_refused() -> None:
    replicas = hosting()
    stranger = told(replicas, info(OTHER, 9, partition=3, replicas=(OTHER,)))
    assert stranger.errors == {("t", 3): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    renamed = told(replicas, info(leader_epoch=9), topic_id=b"u" * 16)
    assert renamed.errors == {KEY: ErrorCode.INCONSISTENT_TOPIC_ID}


def test_partition_whose_log_fails_to_open_is_offline() -> None:
    replicas = Replicas(ME)
    decision = told(replicas, info(), info(partition=1))
    replicas.done(decision.lead, [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE])
    assert not replicas.is_serving(KEY)
    assert replicas.is_serving(("t", 1))
    # The directory stays failed until the broker restarts.
    again = told(replicas, info(leader_epoch=1))
    assert again.errors == {KEY: ErrorCode.KAFKA_STORAGE_ERROR}


def test_control_request_that_failed_can_be_repeated() -> None:
    replicas = Replicas(ME)
    decision = told(replicas, info())
    replicas.done(decision.lead, [ErrorCode.UNKNOWN_SERVER_ERROR])
    assert len(told(replicas, info()).lead) == 1


def test_outcome_overtaken_by_a_new_leader_is_ignored() -> None:
    replicas = Replicas(ME)
    first = told(replicas, info())
    second = told(replicas, info(OTHER, 1))
    assert [(spec.topic, spec.partition) for spec in second.follow] == [KEY]
    replicas.done(first.lead, [ErrorCode.NONE])
    assert not replicas.is_serving(KEY)


def test_a_log_directory_fails_under_a_served_partition() -> None:
    replicas = hosting()
    replicas.partitions_failed([KEY, ("elsewhere", 0)])
    assert not replicas.is_serving(KEY)
    assert told(replicas, info(leader_epoch=6)).errors == {KEY: ErrorCode.KAFKA_STORAGE_ERROR}
    assert stop(replicas, EPOCH_DURING_DELETE, delete=True).errors == {
        KEY: ErrorCode.KAFKA_STORAGE_ERROR
    }


def test_failed_partition_is_told_apart_from_a_later_one_of_its_name() -> None:
    replicas = hosting()
    topic_id = replicas.hosted[KEY].topic_id
    assert replicas.hosts(KEY, topic_id)
    assert not replicas.hosts(KEY, b"u" * 16)
    assert not Replicas(ME).hosts(KEY, topic_id)


def test_stopped_partition_is_closed_or_deleted() -> None:
    for epoch in (5, 6, EPOCH_NONE, EPOCH_DURING_DELETE):
        replicas = hosting()
        decision = stop(replicas, epoch, delete=True)
        assert (decision.errors, decision.stop) == ({}, [("t", 0, True)])
        assert not replicas.is_serving(KEY)
    replicas = hosting()
    assert stop(replicas, 4).errors == {KEY: ErrorCode.FENCED_LEADER_EPOCH}
    assert replicas.is_serving(KEY)


def test_stop_replica_of_an_unhosted_partition_succeeds() -> None:
    """A folder may exist all the same: the plane is asked to delete it."""
    assert stop(Replicas(ME), 3, delete=True).stop == [("t", 0, True)]


def test_late_leader_and_isr_does_not_revive_a_stopped_partition() -> None:
    """The simulation's seed 12: it would lead an empty log in a past epoch."""
    replicas = hosting()
    stop(replicas, 7)
    stop(replicas, 8, delete=True)
    for epoch in (6, 7):
        late = told(replicas, info(leader_epoch=epoch))
        assert (late.errors, late.lead) == ({KEY: ErrorCode.STALE_CONTROLLER_EPOCH}, [])
    assert len(told(replicas, info(leader_epoch=9)).lead) == 1, "it is a replica again"
    stop(replicas, 9, delete=True)
    assert len(told(replicas, info(leader_epoch=0), topic_id=b"u" * 16).lead) == 1
    stop(replicas, EPOCH_DURING_DELETE, delete=True)
    # Seed 1114: two topics of the name have come and gone.
    again = told(replicas, info(leader_epoch=9))
    assert again.errors == {KEY: ErrorCode.STALE_CONTROLLER_EPOCH}


def test_deletion_of_an_old_topic_spares_the_next_of_its_name() -> None:
    """The request was repeated over another connection and obeyed; then the first one arrived."""
    replicas = hosting()
    gone = stop(replicas, EPOCH_DURING_DELETE, delete=True, topic_id=b"u" * 16)
    assert (gone.errors, gone.stop) == ({KEY: ErrorCode.NONE}, [])
    assert replicas.is_serving(KEY)
    for topic_id in (TOPIC_ID, NO_TOPIC_ID):
        replicas = hosting()
        meant = stop(replicas, EPOCH_DURING_DELETE, delete=True, topic_id=topic_id)
        assert (meant.errors, meant.stop) == ({}, [("t", 0, True)])
        assert not replicas.is_serving(KEY)


def test_stopped_partition_is_forgotten_after_a_new_controller_or_registration() -> None:
    replicas = hosting()
    stop(replicas, 7)
    assert len(told(replicas, info(leader_epoch=6), controller_epoch=2).lead) == 1
    stop(replicas, 7, controller_epoch=2)
    replicas.registered(11)
    again = told(replicas, info(leader_epoch=6), controller_epoch=2, broker_epoch=11)
    assert len(again.lead) == 1


def test_deletion_remembers_the_leader_epoch() -> None:
    replicas = hosting()
    stop(replicas, EPOCH_DURING_DELETE, delete=True)
    assert told(replicas, info(leader_epoch=5)).errors == {KEY: ErrorCode.STALE_CONTROLLER_EPOCH}


def stray(replicas: Replicas, now: PartitionInfo, topic_id: bytes = TOPIC_ID) -> bool:
    request = UpdateMetadataRequest(OTHER, 1, 10, [TopicPartitions("t", topic_id, [now])], [])
    found = replicas.strays(request)
    assert found in ([], [("t", 0, False)])
    return bool(found)


def test_partition_reassigned_during_an_absence_is_no_longer_led() -> None:
    """The simulation's seed 82: nobody else tells a broker whose session had expired meanwhile."""
    elsewhere = (3, 4)
    replicas = hosting()
    assert not stray(replicas, info(3, 5, replicas=elsewhere)), "not a later epoch"
    assert not stray(replicas, info(3, 9)), "it is a replica"
    assert not stray(replicas, info(3, 9, replicas=elsewhere), b"u" * 16), "another topic"
    assert replicas.is_serving(KEY)
    assert stray(replicas, info(3, 9, replicas=elsewhere))
    assert not replicas.is_serving(KEY)
    assert told(replicas, info(leader_epoch=6)).errors == {KEY: ErrorCode.STALE_CONTROLLER_EPOCH}
    assert len(told(replicas, info(leader_epoch=10)).lead) == 1


def test_wait_for_a_partition_ends_when_it_serves_or_fails() -> None:
    replicas = Replicas(ME)
    assert not replicas.is_settled(KEY), "the controller has not said anything yet"
    decision = told(replicas, info())
    assert not replicas.is_settled(KEY), "its log is being opened"
    replicas.done(decision.lead, [0])
    assert replicas.is_settled(KEY)
    told(replicas, info(leader=OTHER, leader_epoch=1))
    assert replicas.is_settled(KEY), "another broker leads"
    replicas.partitions_failed([KEY])
    assert replicas.is_settled(KEY), "nothing more will come"


def test_replicas_that_a_reassignment_adds_are_known_until_it_ends() -> None:
    replicas = Replicas(ME)
    assert replicas.adding(KEY) == ()
    moving = info(replicas=(ME, OTHER, 3))
    moving.adding = (3,)
    told(replicas, moving)
    assert (replicas.adding(KEY), replicas.adding_changes) == ((3,), 1)
    again = info(leader_epoch=1, replicas=(ME, OTHER, 3))
    again.adding = (3,)
    told(replicas, again)
    assert replicas.adding_changes == 1
    told(replicas, info(leader_epoch=2, replicas=(ME, OTHER, 3)))
    assert (replicas.adding(KEY), replicas.adding_changes) == ((), 2)


def test_a_reassignment_that_only_removes_is_known_too() -> None:
    replicas = Replicas(ME)
    assert not replicas.is_reassigned(KEY)
    moving = info(replicas=(ME, OTHER, 3))
    moving.removing = (3,)
    told(replicas, moving)
    assert (replicas.is_reassigned(KEY), replicas.adding_changes) == (True, 1)
    told(replicas, info(leader_epoch=1))
    assert (replicas.is_reassigned(KEY), replicas.adding_changes) == (False, 2)


def test_partial_replicas_are_known_until_they_are_whole() -> None:
    replicas = Replicas(ME)
    assert replicas.partial(KEY) == ()
    told(replicas, info(replicas=(ME, OTHER, 3), partial=(3,)))
    assert (replicas.partial(KEY), replicas.adding_changes) == ((3,), 1)
    told(replicas, info(leader_epoch=1, replicas=(ME, OTHER, 3), partial=(3,)))
    assert replicas.adding_changes == 1
    told(replicas, info(leader_epoch=2, replicas=(ME, OTHER, 3)))
    assert (replicas.partial(KEY), replicas.adding_changes) == ((), 2)


def test_a_broker_is_told_by_the_first_metadata_for_its_registration() -> None:
    replicas = Replicas(ME)

    def is_told_after(*broker_epochs: int) -> bool:
        for epoch in broker_epochs:
            replicas.metadata_taken(UpdateMetadataRequest(OTHER, 1, epoch, [], []))
        return replicas.is_told

    replicas.registered(10)
    assert not is_told_after()
    assert is_told_after(10)
    replicas.registered(20)
    assert not is_told_after()
    assert not is_told_after(10), "of before the session ended"
    assert is_told_after(20, 20)


def test_the_plane_learns_of_partial_replicas() -> None:
    replicas = Replicas(ME)
    replicas.broker_epoch = 10
    led = told(replicas, info(leader_epoch=1, partial=(OTHER,))).lead
    assert [spec.partial for spec in led] == [(OTHER,)]
    for epoch, partial in ((2, (OTHER,)), (3, (ME, OTHER)), (4, ())):
        (spec,) = told(replicas, info(OTHER, epoch, partial=partial)).follow
        assert spec.is_partial is (ME in partial)
