"""BROKER_LOGGER resources (KIP-412): the levels of this process's loggers.

Changes act at once and are forgotten when the process ends. As in Kafka, ``root`` is the level of
loggers without one of their own, and a logger exists once its part of the broker is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from pyrklog.base import logs
from pyrklog.config.entry import ConfigEntry, OptionType, Source
from pyrklog.errors import ApiError, ErrorCode
from pyrklog.handlers.service import (
    OP_APPEND,
    OP_DELETE,
    OP_SET,
    OP_SUBTRACT,
    ConfigAlteration,
)

LEVELS: Mapping[str, int] = {
    "TRACE": 5,
    "DEBUG": logs.LEVELS["debug"],
    "INFO": logs.LEVELS["info"],
    "WARN": logs.LEVELS["warning"],
    "ERROR": logs.LEVELS["error"],
    "FATAL": 50,
}
"""Kafka's words. Nothing is logged below DEBUG, nor at FATAL."""
_WORDS = {number: word for word, number in LEVELS.items()}

_LIST_OPERATIONS = {OP_APPEND: "APPEND", OP_SUBTRACT: "SUBTRACT"}

log = logs.get_logger("broker")


def describe(node_id: int, name: str, names: AbstractSet[str] | None) -> list[ConfigEntry]:
    """The levels of the broker ``name``; ``names`` selects loggers. Raises :class:`ApiError`."""
    if not name:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
    _check_broker(node_id, name, "Broker id", f"Unexpected broker id, expected {node_id} but")
    return [
        ConfigEntry(
            name=logger,
            value=_WORDS[level],
            read_only=False,
            source=Source.DYNAMIC_BROKER_LOGGER,
            sensitive=False,
            synonyms=(),
            type=OptionType.UNKNOWN,
            documentation=None,
        )
        for logger, level in sorted(logs.levels().items())
        if names is None or logger in names
    ]


def alter(
    node_id: int, name: str, alterations: Sequence[ConfigAlteration], *, validate_only: bool
) -> None:
    """Sets levels, or takes them away; all or none. Raises :class:`ApiError`."""
    named = [item.name for item in alterations]
    if len(set(named)) != len(named):
        raise ApiError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    nulls = [
        item.name for item in alterations if item.operation != OP_DELETE and item.value is None
    ]
    if nulls:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(nulls)}"
        )
    _check_broker(node_id, name, "Node id", f"Unexpected node id. Expected {node_id}, but")
    known = logs.levels().keys()
    for item in alterations:
        _check(item, known)
    if validate_only:
        return
    for item in alterations:
        level = LEVELS[item.value] if item.operation == OP_SET and item.value else None
        logs.set_level(item.name, level)
    log.warning("log_levels_changed", levels={item.name: item.value for item in alterations})


def _check_broker(node_id: int, name: str, what: str, unexpected: str) -> None:
    try:
        broker = int(name)
    except ValueError:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"{what} must be an integer, but it is: {name}"
        ) from None
    if broker != node_id:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{unexpected} received {name}")


def _check(item: ConfigAlteration, known: AbstractSet[str]) -> None:
    """As Kafka's ``RuntimeLoggerManager``."""
    operation, logger, level = item
    if operation in _LIST_OPERATIONS:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"{_LIST_OPERATIONS[operation]} operation is not allowed for the BROKER_LOGGER "
            "resource",
        )
    if operation not in (OP_SET, OP_DELETE):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Unknown operation type {operation} is not allowed for the BROKER_LOGGER resource",
        )
    if logger not in known:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"Logger {logger} does not exist!")
    if operation == OP_SET and level not in LEVELS:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of {logger} to {level} as it is not a supported log level. "
            f"Valid log levels are {', '.join(sorted(LEVELS))}",
        )
    if operation == OP_DELETE and logger == logs.ROOT:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Removing the log level of the {logs.ROOT} logger is not allowed",
        )
