"""What must hold of a partition after each of the controller's decisions. Pure.

Checked before the write, so that a bug changes nothing in the store. Others may have written a
broken state there; a decision is wrong only where it breaks a rule anew.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from pyrklog.cluster.assignment import PartitionAssignment
from pyrklog.cluster.image import LEADER_NONE
from pyrklog.cluster.requests import TopicPartition
from pyrklog.metastore.znodes import Leadership

Breach = tuple[str, int]


class InvariantError(Exception):
    """A bug of the controller."""


def check_leadership(
    key: TopicPartition,
    replicas: Sequence[int],
    before: Leadership | None,
    after: Leadership,
    partial: Collection[int] = (),
) -> None:
    """Raises :class:`InvariantError` where ``after`` must not follow ``before``.

    ``partial`` replicas lack older records, whatever others wrote before.
    """
    if partial and not set(partial).isdisjoint((after.leader, *after.members)):
        raise _error(key, {("lacks older records", b) for b in partial}, before, after)
    if _is_usual(replicas, after) and (before is None or before.leader_epoch < after.leader_epoch):
        return
    breaches = set(_of_leadership(replicas, after))
    if before is not None:
        if breaches:
            breaches -= set(_of_leadership(replicas, before))
        breaches.update(_of_epochs(before, after))
    if breaches:
        raise _error(key, breaches, before, after)


def check_assignment(
    key: TopicPartition, before: PartitionAssignment, after: PartitionAssignment
) -> None:
    breaches = set(_of_assignment(after))
    if breaches:
        breaches -= set(_of_assignment(before))
    if breaches:
        raise _error(key, breaches, before, after)


def _is_usual(replicas: Sequence[int], leadership: Leadership) -> bool:
    """Whether it breaks no rule and has neither eligible nor unclean replicas.

    The failure of one broker changes thousands of these.
    """
    leader, _, isr, _, _, eligible, unclean = leadership
    members = set(isr)
    return (
        (leader in members or leader == LEADER_NONE)
        and members.issubset(replicas)
        and len(members) == len(isr)
        and not eligible
        and not unclean
    )


def _of_leadership(replicas: Sequence[int], leadership: Leadership) -> Iterator[Breach]:
    leader, _, isr, _, _, eligible, unclean = leadership
    if leader != LEADER_NONE and leader not in isr:
        yield "leads, but is not in sync", leader
    for broker in isr:
        if broker not in replicas:
            yield "is in sync, but no replica", broker
    if _repeats(isr) and not _repeats(replicas):
        yield from _repeated("is in sync twice", isr)
    for broker in eligible:
        if broker not in replicas:
            yield "is eligible, but no replica", broker
        if broker in isr:
            yield "is eligible and in sync", broker
    for broker in unclean:
        if broker not in isr and broker not in eligible:
            yield "is unclean, but neither in sync nor eligible", broker


def _of_epochs(before: Leadership, after: Leadership) -> Iterator[Breach]:
    if after.leader_epoch < before.leader_epoch:
        yield "leads in an epoch that has passed", after.leader
    elif after.leader != before.leader and after.leader_epoch == before.leader_epoch:
        yield "leads in the epoch of another leader", after.leader


def _of_assignment(assignment: PartitionAssignment) -> Iterator[Breach]:
    replicas, adding, removing = assignment
    if _repeats(replicas):
        yield from _repeated("is a replica twice", replicas)
    for broker in adding:
        if broker not in replicas:
            yield "is being added, but no replica", broker
        if broker in removing:
            yield "is being added and removed", broker
    for broker in removing:
        if broker not in replicas:
            yield "is being removed, but no replica", broker


def _repeated(what: str, brokers: Sequence[int]) -> Iterator[Breach]:
    for index, broker in enumerate(brokers):
        if broker in brokers[:index]:
            yield what, broker


def _repeats(brokers: Sequence[int]) -> bool:
    return len(set(brokers)) != len(brokers)


def _error(
    key: TopicPartition, breaches: set[Breach], before: object, after: object
) -> InvariantError:
    wrong = ", ".join(f"broker {broker} {what}" for what, broker in sorted(breaches))
    return InvariantError(f"{key[0]}-{key[1]}: {wrong} (from {before} to {after})")
