"""Writes clients' changes of topics, a transaction each.

A controller's writes check the version of /controller_epoch: a delayed request must not undo a
later controller's writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyrklog.controller.store_writes import Term
from pyrklog.errors import ApiError, ErrorCode
from pyrklog.handlers.service import STORE_AWAY
from pyrklog.metastore import znodes
from pyrklog.metastore.interface import (
    BadVersionError,
    Check,
    Create,
    Metastore,
    MetastoreError,
    NodeExistsError,
    NoNodeError,
    Operation,
    Outcome,
    SessionExpiredError,
    Set,
    StoreFailedError,
    TooLargeError,
)

Options = Mapping[str, str]


async def create_topics(
    store: Metastore,
    term: Term | None,
    topics: Mapping[str, tuple[Options, znodes.TopicAssignment]],
) -> dict[str, ApiError]:
    """Writes options and assignments; returns refusals.

    Without a ``term`` the writer is no controller: the store creates a topic once, whichever
    broker writes it.
    """
    refused: dict[str, ApiError] = {}
    waiting = list(topics)
    while waiting:
        paths = [znodes.topic_config_path(name) for name in waiting]
        left_over = await store.get_many(paths)
        transactions: list[list[Operation]] = []
        for name, path, node in zip(waiting, paths, left_over, strict=True):
            options, assignment = topics[name]
            data = znodes.encode_config(options)
            write = Create(path, data) if node is None else Set(path, data, node.stat.version)
            topic = Create(znodes.topic_path(name), znodes.encode_topic(assignment))
            transactions.append([write, topic])
        outcomes = await _run(store, term, transactions)
        again = []
        for name, path, outcome in zip(waiting, paths, outcomes, strict=True):
            if isinstance(outcome, MetastoreError):
                if outcome.path == path and isinstance(outcome, _MOVED):
                    again.append(name)  # somebody else wrote the options: retry
                else:
                    refused[name] = await _creation_error(store, name, outcome)
        waiting = again
    return refused


async def find_obstacles(store: Metastore, names: Sequence[str]) -> dict[str, ApiError]:
    """Which topics the store could not create, for the name is taken: by a topic that is being
    deleted, or one that is not in the image yet."""
    try:
        nodes = await store.get_many([znodes.topic_path(name) for name in names])
        taken = [name for name, node in zip(names, nodes, strict=True) if node is not None]
        return {name: await _name_taken(store, name) for name in taken}
    except MetastoreError as error:
        return dict.fromkeys(names, store_error(error))


_MOVED = (BadVersionError, NoNodeError, NodeExistsError)


async def _creation_error(store: Metastore, name: str, error: MetastoreError) -> ApiError:
    if isinstance(error, NodeExistsError):
        return await _name_taken(store, name)
    return store_error(error)


async def _name_taken(store: Metastore, name: str) -> ApiError:
    marked = await store.exists(znodes.delete_topic_path(name))
    why = "is marked for deletion" if marked is not None else "already exists"
    return ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' {why}.")


async def mark_for_deletion(
    store: Metastore, term: Term, topics: Mapping[str, bytes]
) -> dict[str, ApiError]:
    refused: dict[str, ApiError] = {}
    waiting = list(topics)
    while waiting:
        paths = [znodes.topic_path(name) for name in waiting]
        nodes = await store.get_many(paths)
        marks: dict[str, list[Operation]] = {}
        for name, path, node in zip(waiting, paths, nodes, strict=True):
            if node is None or znodes.decode_topic(path, node.data).topic_id != topics[name]:
                refused[name] = unknown_topic(name)  # the image has not followed yet
            else:
                mark = Create(znodes.delete_topic_path(name))
                marks[name] = [Check(path, node.stat.version), mark]
        outcomes = await _run(store, term, list(marks.values()))
        waiting = []
        for name, outcome in zip(marks, outcomes, strict=True):
            if isinstance(outcome, BadVersionError | NoNodeError) and not _is_deposed(outcome):
                waiting.append(name)  # the topic has changed: retry
            # A marked topic was already deleted by an earlier request.
            elif isinstance(outcome, MetastoreError) and not isinstance(outcome, NodeExistsError):
                refused[name] = store_error(outcome)
    return refused


async def change_assignment(
    store: Metastore, term: Term, name: str, assignment: znodes.TopicAssignment, version: int
) -> bool:
    """False if the topic has changed since ``version``, or is gone."""
    change = Set(znodes.topic_path(name), znodes.encode_topic(assignment), version)
    (outcome,) = await _run(store, term, [[change]])
    if not isinstance(outcome, MetastoreError):
        return True
    if isinstance(outcome, BadVersionError | NoNodeError) and not _is_deposed(outcome):
        return False
    raise store_error(outcome)


def unknown_topic(name: str) -> ApiError:
    return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")


def store_error(error: MetastoreError) -> ApiError:
    if _is_deposed(error):
        return ApiError(ErrorCode.NOT_CONTROLLER, "This broker is no longer the controller.")
    if isinstance(error, TooLargeError):
        return ApiError(ErrorCode.INVALID_REQUEST, f"{error.reason}.")
    if isinstance(error, SessionExpiredError):
        return ApiError(ErrorCode.NOT_CONTROLLER, STORE_AWAY)
    reason = error.reason if isinstance(error, StoreFailedError) else str(error)
    return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"The metadata could not be written: {reason}.")


async def _run(
    store: Metastore, term: Term | None, transactions: Sequence[Sequence[Operation]]
) -> Sequence[Outcome]:
    if not transactions:
        return []
    fence = [term.check()] if term is not None else []
    return await store.multis([[*fence, *operations] for operations in transactions])


def _is_deposed(error: MetastoreError) -> bool:
    refused = isinstance(error, BadVersionError | NoNodeError)
    return refused and error.path == znodes.CONTROLLER_EPOCH
