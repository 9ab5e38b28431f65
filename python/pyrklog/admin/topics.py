from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import partial

import trio

from pyrklog.admin.creation import (
    Assignment,
    assign_added_partitions,
    assign_new_topic,
    check_new_topic,
    check_partition_count,
)
from pyrklog.admin.topic_writes import (
    change_assignment,
    create_topics,
    find_obstacles,
    mark_for_deletion,
    store_error,
    unknown_topic,
)
from pyrklog.admin.underway import Underway
from pyrklog.base.changes import Changes
from pyrklog.base.logs import get_logger
from pyrklog.cluster.image import INTERNAL_TOPICS, KRAFT_TOPIC
from pyrklog.cluster.metadata import Metadata
from pyrklog.cluster.requests import NO_TOPIC_ID
from pyrklog.cluster.topic_names import TopicNames, wrong_with_name
from pyrklog.config.topic import TopicDefaults, describe_topic_options
from pyrklog.controller.driver import ControllerDriver
from pyrklog.controller.store_writes import Term
from pyrklog.errors import ApiError, ErrorCode
from pyrklog.handlers.service import (
    DeletedTopic,
    NamedResult,
    PartitionsSpec,
    TopicRef,
    TopicResult,
    TopicSpec,
)
from pyrklog.metastore import znodes
from pyrklog.metastore.interface import (
    Metastore,
    MetastoreError,
    NoNodeError,
    SessionExpiredError,
    WatchEvent,
)
from pyrklog.replication.machine import Replicas

AUTO_CREATE_WAIT_SECONDS = 5.0
"""Wait for the leaders of a written topic."""
AUTO_CREATE_LIMIT_SECONDS = 8.0
"""Limit of the whole, including the store."""
NODES_GONE_SECONDS = 2.0
"""How long an applied deletion waits for the end of the topic's last replica."""
_FIXED_COUNT = (
    "The number of partitions of an internal topic is fixed: another one would move groups and "
    "transactional ids to partitions, and brokers, that do not have their records."
)
_GIVEN_TWICE = ApiError(ErrorCode.INVALID_REQUEST, "The topic is given by its name and by its id.")

log = get_logger("topics")


