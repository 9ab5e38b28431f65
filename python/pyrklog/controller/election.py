"""Who leads next: the four elections of the controller. Pure functions.

Each walks the assignment in order and returns the next :class:`Leadership`, or None when nobody
may lead. The epoch rises with every election.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from pyrklog.metastore.znodes import RECOVERED, RECOVERING, Leadership

Election = Callable[["Candidates"], Leadership | None]


class Candidates:
    """What an election looks at."""

    def __init__(
        self,
        *,
        assignment: Sequence[int],
        live: Collection[int],
        current: Leadership,
        controller_epoch: int,
        unclean: bool = False,
        shutting_down: Collection[int] = (),
        targets: Sequence[int] = (),
    ) -> None:
        self.assignment = assignment
        self.live = live
        self.current = current
        self.controller_epoch = controller_epoch
        self.unclean = unclean
        """Whether a replica outside the ISR may lead when nobody in it lives."""
        self.shutting_down = shutting_down
        self.targets = targets
        """Replicas after a reassignment."""

    def elected(self, leader: int, isr: Sequence[int], recovery: int) -> Leadership:
        """The next leadership."""
        return Leadership(
            leader, self.current.leader_epoch + 1, tuple(isr), self.controller_epoch, recovery
        )


def offline_election(candidates: Candidates) -> Leadership | None:
    """The leader is gone: the first live replica in the ISR, else the first that is eligible;
    unclean: the first live one.
    """
    current = candidates.current
    live_isr = [broker for broker in current.isr if broker in candidates.live]
    for broker in candidates.assignment:
        if broker in live_isr:
            return candidates.elected(broker, live_isr, current.recovery_state)
    for broker in candidates.assignment:
        if broker in current.eligible and broker in candidates.live:
            return candidates.elected(broker, [broker], current.recovery_state)
    if candidates.unclean:
        for broker in candidates.assignment:
            if broker in candidates.live:
                return candidates.elected(broker, [broker], RECOVERING)
    return None


def unclean_election(candidates: Candidates) -> Leadership | None:
    """As the offline one, but an administrator has said that what is lost is lost."""
    candidates.unclean = True
    return offline_election(candidates)


def preferred_election(candidates: Candidates) -> Leadership | None:
    """The head of the assignment, if it lives and is in sync."""
    head = candidates.assignment[0]
    current = candidates.current
    if head in candidates.live and head in current.isr:
        return candidates.elected(head, current.isr, current.recovery_state)
    return None


def reassignment_election(candidates: Candidates) -> Leadership | None:
    """The first of the new replicas that lives and is in sync."""
    current = candidates.current
    for broker in candidates.targets:
        if broker in candidates.live and broker in current.isr:
            return candidates.elected(broker, current.isr, current.recovery_state)
    return None


def shutdown_election(candidates: Candidates) -> Leadership | None:
    """A broker leaves in good order: another in-sync replica leads, the leaver leaves the ISR."""
    current = candidates.current
    staying = [broker for broker in current.isr if broker not in candidates.shutting_down]
    for broker in candidates.assignment:
        if broker in candidates.live and broker in staying:
            return candidates.elected(broker, staying, RECOVERED)
    return None


def same_leader(current: Leadership, controller_epoch: int) -> Leadership:
    """Nothing changes but the epoch: the replicas are to hear of another assignment."""
    return current._replace(
        leader_epoch=current.leader_epoch + 1, controller_epoch=controller_epoch
    )


def without_replica(current: Leadership, broker: int, controller_epoch: int) -> Leadership | None:
    """A replica goes offline: it leaves the ISR, unless it is the last member; None = no change."""
    if broker not in current.isr and current.leader != broker:
        return None
    isr = current.isr if len(current.isr) == 1 else tuple(b for b in current.isr if b != broker)
    leader = -1 if current.leader == broker else current.leader
    if (leader, isr) == (current.leader, current.isr):
        return None
    return Leadership(
        leader, current.leader_epoch + 1, isr, controller_epoch, current.recovery_state
    )


def without_unclean(
    current: Leadership, unclean: Collection[int], controller_epoch: int
) -> Leadership | None:
    """Replicas that may lack records leave the ISR, and are eligible no more; None = no change.

    Where nobody else is in it the eligible ones take their place, without a leader until one of
    them lives. Where there are none one stays, the leader if it can: there is no better one.
    """
    isr = tuple(broker for broker in current.isr if broker not in unclean)
    if not isr and current.isr:
        isr = tuple(broker for broker in current.eligible if broker not in unclean)
    if not isr and current.isr:
        isr = (current.leader if current.leader in current.isr else current.isr[0],)
    if isr == current.isr and not set(current.eligible) & set(unclean):
        return None
    leader = current.leader if current.leader in isr else -1
    return Leadership(
        leader, current.leader_epoch + 1, isr, controller_epoch, current.recovery_state
    )
