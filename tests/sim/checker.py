"""The invariants (design, section 9), checked after every event that changes a log or the store.

Promises: :mod:`tests.sim.promises`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import zip_longest
from typing import Any

from pyrklog.metastore import znodes
from pyrklog.peers.port_monitor import REFUSALS
from tests.sim import made_topics
from tests.sim.assignments import Assignments
from tests.sim.cluster import BrokerLife, Cluster
from tests.sim.internal_topics import InternalTopics
from tests.sim.options import Options
from tests.sim.promises import Batch, Key, Promises, Replica
from tests.sim.stillness import was_still, was_still_for_another
from tests.sim.zookeeper import SESSION_TIMEOUT_US


class Checker:
    def __init__(
        self,
        cluster: Cluster,
        partitions: dict[int, Promises],
        assignments: Assignments,
        options: Options,
    ) -> None:
        self._cluster = cluster
        self._heap = cluster.heap
        self.replicas: dict[tuple[int, int], Replica] = {}
        """By (broker, partition)."""
        self._violated = cluster.violated
        self._options = options
        self.partitions = partitions
        self.assignments = assignments
        self.internal = InternalTopics(cluster)
        self._before: dict[int, dict[Key, Key | None]] = {i: {} for i in self.partitions}
        """Log matching: the predecessor of each batch is the same in all logs that have the batch.
        """
        self._content: dict[int, dict[Key, tuple[int, int]]] = {i: {} for i in self.partitions}
        self.by_crc: dict[int, dict[int, Key]] = {i: {} for i in self.partitions}
        self._controller_epoch = 0
        self._registered: dict[str, int] = {}
        """Registration znode -> owning session."""
        self._deposed: tuple[int, znodes.Deposed] | None = None
        """Time and content of the last deposition."""
        self.suspicions = self.deposals = self.cuts = self.promotions = 0
        self.silent_suspicions = self.silent_deposals = 0
        """Those caused by silence, included above."""
        self.forgives_losses = False
        """Set where more has failed than the cluster must survive."""
        self.acknowledged = 0
        self.read = 0
        for broker in cluster.settings.brokers:
            for index in self.partitions:
                self.replicas[broker, index] = Replica()

    # --- the store -------------------------------------------------------------------------------

    def written(self, paths: set[str]) -> None:
        for index, promises in self.partitions.items():
            path = znodes.state_path("t", index)
            if path in paths:
                self._state_written(index, promises, path)
        self.assignments.written(paths)
        self.internal.written(paths)
        if znodes.CONTROLLER_EPOCH in paths:
            entry = self._cluster.zookeeper.tree.get(znodes.CONTROLLER_EPOCH)
            epoch = int(entry.node.data) if entry is not None else -1
            if epoch < self._controller_epoch:
                self._violated(
                    f"the controller epoch falls from {self._controller_epoch} to {epoch}"
                )
            self._controller_epoch = epoch
        for path in sorted(paths):
            if path.startswith(f"{znodes.BROKER_IDS}/"):
                self._registration_written(path)
            elif path.startswith(f"{znodes.REFUSED}/"):
                self._marked(path)
        if znodes.DEPOSED in paths:
            self._controller_deposed()

    def _registration_written(self, path: str) -> None:
        """A registration goes with its session, or its own broker deletes it."""
        entry = self._cluster.zookeeper.tree.get(path)
        owner = entry.node.stat.ephemeral_owner if entry is not None else None
        before = self._registered.pop(path, owner)
        if before != owner and before in self._cluster.zookeeper.sessions:
            self._violated(f"{path} is gone, and session {before} lives")
        if owner is not None:
            self._registered[path] = owner

    def _controller_deposed(self) -> None:
        """Only a broker that was refused, or that got no answer like a third one, may depose. The
        next deposition waits a session timeout while the deposed broker lives."""
        tree, now_us = self._cluster.zookeeper.tree, self._heap.now_us
        entry = tree.get(znodes.DEPOSED)
        assert entry is not None, "nobody deletes it"
        deposed = znodes.decode_deposed(entry.node.data)
        self.deposals += 1
        self._heap.note(f"{deposed.by} deposes {deposed.broker}, unproven {deposed.unproven}")
        if not self._cluster.network.refusals[deposed.by, deposed.broker]:
            self.silent_deposals += 1
            if not self._was_silent(deposed.by, deposed.broker):
                self._violated(f"{deposed.broker} is deposed, and never refused {deposed.by}")
        if self._deposed is not None:
            at_us, last = self._deposed
            still = tree.get(znodes.broker_path(last.broker))
            lives = still is not None and still.node.stat.czxid == last.broker_epoch
            if lives and now_us - at_us < SESSION_TIMEOUT_US - 1_000:
                self._violated(f"{deposed} follows {last} after {now_us - at_us} us")
        self._deposed = now_us, deposed

    def suspected(self, controller: int, broker: int) -> None:
        self.suspicions += 1
        if self._cluster.network.refusals[controller, broker] < REFUSALS:
            self.silent_suspicions += 1
            if not self._was_silent(controller, broker):
                self._violated(
                    f"{broker} is suspected, and neither refused {controller} nor others"
                )

    def _was_silent(self, observer: int, broker: int) -> bool:
        """A suspicion by silence needs a second witness."""
        cluster = self._cluster
        return was_still(cluster, observer, broker) and was_still_for_another(
            cluster, observer, broker
        )

    def _marked(self, path: str) -> None:
        """A broker reports that the controller refuses it or does not answer."""
        tree = self._cluster.zookeeper.tree
        mark, controller = tree.get(path), tree.get(znodes.CONTROLLER)
        if mark is None or not mark.node.data or controller is None:
            return
        refused = znodes.decode_refused(path, mark.node.data)
        if not refused.is_silent or refused.controller_czxid != controller.node.stat.czxid:
            return
        observer = int(path.rpartition("/")[2])
        incumbent = znodes.decode_controller(controller.node.data)
        if not was_still(self._cluster, observer, incumbent):
            self._violated(f"{observer} says that {incumbent} is silent, which it was not")

    def _state_written(self, index: int, promises: Promises, path: str) -> None:
        entry = self._cluster.zookeeper.tree.get(path)
        if entry is None:
            return
        now = znodes.decode_state(path, entry.node.data)
        eligible, unclean = self._eligible(index, entry.node.stat.version)
        now = now._replace(eligible=eligible, unclean=unclean)
        before, promises.leadership = promises.leadership, now
        self._heap.note(
            f"state t-{index} leader={now.leader} epoch={now.leader_epoch} isr={list(now.isr)} "
            f"version={entry.node.stat.version} eligible={list(now.eligible)} "
            f"unclean={list(now.unclean)}"
        )
        if now.leader >= 0 and now.leader not in now.isr:
            self._violated(f"t-{index}: leader {now.leader} is not in the ISR {now.isr}")
        if before is not None and now.leader_epoch < before.leader_epoch:
            self._violated(f"t-{index}: leader epoch falls: {before} -> {now}")
        if set(now.eligible) & set(now.isr):
            self._violated(f"t-{index}: {now.eligible} are eligible, and {now.isr} in sync")
        self._are_counted(index, promises)
        if before is not None and self._options.elected_unclean(index, before, now):
            promises.is_cut = True
            promises.cut_epoch = promises.unclean_epoch = before.leader_epoch
        elif before is not None and before.unclean and now.leader >= 0:
            self._chosen(index, promises, before, now)
        joined = set(now.isr) - set(before.isr if before is not None else ())
        for broker in sorted(joined):
            self._has_all(index, broker, "joins the ISR")
            if self.replicas[broker, index].is_known and not promises.is_cut:
                promises.lacking.discard(broker)
        for broker in sorted(set(now.eligible) - set(now.unclean)):
            self._has_all(index, broker, "is eligible")
        self._have_history(index, now)
        gone = set(before.members if before is not None else ()) - set(now.members)
        for broker in gone & self.assignments.may_take_back(index):
            promises.taken_back[broker] = frozenset(self.replicas[broker, index].keys)
        whole = set(before.members) - promises.lacking if before is not None else ()
        if whole and set(now.members) <= promises.lacking and not promises.is_cut:
            # The last whole member left in order, or its move was cancelled. After a cut beyond
            # what is survivable, the remaining replicas may well be alive.
            self._cut((), [index])
        if len(now.isr) >= self._options.minimum(index):
            promises.taken_back.clear()

    def _have_history(self, index: int, now: znodes.Leadership) -> None:
        """No member lacks records from its log's start that were not to be deleted."""
        for broker in now.members:
            extent = self.replicas[broker, index].extent
            if extent is not None and extent[0] > self.partitions[index].deleted_below:
                self._violated(f"t-{index}: broker {broker} begins at {extent[0]}, and {now}")

    def _eligible(
        self, index: int, partition_epoch: int
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The eligible replicas, and those marked unclean."""
        path = znodes.eligible_path("t", index)
        entry = self._cluster.zookeeper.tree.get(path)
        if entry is None:
            return (), ()
        found = znodes.decode_eligible(path, entry.node.data)
        if found.partition_epoch != partition_epoch:
            self._violated(f"t-{index}: {found} beside the state of version {partition_epoch}")
        return found.eligible, found.unclean

    def less_is_borne(self) -> None:
        """The minimum may have been lowered. A cut stays pending until somebody leads after it."""
        self._cut((), [index for index, known in self.partitions.items() if not known.is_cut])

    def power_cut(self, brokers: Sequence[int]) -> None:
        """These machines are about to lose power, survivable or not."""
        self._cut(brokers, list(self.partitions))

    def _cut(self, brokers: Sequence[int], indexes: Sequence[int]) -> None:
        for index in indexes:
            promises = self.partitions[index]
            minimum = self._options.promised(index, promises)
            lost = (promises.lacking | set(brokers)) & set(self.assignments.replicas(index))
            if (
                len(lost | promises.taken_back.keys()) >= minimum
                and promises.leadership is not None
            ):
                promises.is_cut = True
                promises.cut_epoch = promises.leadership.leader_epoch

    def _chosen(
        self,
        index: int,
        promises: Promises,
        before: znodes.Leadership,
        now: znodes.Leadership,
    ) -> None:
        """A replica leads although all live ones lacked something."""
        if now.leader not in before.unclean:
            self._has_all(index, now.leader, "is taken for whole")
            return
        members, lost = set(before.members), promises.lacking
        minimum = self._options.minimum(index)
        if len(members & lost) < min(minimum, len(members)) and members - lost:
            self._violated(f"t-{index}: {now} is elected, and {members - lost} have everything")
        ends = self._ends(index)
        for broker in ends:
            missing = self._promised_with(index, broker) - self._promised_with(index, now.leader)
            if missing:
                self._violated(f"t-{index}: {now} is elected, and {broker} has {sorted(missing)}")

    def _ends(self, index: int) -> Collection[int]:
        """Replicas that have told the controller their log end."""
        for life in self._cluster.live():
            machine = life.controller._machine if life.controller is not None else None
            if machine is not None and life.controller is not None and life.controller.leads:
                told = machine.unclean._ends.get(("t", index))
                if told:
                    return told
        return ()

    def _promised_with(self, index: int, broker: int) -> set[Key]:
        keys = self.replicas[broker, index].keys
        return {batch.key for batch in self.partitions[index].by_base.values()} & keys

    def _led_after_cut(self, index: int, promises: Promises, broker: int, epoch: int) -> None:
        """What is lost stays lost: the promises are now what the new leader has.

        A former leader that does not know of its successor must not decide them.
        """
        if epoch < promises.cut_epoch:
            return
        is_unclean = promises.unclean_epoch == promises.cut_epoch
        if broker not in promises.lacking and not is_unclean:
            promises.is_cut = False
            self._has_all(index, broker, "leads after a power cut")
        elif epoch > promises.cut_epoch:
            promises.is_cut = False
            promises.floor = 1
            promises.taken_back.clear()
            promises.lacking.discard(broker)
            kept = self._promised_with(index, broker)
            lost = [batch for batch in promises.by_base.values() if batch.key not in kept]
            for batch in lost:
                del promises.by_base[batch.base]
            ends = [batch.last + 1 for batch in promises.by_base.values()]
            promises.shown_end = min(promises.shown_end, max(ends, default=0))
            self.cuts += 1
            why = "by an unclean election" if is_unclean else "with power"
            self._heap.note(f"t-{index}: {len(lost)} promises are lost {why}")

    def rewound(self, index: int) -> int | None:
        """Where consumers resume after a power cut; None if there was none."""
        promises = self.partitions[index]
        return promises.shown_end if promises.cut_epoch >= 0 else None

    def _are_counted(self, index: int, promises: Promises) -> None:
        state = promises.leadership
        life = self._cluster.brokers[state.leader].life if state and state.leader >= 0 else None
        if state is None or life is None:
            return
        view = life.sim.partition("t", index)
        if view is None or view[:2] != ("Leader", state.leader_epoch):
            return
        uncounted = set(state.isr) - set(view[3])
        if uncounted:
            self._violated(
                f"{life.process.name} t-{index} leads, and does not wait for {sorted(uncounted)} "
                f"of the ISR {state.isr}"
            )

    def order_followed(self, life: BrokerLife, controller_epoch: int) -> None:
        if controller_epoch < life.controller_epoch_seen:
            self._violated(
                f"{life.process.name} follows controller epoch {controller_epoch} after "
                f"{life.controller_epoch_seen}"
            )
        life.controller_epoch_seen = controller_epoch

    def deletes(self, index: int, offset: int) -> None:
        """Records below the offset are about to be deleted."""
        self._heap.note(f"t-{index} is to begin at {offset}")
        self.partitions[index].delete_below(offset)

    def promotes(self, index: int, offset: int) -> None:
        """The same, since partial replicas begin there and nobody is known to need what goes."""
        self.promotions += 1
        self.deletes(index, offset)

    # --- the logs --------------------------------------------------------------------------------

    def look(self, life: BrokerLife) -> None:
        for index, promises in self.partitions.items():
            view = life.sim.partition("t", index)
            replica = self.replicas[life.broker.id, index]
            if view is None and replica.batches and not life.broker.has_log("t", index):
                self._deleted(life, index, replica)
            if view is None or view[2] is None or view == replica.view:
                continue
            replica.view = view
            start, _, durable_end, _ = view[2]
            if replica.extent != (start, durable_end):
                replica.extent = (start, durable_end)
                self._look_at_log(life, index, replica)
            if view[0] == "Leader":
                self._look_at_leader(life, index, promises, view)

    def _look_at_log(self, life: BrokerLife, index: int, replica: Replica) -> None:
        found = life.sim.batches("t", index)
        old = self._kept(life, index, replica)
        same = len(old)
        if found[:same] != old:
            same = next(i for i, (a, b) in enumerate(zip_longest(old, found)) if a != b)
        lost, added = old[same:], [Batch(*row) for row in found[same:]]
        before = old[same - 1].key if same else None
        replica.batches = old[:same] + added
        replica.is_known = True
        for batch in lost:
            replica.keys.discard(batch.key)
        if lost:
            self._heap.note(f"{life.process.name} t-{index} cut to {lost[0].base}")
        for batch in added:
            self._matches(life, index, before, batch)
            replica.keys.add(batch.key)
            before = batch.key
        if added:
            last = added[-1]
            self._heap.note(f"{life.process.name} t-{index} {added[0].key}..{last.last + 1}")
        if lost and self._is_member(index, life.broker.id):
            promised = self.partitions[index].by_base
            for batch in lost:
                if promised.get(batch.base) == batch and batch.key not in replica.keys:
                    self._lost(index, life.broker.id, batch, "cuts off")

    def _kept(self, life: BrokerLife, index: int, replica: Replica) -> list[Batch]:
        """What the log had and was not deleted from its start."""
        start = replica.extent[0] if replica.extent is not None else 0
        gone = [batch for batch in replica.batches if batch.last < start]
        promised = self.partitions[index].by_base
        for batch in gone:
            replica.keys.discard(batch.key)
            if self._is_member(index, life.broker.id) and promised.get(batch.base) == batch:
                self._lost(index, life.broker.id, batch, "deletes")
        return replica.batches[len(gone) :]

    def _deleted(self, life: BrokerLife, index: int, replica: Replica) -> None:
        """A replica that was deleted returns empty."""
        self._heap.note(f"{life.process.name} t-{index} is deleted")
        lost, replica.batches = replica.batches, []
        replica.keys.clear()
        replica.view = replica.extent = None
        if not replica.is_known:
            return  # lost with the power before a controller could remove the replica
        promised = self.partitions[index].by_base
        if self._is_member(index, life.broker.id):
            for batch in lost:
                if promised.get(batch.base) == batch:
                    self._lost(index, life.broker.id, batch, "is deleted")

    def _matches(self, life: BrokerLife, index: int, before: Key | None, batch: Batch) -> None:
        key, name = batch.key, f"{life.process.name} t-{index}"
        content = (batch.last, batch.crc)
        if self._content[index].setdefault(key, content) != content:
            self._violated(f"{name}: two different batches at (offset, epoch) {key}")
        is_first = before is None and batch.base > 0
        if not is_first and self._before[index].setdefault(key, before) != before:
            self._violated(
                f"{name}: logs differ before {key}: {before} here, {self._before[index][key]} "
                "elsewhere"
            )
        if before is not None and before[1] > batch.epoch:
            self._violated(f"{name}: epoch {batch.epoch} behind {before[1]}")
        self.by_crc[index][batch.crc] = key

    def _look_at_leader(self, life: BrokerLife, index: int, promises: Promises, view: Any) -> None:
        _, epoch, (_, mark, durable_end, _), _ = view
        if promises.is_cut:
            self._led_after_cut(index, promises, life.broker.id, epoch)
        self._are_counted(index, promises)
        broker, name = life.broker.id, f"{life.process.name} t-{index}"
        if promises.leaders.setdefault(epoch, broker) != broker:
            self._violated(f"{name} leads in epoch {epoch}, as {promises.leaders[epoch]} does")
        before = promises.marks.get((life.process.name, epoch), -1)
        if mark < before:
            self._violated(f"{name}: high watermark falls from {before} to {mark}")
        promises.marks[life.process.name, epoch] = mark
        start = view[2][0]
        if start > promises.deleted_below:
            self._violated(f"{name} leads, and begins at {start}, not {promises.deleted_below}")
        if mark > durable_end:
            self._violated(f"{name}: high watermark {mark} is above the durable end {durable_end}")
        if mark > before and epoch > promises.unclean_epoch:
            self._show(index, promises, broker, mark)

    def _show(self, index: int, promises: Promises, leader: int, mark: int) -> None:
        """Clients may read up to the mark from now on."""
        for batch in reversed(self.replicas[leader, index].batches):
            if batch.last >= mark:
                continue
            known = promises.by_base.get(batch.base)
            if known == batch or promises.is_deleted(batch):
                break
            if known is not None and not self.forgives_losses:
                self._violated(f"t-{index}: {batch.key} is shown, and {known.key} was")
            self._promise(index, batch, "is shown")
        promises.shown_end = max(promises.shown_end, mark)

    def _promise(self, index: int, batch: Batch, why: str) -> None:
        promises = self.partitions[index]
        promises.by_base[batch.base] = batch
        state = promises.leadership
        for broker in state.isr + state.eligible if state is not None else ():
            replica = self.replicas[broker, index]
            if replica.is_known and batch.key not in replica.keys:
                self._lost(index, broker, batch, f"{why}, but lacks on")

    def acked(self, index: int, base: int, crc: int) -> None:
        """A client was told that its batch is on enough replicas."""
        self.acknowledged += 1
        key = self.by_crc[index].get(crc)
        if key is None or key[0] != base:
            self._violated(f"t-{index}: acknowledged at {base}, but it is {key}")
            return
        last, _ = self._content[index][key]
        batch = Batch(base, last, key[1], crc)
        if self.partitions[index].is_deleted(batch):
            return
        known = self.partitions[index].by_base.get(base)
        if known != batch and batch.epoch <= self.partitions[index].cut_epoch:
            return  # lost with the power before the answer reached the client
        if known is not None and known != batch and not self.forgives_losses:
            self._violated(f"t-{index}: {batch.key} is acknowledged, and {known.key} was shown")
        self._promise(index, batch, "is acknowledged")
        brokers = self._cluster.settings.brokers
        holders = [b for b in brokers if key in self.replicas[b, index].keys]
        unknown = [b for b in brokers if not self.replicas[b, index].is_known]
        # A move may have been cancelled before the answer reached the client.
        taken = self.partitions[index].taken_back.items()
        had = {*holders, *unknown, *(broker for broker, keys in taken if key in keys)}
        if len(had) < self._options.minimum(index):
            self._violated(f"t-{index}: {key} is acknowledged, and only {holders} have it")

    def was_read(self, index: int, base: int, epoch: int, crc: int) -> bool:
        """A consumer has read a batch. False if a power loss took the batch meanwhile."""
        known = self.partitions[index].by_base.get(base)
        if known is None or (known.epoch, known.crc) != (epoch, crc):
            if epoch <= self.partitions[index].cut_epoch:
                return False
            if base < self.partitions[index].deleted_below:
                return True
            self._violated(f"t-{index}: ({base}, {epoch}) was read, and {known} was shown there")
        self.read += 1
        return True

    def _is_member(self, index: int, broker: int) -> bool:
        state = self.partitions[index].leadership
        # Nobody relies on a replica that is marked unclean.
        return state is not None and broker in set(state.members) - set(state.unclean)

    def _has_all(self, index: int, broker: int, what: str) -> None:
        replica = self.replicas[broker, index]
        if not replica.is_known:
            return
        for batch in self.partitions[index].by_base.values():
            if batch.key not in replica.keys:
                self._lost(index, broker, batch, what)

    def _lost(self, index: int, broker: int, batch: Batch, what: str) -> None:
        if self.forgives_losses or self.partitions[index].is_cut:
            return
        state = self.partitions[index].leadership
        isr = state.isr if state is not None else ()
        self._violated(f"t-{index}: {batch.key} {what}: broker {broker}, in-sync replicas {isr}")

    def bears_loss_of(self, broker: int) -> bool:
        """Whether nothing may be lost if this machine loses power now.

        Each promise is on ``Options.promised`` of the present replicas, and one of them must stay
        whole. A cancelled reassignment may leave fewer, as with Kafka.
        """
        promised = self._options.promised
        holders = {index: set(self.assignments.replicas(index)) for index in self.partitions}
        return self.internal.bears_loss_of(broker) and all(
            broker not in holders[index]
            or len(promises.lacking & holders[index] | {*promises.taken_back, broker})
            < promised(index, promises)
            for index, promises in self.partitions.items()
        )

    def lost_power(self, broker: int) -> None:
        """Its logs must be read again."""
        self.internal.lost_power(broker)
        for index, promises in self.partitions.items():
            promises.lacking.add(broker)
            replica = self.replicas[broker, index]
            replica.is_known = False
            replica.view = replica.extent = None

    def doubted(self, broker: int) -> None:
        """Its next start cannot claim to have everything."""
        self.internal.lost_power(broker)
        for promises in self.partitions.values():
            promises.lacking.add(broker)

    def ended(self, broker: int) -> None:
        """Its process is gone: read what the next one opens."""
        for index in self.partitions:
            replica = self.replicas[broker, index]
            replica.view = replica.extent = None

    # --- the end ---------------------------------------------------------------------------------

    def unsettled(self) -> str | None:
        """Why the cluster has not settled, or None."""
        for index, promises in self.partitions.items():
            brokers = self.assignments.replicas(index)
            state = promises.leadership
            if state is None or state.leader < 0:
                return f"t-{index} has no leader"
            if set(state.isr) != set(brokers) or state.eligible:
                return f"t-{index} has {state.isr} in sync, and {state.eligible} eligible"
            logs = [self.replicas[broker, index].batches for broker in brokers]
            first = max(log[0].base for log in logs) if all(logs) else 0
            logs = [[batch for batch in log if batch.base >= first] for log in logs]
            if any(log != logs[0] for log in logs):
                return f"t-{index} has different logs"
            life = self._cluster.brokers[state.leader].life
            view = life.sim.partition("t", index) if life is not None else None
            if view is None or view[0] != "Leader" or view[1] != state.leader_epoch:
                return f"t-{index} is not led: {view}"
            if view[2][1] < view[2][3]:
                return f"t-{index} has the high watermark {view[2][1]} of {view[2][3]}"
        return (
            self.assignments.unsettled()
            or self.internal.unsettled()
            or made_topics.unsettled(self._cluster)
        )