class TopicAdmin:
    def __init__(
        self,
        store: Metastore,
        metadata: Metadata,
        replicas: Replicas,
        controller: ControllerDriver,
    ) -> None:
        self._store = store
        self._metadata = metadata
        self._replicas = replicas
        self._controller = controller
        self._underway = Underway()
        self.reserved: frozenset[str] = frozenset()
        """Names of partition folders without a topic in the metadata."""

    @property
    def _defaults(self) -> TopicDefaults:
        return self._metadata.defaults  # a new object after each change of broker options

    async def create(
        self,
        specs: Sequence[TopicSpec],
        *,
        validate_only: bool,
        timeout_ms: int,
        as_controller: bool = True,
    ) -> list[TopicResult]:
        """See ``ClusterService.create_topics``; any broker may create topics for its own use.

        The store creates a topic once, whichever broker writes it.
        """
        term = self._controller.term if as_controller else None
        results, planned = self._plan_all(specs, as_controller)
        if validate_only:
            names = [specs[i].name for i in planned]
            refused = await find_obstacles(self._store, names)
            return [
                TopicResult(result.name, why.code, why.message)
                if (why := refused.get(result.name)) is not None and index in planned
                else result._replace(topic_id=NO_TOPIC_ID)
                for index, result in enumerate(results)
            ]
        if not planned:
            return results
        topics = {specs[i].name: (_overrides(specs[i]), planned[i]) for i in planned}
        refused = await self._underway.finish(partial(create_topics, self._store, term, topics))
        for index in planned:
            if (why := refused.get(specs[index].name)) is not None:
                results[index] = TopicResult(specs[index].name, why.code, why.message)
        created = [i for i in planned if specs[i].name not in refused]
        ids = {specs[i].name: planned[i].topic_id for i in created}
        counts = {specs[i].name: len(planned[i].replicas) for i in created}
        late = await self._wait_served(ids, counts, timeout_ms)
        for index in created:
            name = specs[index].name
            if name in late:
                results[index] = TopicResult(name, late[name].code, late[name].message)
        return results

    def _plan_all(
        self, specs: Sequence[TopicSpec], as_controller: bool
    ) -> tuple[list[TopicResult], dict[int, znodes.TopicAssignment]]:
        results = []
        planned: dict[int, znodes.TopicAssignment] = {}
        named = Counter(spec.name for spec in specs)
        asked = TopicNames()
        partitions = 0
        for index, spec in enumerate(specs):
            try:
                if as_controller:
                    self._check_controller()
                if named[spec.name] > 1:
                    raise ApiError(
                        ErrorCode.INVALID_REQUEST, f"The request names '{spec.name}' twice."
                    )
                check_new_topic(spec, self._defaults, self._metadata.image.names, asked)
                self._check_reserved(spec.name)
                replicas = self._assign(spec)
                partitions += len(replicas)
                check_partition_count(partitions)
            except ApiError as error:
                results.append(TopicResult(spec.name, error.code, error.message))
                continue
            asked.add(spec.name)
            plan = znodes.TopicAssignment(new_topic_id(), replicas, {}, {})
            planned[index] = plan
            results.append(self._success(spec, plan))
        return results, planned

    def _check_controller(self) -> Term:
        if self._controller.term is None:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "This broker is not the controller.")
        return self._controller.term

    def _check_reserved(self, name: str) -> None:
        if name in self.reserved:
            raise ApiError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"A log directory holds folders of an older topic '{name}' that the metadata does "
                "not know; move them away first.",
            )

    def _assign(self, spec: TopicSpec) -> Assignment:
        racks = self._racks()
        return assign_new_topic(
            spec,
            racks,
            leaving=self._controller.leaving,
            default_partitions=self._metadata.config.integer("num.partitions"),
            default_replicas=self._metadata.config.integer("default.replication.factor"),
            start=random.randrange(max(1, len(racks))),
            shift=random.randrange(max(1, len(racks))),
        )

    def _racks(self) -> dict[int, str | None]:
        racks = {broker.id: broker.rack for broker in self._metadata.image.brokers}
        without = sorted(broker for broker, rack in racks.items() if rack is None)
        if without and len(without) < len(racks):
            log.warning("racks_missing", brokers_without_rack=without)
        return racks

    def _success(self, spec: TopicSpec, plan: znodes.TopicAssignment) -> TopicResult:
        return TopicResult(
            spec.name,
            ErrorCode.NONE,
            None,
            plan.topic_id,
            len(plan.replicas),
            len(plan.replicas[0]),
            describe_topic_options(
                _overrides(spec),
                self._defaults,
                None,
            ),
        )

    async def _wait_served(
        self,
        ids: Mapping[str, bytes],
        counts: Mapping[str, int],
        timeout_ms: int,
        known: Collection[str] = (),
    ) -> dict[str, ApiError]:
        """Waits until every partition's leader serves; returns late topics.

        A topic that clients knew (``known`` from the beginning) and no longer know was deleted.
        """
        waiting = set(ids)
        seen = set(known)
        gone: dict[str, ApiError] = {}

        def served() -> bool:
            for name in list(waiting):
                entry = self._metadata.image.topics.get(name)
                if entry is not None and entry.id == ids[name]:
                    seen.add(name)
                    if not self.is_served(name, ids[name], counts[name]):
                        continue
                elif name in seen:
                    gone[name] = ApiError(
                        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                        f"Topic '{name}' was deleted in the meantime.",
                    )
                else:
                    continue
                waiting.discard(name)
            return not waiting

        if timeout_ms > 0:
            with trio.move_on_after(timeout_ms / 1000):
                await self._metadata.changes.wait_until(served)
        else:
            served()
        return gone | dict.fromkeys(waiting, ApiError(ErrorCode.REQUEST_TIMED_OUT))

    def is_served(self, name: str, topic_id: bytes, count: int) -> bool:
        """Whether the first ``count`` partitions have leaders, and ours serve."""
        entry = self._metadata.image.topics.get(name)
        if entry is None or entry.id != topic_id or len(entry.partitions) < count:
            return False
        for partition in entry.partitions.values():
            if partition.leader < 0:
                return False
            ours = partition.leader == self._metadata.node_id
            if ours and not self._replicas.is_serving((name, partition.partition)):
                return False
        return True

    async def auto_create(self, names: Sequence[str]) -> dict[str, ErrorCode]:
        """See ``ClusterService.auto_create_topics``.

        The client's next requests wait for this answer: it waits neither for an unreachable store
        nor for a topic that has appeared meanwhile.
        """
        errors: dict[str, ErrorCode] = {}
        wanted = []
        for name in dict.fromkeys(names):
            if name in INTERNAL_TOPICS or name == KRAFT_TOPIC:
                errors[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif wrong_with_name(name) is not None:
                errors[name] = ErrorCode.INVALID_TOPIC_EXCEPTION
            else:
                wanted.append(name)
        refused = dict.fromkeys(wanted, ErrorCode.LEADER_NOT_AVAILABLE)
        if not wanted or not self._store.is_reachable:
            return errors | refused
        try:
            with trio.move_on_after(AUTO_CREATE_LIMIT_SECONDS):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._cancel_when_known, wanted, nursery.cancel_scope)
                    refused = await self._create_missing(wanted)
                    nursery.cancel_scope.cancel()
        except* SessionExpiredError:
            log.warning("auto_create_interrupted", topics=wanted[:10])
        return errors | {name: code for name, code in refused.items() if not self._is_known(name)}

    def _is_known(self, name: str) -> bool:
        entry = self._metadata.image.topics.get(name)
        return entry is not None and self.is_served(name, entry.id, 1)

    async def _cancel_when_known(self, names: Sequence[str], scope: trio.CancelScope) -> None:
        await self._metadata.changes.wait_until(lambda: all(map(self._is_known, names)))
        scope.cancel()

    async def _create_missing(self, names: Sequence[str]) -> dict[str, ErrorCode]:
        results = await self.create(
            [TopicSpec(name) for name in names],
            validate_only=False,
            timeout_ms=int(AUTO_CREATE_WAIT_SECONDS * 1000),
            as_controller=False,
        )
        late = {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER}
        existing = [r.name for r in results if r.error is ErrorCode.TOPIC_ALREADY_EXISTS]
        errors = {}
        for result in results:
            if result.error in late:
                errors[result.name] = ErrorCode.LEADER_NOT_AVAILABLE
            elif result.error is not ErrorCode.NONE and result.name not in existing:
                errors[result.name] = result.error
        return errors | await self._wait_existing(existing)

    async def _wait_existing(self, names: Sequence[str]) -> dict[str, ErrorCode]:
        with trio.move_on_after(AUTO_CREATE_WAIT_SECONDS):
            await self._metadata.changes.wait_until(lambda: all(map(self._is_known, names)))
        late = [name for name in names if not self._is_known(name)]
        return dict.fromkeys(late, ErrorCode.LEADER_NOT_AVAILABLE)

    async def delete(self, topics: Sequence[TopicRef], *, timeout_ms: int) -> list[DeletedTopic]:
        """See ``ClusterService.delete_topics``."""
        results: list[DeletedTopic] = []
        found: dict[str, bytes] = {}
        again: set[str] = set()
        term = self._controller.term
        for ref in topics:
            try:
                name, topic_id = self._resolve(ref)
            except ApiError as error:
                results.append(DeletedTopic(ref.name, ref.topic_id, error.code, error.message))
                continue
            if name in found:  # by its name and by its id
                again.add(name)
                continue
            found[name] = topic_id
            results.append(DeletedTopic(name, topic_id, ErrorCode.NONE))
        refused: dict[str, ApiError] = dict.fromkeys(again, _GIVEN_TWICE)
        for name in again:
            del found[name]
        if found and term is not None:
            mark = partial(mark_for_deletion, self._store, term, found)
            refused |= await self._underway.finish(mark)
        for index, item in enumerate(results):
            if item.error is ErrorCode.NONE and item.name in refused:
                why = refused[item.name]
                results[index] = item._replace(error=why.code, message=why.message)
        marked = {name: topic_id for name, topic_id in found.items() if name not in refused}
        late = await self._wait_deleted(marked, timeout_ms)
        return [
            item._replace(error=ErrorCode.REQUEST_TIMED_OUT)
            if item.error is ErrorCode.NONE and item.name in late
            else item
            for item in results
        ]

    def _resolve(self, ref: TopicRef) -> tuple[str, bytes]:
        self._check_controller()
        if not self._metadata.config.boolean("delete.topic.enable"):
            raise ApiError(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
        name = ref.name
        if name is None:
            name = self._metadata.image.name_of(ref.topic_id)
            if name is None:
                raise ApiError(
                    ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID."
                )
        entry = self._metadata.image.topics.get(name)
        if entry is None:
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                "This server does not host this topic-partition.",
            )
        return name, entry.id

    async def _wait_deleted(self, marked: Mapping[str, bytes], timeout_ms: int) -> set[str]:
        shown = set(marked)
        topics = self._metadata.image.topics

        def unknown_to_clients() -> bool:
            known = {n for n in shown if n in topics and topics[n].id == marked[n]}
            shown.intersection_update(known)
            return not shown

        if marked and timeout_ms > 0:
            with trio.move_on_after(timeout_ms / 1000):
                await self._metadata.changes.wait_until(unknown_to_clients)
                # Then a topic of the same name can be created; but a replica may be unreachable.
                with trio.move_on_after(NODES_GONE_SECONDS):
                    await self._wait_nodes_gone(marked)
            unknown_to_clients()
        return shown

    async def _wait_nodes_gone(self, marked: Mapping[str, bytes]) -> None:
        """Waits until the topics' nodes are gone or belong to other topics."""
        there = set(marked)
        paths = {znodes.topic_path(name): name for name in there}
        moved = set(paths)
        changes = Changes()

        def told(event: WatchEvent) -> None:
            moved.add(event.path)
            changes.notify()

        while there:
            await changes.wait_until(lambda: bool(moved))
            looked_at = sorted(moved)
            moved.clear()
            nodes = await self._store.get_many(looked_at, told)
            for path, node in zip(looked_at, nodes, strict=True):
                name = paths[path]
                if node is None or znodes.decode_topic(path, node.data).topic_id != marked[name]:
                    there.discard(name)

    async def add_partitions(
        self, specs: Sequence[PartitionsSpec], *, validate_only: bool, timeout_ms: int
    ) -> list[NamedResult]:
        """See ``ClusterService.create_partitions``."""
        add = partial(self._add_to_each, specs, validate_only)
        results, ids = await self._underway.finish(add)
        if validate_only:
            return results
        counts = {spec.name: spec.total for spec in specs if spec.name in ids}
        late = await self._wait_served(ids, counts, timeout_ms, known=ids)
        return [
            item._replace(error=late[item.name].code, message=late[item.name].message)
            if item.error is ErrorCode.NONE and item.name in late
            else item
            for item in results
        ]

    async def _add_to_each(
        self, specs: Sequence[PartitionsSpec], validate_only: bool
    ) -> tuple[list[NamedResult], dict[str, bytes]]:
        results: list[NamedResult] = []
        ids: dict[str, bytes] = {}
        named = Counter(spec.name for spec in specs)
        for spec in specs:
            try:
                if named[spec.name] > 1:
                    raise ApiError(
                        ErrorCode.INVALID_REQUEST, f"The request names '{spec.name}' twice."
                    )
                topic_id = None
                while topic_id is None:
                    topic_id = await self._add_to(spec, validate_only)
            except ApiError as error:
                results.append(NamedResult(spec.name, error.code, error.message))
                continue
            results.append(NamedResult(spec.name, ErrorCode.NONE))
            ids[spec.name] = topic_id
        return results, ids

    async def _add_to(self, spec: PartitionsSpec, validate_only: bool) -> bytes | None:
        """The topic's id; None to retry after a concurrent change."""
        term = self._check_controller()
        path = znodes.topic_path(spec.name)
        unknown = unknown_topic(spec.name)
        if wrong_with_name(spec.name) is not None:
            raise unknown
        try:
            if await self._store.exists(znodes.delete_topic_path(spec.name)) is not None:
                raise ApiError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is queued for deletion."
                )
            if spec.name not in self._metadata.image.topics:
                raise unknown
            node = await self._store.get(path)
            current = znodes.decode_topic(path, node.data)
            if current.adding or current.removing:
                raise ApiError(
                    ErrorCode.REASSIGNMENT_IN_PROGRESS, "A partition reassignment is in progress."
                )
            leaving = self._controller.leaving
            added = assign_added_partitions(spec, current.replicas, self._racks(), leaving)
            if spec.name in INTERNAL_TOPICS:
                raise ApiError(ErrorCode.INVALID_REQUEST, _FIXED_COUNT)
            if not validate_only:
                enlarged = current._replace(replicas={**current.replicas, **added})
                version = node.stat.version
                if not await change_assignment(self._store, term, spec.name, enlarged, version):
                    return None
        except NoNodeError:
            raise unknown from None
        except MetastoreError as error:
            raise store_error(error) from None
        return current.topic_id


def _overrides(spec: TopicSpec) -> dict[str, str]:
    return {name: text for name, text in (spec.configs or {}).items() if text is not None}


def new_topic_id() -> bytes:
    """A random UUID of version 4; as in Kafka, its text never starts with a dash."""
    while True:
        raw = bytearray(os.urandom(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        if not znodes.encode_id(bytes(raw)).startswith("-"):
            return bytes(raw)
