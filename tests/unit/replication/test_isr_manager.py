"""From the plane's reports on followers to requests for the controller, and back."""

from collections.abc import Mapping

import pytest

from pyrklog.cluster.requests import (
    AlterPartitionResponse,
    IsrChange,
    IsrChangeResult,
    TopicPartition,
)
from pyrklog.errors import ErrorCode
from pyrklog.plane.seam import LaggingFollowers
from pyrklog.plane.values import LeaderSpec
from pyrklog.protocol.inter_broker import PartitionInfo
from pyrklog.replication.isr import Proposal
from pyrklog.replication.isr_manager import IsrManager
from pyrklog.testing.fake_plane import FakePlane

ME, OTHER, THIRD = 1, 2, 3
ID = b"i" * 16
KEY = ("t", 0)


class Bench:
    """A manager over a plane that leads t-0 in epoch 5."""

    def __init__(self, isr: tuple[int, ...] = (ME,)) -> None:
        self.plane = FakePlane()
        self.live = {ME, OTHER, THIRD}
        self.proposed = 0
        self.manager = IsrManager(
            ME,
            self.plane,
            live_brokers=lambda: self.live,
            broker_epoch=lambda: 100,
            on_proposed=self._proposed,
        )
        self.lead(isr, 5, 8)

    def _proposed(self) -> None:
        self.proposed += 1

    def lead(
        self,
        isr: tuple[int, ...],
        leader_epoch: int,
        partition_epoch: int,
        recovery_state: int = 0,
        partial: tuple[int, ...] = (),
    ) -> None:
        replicas = (ME, OTHER, THIRD)
        self.plane.led[KEY] = LeaderSpec("t", 0, leader_epoch, replicas, isr, False)
        info = PartitionInfo(
            0,
            1,
            ME,
            leader_epoch,
            isr,
            partition_epoch,
            replicas,
            (),
            (),
            (),
            is_new=False,
            recovery_state=recovery_state,
            partial=partial,
        )
        self.manager.leads("t", ID, info)

    def told(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The plane's last ISR: members, written."""
        return self.plane.isrs.pop(KEY)

    def answer(self, asked: Mapping[TopicPartition, Proposal], result: IsrChangeResult) -> bool:
        return self.manager.take(asked, AlterPartitionResponse(ErrorCode.NONE, [result]))


def written(*isr: int, partition_epoch: int = 9, leader_epoch: int = 5) -> IsrChangeResult:
    return IsrChangeResult(ID, 0, ErrorCode.NONE, ME, leader_epoch, isr, 0, partition_epoch)


def test_caught_up_follower_is_proposed_and_counts_at_once() -> None:
    bench = Bench()
    bench.manager.caught_up(KEY, 5, OTHER, 77)
    assert bench.proposed == 1
    assert bench.told() == ((ME, OTHER), (ME,))
    asked = bench.manager.proposals
    request = bench.manager.request(asked)
    assert (request.broker, request.broker_epoch) == (ME, 100)
    assert request.changes == [IsrChange(ID, 0, 5, 8, [(ME, 100), (OTHER, 77)], 0)]
    assert bench.answer(asked, written(ME, OTHER))
    assert bench.told() == ((ME, OTHER), (ME, OTHER))
    assert not bench.manager.proposals
    assert (bench.manager.expands, bench.manager.shrinks) == (1, 0)


def test_reregistered_member_does_not_block_other_changes() -> None:
    """A member's epoch is not reported after it has joined."""
    bench = Bench()
    bench.manager.caught_up(KEY, 5, OTHER, 77)
    assert bench.answer(bench.manager.proposals, written(ME, OTHER))
    bench.manager.caught_up(KEY, 5, THIRD, 88)
    change = bench.manager.request(bench.manager.proposals).changes[0]
    assert change.isr == [(ME, 100), (OTHER, -1), (THIRD, 88)]


def test_unknown_follower_is_proposed_at_the_next_laggard_check() -> None:
    """The controller knows better: its lists of live brokers may arrive out of order."""
    bench = Bench()
    bench.live.discard(OTHER)
    bench.manager.caught_up(KEY, 5, OTHER, 77)
    assert not bench.manager.proposals
    bench.manager.look_for_laggards(1000)
    assert bench.manager.proposals[KEY].isr == (ME, OTHER)


def test_follower_that_has_fallen_back_is_not_proposed() -> None:
    bench = Bench()
    bench.plane.refuses_isrs = True
    bench.manager.caught_up(KEY, 5, OTHER, 77)
    assert not bench.manager.proposals
    assert bench.proposed == 0
    bench.plane.refuses_isrs = False
    bench.manager.caught_up(KEY, 5, OTHER, 77)
    assert bench.told() == ((ME, OTHER), (ME,))


def test_lagging_follower_counts_until_its_removal_is_written() -> None:
    bench = Bench((ME, OTHER, THIRD))
    bench.plane.lagging = [LaggingFollowers("t", 0, 5, [THIRD]), LaggingFollowers("x", 0, 1, [2])]
    bench.manager.look_for_laggards(1000)
    assert bench.told() == ((ME, OTHER, THIRD), (ME, OTHER, THIRD))
    asked = bench.manager.proposals
    assert asked[KEY].isr == (ME, OTHER)
    assert bench.manager.request(asked).changes[0].isr == [(ME, 100), (OTHER, -1)]
    assert (bench.manager.expands, bench.manager.shrinks) == (0, 0)
    assert bench.answer(asked, written(ME, OTHER))
    assert bench.told() == ((ME, OTHER), (ME, OTHER))
    assert (bench.manager.expands, bench.manager.shrinks) == (0, 1)


def test_only_one_change_of_a_partition_is_sent() -> None:
    bench = Bench()
    bench.manager.caught_up(KEY, 5, OTHER, 77)
    asked = bench.manager.proposals
    bench.manager.caught_up(KEY, 5, THIRD, 78)
    assert bench.manager.proposals == asked


def test_events_of_other_epochs_or_partitions_are_ignored() -> None:
    bench = Bench()
    bench.manager.caught_up(KEY, 4, OTHER, 77)
    bench.manager.caught_up(("u", 0), 5, OTHER, 77)
    bench.plane.lagging = [LaggingFollowers("t", 0, 4, [OTHER])]
    bench.manager.look_for_laggards(1000)
    assert not bench.manager.proposals


def test_unknown_follower_is_not_proposed_at_once() -> None:
    bench = Bench()
    bench.live = {ME}
    bench.manager.caught_up(KEY, 5, OTHER, 77)
    assert not bench.manager.proposals
    assert KEY not in bench.plane.isrs
    bench.live = {ME, OTHER}
    bench.manager.brokers_changed()
    assert bench.told() == ((ME,), (ME,)), "the plane will say it again"
    bench.manager.brokers_changed()
    assert KEY not in bench.plane.isrs


@pytest.mark.parametrize(
    ("error", "members", "is_asked_again"),
    [
        (ErrorCode.INELIGIBLE_REPLICA, (ME,), False),
        (ErrorCode.INVALID_UPDATE_VERSION, (ME, OTHER), False),
        (ErrorCode.FENCED_LEADER_EPOCH, (ME, OTHER), False),
    ],
)
def test_refused_change_is_dropped(
    error: ErrorCode, members: tuple[int, ...], is_asked_again: bool
) -> None:
    bench = Bench()
    bench.manager.caught_up(KEY, 5, OTHER, 77)
    bench.told()
    asked = bench.manager.proposals
    assert not bench.answer(asked, IsrChangeResult(ID, 0, error)), "a pause"
    assert bench.told() == (members, (ME,))
    assert bool(bench.manager.proposals) is is_asked_again


def test_an_error_that_may_pass_is_asked_again() -> None:
    bench = Bench()
    bench.manager.caught_up(KEY, 5, OTHER, 77)
    asked = bench.manager.proposals
    assert not bench.answer(asked, IsrChangeResult(ID, 0, ErrorCode.NOT_CONTROLLER))
    assert bench.manager.proposals == asked
    refused = AlterPartitionResponse(ErrorCode.STALE_BROKER_EPOCH, [])
    assert not bench.manager.take(asked, refused)
    assert not bench.manager.take(asked, AlterPartitionResponse(ErrorCode.NONE, []))
    assert bench.manager.proposals == asked


def test_answer_from_before_a_new_epoch_is_ignored() -> None:
    bench = Bench()
    bench.manager.caught_up(KEY, 5, OTHER, 77)
    asked = bench.manager.proposals
    bench.lead((ME, THIRD), 6, 9)
    bench.plane.isrs.clear()
    assert bench.answer(asked, written(ME, OTHER))
    assert KEY not in bench.plane.isrs
    bench.manager.caught_up(KEY, 6, OTHER, 77)
    assert bench.told() == ((ME, THIRD, OTHER), (ME, THIRD))


def test_partition_without_leadership_is_forgotten() -> None:
    bench = Bench()
    bench.manager.caught_up(KEY, 5, OTHER, 77)
    asked = bench.manager.proposals
    bench.manager.leads_no_more(KEY)
    assert not bench.manager.proposals
    assert bench.answer(asked, written(ME, OTHER))
    bench.manager.caught_up(KEY, 5, THIRD, 77)
    assert not bench.manager.proposals


def test_high_watermark_is_held_while_others_are_eligible() -> None:
    bench = Bench((ME, OTHER))
    bench.plane.lagging = [LaggingFollowers("t", 0, 5, [OTHER])]
    bench.manager.look_for_laggards(1000)
    assert bench.told() == ((ME, OTHER), (ME, OTHER))
    assert not bench.plane.held[KEY]
    bench.answer(bench.manager.proposals, written(ME)._replace(eligible=(OTHER,)))
    assert bench.told() == ((ME,), (ME,))
    assert bench.plane.held[KEY]
    bench.manager.caught_up(KEY, 5, THIRD, 88)
    assert bench.told() == ((ME, THIRD), (ME,))
    assert bench.plane.held[KEY], "who is about to join helps nobody yet"
    bench.answer(bench.manager.proposals, written(ME, THIRD, partition_epoch=10))
    assert not bench.plane.held[KEY]


def test_leader_stays_recovered_after_its_isr_shrinks_again() -> None:
    """Otherwise no leaving replica would be eligible: a later election could lose records."""
    bench = Bench()
    bench.lead((ME,), 6, 9, recovery_state=1)
    bench.manager.caught_up(KEY, 6, OTHER, 77)
    joining = bench.manager.proposals
    assert bench.manager.request(joining).changes[0].recovery_state == 0
    bench.answer(joining, written(ME, OTHER, partition_epoch=10, leader_epoch=6))
    bench.plane.lagging = [LaggingFollowers("t", 0, 6, [OTHER])]
    bench.manager.look_for_laggards(1000)
    assert bench.manager.request(bench.manager.proposals).changes == [
        IsrChange(ID, 0, 6, 10, [(ME, 100)], 0)
    ]


def test_recovered_leader_does_not_report_recovery_again() -> None:
    bench = Bench((ME, OTHER))
    bench.lead((ME,), 6, 9, recovery_state=1)
    bench.lead((ME, OTHER), 7, 10)
    bench.plane.lagging = [LaggingFollowers("t", 0, 7, [OTHER])]
    bench.manager.look_for_laggards(1000)
    assert bench.manager.request(bench.manager.proposals).changes[0].recovery_state == 0


def test_whole_replicas_are_named_where_they_were_partial() -> None:
    """The plane reports a partial replica once it lacks nothing; the controller asks for the word
    of the leader of this epoch."""
    bench = Bench((ME,))
    bench.lead((ME,), 6, 9, partial=(OTHER,))
    bench.manager.caught_up(KEY, 6, OTHER, 77)
    (change,) = bench.manager.request(bench.manager.proposals).changes
    assert change.whole == (OTHER,)
    bench.lead((ME,), 7, 10)
    bench.manager.caught_up(KEY, 7, OTHER, 77)
    (change,) = bench.manager.request(bench.manager.proposals).changes
    assert (change.isr, change.whole) == ([(ME, 100), (OTHER, 77)], ())
