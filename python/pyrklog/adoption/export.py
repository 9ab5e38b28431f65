"""Prepares a stopped broker's log directories for Kafka 3.9.

At its first start on an empty metadata log, Kafka's controller takes its metadata from the records
of ``bootstrap.checkpoint``; so our topics, partitions, options and producer ids go into that file.
An earlier ``__cluster_metadata-0`` is moved away: Kafka would trust its older epochs, other topics,
and producer ids that we gave out since.

Our store is put aside as well, since Kafka makes it stale: our next start adopts again.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import trio

from pyrklog.adoption import kraft
from pyrklog.adoption.batches import encode_control, encode_values
from pyrklog.adoption.broker_options import run_time_options
from pyrklog.adoption.directory import BOOTSTRAP, METADATA_FOLDER, read_kraft
from pyrklog.base.diagnosis import lock_holder
from pyrklog.base.durable import replace_file, sync_folder
from pyrklog.base.problems import Problem
from pyrklog.config.broker import BrokerConfig
from pyrklog.config.properties import parse_properties
from pyrklog.config.topic import OWN_PREFIX
from pyrklog.errors import ConfigError, StartError, TemporaryError
from pyrklog.metastore import znodes
from pyrklog.metastore.database import DATABASE_NAME
from pyrklog.metastore.embedded import open_store
from pyrklog.metastore.interface import Metastore
from pyrklog.start.identity import META_PROPERTIES, NODE_PATH, decode_node
from pyrklog.start.standing import forget_standing

LOCK = ".lock"
ARENA_MARKER = ".pyrklog-arena"
SNAPSHOT_HEADER, SNAPSHOT_FOOTER = 3, 4


class ExportedTopic(NamedTuple):
    """``leader_epochs`` by partition."""

    name: str
    topic_id: bytes
    leader_epochs: Mapping[int, int]
    options: Mapping[str, str]


BrokerOptions = Mapping[str, Mapping[str, str]]
"""By broker number or :data:`kraft.ALL_BROKERS`."""


class _State(NamedTuple):
    node_id: int
    cluster_id: str
    topics: Sequence[ExportedTopic]
    following_producer_id: int
    broker_options: BrokerOptions


class Exported(NamedTuple):
    cluster_id: str
    node_id: int
    topics: int
    partitions: int
    put_aside: Path
    """Our metadata, and an earlier metadata log of Kafka."""


def export_kraft(config: BrokerConfig, *, dry_run: bool = False) -> Exported:
    """Writes ``bootstrap.checkpoint`` and ``meta.properties``; with ``dry_run`` only says what it
    would. Raises :class:`StartError`."""
    for path in config.log_dirs:
        if not (path / META_PROPERTIES).is_file():
            raise ConfigError(
                Problem.HANDOVER,
                f"{path} is no log directory that a broker of ours has used.",
                fix="name the directories as for `pyrklog serve`, with --data or --config",
            )
    if not (config.meta_dir / DATABASE_NAME).is_file():
        raise ConfigError(
            Problem.HANDOVER,
            f"There is no metadata at {config.meta_dir}.",
            fix="name the directories as for `pyrklog serve`; after an export, start Kafka or us",
        )
    with _locked(config.log_dirs):
        _check_arenas(config.log_dirs)
        state = trio.run(_read_store, config.meta_dir)
        try:
            return _would_write(config, state) if dry_run else _write(config, state)
        except OSError as error:
            raise StartError(
                Problem.DISK_FAILED, f"Cannot write {error.filename}: {error.strerror}."
            ) from None


def _check_arenas(log_dirs: Sequence[Path]) -> None:
    """A killed broker's last acknowledged records may lie where Kafka does not look."""
    for path in log_dirs:
        marker = path / ARENA_MARKER
        # The second version names an orderly stopped broker's arena: a copy of the files.
        if marker.exists() and not marker.read_text().startswith("version=2\n"):
            raise ConfigError(
                Problem.HANDOVER,
                f"The last records of {path} may lie in its block cache alone.",
                fix=f"`pyrklog arena drain {path}`, or start the broker and stop it in order",
            )


