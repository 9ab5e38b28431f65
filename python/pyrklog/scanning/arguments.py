"""What callers of a scan give: an argument of another type is a TypeError with its name, and what
it takes."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode
from collections.abc import Iterable, Mapping
from numbers import Real
from operator import index
from typing import Any, TypeGuard

from pyrklog.scanning.settings import ScanSettings

_PORT_DEFAULT = 9092
_PARTITION_END = 2**31
_TOPICS = (
    "the name of a topic, a list of names, partitions by topic, such as {'t': [0, 1]}, or a pattern"
)
_TEXTS = {
    "bootstrap_servers": "HOST:PORT, several with commas",
    "client_id": "a text",
    "rack": "a text",
}
_TOPIC_ID = re.compile(r"[A-Za-z0-9_-]{22}")
_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
LIKE_A_PATTERN = re.compile(r"[*+?|^$()\[\]{}\\]")
_NUMBERS = ("threads", "batch_rows", "batch_bytes", "memory_bytes", "large_bytes")


def core_topics(topics: object) -> list[tuple[str, list[int] | None]]:
    """Partitions by topic; None for all."""
    given = [topics] if isinstance(topics, str) else topics
    names: list[Any] = list(given) if _is_listed(given) else [None]
    if not all(isinstance(name, str) for name in names):
        raise TypeError(f"topics is {topics!r}; it takes {_TOPICS}")
    for name in names:
        if LIKE_A_PATTERN.search(name):
            raise ValueError(f"no topic has the name {name!r}; a pattern is re.compile({name!r})")
    partitions = topics if isinstance(topics, Mapping) else {}
    return [(name, _partitions(name, partitions.get(name))) for name in dict.fromkeys(names)]


def _partitions(topic: str, given: object) -> list[int] | None:
    if given is None:
        return None
    found: list[Any] = list(given) if _is_listed(given) else [None]
    if not all(map(_is_integer, found)):
        raise TypeError(
            f"topics has {given!r} for {topic!r}; it takes a list of numbers of partitions, such "
            "as [0, 1], or None for all"
        )
    numbers = sorted({index(one) for one in found})
    for partition in numbers:
        if not 0 <= partition < _PARTITION_END:
            raise ValueError(f"topic {topic} cannot have a partition {partition}")
    return numbers


def core_ids(given: object) -> list[tuple[str, bytes]]:
    """Of topics by name, from Kafka's texts."""
    if given is None:
        return []
    if not isinstance(given, Mapping):
        raise TypeError(
            f"topic_ids is {given!r}; it takes ids by topic, as Scan.topic_ids has them"
        )
    return [(name, _id(name, text)) for name, text in given.items()]


def _id(name: object, text: object) -> bytes:
    if not isinstance(name, str) or not isinstance(text, str):
        raise TypeError(
            f"topic_ids has {text!r} for {name!r}; it takes texts, by the names of topics"
        )
    if _TOPIC_ID.fullmatch(text) is None:
        raise ValueError(f"topic_ids has {text!r} for topic {name}, which is no topic's id")
    return urlsafe_b64decode(text + "==")


def _is_listed(value: object) -> TypeGuard[Iterable[Any]]:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes)


def _is_integer(value: object) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool)


def core_bootstrap(servers: object) -> str:
    """As the commands take it: a host alone has port 9092."""
    if not isinstance(servers, str):
        raise TypeError(f"bootstrap_servers is {servers!r}; it takes {_TEXTS['bootstrap_servers']}")
    return ",".join(map(_with_port, servers.split(",")))


def _with_port(server: str) -> str:
    host = server.strip()
    is_alone = host.endswith("]") if host.startswith("[") else ":" not in host
    return f"{host}:{_PORT_DEFAULT}" if host and is_alone else server


def milliseconds(name: str, given: object) -> int:
    if isinstance(given, bool) or not isinstance(given, Real):
        raise TypeError(f"{name} is {given!r}; it takes a number of seconds")
    seconds = float(given)
    if not 0 < seconds <= 86_400:
        raise ValueError(f"{name} is {given}; it can be more than 0 and up to 86400")
    return max(1, round(seconds * 1000))


def is_topic_name(name: str) -> bool:
    """By Kafka's rules."""
    return _TOPIC_NAME.fullmatch(name) is not None and name not in {".", ".."}


def refuse_other_lists(**lists: object) -> None:
    """Raises TypeError for what is neither a list nor None."""
    for name, value in lists.items():
        if isinstance(value, str | bytes):
            raise TypeError(f"{name} is {value!r}; it takes a list of names, such as [{value!r}]")
        if value is not None and not isinstance(value, Iterable):
            raise TypeError(f"{name} is {value!r}; it takes a list of names")


def bad_topic(given: object, decode: str | None, on_bad: str) -> str | None:
    """The topic for records whose values do not fit. Raises TypeError and ValueError for what is
    none, or has nothing to take."""
    if given is None:
        return None
    if not isinstance(given, str):
        raise TypeError(f"bad_records is {given!r}; it takes the name of a topic")
    if not is_topic_name(given):
        raise ValueError(f"bad_records is {given!r}; no topic can have this name")
    if decode is None:
        raise ValueError(f"bad_records={given!r} is for decoded values: give decode")
    if on_bad == "fail":
        raise ValueError('bad_records takes nothing with on_bad="fail": choose null or drop')
    return given


def refuse_read(bad_records: str | None, read: list[tuple[str, list[int] | None]]) -> None:
    """Raises ValueError for a topic for bad records that is read."""
    if bad_records in dict(read):
        raise ValueError(
            f"bad_records is {bad_records!r}, which is read: what is written there would be read "
            "again"
        )


def check(settings: ScanSettings, decode: str | None, on_bad: str) -> None:
    """Raises TypeError for a value of another type, ValueError for what has no effect or is there
    twice."""
    for name, takes in _TEXTS.items():
        _refuse_unless(isinstance(getattr(settings, name), str), settings, name, takes)
    for name in _NUMBERS:
        _refuse_unless(_is_integer(getattr(settings, name)), settings, name, "a whole number")
    is_flag = isinstance(settings.check_crcs, bool)
    _refuse_unless(is_flag, settings, "check_crcs", "True or False")
    if decode is None and on_bad != "null":
        raise ValueError(f"on_bad={on_bad!r} is for decoded values: give decode")
    columns = settings.columns
    for column in columns:
        if not isinstance(column, str):
            raise TypeError(f"columns has {column!r}; it takes names")
        if columns.count(column) > 1:
            raise ValueError(f"columns names {column!r} twice")


def _refuse_unless(fits: bool, settings: ScanSettings, name: str, takes: str) -> None:
    if not fits:
        raise TypeError(f"{name} is {getattr(settings, name)!r}; it takes {takes}")
