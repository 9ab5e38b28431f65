"""The controller's options; read anew at each use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple


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