@contextmanager
def _locked(log_dirs: Sequence[Path]) -> Iterator[None]:
    """Holds each ``.lock`` like a broker, Kafka's or ours: by fcntl, not flock."""
    with ExitStack() as stack:
        for path in log_dirs:
            file = stack.enter_context((path / LOCK).open("a+b"))
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                # We have no lock on this file that looking at it could release.
                holder = lock_holder(path / LOCK)
                broker = f"a running broker ({holder})" if holder else "a running broker"
                raise TemporaryError(
                    Problem.DIRECTORY_IN_USE, f"{path} is in use by {broker}.", fix="stop it first"
                ) from None
        yield


async def _read_store(meta_dir: Path) -> _State:
    opened = await open_store(meta_dir)
    try:
        store = opened.session()
        try:
            return await _read_state(store)
        finally:
            await store.close()
    finally:
        await opened.close()


async def _read_state(store: Metastore) -> _State:
    paths = [NODE_PATH, znodes.CLUSTER_ID, znodes.PRODUCER_ID_BLOCK]
    node, cluster, block = await store.get_many(paths)
    if node is None or cluster is None:
        raise ConfigError(Problem.HANDOVER, "The metadata store has never been used by a broker.")
    node_id = decode_node(node.data)
    deleted = set(await store.children(znodes.DELETE_TOPICS))
    names = [n for n in await store.children(znodes.BROKER_TOPICS) if n not in deleted]
    return _State(
        node_id,
        znodes.decode_cluster_id(cluster.data),
        [await _read_topic(store, name) for name in names],
        znodes.decode_producer_ids(block.data).last + 1 if block is not None else 0,
        {
            kraft.ALL_BROKERS: await _read_options(store, znodes.DEFAULT_ENTITY),
            str(node_id): await _read_options(store, str(node_id)),
        },
    )


async def _read_options(store: Metastore, entity: str) -> Mapping[str, str]:
    path = znodes.broker_config_path(entity)
    (node,) = await store.get_many([path])
    options = znodes.decode_config(path, node.data) if node is not None else {}
    return {key: value for key, value in options.items() if not key.startswith(OWN_PREFIX)}


async def _read_topic(store: Metastore, name: str) -> ExportedTopic:
    path, config_path = znodes.topic_path(name), znodes.topic_config_path(name)
    node, config = await store.get_many([path, config_path])
    if node is None:
        raise StartError(Problem.METADATA_DAMAGED, f"{path} is missing in the metadata store.")
    topic = znodes.decode_topic(path, node.data)
    states = [znodes.state_path(name, index) for index in topic.replicas]
    epochs = {}
    for index, where, state in zip(
        topic.replicas, states, await store.get_many(states), strict=True
    ):
        epochs[index] = znodes.decode_state(where, state.data).leader_epoch if state else 0
    options = znodes.decode_config(config_path, config.data) if config is not None else {}
    kept = {key: value for key, value in options.items() if not key.startswith(OWN_PREFIX)}
    return ExportedTopic(name, topic.topic_id, epochs, kept)


def _would_write(config: BrokerConfig, state: _State) -> Exported:
    earlier = read_kraft(config.log_dirs)
    return _exported(
        config, state, [*state.topics, *_kept_for_kafka(earlier, config.log_dirs, state)]
    )


def _exported(config: BrokerConfig, state: _State, topics: Sequence[ExportedTopic]) -> Exported:
    aside = config.meta_dir / f"exported-{time.time_ns() // 1_000_000}"
    partitions = sum(len(topic.leader_epochs) for topic in topics)
    return Exported(state.cluster_id, state.node_id, len(topics), partitions, aside)


def _write(config: BrokerConfig, state: _State) -> Exported:
    log_dirs = config.log_dirs
    earlier = read_kraft(log_dirs)
    topics = [*state.topics, *_kept_for_kafka(earlier, log_dirs, state)]
    done = _exported(config, state, topics)
    aside = done.put_aside
    aside.mkdir()
    _move_kafkas(log_dirs, aside)
    ids = {path: _write_identity(path, state) for path in log_dirs}
    content = encode_bootstrap(
        state.node_id,
        topics,
        state.following_producer_id,
        lambda topic, index: ids[_place(log_dirs, topic, index)],
        time.time_ns() // 1_000_000,
        _with_left_out(earlier, state),
    )
    replace_file(log_dirs[0] / BOOTSTRAP, content)
    forget_standing(log_dirs)
    for file in sorted(config.meta_dir.glob(f"{DATABASE_NAME}*")):
        file.rename(aside / file.name)
    sync_folder(config.meta_dir)
    return done


