"""Options as DescribeConfigs shows them (KIP-133, KIP-226, KIP-569). Pure values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

# Sources of values (DescribeConfigs v1+).
SOURCE_TOPIC = 1
SOURCE_DYNAMIC_BROKER = 2
SOURCE_DYNAMIC_DEFAULT_BROKER = 3
SOURCE_STATIC_BROKER = 4
SOURCE_DEFAULT = 5

# Types of values (DescribeConfigs v3+, KIP-569).
TYPE_UNKNOWN = 0
TYPE_BOOLEAN = 1
TYPE_STRING = 2
TYPE_INT = 3
TYPE_SHORT = 4
TYPE_LONG = 5
TYPE_DOUBLE = 6
TYPE_LIST = 7
TYPE_CLASS = 8
TYPE_PASSWORD = 9


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
