"""Enters a directory's topics into an empty metadata store, before any controller reads it."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import trio

from pyrklog.adoption import directory
from pyrklog.adoption.broker_options import (
    UNEXPIRED,
    Defaults,
    RunTimeOptions,
    known_defaults,
    run_time_options,
)
from pyrklog.adoption.kraft import KraftMetadata
from pyrklog.adoption.plan import AdoptedTopic, Plan, is_current, make_plan
from pyrklog.base.logs import get_logger
from pyrklog.base.problems import Problem
from pyrklog.config.broker import BrokerConfig
from pyrklog.errors import StartError
from pyrklog.metastore import znodes
from pyrklog.metastore.interface import (
    Create,
    Metastore,
    MetastoreError,
    NodeExistsError,
    Operation,
    Set,
)
from pyrklog.plane.seam import FoundPartition

RECORD_VERSION = 1

log = get_logger("adoption")


class Zookeeper(NamedTuple):
    """The cluster's metadata, if it is not in the directory."""

    address: str
    cluster_id: str


class _Record(NamedTuple):
    """``refused`` topics are retried when their folders have changed."""

    topics: Mapping[str, str]
    refused: Mapping[str, str]
    folders: Mapping[str, Sequence[str]]
    """Of refused topics."""
    adopted_ms: int
    unexpired: Sequence[str]
    """See :func:`~pyrklog.adoption.broker_options.unexpired`."""


async def adopt(
    node_id: int,
    config: BrokerConfig,
    store: Metastore,
    found: Sequence[FoundPartition],
    zookeeper: Zookeeper | None = None,
) -> Sequence[str]:
    """Adopts a foreign broker's directory at the first start on it.

    A store with an earlier elected controller is in use: then only refused topics are retried.
    Reads files only if there is something to adopt. Returns the names of the record's
    ``unexpired``.
    """
    if not found:
        return ()
    used, node = await store.get_many([znodes.CONTROLLER_EPOCH, znodes.ADOPTION])
    before = _decode(node.data) if node is not None else None
    if used is not None:
        found = _changed(found, before) if before is not None else ()
        if not found:
            return before.unexpired if before is not None else ()
    if zookeeper is not None:
        from pyrklog.adoption.zookeeper import read_zookeeper

        kraft: KraftMetadata | None = await trio.to_thread.run_sync(read_zookeeper, *zookeeper)
    else:
        kraft = await trio.to_thread.run_sync(directory.read_kraft, config.log_dirs)
    epochs = await trio.to_thread.run_sync(directory.newest_epochs, found)
    options, defaults = _broker_options(node_id, config, kraft)
    segment_bytes = config.integer("offsets.topic.segment.bytes")
    plan = make_plan(node_id, found, epochs, kraft, segment_bytes, defaults)
    if used is None:
        # First: topics must not be without them, not even after a crash here.
        await _enter_broker_options(store, options)
    new = await _enter_topics(node_id, store, plan.topics)
    if used is None:
        scanned = [] if is_current(found, epochs, kraft) else found
        await _keep_producer_ids(node_id, store, scanned, kraft)
    now_ms = time.time_ns() // 1_000_000
    source = {topic.name: "kafka" if topic.options_known else "none" for topic in plan.topics}
    topics = {**(before.topics if before is not None else {}), **source}
    earlier = before.refused if before is not None else {}
    refused = {n: why for n, why in {**earlier, **plan.refused}.items() if n not in topics}
    folders = {**(before.folders if before is not None else {}), **_folders(found)}
    kept = {name: folders[name] for name in refused if name in folders}
    hides_file = not config.has_kafka_file and not (kraft is not None and kraft.is_own_export)
    names = before.unexpired if before is not None else [*UNEXPIRED] if hides_file else []
    record = _Record(topics, refused, kept, now_ms, names)
    await _write(store, record, exists=before is not None)
    _tell(plan, new, kraft)
    if used is None:
        _tell_of_broker_options(options, plan, defaults)
    return names


def _broker_options(
    node_id: int, config: BrokerConfig, kraft: KraftMetadata | None
) -> tuple[RunTimeOptions, Defaults | None]:
    if kraft is None:
        return RunTimeOptions({}, {}, 0), None
    options = run_time_options(node_id, kraft)
    kraft.count_left_out("option of another broker", options.of_others)
    compacted = directory.compacted_topics(config.log_dirs)
    return options, known_defaults(config, kraft, options, compacted)


async def _enter_broker_options(store: Metastore, options: RunTimeOptions) -> None:
    creations: list[list[Operation]] = []
    for entity, values in options.usable.items():
        path = znodes.broker_config_path(entity or znodes.DEFAULT_ENTITY)
        creations.append([Create(path, znodes.encode_config(values))])
    for outcome in await store.multis(creations) if creations else ():
        # Those of an interrupted start stay.
        if isinstance(outcome, MetastoreError) and not isinstance(outcome, NodeExistsError):
            raise outcome


