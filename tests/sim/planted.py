"""Bugs that the simulation has to find: mistakes that others made, put into the real code.

Those of the data plane are switches of the extension (``rust/dataplane/src/planted.rs``), those of
the control plane replace a function while a run lasts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

from pyrklog.controller import deposal, eligible, store_writes
from pyrklog.controller.assignment import PartitionAssignment
from pyrklog.controller.deposal import Evidence, Incumbent
from pyrklog.controller.driver import ControllerDriver
from pyrklog.controller.effects import Snapshot, StateWrite, Steps
from pyrklog.controller.eligible import EligibleReplicas
from pyrklog.controller.isr_changes import IsrChanges
from pyrklog.controller.reassignment import Reassignments
from pyrklog.controller.requests import IsrChange
from pyrklog.controller.state import Partition, Topic
from pyrklog.controller.unclean import UncleanStarts
from pyrklog.errors import ErrorCode
from pyrklog.metastore import znodes
from pyrklog.metastore.interface import ANY_VERSION, Delete, Operation, Set
from pyrklog.peers import challenger, observer
from pyrklog.peers.connection import PeerError
from pyrklog.replication.machine import UNKNOWN_BROKER_EPOCH, Replicas
from tests.sim.world import Settings


class Planted(NamedTuple):
    """A bug."""

    data_plane: tuple[str, ...] = ()
    control_plane: Callable[[], AbstractContextManager[object]] = nullcontext
    loses_power: bool = False
    """Whether machines have to go down for it."""
    moves: bool = False
    """Whether partitions have to move for it."""

    def settings(self, healthy: Settings) -> Settings:
        """Those of a seed, with no more in them than it takes."""
        return healthy._replace(
            loses_power=self.loses_power,
            moves=self.moves and healthy.moves,
            makes_topics=False,
        )


@contextmanager
def _replaced(owner: Any, name: str, by: Any) -> Iterator[None]:
    original = getattr(owner, name)
    setattr(owner, name, by)
    try:
        yield
    finally:
        setattr(owner, name, original)


def _set_any_version(write: StateWrite) -> Operation:
    data = znodes.encode_state(write.leadership)
    return Set(znodes.state_path(*write.key), data, ANY_VERSION)


@contextmanager
def isr_write_without_version() -> Iterator[None]:
    """AlterPartition is written whatever has been written since the leader asked for it."""
    refusal = IsrChanges._refusal

    def lenient(
        self: IsrChanges, change: IsrChange, topic: Topic | None, partition: Partition | None
    ) -> ErrorCode | None:
        if partition is not None:
            change = change._replace(partition_epoch=partition.partition_epoch)
        return refusal(self, change, topic, partition)

    with (
        _replaced(store_writes, "_set", _set_any_version),
        _replaced(IsrChanges, "_refusal", lenient),
    ):
        yield


@contextmanager
def election_from_stale_cache() -> Iterator[None]:
    """A new controller goes by what it was told as a broker, and writes without compare-and-set."""
    read = ControllerDriver._read_snapshot

    async def from_cache(self: ControllerDriver) -> Snapshot:
        snapshot = await read(self)
        states = dict(snapshot.states)
        for key, (leadership, _) in snapshot.states.items():
            known = _told[self].image.partition(*key)
            if known is not None and known.leader >= 0:
                told = leadership._replace(
                    leader=known.leader, leader_epoch=known.leader_epoch, isr=tuple(known.isr)
                )
                states[key] = (told, 0)
        return snapshot._replace(states=states)

    _told: dict[ControllerDriver, Any] = {}
    made = ControllerDriver.__init__

    def remember(self: ControllerDriver, node_id: int, *rest: Any) -> None:
        made(self, node_id, *rest)
        # The channels call this broker's own replicas, which know its metadata.
        _told[self] = rest[1]._own._metadata

    with (
        _replaced(store_writes, "_set", _set_any_version),
        _replaced(ControllerDriver, "__init__", remember),
        _replaced(ControllerDriver, "_read_snapshot", from_cache),
    ):
        yield


@contextmanager
def old_controller_is_obeyed() -> Iterator[None]:
    """Brokers do not look at the controller's epoch."""

    def fence(self: Replicas, controller_epoch: int, broker_epoch: int) -> ErrorCode:
        if UNKNOWN_BROKER_EPOCH != broker_epoch < self.broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        self.controller_epoch = max(self.controller_epoch, controller_epoch)
        return ErrorCode.NONE

    with _replaced(Replicas, "_fence", fence):
        yield


