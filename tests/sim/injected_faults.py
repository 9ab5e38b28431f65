"""Injected bugs, which the simulation has to find: mistakes that others made, in the real code.

Bugs of the data plane are switches of the extension (``rust/base/src/injected_faults.rs``). Bugs of
the control plane replace a function during a run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

from pyrklog.cli.promotion import Commits, Promotion, Reader, objections
from pyrklog.cluster.assignment import PartitionAssignment
from pyrklog.cluster.metadata import Metadata
from pyrklog.cluster.requests import (
    IsrChange,
    LogEnd,
    TopicPartition,
    UpdateMetadataRequest,
)
from pyrklog.controller import (
    driver,
    eligible_leader_replicas,
    leader_election,
    partitions,
    store_effects,
    store_writes,
    suspects,
    unclean,
)
from pyrklog.controller.driver import ControllerDriver
from pyrklog.controller.effects import Effect, ReadUnclean, Snapshot, StateWrite, Steps
from pyrklog.controller.eligible_leader_replicas import EligibleReplicas
from pyrklog.controller.invariants import check_leadership
from pyrklog.controller.isr_changes import IsrChanges
from pyrklog.controller.leader_election import Candidates
from pyrklog.controller.partial_replicas import PartialReplicas
from pyrklog.controller.partitions import PartitionChanges
from pyrklog.controller.reassignment import Reassignments
from pyrklog.controller.state import Partition, Topic
from pyrklog.controller.takeover import challenger, evidence
from pyrklog.controller.takeover.evidence import Evidence, Incumbent
from pyrklog.controller.unclean import UncleanStarts
from pyrklog.errors import ErrorCode
from pyrklog.metastore import znodes
from pyrklog.metastore.interface import ANY_VERSION, Delete, Operation, Set
from pyrklog.metastore.znodes import RECOVERED, Leadership
from pyrklog.peers import port_monitor
from pyrklog.peers.connection import PeerError
from pyrklog.peers.witnesses import Witnesses
from pyrklog.replication.machine import UNKNOWN_BROKER_EPOCH, Replicas
from tests.sim import injected_transaction_faults as of_transactions
from tests.sim import promotion_faults
from tests.sim.injected_transaction_faults import replaced
from tests.sim.settings import Settings, with_transactions

SWITCHES = (
    "loses_power",
    "moves",
    "expands",
    "fills",
    "promotes",
    "cuts_power",
    "makes_topics",
    "changes_minimum",
    "allows_unclean",
    "hangs",
    "caches",
    "transactions",
)
"""Optional parts of a seed's settings."""


class Injected(NamedTuple):
    data_plane: tuple[str, ...] = ()
    control_plane: Callable[[], AbstractContextManager[object]] = nullcontext
    needs: tuple[str, ...] = ()
    """Switches of ``Settings`` without which it cannot be found."""

    def settings(self, healthy: Settings) -> Settings:
        """A seed's settings without the switches that the bug does not need, and with transactions
        if it needs those."""
        off: dict[str, Any] = {name: False for name in SWITCHES if name not in self.needs}
        needed = healthy._replace(**off)
        return with_transactions(needed) if "transactions" in self.needs else needed


def _set_any_version(write: StateWrite) -> Operation:
    data = znodes.encode_state(write.leadership)
    return Set(znodes.state_path(*write.key), data, ANY_VERSION)


@contextmanager
def isr_write_without_version() -> Iterator[None]:
    """AlterPartition is written even if the state has changed since the leader's request."""
    refusal = IsrChanges._refusal

    def lenient(
        self: IsrChanges, change: IsrChange, topic: Topic | None, partition: Partition | None
    ) -> ErrorCode | None:
        if partition is not None:
            change = change._replace(partition_epoch=partition.partition_epoch)
        return refusal(self, change, topic, partition)

    with (
        replaced(store_writes, "_set", _set_any_version),
        replaced(IsrChanges, "_refusal", lenient),
    ):
        yield


@contextmanager
def election_from_stale_cache() -> Iterator[None]:
    """A new controller uses what it was told as a broker, and writes without compare-and-set."""
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
        replaced(store_writes, "_set", _set_any_version),
        replaced(ControllerDriver, "__init__", remember),
        replaced(ControllerDriver, "_read_snapshot", from_cache),
    ):
        yield


@contextmanager
def old_controller_is_obeyed() -> Iterator[None]:
    """Brokers ignore the controller's epoch."""

    def fence(self: Replicas, controller_epoch: int, broker_epoch: int) -> ErrorCode:
        if UNKNOWN_BROKER_EPOCH != broker_epoch < self.broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        self.controller_epoch = max(self.controller_epoch, controller_epoch)
        return ErrorCode.NONE

    with replaced(Replicas, "_fence", fence):
        yield


@contextmanager
def unclean_replica_stays() -> Iterator[None]:
    """A replica that may lack acknowledged records stays in sync."""

    def expel(self: UncleanStarts, brokers: Collection[int]) -> Steps:
        yield from ()

    with replaced(UncleanStarts, "expel", expel):
        yield