def _changed(found: Sequence[FoundPartition], before: _Record) -> Sequence[FoundPartition]:
    """Refused topics whose folders have changed: only these are worth reading again."""
    refused = [item for item in found if item.topic in before.refused]
    now = _folders(refused)
    return [item for item in refused if now[item.topic] != before.folders.get(item.topic)]


def _folders(found: Sequence[FoundPartition]) -> dict[str, Sequence[str]]:
    folders: dict[str, list[str]] = {}
    for item in sorted(found, key=lambda item: (item.topic, item.partition)):
        topic_id = item.topic_id.hex() if item.topic_id is not None else "-"
        folders.setdefault(item.topic, []).append(f"{item.partition} {topic_id}")
    return dict(folders)


async def _enter_topics(
    node_id: int, store: Metastore, topics: Sequence[AdoptedTopic]
) -> Sequence[AdoptedTopic]:
    """One transaction a topic; topics of an interrupted start stay."""
    outcomes = await store.multis([_operations(node_id, topic) for topic in topics])
    new = []
    for topic, outcome in zip(topics, outcomes, strict=True):
        if isinstance(outcome, NodeExistsError):
            continue
        if isinstance(outcome, MetastoreError):
            raise outcome
        new.append(topic)
    return new


def _operations(node_id: int, topic: AdoptedTopic) -> list[Operation]:
    # Without a known id the plane gives the folders one, as Kafka does.
    topic_id = topic.topic_id or uuid.uuid4().bytes
    replicas = dict.fromkeys(range(len(topic.leader_epochs)), (node_id,))
    assignment = znodes.TopicAssignment(topic_id, replicas, {}, {})
    operations: list[Operation] = [
        Create(znodes.topic_config_path(topic.name), znodes.encode_config(topic.options)),
        Create(znodes.topic_path(topic.name), znodes.encode_topic(assignment)),
        Create(znodes.partitions_path(topic.name)),
    ]
    for index, epoch in enumerate(topic.leader_epochs):
        # The first election raises the epoch above those in the log.
        state = znodes.Leadership(-1, max(0, epoch), (node_id,), 0)
        operations.append(Create(znodes.partition_path(topic.name, index)))
        operations.append(Create(znodes.state_path(topic.name, index), znodes.encode_state(state)))
    return operations


async def _keep_producer_ids(
    node_id: int,
    store: Metastore,
    found: Sequence[FoundPartition],
    kraft: KraftMetadata | None,
) -> None:
    """Continues above ids already given out, by the metadata and by ``found``, which is slow to
    read."""
    largest = await trio.to_thread.run_sync(directory.largest_producer_id, found)
    following = max(largest + 1, kraft.next_producer_id if kraft is not None else 0)
    if following == 0:
        return
    block = znodes.ProducerIdBlock(node_id, 0, following - 1)
    try:
        await store.create(znodes.PRODUCER_ID_BLOCK, znodes.encode_producer_ids(block))
    except NodeExistsError:
        return  # from an interrupted start
    log.info("producer_ids_continued", first=following)


def _decode(data: bytes) -> _Record:
    try:
        content = json.loads(data)
        return _Record(
            content["topics"],
            content["refused"],
            content["folders"],
            content["adopted_ms"],
            content.get("unexpired", []),
        )
    except (ValueError, KeyError, TypeError):
        raise StartError(
            Problem.METADATA_DAMAGED, f"The metadata store holds no adoption at {znodes.ADOPTION}."
        ) from None


async def _write(store: Metastore, record: _Record, *, exists: bool) -> None:
    data = json.dumps({"version": RECORD_VERSION, **record._asdict()}).encode()
    await store.multi([Set(znodes.ADOPTION, data) if exists else Create(znodes.ADOPTION, data)])


def _tell(plan: Plan, new: Sequence[AdoptedTopic], kraft: KraftMetadata | None) -> None:
    log.info(
        "directory_adopted",
        topics=len(new),
        partitions=sum(len(topic.leader_epochs) for topic in new),
        options="from Kafka's metadata" if kraft is not None else "not known",
    )
    for name, why in plan.refused.items():
        log.error("topic_not_adopted", topic=name, reason=why, consequence="left untouched")
    for name, options in plan.options_left_out.items():
        log.warning("options_not_adopted", topic=name, options=options)
    if kraft is not None and kraft.left_out:
        log.warning("metadata_not_adopted", records=kraft.left_out)


def _tell_of_broker_options(options: RunTimeOptions, plan: Plan, defaults: Defaults | None) -> None:
    for entity, values in options.usable.items():
        log.info("broker_options_adopted", broker=entity or "all", options=sorted(values))
    for entity, names in options.left_out.items():
        log.warning(
            "broker_options_not_adopted",
            broker=entity or "all",
            options=names,
            reason="unknown to pyrklog, with a value that it refuses, or a password",
        )
    if plan.kept and defaults is not None and defaults.unseen:
        log.warning(
            "kafka_options_not_seen",
            options=sorted(defaults.unseen),
            topics=len(plan.kept),
            reason="the start had no --config with the file that Kafka started with, which may "
            "give topics other defaults",
            consequence="topics without such options of their own keep everything until confirmed",
        )
