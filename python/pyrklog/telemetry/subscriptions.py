"""Which clients push which metrics, and how often. Pure.

A subscription is a resource of the type CLIENT_METRICS; what a client is granted is the union of
those that match it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from pyrklog.base.logs import get_logger
from pyrklog.config.client_metrics import (
    ALL_METRICS,
    INTERVAL_MS,
    INTERVAL_MS_DEFAULT,
    INTERVAL_MS_MAX,
    INTERVAL_MS_MIN,
    MATCH,
    METRICS,
    OPTIONS,
)
from pyrklog.config.option import InvalidValueError
from pyrklog.errors import ApiError, ErrorCode
from pyrklog.metastore.znodes import encode_id
from pyrklog.telemetry.core_telemetry import Pattern, crc32c

RESOURCES_MAX = 100
"""Each new client is compared with all of them."""
RESOURCE_CHARS_MAX = 16_384
"""Of all values together. Clients are sent the names of their metrics."""
ALL_CHARS_MAX = 32_768
"""Of all values of all subscriptions: a client may be granted all of them."""
PATTERN_BYTES_MAX = 16_384
"""Of a compiled pattern: the extension refuses larger ones."""
ALL_PATTERN_BYTES_MAX = 131_072
"""Of all compiled patterns together. Matching a value takes time in proportion to them: some
milliseconds at most."""
COPIES = (64, 32, 16, 8, 4, 2)
NAME_CHARS_MAX = 255
ATTRIBUTE_CHARS_MAX = 256
"""A longer attribute matches no pattern."""

CLIENT_INSTANCE_ID = "client_instance_id"
CLIENT_ID = "client_id"
SOFTWARE_NAME = "client_software_name"
SOFTWARE_VERSION = "client_software_version"
SOURCE_ADDRESS = "client_source_address"
SOURCE_PORT = "client_source_port"
SHARED = (CLIENT_ID, SOFTWARE_NAME, SOFTWARE_VERSION, SOURCE_ADDRESS)
"""Attributes that all instances of a program on a host have in common."""
SHARED_REMEMBERED_MAX = 1_024
GRANTED_REMEMBERED_MAX = 32
PATTERNS_REMEMBERED_MAX = 256
ATTRIBUTES = frozenset(
    (CLIENT_INSTANCE_ID, CLIENT_ID, SOFTWARE_NAME, SOFTWARE_VERSION, SOURCE_ADDRESS, SOURCE_PORT)
)

log = get_logger("client_metrics")

Attributes = Mapping[str, str]
"""Of a client; those that it does not have, or that are too long, are left out."""


class Room(NamedTuple):
    """What subscriptions take of :data:`ALL_CHARS_MAX` and :data:`ALL_PATTERN_BYTES_MAX`."""

    chars: int = 0
    pattern_bytes: int = 0

    def with_(self, more: Room) -> Room:
        return Room(self.chars + more.chars, self.pattern_bytes + more.pattern_bytes)

    @property
    def is_too_much(self) -> bool:
        return self.chars > ALL_CHARS_MAX or self.pattern_bytes > ALL_PATTERN_BYTES_MAX


class Subscription(NamedTuple):
    metrics: frozenset[str]
    interval_ms: int
    match: Mapping[str, Pattern]
    takes: Room

    def matches(self, attributes: Attributes) -> bool:
        return self.matches_shared(attributes) and self.matches_own(attributes)

    def matches_shared(self, attributes: Attributes) -> bool:
        """By :data:`SHARED` attributes."""
        return self._match(attributes, is_shared=True)

    def matches_own(self, attributes: Attributes) -> bool:
        """By the others, which each instance has for itself."""
        return self._match(attributes, is_shared=False)

    def _match(self, attributes: Attributes, *, is_shared: bool) -> bool:
        return all(
            name in attributes and pattern.matches(attributes[name])
            for name, pattern in self.match.items()
            if (name in SHARED) is is_shared
        )


class Terms(NamedTuple):
    """What a client is to push: names of metrics begin with one of ``metrics`` (``*`` = all)."""

    metrics: Sequence[str]
    interval_ms: int


def attributes_of(
    instance_id: bytes,
    *,
    client_id: str | None,
    software_name: str | None,
    software_version: str | None,
    address: str,
    port: int,
) -> Attributes:
    found = {
        CLIENT_INSTANCE_ID: encode_id(instance_id),
        CLIENT_ID: client_id,
        SOFTWARE_NAME: software_name,
        SOFTWARE_VERSION: software_version,
        SOURCE_ADDRESS: address,
        SOURCE_PORT: str(port),
    }
    return {
        name: value
        for name, value in found.items()
        if value is not None and len(value) <= ATTRIBUTE_CHARS_MAX
    }


def read_subscription(name: str, options: Mapping[str, str]) -> Subscription:
    """Raises :class:`ApiError` with Kafka's codes and words, or beyond our own bounds."""
    if not name:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
    if len(name) > NAME_CHARS_MAX:
        text = f"A subscription's name has at most {NAME_CHARS_MAX} characters."
        raise ApiError(ErrorCode.INVALID_REQUEST, text)
    for option in options:
        if option not in OPTIONS:
            text = f"Unknown client metrics configuration: {option}"
            raise ApiError(ErrorCode.INVALID_REQUEST, text)
    chars = sum(map(len, options.values()))
    if chars > RESOURCE_CHARS_MAX:
        text = f"A subscription's values have at most {RESOURCE_CHARS_MAX} characters together."
        raise ApiError(ErrorCode.INVALID_REQUEST, text)
    try:
        values = {name: OPTIONS[name].parse(text) for name, text in options.items()}
    except InvalidValueError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None
    metrics, patterns = values.get(METRICS, ()), values.get(MATCH, ())
    interval_ms = values.get(INTERVAL_MS, INTERVAL_MS_DEFAULT)
    assert isinstance(metrics, tuple)
    assert isinstance(patterns, tuple)
    assert isinstance(interval_ms, int)
    if not INTERVAL_MS_MIN <= interval_ms <= INTERVAL_MS_MAX:
        text = (
            f"Invalid value {interval_ms} for {INTERVAL_MS}, interval must be between "
            f"{INTERVAL_MS_MIN} and {INTERVAL_MS_MAX} (1 hour)"
        )
        raise ApiError(ErrorCode.INVALID_REQUEST, text)
    match = dict(map(_read_pattern, patterns))
    takes = Room(chars, sum(size for _, size in match.values()))
    compiled = {name: pattern for name, (pattern, _) in match.items()}
    return Subscription(frozenset(metrics), interval_ms, compiled, takes)


