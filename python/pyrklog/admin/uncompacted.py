"""Warns of topics that ask for compaction, which does not run yet (skipped.md)."""

from __future__ import annotations

from collections.abc import Mapping

from pyrklog.base.logs import get_logger
from pyrklog.cluster.image import INTERNAL_TOPICS, ClusterImage
from pyrklog.config.topic import TopicDefaults

SHOWN_MAX = 20
CLEANUP_POLICY = "cleanup.policy"
BROKER_CLEANUP_POLICY = "log.cleanup.policy"
FIX = "cleanup.policy=delete with retention.ms or retention.bytes bounds a log"
CONSEQUENCE = (
    "compaction is not done yet: older records of a key stay, and without delete in the policy "
    "nothing is ever removed"
)

log = get_logger("topics")


def warn_of_uncompacted(image: ClusterImage, defaults: TopicDefaults) -> None:
    """At a start: one line for all such topics."""
    tell_of_topics({name: image.overrides(name) for name in image.topics}, defaults)


def tell_of_topics(topics: Mapping[str, Mapping[str, str]], defaults: TopicDefaults) -> None:
    """One line for those of ``topics`` whose options, or the broker's default, ask for compaction.
    Internal topics are left out: nobody chose their policy."""
    names = [
        name
        for name, options in topics.items()
        if name not in INTERNAL_TOPICS and _asks(options, defaults)
    ]
    if names:
        log.warning(
            "topics_not_compacted",
            count=len(names),
            topics=sorted(names)[:SHOWN_MAX],
            consequence=CONSEQUENCE,
            fix=FIX,
        )


def tell_of_change(
    topic: str, before: Mapping[str, str], after: Mapping[str, str], defaults: TopicDefaults
) -> None:
    if before.get(CLEANUP_POLICY) != after.get(CLEANUP_POLICY):
        tell_of_topics({topic: after}, defaults)


def tell_of_default_change(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Warns if a changed broker option asks for compaction of topics without a policy."""
    policy = after.get(BROKER_CLEANUP_POLICY)
    if policy is not None and policy != before.get(BROKER_CLEANUP_POLICY) and "compact" in policy:
        log.warning(
            "topics_not_compacted",
            option=BROKER_CLEANUP_POLICY,
            value=policy,
            consequence=CONSEQUENCE,
            fix=FIX,
        )


def _asks(options: Mapping[str, str], defaults: TopicDefaults) -> bool:
    if CLEANUP_POLICY not in options:
        policies = defaults.value(CLEANUP_POLICY)
        return isinstance(policies, tuple) and "compact" in policies
    return defaults.resolve(options).log.cleanup_compact
