"""Options as DescribeConfigs shows them (KIP-133, KIP-226, KIP-569). Pure values."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple


class Source(IntEnum):
    """Sources of values (DescribeConfigs v1+)."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7


class OptionType(IntEnum):
    """Types of values (DescribeConfigs v3+, KIP-569)."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Synonym(NamedTuple):
    """One source of a value, the strongest first."""

    name: str
    value: str | None
    source: int


class ConfigEntry(NamedTuple):
    """One option of a resource. ``value`` is None for null and for sensitive values."""

    name: str
    value: str | None
    read_only: bool
    source: int
    sensitive: bool
    synonyms: Sequence[Synonym]
    type: int
    documentation: str | None
