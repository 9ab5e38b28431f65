"""Applies changes to options. Pure; raises :class:`ApiError`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from pyrklog.config.broker import OPTIONS, BrokerConfig, is_dynamic
from pyrklog.config.cleaner import wrong_with_cleaner
from pyrklog.config.connection_quotas import wrong_with_changed_limits, wrong_with_connections
from pyrklog.config.dynamic import PER_LISTENER_ONLY, dynamic_without_effect, listener_option
from pyrklog.config.entry import OptionType
from pyrklog.config.known import JVM_ONLY, WITHOUT_EFFECT
from pyrklog.config.option import PER_BROKER, InvalidValueError, Option
from pyrklog.config.topic import TOPIC_OPTIONS_BY_NAME, TopicDefaults, check_topic_options
from pyrklog.errors import ApiError, ErrorCode
from pyrklog.handlers.service import OP_APPEND, OP_DELETE, OP_SET, OP_SUBTRACT, ConfigAlteration

OptionOf = Callable[[str], Option | None]


def topic_option(name: str) -> Option | None:
    known = TOPIC_OPTIONS_BY_NAME.get(name)
    return known.option if known else None


def apply_incremental(
    current: Mapping[str, str],
    alterations: Sequence[ConfigAlteration],
    option_of: OptionOf,
) -> dict[str, str]:
    """The options after ``alterations``. As in Kafka, an unset list begins with the default of its
    definition, not with the brokers' value."""
    names = [item.name for item in alterations]
    if len(set(names)) != len(names):
        raise ApiError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    changed = dict(current)
    for operation, name, value in alterations:
        if operation not in (OP_SET, OP_DELETE, OP_APPEND, OP_SUBTRACT):
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"Unknown operation type {operation} for {name}"
            )
        if operation == OP_DELETE:
            changed.pop(name, None)
            continue
        if value is None:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {name}")
        if operation == OP_SET:
            changed[name] = value
            continue
        option = option_of(name)
        if option is None or option.type != OptionType.LIST:
            verb = "append" if operation == OP_APPEND else "subtract"
            raise ApiError(
                ErrorCode.INVALID_CONFIG,
                f"Config value {verb} is not allowed for config key: {name}",
            )
        before = changed.get(name, option.format(option.default) or "")
        changed[name] = ",".join(_combine(operation, _items(before), _items(value)))
    return changed


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _combine(operation: int, before: Sequence[str], items: Collection[str]) -> list[str]:
    # A list may have tens of thousands of items, such as throttled replicas.
    if operation == OP_SUBTRACT:
        gone = frozenset(items)
        return [item for item in before if item not in gone]
    known = frozenset(before)
    return [*before, *(item for item in items if item not in known)]


def replacement(options: Mapping[str, str | None]) -> dict[str, str]:
    """The options of AlterConfigs; others are reset."""
    found = {}
    for name, value in options.items():
        if value is None:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {name}")
        found[name] = value
    return found


def check_topic(options: Mapping[str, str], defaults: TopicDefaults) -> None:
    try:
        check_topic_options(options, defaults)
    except InvalidValueError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None


def broker_option(name: str) -> Option | None:
    """A broker option that may change at run time, with or without effect."""
    return OPTIONS.get(name) or listener_option(name) or dynamic_without_effect(name)


class NotYet(NamedTuple):
    without_effect: list[str]
    at_start: list[str]
    """They act from the next start on."""
    secret: list[str]
    """They cannot be kept."""


def check_broker(options: Mapping[str, str], before: Mapping[str, str], *, for_all: bool) -> NotYet:
    """Checks the run-time options of one broker, or (``for_all``) of all.

    A bad value is INVALID_REQUEST, as in Kafka 3.9 (KAFKA-13609); for topics it is INVALID_CONFIG.
    """
    not_yet = NotYet([], [], [])
    for name, value in options.items():
        if before.get(name) == value:
            continue
        option = OPTIONS.get(name) or listener_option(name)
        if option is None:
            option = _check_without_effect(name, for_all)
            (not_yet.secret if option.is_secret else not_yet.without_effect).append(name)
        elif not is_dynamic(name):
            raise _refused("Cannot update these configs dynamically", name)
        elif not option.effective:
            not_yet.without_effect.append(name)
        elif option.at_start:
            not_yet.at_start.append(name)
        try:
            option.parse(value)
        except InvalidValueError as error:
            raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from None
    return not_yet


