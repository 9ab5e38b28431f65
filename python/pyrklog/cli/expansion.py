"""New brokers: which partitions they get, and what their replicas still lack
(``docs/understanding/expansion.md``)."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from pyrklog.balance.filling import CLEANUP_POLICY, OPTIONS, RETENTION_BYTES, RETENTION_MS
from pyrklog.balance.model import Cluster, Goal, Placement, Plan, Wish, arriving
from pyrklog.balance.planner import make_plan
from pyrklog.base.problems import Problem
from pyrklog.cli.connection import PartitionKey
from pyrklog.cli.failures import CliError
from pyrklog.cli.reassign_cluster import ReassignmentAdmin
from pyrklog.cli.throttles import FILL_RATE
from pyrklog.protocol.configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from pyrklog.protocol.list_offsets import (
    EARLIEST,
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from pyrklog.protocol.reassignments import OngoingPartitionReassignment

GOALS = (Goal.BYTES, Goal.LEADERS, Goal.REPLICAS)
RETENTION, BACK_FILL = "retention", "back-fill"
_ANY_REPLICA = -2
"""As a replica id: followers tell of their logs, too."""
_OFFSETS_VERSION = 1
_CONFIGS_VERSION = 1
_TOPIC, _BROKER = 2, 4
_DYNAMIC_BROKER = 2
"""Source of an option: the broker's own, set at run time."""

Options = Mapping[str, Mapping[str, str | None]]
"""Options of topics."""


def choose(cluster: Cluster, fresh: Collection[int], chosen: Collection[PartitionKey]) -> Plan:
    """Those of the ``chosen`` partitions that give a replica to one of the ``fresh`` brokers, so
    that brokers end alike. The others exchange nothing, and keep their orders."""
    wish = Wish(sorted(cluster.brokers), GOALS, chosen, targets=fresh)
    plan = make_plan(cluster, wish)
    changed = {
        key: after
        for key, after in plan.changed.items()
        if (added := arriving(cluster.partitions[key].replicas, after)) and set(added) <= set(fresh)
    }
    return Plan(changed, full=[one for one in plan.full if one.broker in fresh])


def why_copied(options: Mapping[str, str | None], *, is_filled: bool) -> str | None:
    """Why new replicas of a topic copy it in any case; None if they may start at the end.
    ``is_filled``: their brokers back-fill."""
    if _policies_in(options) != {"delete"}:
        return "it is compacted"
    if not is_filled and not _is_limited(options):
        return "retention deletes nothing of it, and its new brokers back-fill nothing"
    return None


def policies(admin: ReassignmentAdmin, topics: Collection[str]) -> dict[str, set[str]]:
    """How topics are deleted from. Raises :class:`CliError`."""
    return {name: _policies_in(options) for name, options in _options(admin, topics).items()}


def _policies_in(options: Mapping[str, str | None]) -> set[str]:
    return {one.strip() for one in (options.get(CLEANUP_POLICY) or "delete").split(",")}


def _is_limited(options: Mapping[str, str | None]) -> bool:
    limits = (options.get(RETENTION_MS), options.get(RETENTION_BYTES))
    return any(limit is not None and not limit.startswith("-") for limit in limits)


_ENDS = {
    RETENTION: "until retention deletes them",
    BACK_FILL: "until they are back-filled",
}


class Start(NamedTuple):
    """``at_end``: partitions whose new replicas start at the leader's end. ``copied``: topics that
    are copied in any case, and why. ``rates``: bytes a second that brokers back-fill. ``options``:
    of the topics."""

    at_end: frozenset[PartitionKey]
    copied: Mapping[str, str]
    rates: Mapping[int, int] = {}
    options: Mapping[str, Mapping[str, str | None]] = {}


NO_START = Start(frozenset(), {})


