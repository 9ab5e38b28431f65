"""The replicas of one partition, and on the way to which others it is (KIP-455). Pure values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class PartitionAssignment(NamedTuple):
    """What the topic's znode says of one partition.

    While it moves, ``replicas`` are the targets, in the order wanted, then those that are to go.
    """

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def is_moving(self) -> bool:
        """Whether a reassignment runs; another order of the same replicas is none."""
        return bool(self.adding or self.removing)

    @property
    def targets(self) -> tuple[int, ...]:
        """The replicas at the end of the reassignment."""
        return tuple(broker for broker in self.replicas if broker not in self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        """The replicas before the reassignment; their order may have been another."""
        return tuple(broker for broker in self.replicas if broker not in self.adding)

    def without(self, brokers: Sequence[int]) -> PartitionAssignment:
        """The assignment without these replicas."""
        replicas, adding, removing = (
            tuple(broker for broker in part if broker not in brokers) for part in self
        )
        return PartitionAssignment(replicas, adding, removing)

    def towards(self, targets: Sequence[int]) -> PartitionAssignment:
        """The assignment of a reassignment to ``targets``, whatever runs now."""
        origin = self.origin
        return PartitionAssignment(
            tuple(dict.fromkeys((*targets, *origin))),
            tuple(broker for broker in targets if broker not in origin),
            tuple(broker for broker in origin if broker not in targets),
        )
