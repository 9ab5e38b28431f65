"""Runs the controller's machine: election, watches, effects.

One task leads. It takes one event at a time and runs each procedure to its end. Every write checks
/controller_epoch's version. When the check fails or the session ends, another broker leads and this
term's state is dropped.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence

import trio

from pyrklog.base.changes import Changes
from pyrklog.base.logs import get_logger
from pyrklog.cluster.requests import (
    ControlRequest,
    ControlResponse,
    LeaderAndIsrResponse,
    LiveBroker,
    StopReplicaResponse,
)
from pyrklog.controller import store_reads, store_writes
from pyrklog.controller.cached_states import leaderless
from pyrklog.controller.effects import (
    UNCLEAN_ELECTION,
    DeleteTopicNodes,
    Effect,
    Pause,
    Send,
    Snapshot,
    StateChange,
    Steps,
    WaitForOthers,
)
from pyrklog.controller.local_channel import Channels
from pyrklog.controller.machine import Controller
from pyrklog.controller.settings import ControllerSettings
from pyrklog.controller.state_log import StateChangeLog
from pyrklog.controller.store_effects import execute
from pyrklog.controller.store_writes import ControllerMovedError, Term
from pyrklog.controller.takeover.evidence import Incumbent
from pyrklog.controller.takeover.standby import Patience, Standby
from pyrklog.controller.waiting_events import Handler, WaitingEvents
from pyrklog.errors import ErrorCode
from pyrklog.metastore import znodes
from pyrklog.metastore.interface import (
    BadVersionError,
    Check,
    Create,
    Delete,
    Metastore,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
    Set,
    Stat,
    StoreFailedError,
    Watch,
    WatchEvent,
)
from pyrklog.protocol.inter_broker import TopicPartitions

FIRST_REBALANCE_SECONDS = 5
STORE_RETRY_SECONDS = 5
REQUESTS_FIRST_SECONDS = 1.0
"""How long a new controller lets its first requests run before it reads the store."""
EFFECTS_A_TURN = 250
"""Before other tasks get a turn; most are lines of the state-change log."""
NUMEROUS_EVENTS = frozenset({"partition_state", "replica_state"})
"""Only written to the state-change log."""

log = get_logger("controller")


class ControllerDriver:
    def __init__(
        self,
        node_id: int,
        store: Metastore,
        channels: Channels,
        settings: ControllerSettings,
        state_log: StateChangeLog,
        told: Callable[[], Sequence[TopicPartitions]] = list,
        standby: Standby | None = None,
    ) -> None:
        """``told`` returns what earlier controllers told this broker of partitions."""
        self.node_id = node_id
        self.controller_id = -1
        """As this broker knows it; -1 = none."""
        self.changes = Changes()
        self.unclean_elections = 0
        """By this broker as the controller, since its start."""
        self._store = store
        self._channels = channels
        self._settings = settings
        self._state_log = state_log
        self._told = told
        self._standby = standby or Patience()
        self._incumbent: Incumbent | None = None
        self._moved = trio.Event()
        self._has_known_one = False
        self._is_started = False
        self._term: Term | None = None
        self._machine: Controller | None = None
        self._nursery: trio.Nursery | None = None
        self._unanswered = 0
        """Requests of this term, to brokers that are not suspected."""
        self._events_in, self._events = trio.open_memory_channel[None](math.inf)
        self._waiting = WaitingEvents()
        self._changed_topics: dict[str, None] = {}
        self._known_topics: set[str] = set()
        self._brokers_changed = self._watch("brokers", self._on_brokers, is_urgent=True)
        self._topics_changed = self._watch("topics", self._on_topics)
        self._deletions_changed = self._watch("deletions", self._on_deletions)
        self._log_dirs_changed = self._watch("log_dirs", self._log_dir_events)
        self._reassignments_changed = self._watch("reassignments", self._on_reassignments)
        self._election_changed = self._watch("preferred_election", self._on_preferred_election)

    @property
    def leads(self) -> bool:
        return self._term is not None

    @property
    def term(self) -> Term | None:
        return self._term

    @property
    def leaving(self) -> Collection[int]:
        """Brokers in a controlled shutdown; empty where this broker does not lead."""
        return self._machine.state.shutting_down if self._machine is not None else ()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Takes part until cancelled; started when a controller is known.

        May be run again in the next session. Raises :class:`SessionExpiredError` at a session's
        end, and whatever keeps the first controller after a start from leading.
        """
        self._is_started = False
        while True:
            self._moved = trio.Event()
            try:
                term = await self._elect()
                if term is None:
                    self._announce(task_status)
                    term = await self._stand_by()
                if term is not None:
                    await self._lead(term, task_status)
            except ControllerMovedError:
                log.warning("controller_moved")
            except SessionExpiredError:
                raise
            except StoreFailedError as error:
                if not self._has_known_one:
                    raise
                log.error("controller_store_failed", reason=error.reason)
                await self._step_down()
            except Exception as error:
                if not self._has_known_one:
                    raise
                # A bug. The brokers go on serving; the next term starts from the store.
                log.error("controller_failed", exc_info=error)
                await self._step_down()
            finally:
                self._term = None
                self._machine = None
                self.controller_id = -1
                self.changes.notify()

    async def _step_down(self) -> None:
        """Gives up a failed term; another broker may do better, or this one later."""
        try:
            if self._term is not None:
                # Another broker may lead by now: its node must stay.
                await self._store.multi([self._term.check(), Delete(znodes.CONTROLLER)])
        except (NoNodeError, BadVersionError, StoreFailedError):
            pass
        await trio.sleep(STORE_RETRY_SECONDS)

    # --- election --------------------------------------------------------------------------------

    async def _elect(self) -> Term | None:
        """None when another broker leads, whose znode is then watched."""
        if await self._store.exists(znodes.CONTROLLER) is not None:
            await self._follow()
            return None
        epoch, version = await store_reads.read_epoch(self._store)
        timestamp_ms = time.time_ns() // 1_000_000
        data = znodes.encode_controller(self.node_id, timestamp_ms)
        raised = Set(znodes.CONTROLLER_EPOCH, str(epoch + 1).encode(), version)
        try:
            results = await self._store.multi([Create(znodes.CONTROLLER, data, True), raised])
        except (NodeExistsError, BadVersionError):
            await self._follow()
            return None
        stat = results[1]
        assert isinstance(stat, Stat)
        return Term(epoch + 1, stat.version)

    async def _follow(self) -> None:
        self._incumbent = None
        try:
            _, version = await store_reads.read_epoch(self._store)
            node = await self._store.get(znodes.CONTROLLER, self._controller_changed)
            self.controller_id = znodes.decode_controller(node.data)
            if node.stat.ephemeral_owner == self._store.session_id:
                # The node of a failed term: nobody leads while it exists. If another broker deposes
                # it now, the new /controller must stay.
                self.controller_id = -1
                fence = Check(znodes.CONTROLLER_EPOCH, version)
                await self._store.multi([fence, Delete(znodes.CONTROLLER, node.stat.version)])
            else:
                self._incumbent = Incumbent(self.controller_id, node.stat)
        except (NoNodeError, BadVersionError):
            self.controller_id = -1
            self._moved.set()
        except znodes.ZnodeError as error:
            log.error("bad_znode", reason=str(error))
        self.changes.notify()

    def _controller_changed(self, _event: WatchEvent) -> None:
        self._moved.set()

    async def _stand_by(self) -> Term | None:
        """The new term where this broker deposed the controller; None once it has changed."""
        term = await self._standby.run(self._incumbent, self._moved)
        self.controller_id = -1
        self.changes.notify()
        return term

    # --- leading ---------------------------------------------------------------------------------

    async def _lead(self, term: Term, task_status: trio.TaskStatus[None]) -> None:
        self._term = term
        self._unanswered = 0
        self._waiting = WaitingEvents()
        self._changed_topics = {}
        self._events_in, self._events = trio.open_memory_channel(math.inf)
        machine = self._machine = Controller(
            self.node_id, term.epoch, delete_topic_enable=self._settings.delete_topic_enable
        )
        log.info("controller_elected", broker=self.node_id, epoch=term.epoch)
        failure: Exception | None = None
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._resign_when_moved, nursery.cancel_scope)
            await nursery.start(self._channels.run, self._trust_changed)
            try:
                await self._take_over(machine)
                self._announce(task_status)
                interval_seconds = self._settings.rebalance_interval_seconds
                if interval_seconds is not None:
                    nursery.start_soon(self._rebalance_timer, interval_seconds)
                await self._log_dir_events()
                await self._on_reassignments()
                await self._on_preferred_election()
                async for _ in self._events:
                    await self._waiting.take()()
            except Exception as error:
                failure = error
                nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def _take_over(self, machine: Controller) -> None:
        brokers = await self._read_brokers()
        self._channels.live(brokers)
        await self._elect_by_memory(brokers)
        snapshot = await self._read_snapshot()
        self._known_topics = set(snapshot.topics)
        await self._perform(machine.start(brokers, snapshot))
        self.controller_id = self.node_id
        self.changes.notify()

    async def _elect_by_memory(self, brokers: Mapping[int, LiveBroker]) -> None:
        """Elects leaders for leaderless partitions before the whole store is read.

        Reading thousands of states takes a second. This broker was told them with their versions;
        compare-and-set refuses a write where one has changed since.
        """
        brokers = {broker: live for broker, live in brokers.items() if not live.is_unclean}
        suspects = {broker for broker in brokers if broker == self._fence().deposed}
        trusted = {broker: brokers[broker] for broker in brokers.keys() - suspects}
        told = leaderless(self._told(), trusted)
        if told:
            topics = await self._read_topics([topic.topic for topic in told])
            numbers = self._current().numbers
            machine = Controller(self.node_id, self._fence().epoch, numbers=numbers)
            await self._perform(machine.elect_by_memory(brokers, topics, told, suspects))
            # Reading all states would take the processor from the brokers that carry out the
            # requests.
            with trio.move_on_after(REQUESTS_FIRST_SECONDS):
                await self.changes.wait_until(lambda: not self._unanswered)

    def _announce(self, task_status: trio.TaskStatus[None]) -> None:
        self._has_known_one = True
        if not self._is_started:
            self._is_started = True
            task_status.started()

    async def _resign_when_moved(self, scope: trio.CancelScope) -> None:
        while await self._is_elected():
            await self._moved.wait()
            self._moved = trio.Event()
        scope.cancel()

    async def _is_elected(self) -> bool:
        """The watch also fires on a lost connection."""
        try:
            node = await self._store.get(znodes.CONTROLLER, self._controller_changed)
        except (NoNodeError, SessionExpiredError, StoreFailedError):
            return False
        return node.stat.ephemeral_owner == self._store.session_id

    async def _rebalance_timer(self, interval_seconds: int) -> None:
        await trio.sleep(FIRST_REBALANCE_SECONDS)
        while True:
            self._queue("rebalance", self._rebalance)
            await trio.sleep(interval_seconds)

    async def _unclean_timer(self, number: int, seconds: float) -> None:
        await trio.sleep(seconds)
        machine = self._current()
        self._queue(object(), lambda: self._perform(machine.unclean.wait_over(number)))

    async def _rebalance(self) -> None:
        machine = self._current()
        await self._perform(machine.rebalance_leaders(self._settings.imbalance_percent))

    def _queue(self, key: Hashable, handler: Handler, *, is_urgent: bool = False) -> None:
        """An event waits once per key."""
        if self._waiting.put(key, handler, is_urgent=is_urgent):
            self._events_in.send_nowait(None)

    def _current(self) -> Controller:
        assert self._machine is not None
        return self._machine

    async def perform(self, procedure: Callable[[Controller], Steps]) -> bool:
        """Runs a procedure in its turn; False where this broker does not lead, or no longer."""
        term = self._term
        if term is None or self._machine is None:
            return False
        is_done = False

        async def take_turn() -> None:
            nonlocal is_done
            await self._perform(procedure(self._current()))
            is_done = True
            self.changes.notify()

        self._queue(object(), take_turn)
        await self.changes.wait_until(lambda: is_done or self._term is not term)
        return is_done

    # --- watches ---------------------------------------------------------------------------------

    def _watch(self, key: str, handler: Handler, *, is_urgent: bool = False) -> Watch:
        """A watch that queues ``handler``. Made once: the store drops duplicates of the same."""
        return lambda _event: self._queue(key, handler, is_urgent=is_urgent)

    def _trust_changed(self, broker: int, is_trusted: bool) -> None:
        machine = self._current()
        procedure = machine.suspects.trust if is_trusted else machine.suspects.suspect
        self._queue(object(), lambda: self._perform(procedure(broker)), is_urgent=True)

    async def _read_brokers(self) -> dict[int, LiveBroker]:
        return await store_reads.read_brokers(self._store, self._brokers_changed)

    async def _on_brokers(self) -> None:
        brokers = await self._read_brokers()
        self._channels.live(brokers)
        await self._perform(self._current().brokers_changed(brokers))

    async def _read_snapshot(self) -> Snapshot:
        # The marks first: the mark of a topic created during this read must not seem to belong to
        # none.
        to_delete = await self._store.children(znodes.DELETE_TOPICS, self._deletions_changed)
        names = await self._store.children(znodes.BROKER_TOPICS, self._topics_changed)
        topics = await self._read_topics(names)
        keys = [(name, index) for name, item in topics.items() for index in item.replicas]
        states = await store_reads.read_states(self._store, keys)
        unreadable = [name for name in names if name not in topics]
        partial = await store_reads.read_partial(self._store, topics)
        return Snapshot(topics, states, to_delete, unreadable, partial)

    async def _read_topics(self, names: Sequence[str]) -> dict[str, znodes.TopicAssignment]:
        known = self._machine.state.topics.values() if self._machine is not None else ()
        ids = {topic.id: topic.name for topic in known}
        return await store_reads.read_topics(self._store, names, self._topic_changed, ids)

    def _topic_changed(self, event: WatchEvent) -> None:
        self._changed_topics[event.path.rpartition("/")[2]] = None
        self._queue("changed_topics", self._on_changed_topics)

    async def _on_topics(self) -> None:
        names = await self._store.children(znodes.BROKER_TOPICS, self._topics_changed)
        fresh = [name for name in names if name not in self._known_topics]
        found = await self._read_topics(fresh)
        self._known_topics = set(names)
        await self._perform(self._current().topics_changed(found, names))

    async def _on_changed_topics(self) -> None:
        """After a lost connection these are all topics."""
        names, self._changed_topics = list(self._changed_topics), {}
        found = await self._read_topics(names)
        while found:
            name = next(iter(found))
            await self._perform(self._current().topic_changed(name, found.pop(name)))
            if found and self._waiting.has_urgent:
                # The rest is read again, after the brokers.
                self._changed_topics |= dict.fromkeys(found)
                self._queue("changed_topics", self._on_changed_topics)
                return

    async def _on_deletions(self) -> None:
        names = await self._store.children(znodes.DELETE_TOPICS, self._deletions_changed)
        if not self._known_topics.issuperset(names):
            # Created and marked since the last read of topics; that event waits behind this one.
            await self._on_topics()
        await self._perform(self._current().deletion_asked(names))

    async def _on_reassignments(self) -> None:
        data = await self._asked_by_znode(znodes.REASSIGN_PARTITIONS, self._reassignments_changed)
        wanted = store_reads.decoded(znodes.decode_reassignments, data)
        if wanted is not None:
            await self._perform(self._current().reassignments.asked_by_znode(wanted))

    async def _on_preferred_election(self) -> None:
        data = await self._asked_by_znode(znodes.PREFERRED_ELECTION, self._election_changed)
        wanted = store_reads.decoded(znodes.decode_preferred_election, data)
        if wanted is not None:
            await self._perform(self._current().elections.asked_by_znode(wanted))

    async def _asked_by_znode(self, path: str, watch: Watch) -> bytes | None:
        """Also watches while the node does not exist."""
        if await self._store.exists(path, watch) is None:
            return None
        try:
            return (await self._store.get(path)).data
        except NoNodeError:
            return None  # the watch tells of it

    async def _log_dir_events(self) -> None:
        names = await self._store.children(znodes.LOG_DIR_EVENTS, self._log_dirs_changed)
        if not names:
            return
        paths = [f"{znodes.LOG_DIR_EVENTS}/{name}" for name in names]
        nodes = await self._store.get_many(paths)
        found = store_reads.decode_nodes(znodes.decode_log_dir_event, paths, paths, nodes)
        await self._perform(self._current().log_dirs_failed(sorted(set(found.values()))))
        await store_writes.delete_nodes(self._store, self._fence(), paths)

    # --- effects ---------------------------------------------------------------------------------

    async def _perform(self, steps: Steps) -> None:
        result: object = None
        for number in itertools.count(1):
            try:
                effect = steps.send(result)
            except StopIteration:
                return
            if isinstance(effect, Pause) or number % EFFECTS_A_TURN == 0:
                # Heartbeats, the session's pings and other requests wait for this thread.
                await trio.lowlevel.checkpoint()
            result = None if isinstance(effect, Pause) else await self._execute(effect)

    async def _execute(self, effect: Effect) -> object:
        match effect:
            case StateChange(event, fields):
                self._state_changed(event, fields)
                return None
            case Send(broker, request):
                self._channels.to(broker).post(request, self._answer_of(broker, request))
                return None
            case WaitForOthers(number, seconds):
                assert self._nursery is not None
                self._nursery.start_soon(self._unclean_timer, number, seconds)
                return None
            case DeleteTopicNodes(topics):
                self._known_topics.difference_update(topics)
        return await execute(effect, self._store, self._fence(), self._settings)

    def _state_changed(self, event: str, fields: Mapping[str, object]) -> None:
        self._state_log.write(event, fields)
        if event == UNCLEAN_ELECTION:
            self.unclean_elections += 1
            log.log("warning", event, fields)
        elif event not in NUMEROUS_EVENTS:
            log.log("error" if event.endswith("_failed") else "info", event, fields)

    def options_changed(self) -> None:
        if self._machine is not None:
            self._queue("options", lambda: self._perform(self._current().options_changed()))

    def _fence(self) -> Term:
        if self._term is None:
            raise ControllerMovedError
        return self._term

    def _answer_of(self, broker: int, request: ControlRequest) -> Callable[[ControlResponse], None]:
        term = self._fence()
        # A deposed controller may be dead: its answers are not awaited.
        is_awaited = broker != term.deposed
        self._unanswered += is_awaited

        def answered(response: ControlResponse) -> None:
            if self._term is not term:
                return  # an answer to an earlier term
            self._unanswered -= is_awaited
            if not self._unanswered:
                self.changes.notify()
            if not isinstance(response, ErrorCode):
                self._queue(object(), lambda: self._take_answer(broker, request, response))

        return answered

    async def _take_answer(
        self,
        broker: int,
        request: ControlRequest,
        response: LeaderAndIsrResponse | StopReplicaResponse,
    ) -> None:
        machine = self._current()
        if not machine.knows(broker, request.broker_epoch):
            return
        if isinstance(response, LeaderAndIsrResponse):
            await self._perform(machine.leader_and_isr_answered(broker, response))
        else:
            await self._perform(machine.stop_replica_answered(broker, response))