@contextmanager
def reassignment_is_written_too_early() -> Iterator[None]:
    """The topic's znode has only the targets while other replicas still lead and are in sync."""
    complete = Reassignments.complete

    def early(
        self: Reassignments,
        partitions: Sequence[Partition],
        reordered: Collection[Partition] = (),
    ) -> Steps:
        arrived = [p for p in partitions if p.is_moving and self._has_arrived(p)]
        yield from self._write({p: PartitionAssignment(p.assignment.targets) for p in arrived})
        yield from complete(self, partitions, reordered)

    with replaced(Reassignments, "complete", early):
        yield


@contextmanager
def nobody_is_eligible() -> Iterator[None]:
    """A replica that leaves the ISR is forgotten (before KIP-966)."""
    with replaced(eligible_leader_replicas, "eligible_after", lambda *_: ()):
        yield


@contextmanager
def time_out_is_refusal() -> Iterator[None]:
    """A broker that does not answer an observer counts as dead."""
    with replaced(port_monitor, "PeerRefusedError", PeerError):
        yield


@contextmanager
def silence_on_one_word() -> Iterator[None]:
    """A broker that does not answer the controller is suspected without a second witness."""

    async def agree(self: Witnesses, _silent: int, _seconds: float) -> bool:
        return True

    with replaced(Witnesses, "agree", agree):
        yield


@contextmanager
def suspicion_is_unclean() -> Iterator[None]:
    """Another replica leads even if the suspect is alone in sync."""

    def election(candidates: Candidates) -> Leadership | None:
        current = candidates.current
        others = [b for b in candidates.assignment if b in candidates.live and b != current.leader]
        return candidates.elected(others[0], others[:1], RECOVERED) if others else None

    with (
        replaced(suspects, "offline_election", election),
        replaced(suspects.Suspects, "_is_held_by_others", lambda *_: True),
    ):
        yield


@contextmanager
def deposals_without_pause() -> Iterator[None]:
    """A refused broker deposes, however often that has proved wrong."""

    def wait_ms(self: Evidence, _session_timeout_ms: int) -> int | None:
        return 0 if self.is_suspected else None

    with replaced(Evidence, "wait_ms", wait_ms):
        yield


@contextmanager
def suspicion_ends_registration() -> Iterator[None]:
    """A broker that deposes a controller also unregisters it."""
    right = evidence.operations

    def operations(node_id: int, incumbent: Incumbent, *rest: Any) -> list[Operation]:
        gone = Delete(znodes.broker_path(incumbent.broker))
        return [*right(node_id, incumbent, *rest), gone]

    with replaced(challenger, "operations", operations):
        yield


@contextmanager
def unclean_replica_stays_eligible() -> Iterator[None]:
    """A replica that may lack acknowledged records leaves the ISR and stays eligible."""
    with replaced(EligibleReplicas, "_untrusted", lambda *_: frozenset()):
        yield


def batches_are_not_split() -> AbstractContextManager[object]:
    """The parts of a batch that is too large count as refused."""

    async def refused(_store: object, _term: object, _write: StateWrite) -> None:
        return None

    return replaced(store_writes, "_write_alone", refused)


@contextmanager
def the_first_leads() -> Iterator[None]:
    """If all replicas lack something, any of them leads, not the one with the most."""

    def first(
        current: Leadership, ends: Mapping[int, LogEnd], controller_epoch: int
    ) -> Leadership | None:
        known = [broker for broker in current.members if broker in ends]
        return right(current, {known[0]: ends[known[0]]} if known else {}, controller_epoch)

    right = leader_election.with_most
    with replaced(unclean, "with_most", first):
        yield


@contextmanager
def whole_image_is_taken_for_a_part() -> Iterator[None]:
    """A broker that missed a topic's deletion keeps reporting the topic."""
    take = Metadata.take_metadata

    def part(self: Metadata, request: UpdateMetadataRequest) -> None:
        take(self, request._replace(is_full=False))

    with replaced(Metadata, "take_metadata", part):
        yield


@contextmanager
def the_switch_is_remembered() -> Iterator[None]:
    """A topic that once allowed unclean elections keeps allowing them."""
    allowed: set[str] = set()

    async def execute(effect: Effect, *rest: Any) -> object:
        found = await right(effect, *rest)
        if isinstance(effect, ReadUnclean) and isinstance(found, frozenset):
            allowed.update(found)
            return frozenset(allowed.intersection(effect.topics))
        return found

    right = store_effects.execute
    with replaced(driver, "execute", execute):
        yield


@contextmanager
def partial_replicas_are_forgotten() -> Iterator[None]:
    """A new controller takes all entries of partial replicas for void, as one of Apache's would."""
    take = PartialReplicas.take

    def forget(self: PartialReplicas, found: Mapping[TopicPartition, tuple[int, ...]]) -> Steps:
        yield from take(self, found)
        for key in found:
            partition = self._state.partition(key)
            if partition is not None:
                partition.partial = ()

    with replaced(PartialReplicas, "take", forget):
        yield