class Backlog(NamedTuple):
    """What one new replica lacks. ``start``: its log start offset, None if its broker does not
    tell. ``is_partial``: it has no record below ``start``, and gets none by following. ``by``: what
    ends that, None if nothing does."""

    broker: int
    start: int | None
    leader_start: int | None
    by: str | None

    @property
    def is_partial(self) -> bool:
        known = self.start is not None and self.leader_start is not None
        return known and self.records_left > 0

    @property
    def records_left(self) -> int:
        """Offsets between both log starts."""
        if self.start is None or self.leader_start is None:
            return 0
        return max(0, self.start - self.leader_start)

    def text(self) -> str:
        end = _ENDS.get(self.by or "", "and nothing ends it")
        return f"{self.broker}: {self.records_left} below {self.start}, {end}"

    def item(self) -> dict[str, Any]:
        return {
            "broker": self.broker,
            "start": self.start,
            "leader_start": self.leader_start,
            "records_left": self.records_left,
            "by": self.by,
        }


def from_the_end(admin: ReassignmentAdmin, before: Placement, wanted: Placement) -> Start:
    """Which partitions of a plan may have new replicas start at the end, and which topics are
    copied for a reason. Raises :class:`CliError` where brokers do not know such replicas."""
    live = [one.broker_id for one in admin.describe().brokers]
    rates = fill_rates(admin, live)
    silent = [broker for broker in live if broker not in rates]
    if silent:
        raise CliError(Problem.BROKER_AWAY, f"broker {_list(silent)} does not answer")
    unable = [broker for broker, rate in sorted(rates.items()) if rate is None]
    if unable:
        noun = "broker" if len(unable) == 1 else "brokers"
        what = f"{noun} {_list(unable)} cannot start replicas at a leader's end"
        raise CliError(Problem.NOT_PYRKLOG, what, "copy instead, or upgrade them first")
    fresh: dict[str, set[int]] = {}
    for place, replicas in wanted.items():
        fresh.setdefault(place[0], set()).update(set(replicas).difference(before[place]))
    known = bytes_of(rates)
    filling = {broker for broker, rate in known.items() if rate}
    copied = {}
    options = _options(admin, fresh)
    for name, one in options.items():
        why = why_copied(one, is_filled=fresh[name] <= filling)
        if why is not None:
            copied[name] = why
    at_end = frozenset(place for place in wanted if place[0] not in copied)
    return Start(at_end, copied, known, options)


def backlogs(
    admin: ReassignmentAdmin, moving: Mapping[PartitionKey, OngoingPartitionReassignment]
) -> dict[PartitionKey, list[Backlog]]:
    """What each replica lacks that is being added."""
    if not moving:
        return {}
    leaders = admin.leaders()
    asked: dict[int, list[PartitionKey]] = {}
    for place, one in moving.items():
        for broker in {leaders.get(place, -1), *one.adding_replicas}:
            asked.setdefault(broker, []).append(place)
    starts = log_starts(admin, asked)
    options = _options(admin, {topic for topic, _ in moving})
    filling = filling_brokers(admin, {b for one in moving.values() for b in one.adding_replicas})
    found: dict[PartitionKey, list[Backlog]] = {}
    for place, one in moving.items():
        leader_start = starts.get((place, leaders.get(place, -1)))
        otherwise = RETENTION if _is_limited(options.get(place[0], {})) else None
        found[place] = [
            Backlog(
                broker,
                starts.get((place, broker)),
                leader_start,
                BACK_FILL if broker in filling else otherwise,
            )
            for broker in one.adding_replicas
        ]
    return found


def add_times(admin: ReassignmentAdmin, items: Collection[dict[str, Any]]) -> None:
    """When the broker of each replica that is back-filled has filled all of its own."""
    left: dict[int, int] = {}
    for one in items:
        if one["by"] == BACK_FILL:
            left[one["broker"]] = left.get(one["broker"], 0) + one["bytes_left"]
    rates = bytes_of(fill_rates(admin, left)) if left else {}
    for one in items:
        rate = rates.get(one["broker"], 0)
        is_known = one["by"] == BACK_FILL and rate > 0
        one["eta_s"] = round(left[one["broker"]] / rate) if is_known else None


def lacking(
    admin: ReassignmentAdmin, moving: Mapping[PartitionKey, OngoingPartitionReassignment]
) -> dict[PartitionKey, dict[str, Any]]:
    """Fields for partitions of the list of moves: ``partial``, and ``lacks`` for people. Without
    them where no broker tells."""
    found = {}
    try:
        known = backlogs(admin, moving)
    except CliError:
        return {}
    for place, lacks in known.items():
        partial = [one for one in lacks if one.is_partial]
        text = "; ".join(one.text() for one in partial) or None
        found[place] = {"partial": [one.item() for one in partial], "lacks": text}
    return found


