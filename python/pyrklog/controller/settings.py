"""The controller's options; read anew at each use."""

from __future__ import annotations

from collections.abc import Callable, Mapping


class ControllerSettings:
    def __init__(
        self,
        *,
        unclean_topics: Callable[[dict[str, dict[str, str]]], frozenset[str]],
        min_insync_replicas: Callable[[str, Mapping[str, str] | None], int | None],
        delete_topic_enable: bool,
        rebalance_interval_seconds: int | None,
        imbalance_percent: int,
    ) -> None:
        self.unclean_topics = unclean_topics
        """Topic overrides by name -> the names that allow unclean elections."""
        self.min_insync_replicas = min_insync_replicas
        """(topic, overrides) -> the option. Overrides None = what this broker knows of the topic;
        the result is None where it knows nothing yet.
        """
        self.delete_topic_enable = delete_topic_enable
        self.rebalance_interval_seconds = rebalance_interval_seconds
        """None turns the periodic election off."""
        self.imbalance_percent = imbalance_percent