@contextmanager
def partial_replicas_lead() -> Iterator[None]:
    """Elections count all replicas that are being added as in sync."""

    def lenient(
        key: TopicPartition,
        replicas: Sequence[int],
        before: Leadership | None,
        after: Leadership,
        _partial: Collection[int] = (),
    ) -> None:
        check_leadership(key, replicas, before, after)

    def candidates(
        self: PartitionChanges, partition: Partition, unclean: frozenset[str]
    ) -> Candidates:
        found = right(self, partition, unclean)
        isr = tuple(dict.fromkeys((*found.current.isr, *partition.partial)))
        live = self._state.live_replicas(partition)
        return found._replace(live=live, current=found.current._replace(isr=isr))

    right = PartitionChanges._candidates
    with (
        replaced(partitions, "check_leadership", lenient),
        replaced(PartitionChanges, "_candidates", candidates),
    ):
        yield


@contextmanager
def commits_alone_are_trusted() -> Iterator[None]:
    """A promotion believes a commit of before the window, whatever was fetched since."""
    right = objections

    def trusting(
        one: Promotion,
        policy: Collection[str] | None,
        groups: Mapping[str, Commits],
        _readers: Iterable[Reader],
    ) -> list[str]:
        return right(one, policy, groups, ())

    with replaced(promotion_faults, "objections", trusting):
        yield


BUGS = {
    "truncation to the high watermark": Injected(("truncate_to_high_watermark",)),
    "ISR expansion before the epoch start": Injected(("join_before_epoch_start",)),
    "high watermark above the durable end": Injected(("high_watermark_above_durable_end",)),
    "ISR write without the version check": Injected((), isr_write_without_version),
    "election from a stale cache without compare-and-set": Injected((), election_from_stale_cache),
    "an old controller's LeaderAndIsr is accepted": Injected((), old_controller_is_obeyed),
    "data of a diverging reply is appended": Injected(("append_diverging",)),
    "acks=all answered by the leader alone": Injected(("ack_below_min_isr",)),
    "a restarted unclean replica is kept in the ISR": Injected(
        (), unclean_replica_stays, ("loses_power",)
    ),
    "the reassignment's znode is written before its last step": Injected(
        (), reassignment_is_written_too_early, needs=("moves",)
    ),
    "a time-out is taken for a refusal": Injected((), time_out_is_refusal),
    "silence to the controller alone makes a suspect": Injected((), silence_on_one_word),
    "a suspicion elects who is not in sync": Injected((), suspicion_is_unclean),
    "those who refuse each other depose each other": Injected((), deposals_without_pause),
    "a suspicion ends a registration": Injected((), suspicion_ends_registration),
    "nobody outside the ISR is eligible": Injected((), nobody_is_eligible, ("loses_power",)),
    "a batch that is too large is not split": Injected((), batches_are_not_split),
    "an unclean replica is eligible": Injected(
        (), unclean_replica_stays_eligible, ("loses_power",)
    ),
    "the first of those that lost power leads": Injected(
        (), the_first_leads, needs=("cuts_power",)
    ),
    "a lower minimum moves the high watermark at once": Injected(
        ("move_while_held",), needs=("changes_minimum",)
    ),
    "the switch for unclean elections is remembered": Injected(
        (), the_switch_is_remembered, needs=("allows_unclean",)
    ),
    "a follower tells what its volume has in hand": Injected(
        ("ask_while_writing",), needs=("hangs",)
    ),
    "a directory is marked clean over what is not written": Injected(
        ("close_over_unwritten",), needs=("loses_power", "caches")
    ),
    "a whole image is taken for a part": Injected(
        (), whole_image_is_taken_for_a_part, needs=("makes_topics",)
    ),
    "a marker is written before its decision is replicated": Injected(
        (), of_transactions.marker_before_decision, needs=("transactions",)
    ),
    "a transaction is complete while a marker is missing": Injected(
        (), of_transactions.end_without_a_marker, needs=("transactions",)
    ),
    "a marker leaves the guard of a first batch": Injected(
        ("enter_without_guard",), needs=("transactions",)
    ),
    "offsets count before the marker": Injected(
        (), of_transactions.offsets_before_the_marker, needs=("transactions",)
    ),
    "a time-out leaves the producer's epoch": Injected(
        (), of_transactions.time_out_without_a_fence, needs=("transactions",)
    ),
    "a partial replica joins the ISR before it is whole": Injected(
        ("join_partial",), needs=("moves", "expands")
    ),
    "a partial replica that nobody lists keeps its log": Injected(
        ("keep_unlisted",), partial_replicas_are_forgotten, needs=("moves", "expands")
    ),
    "a partial replica leads": Injected((), partial_replicas_lead, needs=("moves", "expands")),
    "a gap is left between a back-fill and what follows": Injected(
        ("fill_leaves_gap",), needs=("moves", "expands", "fills")
    ),
    "a back-fill takes records of a truncated epoch": Injected(
        ("fill_truncated_epoch",), needs=("moves", "expands", "fills")
    ),
    "a promotion by a group's stale commit": Injected(
        (), commits_alone_are_trusted, needs=("moves", "expands", "promotes")
    ),
    "a former coordinator's marker is written": Injected(
        ("accept_any_coordinator_epoch",), needs=("transactions",)
    ),
}
