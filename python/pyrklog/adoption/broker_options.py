"""Options that Kafka's brokers were given at run time: those taken over, and what remains unknown.

Defaults of topics come from Kafka's metadata and from the file that it started with. Where
pyrklog sees neither, topics keep what Kafka may have been told to keep.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from pyrklog.admin.config_changes import check_broker, check_kept
from pyrklog.adoption.kraft import ALL_BROKERS, KraftMetadata
from pyrklog.base.logs import get_logger
from pyrklog.cluster.image import INTERNAL_TOPICS
from pyrklog.config.broker import BrokerConfig, Given
from pyrklog.config.option import INT_MAX
from pyrklog.config.topic import TOPIC_OPTIONS_BY_NAME, TopicDefaults
from pyrklog.errors import ApiError

log = get_logger("adoption")

UNCONFIRMED = "pyrklog.adopted.unconfirmed"
"""Names the options that a topic was given to keep everything, until somebody confirms others."""
CENTURY_MS = "3155760000000"
"""Longer than any record is to stay. Kafka adds it to the time: the largest number overflows."""
KEPT: Mapping[str, str] = {
    "cleanup.policy": "delete",
    "delete.retention.ms": CENTURY_MS,
    "min.compaction.lag.ms": CENTURY_MS,
    "retention.bytes": "-1",
    "retention.ms": "-1",
}
"""Values with which nothing is deleted or compacted."""
OF_DELETION = ("cleanup.policy", "retention.bytes", "retention.ms")
_OF_POLICY = {
    "delete": ("retention.bytes", "retention.ms"),
    "compact": ("delete.retention.ms", "min.compaction.lag.ms"),
}
_UNSEEN = KEPT.keys() - {"retention.bytes"}
"""Kafka's own default of ``retention.bytes`` keeps everything."""


UNEXPIRED: Mapping[str, str] = {
    "offsets.retention.minutes": str(INT_MAX),
    "transactional.id.expiration.ms": str(INT_MAX),
}
"""Values with which committed offsets and transactional ids do not expire. Kafka has these options
in its file only."""


def marked(kept: Iterable[str]) -> dict[str, str]:
    """These options with the values that keep everything, and the mark."""
    names = sorted(kept)
    return {**{name: KEPT[name] for name in names}, UNCONFIRMED: ",".join(names)}


class RunTimeOptions(NamedTuple):
    """By broker number or :data:`ALL_BROKERS`."""

    usable: Mapping[str, Mapping[str, str]]
    left_out: Mapping[str, Sequence[str]]
    """Unknown here, with a wrong value, or secret: pyrklog keeps no passwords."""
    of_others: int
    """Options of other brokers."""

    @property
    def in_force(self) -> Mapping[str, str]:
        of_all = self.usable.get(ALL_BROKERS, {})
        return {**of_all, **{k: v for e, own in self.usable.items() if e for k, v in own.items()}}


def run_time_options(node_id: int, kraft: KraftMetadata) -> RunTimeOptions:
    usable: dict[str, Mapping[str, str]] = {}
    left_out: dict[str, Sequence[str]] = {}
    others = 0
    for entity, options in sorted(kraft.broker_options.items()):
        if entity not in (ALL_BROKERS, str(node_id)):
            others += len(options)
            continue
        unknown = [
            name
            for name, value in sorted(options.items())
            if not _is_usable(name, value, for_all=entity == ALL_BROKERS)
        ]
        if unknown:
            left_out[entity] = unknown
        known = {name: value for name, value in options.items() if name not in unknown}
        if known:
            usable[entity] = known
    return RunTimeOptions(usable, left_out, others)


def _is_usable(name: str, value: str, *, for_all: bool) -> bool:
    try:
        check_kept(check_broker({name: value}, {}, for_all=for_all))
    except ApiError:
        return False
    return True


class Defaults(NamedTuple):
    """What is known of Kafka's defaults of topic options."""

    unseen: Collection[str]
    """Options whose default may be in a file that was not given."""
    unusable: Collection[str]
    """Options whose default was set at run time to what pyrklog cannot take over."""
    cleanup_policy: Collection[str]
    max_compaction_lag_ms: int
    compacted: Collection[str]
    """Topics that Kafka has compacted."""


def known_defaults(
    config: BrokerConfig,
    kraft: KraftMetadata,
    options: RunTimeOptions,
    compacted: Collection[str],
) -> Defaults:
    """Options of ``config`` count as known in a file of Kafka's, and where they were given."""
    adopted = config.with_dynamic(default=options.in_force, broker={})
    log = TopicDefaults(adopted).resolve({}).log
    policies = {"compact": log.cleanup_compact, "delete": log.cleanup_delete}
    left_out = {name for names in options.left_out.values() for name in names}
    given = options.in_force.keys() | (config.given.keys() if kraft.knows_broker_options else set())
    sees_file = config.has_kafka_file or kraft.is_own_export
    unseen: set[str] = set()
    if not (sees_file and kraft.knows_broker_options):
        unseen = {name for name in _UNSEEN if not _broker_names(name) & given}
    return Defaults(
        unseen,
        {name for name in KEPT if _broker_names(name) & left_out},
        {policy for policy, is_on in policies.items() if is_on},
        log.max_compaction_lag_ms,
        compacted,
    )


def unexpired(config: BrokerConfig, names: Iterable[str]) -> BrokerConfig:
    """The options with those of :data:`UNEXPIRED` that a directory was adopted without, until they
    are given, or Kafka's file is."""
    kept = [name for name in names if name in UNEXPIRED and name not in config.given]
    if config.has_kafka_file or not kept:
        return config
    log.warning(
        "adopted_offsets_kept",
        options=kept,
        consequence="Kafka's values are not known, so committed offsets and transactional ids that "
        "it may have kept do not expire",
        fix="start with these options (by --set, or in the file of --config)",
    )
    return config.with_given({name: Given(UNEXPIRED[name], "adoption") for name in kept})


def _broker_names(name: str) -> set[str]:
    return {fallback.name for fallback in TOPIC_OPTIONS_BY_NAME[name].fallbacks}


def kept_options(
    topic: str, own: Mapping[str, str], left_out: Collection[str], defaults: Defaults
) -> Mapping[str, str]:
    """Options that a topic gets besides its own, so that nothing is lost that Kafka kept.

    ``left_out``: options of its own that pyrklog cannot take over. Internal topics need none: their
    coordinators make them with options of their own, which are those of every cluster.
    """
    if topic in INTERNAL_TOPICS:
        return {}
    wrong = {name for name in {*left_out, *defaults.unusable} & KEPT.keys() if name not in own}
    unknown = wrong | {name for name in defaults.unseen if name not in own}
    was_compacted = topic in defaults.compacted and "compact" not in defaults.cleanup_policy
    if "cleanup.policy" in wrong or ("cleanup.policy" in unknown and was_compacted):
        # Its own retention may have had no meaning.
        return marked(OF_DELETION)
    policy = own.get("cleanup.policy")
    policies = defaults.cleanup_policy
    if policy is not None:
        policies = [one.strip() for one in policy.split(",")]
    kept = {name for one in policies for name in _OF_POLICY.get(one, ()) if name in unknown}
    if not kept:
        return {}
    options = marked(kept)
    if "min.compaction.lag.ms" in kept:
        most = int(own.get("max.compaction.lag.ms", defaults.max_compaction_lag_ms))
        options["min.compaction.lag.ms"] = str(min(int(CENTURY_MS), most))
    return options
