"""The controller's options; read anew at each use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyrklog.cluster.metadata import Metadata
    from pyrklog.config.broker import BrokerConfig


class ControllerSettings(NamedTuple):
    unclean_topics: Callable[[dict[str, dict[str, str]]], frozenset[str]]
    """Topic overrides by name -> the names that allow unclean elections."""
    min_insync_replicas: Callable[[str, Mapping[str, str] | None], int | None]
    """(topic, overrides) -> the option. Overrides None = what this broker knows of the topic; the
    result is None where it knows nothing yet.
    """
    delete_topic_enable: bool
    rebalance_interval_seconds: int | None
    """None turns the periodic election off."""
    imbalance_percent: int


def controller_settings(config: BrokerConfig, metadata: Metadata) -> ControllerSettings:
    def unclean_topics(overrides: Mapping[str, Mapping[str, str]]) -> frozenset[str]:
        resolve = metadata.defaults.resolve
        return frozenset(
            name for name, given in overrides.items() if resolve(given).unclean_leader_election
        )

    interval = None
    if config.boolean("auto.leader.rebalance.enable"):
        interval = config.integer("leader.imbalance.check.interval.seconds")
    return ControllerSettings(
        unclean_topics=unclean_topics,
        min_insync_replicas=metadata.min_insync_replicas,
        delete_topic_enable=config.boolean("delete.topic.enable"),
        rebalance_interval_seconds=interval,
        imbalance_percent=config.integer("leader.imbalance.per.broker.percentage"),
    )
