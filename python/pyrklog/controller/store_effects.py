"""Carries out the effects that concern the metadata store."""

from __future__ import annotations

from collections.abc import Sequence

from pyrklog.controller import store_reads, store_writes
from pyrklog.controller.effects import (
    DeleteNodes,
    DeleteTopicNodes,
    Effect,
    ReadMinimums,
    ReadStates,
    ReadUnclean,
    TakeProducerIds,
    UnmarkReassignments,
    WriteAssignments,
    WritePartialReplicas,
    WriteStates,
)
from pyrklog.controller.producer_ids import take_block
from pyrklog.controller.settings import ControllerSettings
from pyrklog.controller.store_writes import Term
from pyrklog.metastore.interface import Metastore


async def execute(
    effect: Effect, store: Metastore, term: Term, settings: ControllerSettings
) -> object:
    """Raises ``ControllerMovedError`` where another term has begun."""
    match effect:
        case WriteStates(writes):
            return await store_writes.write_states(store, term, writes)
        case ReadStates(keys):
            return await store_reads.read_states(store, keys)
        case ReadUnclean(topics):
            return settings.unclean_topics(await store_reads.read_overrides(store, topics))
        case ReadMinimums(topics):
            return await _read_minimums(store, settings, topics)
        case DeleteTopicNodes(topics):
            await store_writes.delete_topics(store, term, topics)
        case TakeProducerIds(broker):
            return await take_block(store, broker)
        case WriteAssignments(topic, assignments):
            return await store_writes.write_assignments(store, term, topic, assignments)
        case WritePartialReplicas(partial):
            await store_writes.write_partial(store, term, partial)
        case UnmarkReassignments(wanted):
            await store_writes.unmark_reassignments(store, term, wanted)
        case DeleteNodes(paths):
            await store_writes.delete_nodes(store, term, paths)
        case _:
            raise TypeError(f"{type(effect).__name__} does not concern the store")
    return None


async def _read_minimums(
    store: Metastore, settings: ControllerSettings, topics: Sequence[str]
) -> dict[str, int]:
    minimum = settings.min_insync_replicas
    known = {topic: minimum(topic, None) for topic in topics}
    unknown = [topic for topic, found in known.items() if found is None]
    overrides = await store_reads.read_overrides(store, unknown) if unknown else {}
    known |= {topic: minimum(topic, given) for topic, given in overrides.items()}
    return {topic: found for topic, found in known.items() if found is not None}
