import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyrklog.base.committed import committed_partitions
from pyrklog.base.problems import Problem
from pyrklog.cli.connection import Connection
from pyrklog.cli.coordinator import no_coordinator
from pyrklog.cli.failures import CliError
from pyrklog.cli.interrupts import waited_for
from pyrklog.cli.told_lag import UNTOLD, ToldLag, told_group
from pyrklog.cli.topic_details import query_offsets

LOADING_PAUSE_S = 0.1
_PASSING = ("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR")
SIMILAR_MAX = 3
SIMILARITY_MIN = 0.75
"""Of names that may be meant, from 0 to 1."""

Key = tuple[str, int]


@dataclass(frozen=True)
class GroupMember:
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: Sequence[Key]

    @property
    def label(self) -> str:
        """``client@host``."""
        return f"{self.client_id or self.member_id}@{self.host.lstrip('/')}"


@dataclass(frozen=True)
class ConsumerGroup:
    """A group as its coordinator describes it; Dead if it does not exist."""

    name: str
    state: str
    assignor: str
    coordinator: int | None
    members: Sequence[GroupMember] = ()

    @property
    def exists(self) -> bool:
        return self.state != "Dead"

    @property
    def is_idle(self) -> bool:
        return self.state in ("Empty", "Dead")


@dataclass(frozen=True)
class PartitionLag:
    """A partition of a group: committed offset, the log's end, and what the coordinator tells."""

    topic: str
    partition: int
    committed: int | None
    end: int | None
    note: str = ""
    told: ToldLag = UNTOLD
    member: str | None = None

    @property
    def lag(self) -> int | None:
        """Unread records, as Kafka's tool tells them: below 0 where the committed offset is beyond
        the log end. None without a committed offset."""
        if self.committed is None or self.end is None:
            return None
        return self.end - self.committed

    @property
    def ahead(self) -> int | None:
        """By how many records the committed offset is beyond the log end: after an unclean election
        or a truncation, or in a topic that was made anew."""
        return None if self.lag is None else max(0, -self.lag)


@dataclass(frozen=True)
class GroupLag:
    group: ConsumerGroup
    partitions: Sequence[PartitionLag] = field(default_factory=tuple)
    told: ToldLag = UNTOLD

    @property
    def lag(self) -> int | None:
        """Of the partitions that lag: others that are ahead take nothing away."""
        return total_lag(one.lag for one in self.partitions)

    @property
    def ahead(self) -> int | None:
        return total(one.ahead for one in self.partitions)


def total_lag(values: Iterable[int | None]) -> int | None:
    return total(None if value is None else max(0, value) for value in values)


def total(values: Iterable[int | None]) -> int | None:
    numbers = [value for value in values if value is not None]
    return sum(numbers) if numbers else None


def list_groups(connection: Connection, states: Sequence[str] = ()) -> list[dict[str, str]]:
    """Name, state and type of each group, by name. Waits while coordinators load."""
    from confluent_kafka import ConsumerGroupState

    wanted = {_state(name, ConsumerGroupState) for name in states}
    deadline = time.monotonic() + connection.settings.timeout_s
    while True:
        more = {"states": wanted} if wanted else {}
        found = connection.admin_result(
            connection.admin.list_consumer_groups, "cannot list groups", **more
        )
        if not found.errors:
            break
        error = found.errors[0]
        if error.name() not in _PASSING or time.monotonic() > deadline:
            raise connection.explain(error, "cannot list groups")
        time.sleep(LOADING_PAUSE_S)
    return sorted(
        (
            {
                "name": one.group_id,
                "state": _words(one.state.name),
                "type": _words(one.type.name),
            }
            for one in found.valid
        ),
        key=lambda one: one["name"],
    )


def _state(name: str, states: Any) -> Any:
    known = {_words(state.name).lower(): state for state in states if state.name != "UNKNOWN"}
    if name.lower() not in known:
        names = ", ".join(_words(state.name) for state in known.values())
        raise CliError(
            Problem.ARGUMENT_VALUE, f"--state {name!r} is no state of a group", f"one of {names}"
        )
    return known[name.lower()]


def _words(name: str) -> str:
    """``PREPARING_REBALANCING`` -> ``PreparingRebalance``, Kafka's spelling."""
    joined = "".join(word.capitalize() for word in name.split("_"))
    return joined.replace("Rebalancing", "Rebalance")


