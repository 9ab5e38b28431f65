"""Leader elections by ElectLeaders (KIP-183, KIP-460)."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyrklog.base.problems import Problem
from pyrklog.cli.connection import Connection, PartitionKey, missing_topic
from pyrklog.cli.failures import CliError, Exit, cli_error, exit_code, missing_partition, worst
from pyrklog.cli.output import Listing, columns

COLUMNS = columns("topic, partition>, old_leader> OLD, new_leader> NEW")
SETTLED_S = 5.0
"""Longest wait until all brokers name an elected leader."""
SETTLED_PAUSE_S = 0.05
_NOT_NEEDED = "ELECTION_NOT_NEEDED"
_NOT_SERVED = "_UNSUPPORTED_FEATURE"
_FIXES = {
    "PREFERRED_LEADER_NOT_AVAILABLE": "wait until it is in sync, see `pyrklog topic describe`",
    "ELIGIBLE_LEADERS_NOT_AVAILABLE": "start a broker that has a replica",
    "NOT_CONTROLLER": "try again",
}


@dataclass(frozen=True)
class ElectionTargets:
    """Partitions by topic; an empty list is a whole topic, no topics are everything."""

    topics: Mapping[str, Sequence[int]]


@dataclass
class ElectionResult:
    """``items`` are the partitions with a changed leader."""

    cluster_id: str | None
    items: list[dict[str, Any]] = field(default_factory=list)
    errors: list[CliError] = field(default_factory=list)
    code: Exit = Exit.OK


def parse_places(texts: Sequence[str]) -> ElectionTargets:
    whole: set[str] = set()
    single: dict[str, list[int]] = {}
    for text in texts:
        # Topic names have no colons.
        topic, colon, index = text.partition(":")
        if not topic or (colon and not (index.isascii() and index.isdecimal())):
            raise CliError(Problem.ARGUMENT_VALUE, f"{text!r} is neither TOPIC nor TOPIC:PARTITION")
        if colon:
            single.setdefault(topic, []).append(int(index))
        else:
            whole.add(topic)
    return ElectionTargets(
        {
            **{topic: sorted(set(found)) for topic, found in single.items()},
            **dict.fromkeys(whole, ()),
        }
    )


def elect(
    connection: Connection, wanted: ElectionTargets, *, unclean: bool, dry_run: bool
) -> ElectionResult:
    """Has leaders elected, and waits until brokers name the new ones.

    Raises :class:`CliError` if the whole request fails; the result has the partitions' errors.
    """
    metadata = connection.metadata()
    before = _leaders(metadata, wanted)
    done = ElectionResult(metadata.cluster_id)
    if dry_run:
        done.items = _expected(metadata, before, unclean)
        return done
    results = _ask(connection, sorted(before) if wanted.topics else None, unclean)
    changed = []
    codes = []
    for place, error in results.items():
        if error is not None and error.name() == _NOT_NEEDED:
            codes.append(Exit.OK)
        elif error is not None:
            codes.append(exit_code(error))
            done.errors.append(
                cli_error(error, f"partition {place[0]}-{place[1]}", _FIXES.get(error.name()))
            )
        else:
            codes.append(Exit.OK)
            changed.append(place)
    done.code = worst(codes)
    after = _settled(connection, before, changed)
    done.items = [_item(place, before.get(place), after.get(place)) for place in sorted(changed)]
    return done


def listing(done: ElectionResult) -> Listing:
    return Listing("pyrklog.elections/1", COLUMNS, done.items, done.cluster_id)


def _leaders(metadata: Any, wanted: ElectionTargets) -> dict[PartitionKey, int]:
    """The leader of each wanted partition. Raises :class:`CliError` for a missing one."""
    names = list(wanted.topics) or list(metadata.topics)
    found: dict[PartitionKey, int] = {}
    for name in names:
        if name not in metadata.topics:
            raise missing_topic(name, list(metadata.topics))
        partitions = metadata.topics[name].partitions
        for index in wanted.topics.get(name, ()) or sorted(partitions):
            if index not in partitions:
                raise missing_partition(name, index, len(partitions))
            found[name, index] = partitions[index].leader
    return found


def _expected(
    metadata: Any, before: Mapping[PartitionKey, int], unclean: bool
) -> list[dict[str, Any]]:
    items = []
    for place, leader in sorted(before.items()):
        one = metadata.topics[place[0]].partitions[place[1]]
        alive = [replica for replica in one.replicas if replica in metadata.brokers]
        if unclean:
            new = alive[0] if leader < 0 and alive else leader
        else:
            head = one.replicas[0]
            new = head if head in one.isrs and head in alive else leader
        if new != leader:
            items.append(_item(place, leader, new))
    return items


def _ask(
    connection: Connection, places: Sequence[PartitionKey] | None, unclean: bool
) -> dict[PartitionKey, Any]:
    """The error of each partition; None after an election."""
    from confluent_kafka import ElectionType, KafkaException, TopicPartition
    from confluent_kafka.admin import AdminClient

    kind = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED
    asked = None if places is None else [TopicPartition(*place) for place in places]
    # confluent-kafka 2.16 fails over the call's timeouts; this one replaces them.
    timeout_ms = max(10, int(connection.settings.timeout_s * 1000))
    configuration = connection.configuration(**{"socket.timeout.ms": timeout_ms})
    admin = connection.make(AdminClient, configuration)
    try:
        found = admin.elect_leaders(kind, asked).result()
    except KafkaException as error:
        if error.args[0].name() == _NOT_SERVED:
            what = "this cluster's controller does not serve ElectLeaders"
            raise CliError(Problem.NOT_SERVED, what) from None
        raise connection.explain(error.args[0], "cannot elect leaders") from None
    return {(place.topic, place.partition): _kafka_error(one) for place, one in found.items()}


def _kafka_error(one: Any) -> Any:
    """Documented as KafkaException; confluent-kafka 2.16 gives the KafkaError itself."""
    from confluent_kafka import KafkaException

    return one.args[0] if isinstance(one, KafkaException) else one


def _settled(
    connection: Connection, before: Mapping[PartitionKey, int], changed: Sequence[PartitionKey]
) -> dict[PartitionKey, int]:
    deadline = time.monotonic() + SETTLED_S
    while True:
        topics = connection.metadata().topics
        now = {
            (name, index): topics[name].partitions[index].leader
            for name, index in changed
            if name in topics and index in topics[name].partitions
        }
        late = [place for place, leader in now.items() if leader == before.get(place)]
        if not late or time.monotonic() > deadline:
            return now
        time.sleep(SETTLED_PAUSE_S)


def _item(place: PartitionKey, old: int | None, new: int | None) -> dict[str, Any]:
    return {
        "topic": place[0],
        "partition": place[1],
        "old_leader": None if old is None or old < 0 else old,
        "new_leader": None if new is None or new < 0 else new,
    }