def check_room(
    before: Mapping[str, str], after: Subscription, others: Iterable[Mapping[str, str]]
) -> None:
    """Raises :class:`ApiError` if a subscription that takes more than ``before`` has no room beside
    the others."""
    was = _room_of(before)
    if after.takes.chars <= was.chars and after.takes.pattern_bytes <= was.pattern_bytes:
        return
    all_ = after.takes
    for one in others:
        all_ = all_.with_(_room_of(one))
    if all_.is_too_much:
        text = (
            f"All subscriptions together have at most {ALL_CHARS_MAX} characters of values, and "
            f"patterns of {ALL_PATTERN_BYTES_MAX} bytes compiled; with this one they would have "
            f"{all_.chars} and {all_.pattern_bytes}. Remove some, or repeat less in patterns."
        )
        raise ApiError(ErrorCode.INVALID_REQUEST, text)


def _room_of(options: Mapping[str, str]) -> Room:
    try:
        return read_subscription("any", options).takes
    except ApiError:
        return Room()  # it is not used


def _read_pattern(text: str) -> tuple[str, tuple[Pattern, int]]:
    # As Java splits: what is empty at the end does not count.
    parts = text.split("=")
    while parts and not parts[-1]:
        parts.pop()
    refused = f"Illegal client matching pattern: {text}"
    if len(parts) != 2:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"{refused} (not ATTRIBUTE=PATTERN)")
    name, pattern = map(str.strip, parts)
    if name not in ATTRIBUTES:
        known = ", ".join(sorted(ATTRIBUTES))
        raise ApiError(ErrorCode.INVALID_CONFIG, f"{refused} (the attributes are {known})")
    try:
        return name, _compiled(pattern)
    except ValueError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"{refused} ({error})") from None