def patiently(connection: Connection, ask: Callable[[], Any]) -> Any:
    from confluent_kafka import KafkaException

    deadline = time.monotonic() + connection.settings.timeout_s
    while True:
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].name() not in _PASSING or time.monotonic() > deadline:
                raise
        time.sleep(LOADING_PAUSE_S)


def describe_group(connection: Connection, name: str) -> ConsumerGroup:
    from confluent_kafka import KafkaError, KafkaException

    def ask() -> Any:
        futures = connection.admin.describe_consumer_groups(
            [name], request_timeout=connection.settings.timeout_s
        )
        return futures[name].result()

    try:
        found = patiently(connection, ask)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
            return ConsumerGroup(name, "Dead", "", None)
        missing = no_coordinator(connection, name)
        raise missing or connection.explain(error.args[0], f"group {name}") from None
    members = [
        GroupMember(
            one.member_id,
            one.group_instance_id,
            one.client_id,
            one.host,
            [(place.topic, place.partition) for place in one.assignment.topic_partitions],
        )
        for one in found.members
    ]
    return ConsumerGroup(
        name,
        _words(found.state.name),
        found.partition_assignor or "",
        found.coordinator.id if found.coordinator is not None else None,
        members,
    )


def existing_group(connection: Connection, name: str) -> ConsumerGroup:
    group = describe_group(connection, name)
    if not group.exists:
        raise missing_group(connection, name)
    return group


def missing_group(connection: Connection, name: str, otherwise: str = "") -> CliError:
    """The error for a missing group, with similar names; ``otherwise`` goes on in its fix."""
    from difflib import get_close_matches

    try:
        names = [one["name"] for one in list_groups(connection)]
    except CliError:
        names = []
    near = get_close_matches(name, names, n=SIMILAR_MAX, cutoff=SIMILARITY_MIN)
    fix = f"did you mean {' or '.join(near)}?" if near else "see `pyrklog group list`"
    return CliError(Problem.GROUP_NOT_FOUND, f"group {name} does not exist", fix + otherwise)


def all_partitions(connection: Connection) -> list[Key]:
    """Of the cluster. Brokers delete the offsets of a topic with it."""
    return list(_leaders(connection))


def _leaders(connection: Connection) -> dict[Key, int]:
    """Of all partitions; -1 for none."""
    topics = connection.metadata().topics
    return {
        (name, number): partition.leader
        for name, topic in topics.items()
        for number, partition in topic.partitions.items()
    }


def committed_offsets(
    connection: Connection, name: str, partitions: Iterable[Key] | None = None
) -> dict[Key, tuple[int, str]]:
    """Offset and metadata of what the group has committed of these partitions; None: of all, which
    a request for the cluster's metadata tells."""
    from confluent_kafka import KafkaException

    connection.refuse_unreachable()
    asked = all_partitions(connection) if partitions is None else list(partitions)
    settings = connection.settings
    try:
        found = waited_for(
            lambda: committed_partitions(
                connection.configuration(), name, asked, settings.timeout_s, connection.make
            )
        )
    except KafkaException as error:
        raise connection.explain(error.args[0], f"offsets of group {name}") from None
    return {(place.topic, place.partition): (place.offset, place.metadata or "") for place in found}


def standing(connection: Connection, group: ConsumerGroup) -> GroupLag:
    leaders = _leaders(connection)
    offsets = committed_offsets(connection, group.name, leaders)
    owners = {key: member for member in group.members for key in member.partitions}
    keys = sorted({*offsets, *owners})
    ends = _ends(connection, keys, leaders)
    told = told_group(connection, group.coordinator, group.name) if offsets else None
    partitions = [
        PartitionLag(
            *key,
            committed=offsets[key][0] if key in offsets else None,
            end=ends.get(key),
            note=offsets[key][1] if key in offsets else "",
            told=UNTOLD if told is None else told.partitions.get(key, UNTOLD),
            member=owners[key].label if key in owners else None,
        )
        for key in keys
    ]
    return GroupLag(group, partitions, UNTOLD if told is None else told.whole)


def _ends(
    connection: Connection, keys: Sequence[Key], leaders: Mapping[Key, int]
) -> dict[Key, int | None]:
    """None without a leader: librdkafka would ask none of the others until it has one."""
    from confluent_kafka.admin import OffsetSpec

    ends: dict[Key, int | None] = dict.fromkeys(keys)
    led = [key for key in sorted(ends) if leaders.get(key, -1) >= 0]
    ends.update(query_offsets(connection, led, OffsetSpec.latest()))
    return ends
