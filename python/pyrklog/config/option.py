"""One option: name, type, default, bounds and documentation, and how its text is parsed.

Values are bool, int, float, str, a tuple of str for lists, or None for "unset". Text comes from
files, flags and protocol fields and follows Kafka's ``ConfigDef``: numbers and booleans are
trimmed, lists are split at commas, and wrong values are refused in its words.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial
from typing import NamedTuple

from pyrklog.config.entry import ConfigEntry, OptionType, Source, Synonym

Value = bool | int | float | str | tuple[str, ...] | None

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
DOUBLE_MAX = sys.float_info.max

READ_ONLY = "read-only"
CLUSTER_WIDE = "cluster-wide"
PER_BROKER = "per-broker"

_DOUBLE = re.compile(r"([+-]?(?:Infinity|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?))[fFdD]?", re.ASCII)
"""What Java's ``Double.parseDouble`` reads, without NaN and hexadecimal digits."""
_RANGES = {
    OptionType.SHORT: (-(2**15), 2**15 - 1),
    OptionType.INT: (-(2**31), INT_MAX),
    OptionType.LONG: (-(2**63), LONG_MAX),
}


class InvalidValueError(Exception):
    """A wrong value, an unknown name, or options that do not go together, in Kafka's words."""


class Option(NamedTuple):
    """A broker or topic option under Kafka's name."""

    name: str
    default: Value
    documentation: str = ""
    type: OptionType = OptionType.UNKNOWN
    importance: str = "medium"
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    """Allowed values or list items; empty = any."""
    check: Callable[[Value], str | None] | None = None
    """A further rule: what is wrong with the value, or None. ``{name}`` stands for the option's."""
    check_allows: str = ""
    """What ``check`` allows, for the configuration reference."""
    update_mode: str = READ_ONLY
    """READ_ONLY, CLUSTER_WIDE (at run time, per broker or for all) or PER_BROKER."""
    effective: bool = True
    """False: accepted and kept, without effect yet (skipped.md)."""
    at_start: bool = False
    """A run-time change acts from the broker's next start on."""
    in_kafka: str = ""
    """How Kafka's option of this name differs: a sentence, or empty."""

    def described(self, documentation: str, *, in_kafka: str = "") -> Option:
        return self._replace(documentation=documentation, in_kafka=in_kafka)

    def parse(self, text: str) -> Value:
        """Raises :class:`InvalidValueError`."""
        value = self._read(text)
        self._bound(value)
        return value

    def format(self, value: Value) -> str | None:
        if value is None:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        return as_java(value) if isinstance(value, float) else str(value)

    def entry(
        self, value: str | None, synonyms: Sequence[Synonym], *, read_only: bool
    ) -> ConfigEntry:
        """The option in DescribeConfigs, from the strongest of ``synonyms``."""
        return ConfigEntry(
            name=self.name,
            value=value,
            read_only=read_only,
            source=synonyms[0].source if synonyms else Source.DEFAULT,
            sensitive=self.is_secret,
            synonyms=synonyms,
            type=self.type,
            documentation=self.documentation,
        )

    @property
    def is_secret(self) -> bool:
        """Whether the value is never shown."""
        return self.type == OptionType.PASSWORD

    @property
    def type_name(self) -> str:
        return self.type.name.lower()

    @property
    def valid_values(self) -> str:
        """The allowed values within the type, for documentation; empty = any."""
        if self.check_allows or self.choices:
            return self.check_allows or ", ".join(self.choices)
        if self.minimum is not None and self.maximum is not None:
            return f"{self.minimum} to {self.maximum}"
        return "" if self.minimum is None else f"≥ {self.minimum}"

    def _read(self, text: str) -> Value:
        trimmed = text.strip()
        if self.type == OptionType.BOOLEAN:
            lowered = trimmed.lower()
            if lowered not in ("true", "false"):
                raise self._invalid(text, "Expected value to be either true or false")
            return lowered == "true"
        if self.type in _RANGES:
            return self._read_integer(trimmed, text)
        if self.type == OptionType.DOUBLE:
            number = _DOUBLE.fullmatch(trimmed)
            if number is None:
                raise self._no_number(text)
            return float(number[1])
        if self.type == OptionType.LIST:
            return tuple(item.strip() for item in trimmed.split(",")) if trimmed else ()
        return trimmed

    def _read_integer(self, trimmed: str, text: str) -> int:
        low, high = _RANGES[self.type]
        digits = trimmed[1:] if trimmed[:1] in ("-", "+") else trimmed
        if not (digits.isascii() and digits.isdigit()):
            raise self._no_number(text)
        value = int(trimmed)
        if not low <= value <= high:
            raise self._no_number(text)
        return value

    def _bound(self, value: Value) -> None:
        if isinstance(value, int | float) and not isinstance(value, bool):
            if self.minimum is not None and not value >= self.minimum:
                raise self._invalid(value, f"Value must be at least {self.minimum}")
            if self.maximum is not None and value > self.maximum:
                raise self._invalid(value, f"Value must be no more than {self.maximum}")
        if self.choices:
            items: Sequence[Value] = value if isinstance(value, tuple) else (value,)
            for item in items:
                if item not in self.choices:
                    allowed = ", ".join(self.choices)
                    raise self._invalid(item, f"String must be one of: {allowed}")
        if self.check is not None:
            wrong = self.check(value)
            if wrong is not None:
                raise self._invalid(value, wrong.replace("{name}", self.name))

    def _no_number(self, text: str) -> InvalidValueError:
        return self._invalid(text, f"Not a number of type {self.type.name}")

    def _invalid(self, value: Value, why: str) -> InvalidValueError:
        shown = f"[{', '.join(value)}]" if isinstance(value, tuple) else self.format(value)
        return InvalidValueError(f"Invalid value {shown} for configuration {self.name}: {why}")


def as_java(value: float) -> str:
    """As Java's ``Double.toString``: with an exponent below 0.001 and from ten million on."""
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    digits, exponent = f"{Decimal(repr(value)).normalize():E}".split("E")
    return f"{digits if '.' in digits else digits + '.0'}E{int(exponent)}"


boolean = partial(Option, type=OptionType.BOOLEAN)
short = partial(Option, type=OptionType.SHORT)
integer = partial(Option, type=OptionType.INT)
long = partial(Option, type=OptionType.LONG)
double = partial(Option, type=OptionType.DOUBLE)
string = partial(Option, type=OptionType.STRING)
items = partial(Option, type=OptionType.LIST)


def password(name: str, documentation: str) -> Option:
    return Option(name, None, documentation, OptionType.PASSWORD)