def encode_bootstrap(
    node_id: int,
    topics: Sequence[ExportedTopic],
    following_producer_id: int,
    directory_of: Callable[[str, int], bytes],
    timestamp_ms: int,
    broker_options: BrokerOptions | None = None,
) -> bytes:
    records = [kraft.encode_feature_level("metadata.version", kraft.METADATA_VERSION)]
    for entity, options in sorted((broker_options or {}).items()):
        for name, value in sorted(options.items()):
            records.append(kraft.encode_option(kraft.BROKER_RESOURCE, entity, name, value))
    for topic in topics:
        records.append(kraft.encode_topic(topic.name, topic.topic_id))
        for index, epoch in sorted(topic.leader_epochs.items()):
            place = directory_of(topic.name, index)
            records.append(kraft.encode_partition(index, topic.topic_id, node_id, epoch, place))
        for name, value in sorted(topic.options.items()):
            records.append(kraft.encode_option(kraft.TOPIC_RESOURCE, topic.name, name, value))
    if following_producer_id:
        records.append(kraft.encode_producer_ids(node_id, following_producer_id))
    header = struct.pack(">hq", 0, timestamp_ms) + b"\0"
    footer = struct.pack(">h", 0) + b"\0"
    return (
        encode_control(0, SNAPSHOT_HEADER, header, timestamp_ms)
        + encode_values(records, 1, timestamp_ms)
        + encode_control(len(records) + 1, SNAPSHOT_FOOTER, footer, timestamp_ms)
    )


def _with_left_out(earlier: kraft.KraftMetadata | None, state: _State) -> BrokerOptions:
    """Also options of this broker that the adoption left out, as Kafka knew them."""
    if earlier is None:
        return state.broker_options
    left_out = run_time_options(state.node_id, earlier).left_out
    return {
        entity: {
            **{name: earlier.broker_options[entity][name] for name in left_out.get(entity, ())},
            **options,
        }
        for entity, options in state.broker_options.items()
    }


def _kept_for_kafka(
    earlier: kraft.KraftMetadata | None, log_dirs: Sequence[Path], state: _State
) -> list[ExportedTopic]:
    """Topics that we left untouched (``__transaction_state``), as Kafka knew them: otherwise it
    would take their folders for strays."""
    if earlier is None:
        return []
    ours = {topic.name for topic in state.topics}
    kept = []
    for name, topic in sorted(earlier.by_name().items()):
        here = all((_place(log_dirs, name, i) / f"{name}-{i}").is_dir() for i in topic.partitions)
        alone = all(item.replicas == (state.node_id,) for item in topic.partitions.values())
        if name not in ours and here and alone and topic.partitions:
            epochs = {index: item.leader_epoch for index, item in topic.partitions.items()}
            options = earlier.options.get(name, {})
            kept.append(ExportedTopic(name, topic.topic_id, epochs, options))
    return kept


def _place(log_dirs: Sequence[Path], topic: str, index: int) -> Path:
    """The log directory with the partition's folder, else the first."""
    for path in log_dirs:
        if (path / f"{topic}-{index}").is_dir():
            return path
    return log_dirs[0]


def _move_kafkas(log_dirs: Sequence[Path], aside: Path) -> None:
    for folder in (path / METADATA_FOLDER for path in log_dirs):
        if folder.is_dir():
            folder.rename(aside / METADATA_FOLDER)
            sync_folder(folder.parent)


def _write_identity(path: Path, state: _State) -> bytes:
    """Writes ``meta.properties`` of version 1; keeps or makes the directory's id."""
    text = (path / META_PROPERTIES).read_text(encoding="latin-1")
    known = {item.key: item.value for item in parse_properties(text)}
    directory_id = znodes.decode_id(known["directory.id"]) if "directory.id" in known else _new_id()
    lines = {
        "version": "1",
        "cluster.id": state.cluster_id,
        "node.id": str(state.node_id),
        "directory.id": znodes.encode_id(directory_id),
    }
    replace_file(
        path / META_PROPERTIES,
        ("#\n" + "".join(f"{key}={value}\n" for key, value in lines.items())).encode(),
    )
    return directory_id


def _new_id() -> bytes:
    """Outside the ids that Kafka reserves: the first hundred numbers."""
    while True:
        made = os.urandom(16)
        if any(made[:15]) and not znodes.encode_id(made).startswith("-"):
            return made