def tell_copied(start: Start) -> None:
    """Says why topics are copied, on standard error."""
    for topic, why in sorted(start.copied.items()):
        print(f"{topic} is copied: {why}", file=sys.stderr, flush=True)


def _options(admin: ReassignmentAdmin, topics: Collection[str]) -> Options:
    """What decides how topics are deleted from. Raises :class:`CliError`."""
    wanted = [DescribeConfigsResource(_TOPIC, name, list(OPTIONS)) for name in sorted(topics)]
    for one in admin.describe().brokers if wanted else ():
        request = {one.broker_id: DescribeConfigsRequest(wanted)}
        for told in admin.ask_each(DESCRIBE_CONFIGS, _CONFIGS_VERSION, request).values():
            return {
                resource.resource_name: {entry.name: entry.value for entry in resource.configs}
                for resource in told.results
            }
    if wanted:
        raise CliError(Problem.NO_BROKER, "no broker tells options of topics", "try again")
    return {}


def filling_brokers(admin: ReassignmentAdmin, brokers: Collection[int]) -> set[int]:
    """Those of the brokers that back-fill."""
    rates = fill_rates(admin, brokers)
    return {broker for broker, rate in rates.items() if rate not in (None, "0")}


def bytes_of(rates: Mapping[int, str | None]) -> dict[int, int]:
    """Of brokers that know the option."""
    return {broker: int(rate) for broker, rate in rates.items() if rate and rate.isdecimal()}


def fill_rates(admin: ReassignmentAdmin, brokers: Collection[int]) -> dict[int, str | None]:
    """The rates of their back-fills, as they tell themselves; None for a broker without the option,
    which does not know replicas that start at the end."""
    requests = {
        broker: DescribeConfigsRequest([DescribeConfigsResource(_BROKER, str(broker), [FILL_RATE])])
        for broker in brokers
    }
    found: dict[int, str | None] = {}
    for broker, told in admin.ask_each(DESCRIBE_CONFIGS, _CONFIGS_VERSION, requests).items():
        options = {one.name: one.value for resource in told.results for one in resource.configs}
        found[broker] = options.get(FILL_RATE)
    return found


def rates_at_run_time(admin: ReassignmentAdmin, brokers: Collection[int]) -> dict[int, str]:
    """The rates of back-fills that were set on brokers themselves while they run, by a throttled
    plan or by hand; without those of 0, which no plan sets."""
    requests = {
        broker: DescribeConfigsRequest([DescribeConfigsResource(_BROKER, str(broker), [FILL_RATE])])
        for broker in sorted(brokers)
    }
    return {
        broker: option.value
        for broker, told in admin.ask_each(DESCRIBE_CONFIGS, _CONFIGS_VERSION, requests).items()
        for resource in told.results
        for option in resource.configs
        if option.name == FILL_RATE
        and option.config_source == _DYNAMIC_BROKER
        and option.value is not None
        and option.value != "0"
    }


def log_starts(
    admin: ReassignmentAdmin, wanted: Mapping[int, Collection[PartitionKey]]
) -> dict[tuple[PartitionKey, int], int]:
    """Log starts of replicas, from their brokers; without those that do not tell."""
    requests = {}
    for broker, places in wanted.items():
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for topic, index in sorted(places):
            asked = ListOffsetsPartition(index, timestamp=EARLIEST)
            topics.setdefault(topic, []).append(asked)
        asked_topics = [ListOffsetsTopic(*each) for each in topics.items()]
        requests[broker] = ListOffsetsRequest(_ANY_REPLICA, topics=asked_topics)
    return {
        ((answered.name, one.partition_index), broker): one.offset
        for broker, told in admin.ask_each(LIST_OFFSETS, _OFFSETS_VERSION, requests).items()
        for answered in told.topics
        for one in answered.partitions
        if not one.error_code and one.offset >= 0
    }


def _list(brokers: Collection[int]) -> str:
    return ",".join(map(str, brokers))
