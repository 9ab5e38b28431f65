"""What of a broker's options is the controller's matter."""

from __future__ import annotations

from collections.abc import Callable, Mapping


class ControllerSettings:
    """What the controller takes from the broker's options; read anew at each use."""

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
        """(topic, overrides) -> the option. None as overrides: by what this broker knows of the
        topic; None as the result: it knows nothing yet."""
        self.delete_topic_enable = delete_topic_enable
        self.rebalance_interval_seconds = rebalance_interval_seconds
        """None turns the periodic election off."""
        self.imbalance_percent = imbalance_percent