@lru_cache(PATTERNS_REMEMBERED_MAX)
def _compiled(text: str) -> tuple[Pattern, int]:
    """With its size, bytes rounded up to a power of two. Raises ValueError."""
    pattern = Pattern(text)
    # The extension tells whether so many copies fit into its bound, not how large one is. A
    # repetition is compiled as so many copies, so the length of the text tells nothing.
    for copies in COPIES:
        try:
            Pattern(f"(?:{text}){{{copies}}}")
        except ValueError:
            continue
        return pattern, PATTERN_BYTES_MAX // copies
    return pattern, PATTERN_BYTES_MAX


class Subscriptions:
    """All subscriptions, by name."""

    def __init__(self) -> None:
        self.version = 0
        """Grows with each change."""
        self._given: dict[str, Mapping[str, str]] = {}
        self._read: dict[str, Subscription] = {}
        self._use([])

    @property
    def names(self) -> list[str]:
        return sorted(self._given)

    def replace(self, given: Mapping[str, Mapping[str, str]]) -> None:
        """Takes the options of all resources. Those that cannot be read, and the last by name of
        those beyond the bounds of all together, are left out and logged."""
        for name in [name for name in self._given if name not in given]:
            del self._given[name]
            self._read.pop(name, None)
        for name, options in given.items():
            if self._given.get(name) == options:
                continue
            self._given[name] = options
            self._read.pop(name, None)
            try:
                self._read[name] = read_subscription(name, options)
            except ApiError as error:
                log.error("client_metrics_unreadable", name=name, reason=error.message)
        taken, used, left_out = Room(), [], []
        # In the order of names: all brokers use the same.
        for name, one in sorted(self._read.items()):
            with_one = taken.with_(one.takes)
            if with_one.is_too_much:
                left_out.append(name)
            else:
                taken = with_one
                used.append(one)
        if left_out:
            consequence = "clients are not asked for what they name"
            log.error("client_metrics_left_out", names=left_out[:10], consequence=consequence)
        self._use(used)
        self.version += 1

    def _use(self, used: Sequence[Subscription]) -> None:
        self._used = used
        self._by_shared = lru_cache(SHARED_REMEMBERED_MAX)(self._match_shared)
        self._by_granted = lru_cache(GRANTED_REMEMBERED_MAX)(self._granted)

    def terms_for(self, attributes: Attributes) -> Terms:
        """Metrics in the order of their names, so that all brokers grant the same.

        Remembered by what all instances of a program have in common, as ids are free."""
        numbers = self._by_shared(tuple(map(attributes.get, SHARED)))
        own = tuple(one for one in numbers if self._used[one].matches_own(attributes))
        return self._by_granted(own)

    def _match_shared(self, values: tuple[str | None, ...]) -> tuple[int, ...]:
        """Numbers of the subscriptions that match these."""
        found = zip(SHARED, values, strict=True)
        attributes = {name: value for name, value in found if value is not None}
        return tuple(
            number for number, one in enumerate(self._used) if one.matches_shared(attributes)
        )

    def _granted(self, numbers: tuple[int, ...]) -> Terms:
        metrics: set[str] = set()
        interval_ms = INTERVAL_MS_DEFAULT
        for number in numbers:
            metrics |= self._used[number].metrics
            interval_ms = min(interval_ms, self._used[number].interval_ms)
        granted = [ALL_METRICS] if ALL_METRICS in metrics else sorted(metrics)
        return Terms(granted, interval_ms)


def subscription_id(terms: Terms, instance_id: bytes) -> int:
    """As Kafka: CRC-32C of metrics and interval, with the hash of the client's instance."""
    text = f"[{', '.join(terms.metrics)}]{terms.interval_ms}"
    mixed = int.from_bytes(instance_id[:8], "big") ^ int.from_bytes(instance_id[8:], "big")
    unsigned = crc32c(text.encode()) ^ (mixed >> 32) ^ (mixed & 0xFFFFFFFF)
    return unsigned - (1 << 32) if unsigned >> 31 else unsigned
