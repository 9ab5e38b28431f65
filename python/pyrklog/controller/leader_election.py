"""Elections. Pure functions.

Each walks the assignment in order and returns the next :class:`Leadership`; None when nobody may
lead. Every election raises the epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from pyrklog.cluster.requests import LogEnd
from pyrklog.metastore.znodes import RECOVERED, RECOVERING, Leadership

Election = Callable[["Candidates"], Leadership | None]


class Candidates(NamedTuple):
    assignment: Sequence[int]
    live: Collection[int]
    current: Leadership
    controller_epoch: int
    unclean: bool = False
    """Whether a replica outside the ISR may lead when none in it lives."""
    shutting_down: Collection[int] = ()
    targets: Sequence[int] = ()
    """Replicas after a reassignment."""

    def elected(self, leader: int, isr: Sequence[int], recovery: int) -> Leadership:
        return Leadership(
            leader, self.current.leader_epoch + 1, tuple(isr), self.controller_epoch, recovery
        )


def offline_election(candidates: Candidates) -> Leadership | None:
    """The first live replica in the ISR, else the first eligible one; unclean: the first live one,
    members first.
    """
    current = candidates.current
    whole = [broker for broker in candidates.live if broker not in current.unclean]
    live_isr = [broker for broker in current.isr if broker in whole]
    for broker in candidates.assignment:
        if broker in live_isr:
            return candidates.elected(broker, live_isr, current.recovery_state)
    for broker in candidates.assignment:
        if broker in current.eligible and broker in whole:
            return candidates.elected(broker, [broker], current.recovery_state)
    if candidates.unclean:
        for replicas in (current.members, candidates.assignment):
            for broker in candidates.assignment:
                if broker in replicas and broker in candidates.live:
                    return candidates.elected(broker, [broker], RECOVERING)
    return None


def unclean_election(candidates: Candidates) -> Leadership | None:
    return offline_election(candidates._replace(unclean=True))


def is_unclean(before: Leadership, after: Leadership) -> bool:
    """Whether the new leader may lack acknowledged records: it was neither in sync nor eligible, or
    it was marked and leads all the same. Not after a power loss, where nobody has more
    (:func:`with_most`)."""
    if after.leader < 0:
        return False
    is_marked = after.leader in before.unclean and after.recovery_state == RECOVERING
    return is_marked or after.leader not in before.members


def preferred_election(candidates: Candidates) -> Leadership | None:
    """The first replica of the assignment, if it lives and is in sync."""
    head = candidates.assignment[0]
    current = candidates.current
    if head in candidates.live and head in current.isr and not current.unclean:
        return candidates.elected(head, current.isr, current.recovery_state)
    return None


def reassignment_election(candidates: Candidates) -> Leadership | None:
    """The first of the new replicas that lives and is in sync."""
    current = candidates.current
    for broker in candidates.targets:
        if broker in candidates.live and broker in current.isr and not current.unclean:
            return candidates.elected(broker, current.isr, current.recovery_state)
    return None


def shutdown_election(candidates: Candidates) -> Leadership | None:
    """Another in-sync replica leads and the broker leaves the ISR; an eligible one where it was the
    last.
    """
    current = candidates.current
    staying = [broker for broker in current.isr if broker not in candidates.shutting_down]
    for broker in candidates.assignment:
        if broker in candidates.live and broker in staying and not current.unclean:
            return candidates.elected(broker, staying, RECOVERED)
    for broker in candidates.assignment:
        is_staying = broker in candidates.live and broker not in candidates.shutting_down
        if not staying and broker in current.eligible and is_staying and not current.unclean:
            return candidates.elected(broker, [broker], current.recovery_state)
    return None


def same_leader(current: Leadership, controller_epoch: int) -> Leadership:
    """Raises the epoch alone, so that the replicas learn of another assignment."""
    return current._replace(
        leader_epoch=current.leader_epoch + 1, controller_epoch=controller_epoch
    )


def without_replica(current: Leadership, broker: int, controller_epoch: int) -> Leadership | None:
    """The replica leaves the ISR unless it is the last member; None = no change."""
    return without_replicas(current, [broker], current.isr, controller_epoch)


def without_replicas(
    current: Leadership, gone: Collection[int], whole: Collection[int], controller_epoch: int
) -> Leadership | None:
    """Replicas leave the ISR in one event; None = no change.

    Where none of ``whole`` remains, the ISR stays and nobody leads, so that a returning replica has
    everything.
    """
    isr = tuple(broker for broker in current.isr if broker not in gone)
    if not set(isr) & set(whole):
        isr = current.isr
    leader = -1 if current.leader in gone else current.leader
    if (leader, isr) == (current.leader, current.isr):
        return None
    return current._replace(
        leader=leader,
        leader_epoch=current.leader_epoch + 1,
        isr=isr,
        controller_epoch=controller_epoch,
    )


def after_unclean_starts(
    current: Leadership, unclean: Collection[int], whole: Collection[int], controller_epoch: int
) -> Leadership | None:
    """Replicas came back that may lack records; None = no change.

    ``whole`` are the live members that have everything. Where there are any, the others leave.
    Otherwise nobody leaves or leads, and those of ``unclean`` are marked; a single member leads on.
    """
    marked = tuple(b for b in current.members if b in unclean or b in current.unclean)
    following = current._replace(
        leader_epoch=current.leader_epoch + 1, controller_epoch=controller_epoch, unclean=()
    )
    if not whole:
        if len(current.members) == 1:
            return following._replace(leader=current.isr[0])
        return following._replace(leader=-1, unclean=marked)
    if not marked:
        return None
    isr = tuple(broker for broker in current.isr if broker not in marked)
    if not isr:
        isr = tuple(broker for broker in current.eligible if broker not in marked)
    return following._replace(leader=current.leader if current.leader in isr else -1, isr=isr)


def with_most(
    current: Leadership, ends: Mapping[int, LogEnd], controller_epoch: int
) -> Leadership | None:
    """The live marked member with the longest log (``ends``) leads alone; None without any."""
    known = [broker for broker in current.members if broker in ends]
    if not known:
        return None
    best = max(known, key=lambda broker: (ends[broker].last_epoch, ends[broker].offset))
    return Leadership(
        best, current.leader_epoch + 1, (best,), controller_epoch, current.recovery_state
    )