def _check_without_effect(name: str, for_all: bool) -> Option:
    """As Kafka's ``DynamicBrokerConfig.validateConfigs``."""
    option = dynamic_without_effect(name)
    if option is None:
        if name in WITHOUT_EFFECT or name in JVM_ONLY:
            raise _refused("Cannot update these configs dynamically", name)
        from pyrklog.config.load import nearest

        near = nearest(name, list(OPTIONS))
        hint = f"; did you mean {near}?" if near else "."
        raise ApiError(ErrorCode.INVALID_CONFIG, f"Unknown broker option {name}{hint}")
    if name in PER_LISTENER_ONLY:
        raise _refused(
            "These security configs can be dynamically updated only per-listener using the "
            "listener prefix",
            name,
        )
    if for_all and option.update_mode == PER_BROKER:
        raise _refused(
            "Cannot update these configs at default cluster level, broker id must be specified",
            name,
        )
    return option


def check_kept(not_yet: NotYet) -> None:
    """Refuses passwords, which Kafka also refuses without ``password.encoder.secret``; not called
    for validation only."""
    if not_yet.secret:
        why = "Password configs cannot be updated: they would be kept in the clear"
        raise _refused(why, not_yet.secret[0])


_CLEANER_THREADS = "log.cleaner.threads"
THREAD_COUNTS = (
    "num.io.threads",
    "num.network.threads",
    "num.replica.fetchers",
    "num.recovery.threads.per.data.dir",
    _CLEANER_THREADS,
)


def check_thread_counts(
    config: BrokerConfig, before: Mapping[str, str], after: Mapping[str, str], *, for_all: bool
) -> None:
    """As Kafka: a change at most doubles or halves a number of threads."""
    for name in THREAD_COUNTS:
        if before.get(name) == after.get(name):
            continue
        levels = (config.dynamic_broker, after) if for_all else (after, config.dynamic_default)
        static = [config.given[name].text] if name in config.given else []
        texts = [*(level[name] for level in levels if name in level), *static]
        option = OPTIONS[name]
        new = option.parse(texts[0]) if texts else option.default
        old = config.integer(name)
        assert isinstance(new, int)
        why = _wrong_thread_count(name, old, new)
        if why is not None:
            raise ApiError(ErrorCode.INVALID_REQUEST, why)


def _wrong_thread_count(name: str, old: int, new: int) -> str | None:
    """Kafka: ``validateReconfiguration`` of ``DynamicThreadPool`` and ``LogCleaner``."""
    failed = f"Dynamic thread count update validation failed for {name}={new}, value should"
    too_few = f"{failed} be at least half the current value {old}"
    too_many = f"{failed} not be greater than double the current value {old}"
    if name == _CLEANER_THREADS:
        cannot = "Log cleaner threads cannot be"
        too_few = f"{cannot} reduced to less than half the current value {old}"
        too_many = f"{cannot} increased to more than double the current value {old}"
        if new < 1:
            return "Log cleaner threads should be at least 1"
    if new < old // 2:
        return too_few
    return too_many if new > old * 2 else None


def check_together(config: BrokerConfig, after: Mapping[str, str], *, for_all: bool) -> None:
    """Options that do not go together. As by Kafka, a broker checks with its own options, also what
    is for all."""
    default, broker = config.dynamic_default, config.dynamic_broker
    changed = config.with_dynamic(
        default=after if for_all else default, broker=broker if for_all else after
    )
    wrong = (
        wrong_with_connections(changed)
        or wrong_with_cleaner(changed)
        or wrong_with_changed_limits(config, changed)
    )
    if wrong is not None:
        raise ApiError(ErrorCode.INVALID_REQUEST, wrong)


def _refused(why: str, name: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, f"{why}: Set({name})")
