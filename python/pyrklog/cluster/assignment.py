"""A partition's replicas, and a running reassignment (KIP-455). Pure values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class PartitionAssignment(NamedTuple):
    """A partition in its topic's znode.

    During a reassignment ``replicas`` are the targets in their order, then the leaving ones.
    """

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def is_moving(self) -> bool:
        """Whether a reassignment runs; a changed order alone is not one."""
        return bool(self.adding or self.removing)

    @property
    def targets(self) -> tuple[int, ...]:
        return tuple(broker for broker in self.replicas if broker not in self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        """The replicas before the reassignment; their order may have differed."""
        return tuple(broker for broker in self.replicas if broker not in self.adding)

    def without(self, brokers: Sequence[int]) -> PartitionAssignment:
        replicas, adding, removing = (
            tuple(broker for broker in part if broker not in brokers) for part in self
        )
        return PartitionAssignment(replicas, adding, removing)

    def towards(self, targets: Sequence[int]) -> PartitionAssignment:
        """The assignment for a reassignment to ``targets``, whatever runs now."""
        origin = self.origin
        return PartitionAssignment(
            tuple(dict.fromkeys((*targets, *origin))),
            tuple(broker for broker in targets if broker not in origin),
            tuple(broker for broker in origin if broker not in targets),
        )