@contextmanager
def unclean_replica_stays() -> Iterator[None]:
    """A replica that may lack acknowledged records is in sync as before."""

    def expel(self: UncleanStarts, brokers: Collection[int]) -> Steps:
        yield from ()

    with _replaced(UncleanStarts, "expel", expel):
        yield


@contextmanager
def reassignment_is_written_too_early() -> Iterator[None]:
    """The topic's znode has the targets alone while others still lead and are in sync."""
    complete = Reassignments.complete

    def early(self: Reassignments, partitions: Sequence[Partition]) -> Steps:
        arrived = [p for p in partitions if p.is_moving and self._has_arrived(p)]
        yield from self._write({p: PartitionAssignment(p.assignment.targets) for p in arrived})
        yield from complete(self, partitions)

    with _replaced(Reassignments, "complete", early):
        yield


@contextmanager
def nobody_is_eligible() -> Iterator[None]:
    """Whoever leaves the ISR is forgotten (before KIP-966)."""
    with _replaced(eligible, "eligible_after", lambda *_: ()):
        yield


@contextmanager
def time_out_is_refusal() -> Iterator[None]:
    """Whoever does not answer an observer is taken for dead."""
    with _replaced(observer, "PeerRefusedError", PeerError):
        yield


@contextmanager
def deposals_without_pause() -> Iterator[None]:
    """Whoever is refused deposes, however often that has proved wrong."""

    def wait_ms(self: Evidence, _session_timeout_ms: int) -> int | None:
        return 0 if self.is_suspected else None

    with _replaced(Evidence, "wait_ms", wait_ms):
        yield


@contextmanager
def suspicion_ends_registration() -> Iterator[None]:
    """Whoever deposes a controller unregisters it, too."""
    right = deposal.operations

    def operations(node_id: int, incumbent: Incumbent, *rest: Any) -> list[Operation]:
        gone = Delete(znodes.broker_path(incumbent.broker))
        return [*right(node_id, incumbent, *rest), gone]

    with _replaced(challenger, "operations", operations):
        yield


@contextmanager
def unclean_replica_stays_eligible() -> Iterator[None]:
    """Who may lack acknowledged records leaves the ISR, and is eligible as others are."""
    with _replaced(EligibleReplicas, "_untrusted", lambda *_: frozenset()):
        yield


BUGS = {
    "truncation to the high watermark": Planted(("truncate_to_high_watermark",)),
    "ISR expansion before the epoch start": Planted(("join_before_epoch_start",)),
    "high watermark above the gate": Planted(("high_watermark_above_gate",)),
    "ISR write without the version check": Planted((), isr_write_without_version),
    "election from a stale cache without compare-and-set": Planted((), election_from_stale_cache),
    "an old controller's LeaderAndIsr is accepted": Planted((), old_controller_is_obeyed),
    "data of a diverging reply is appended": Planted(("append_diverging",)),
    "acks=all answered by the leader alone": Planted(("ack_below_min_isr",)),
    "a restarted unclean replica is kept in the ISR": Planted((), unclean_replica_stays, True),
    "the reassignment's znode is written before its last step": Planted(
        (), reassignment_is_written_too_early, moves=True
    ),
    "a time-out is taken for a refusal": Planted((), time_out_is_refusal),
    "those who refuse each other depose each other": Planted((), deposals_without_pause),
    "a suspicion ends a registration": Planted((), suspicion_ends_registration),
    "nobody outside the ISR is eligible": Planted((), nobody_is_eligible, True),
    "an unclean replica is eligible": Planted((), unclean_replica_stays_eligible, True),
}
"""All that have to be found."""

STORIES = {
    "before KIP-279": Planted(("answer_for_unknown_epoch",)),
    "before KIP-320": Planted(("accept_any_leader_epoch",)),
}
