"""Reassignment plans in Kafka's JSON; rates, limits and amounts for people. Pure."""

import json
import re
from collections.abc import Mapping
from typing import Any

from pyrklog.balance.amounts import amount as amount
from pyrklog.balance.directories import Directories
from pyrklog.balance.model import FILL_MAX
from pyrklog.balance.model import Placement as Placement
from pyrklog.balance.prediction import Limit
from pyrklog.balance.throttle import AUTO as AUTO
from pyrklog.base.problems import Problem
from pyrklog.cli.connection import PartitionKey
from pyrklog.cli.failures import CliError

Sizes = Mapping[PartitionKey, int]

RATE_MAX = 2**62
THROTTLE_MIN_BYTES = 10_000
"""Bytes a second; a lower rate lacks its unit, and nothing would ever arrive."""
INT32_MAX = 2**31 - 1
_ANY_LOG_DIR = "any"
"""What plans say of replicas that move between brokers only."""
_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*([kMGT]?i?)B?(?:/s)?")
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%?")
_FACTORS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def parse_rate(text: str) -> int:
    """Parses ``50MB/s``, ``64Mi``, ``1000000`` to bytes a second."""
    found = _RATE.fullmatch(text.strip())
    factor = {**_FACTORS, **_BINARY}.get(found[2]) if found else None
    value = float(found[1]) * factor if found and factor else 0
    if not 1 <= value <= RATE_MAX:
        raise CliError(
            Problem.ARGUMENT_VALUE, f"{text!r} is no rate", "write 50MB/s, or bytes a second"
        )
    return int(value)


def parse_throttle(text: str) -> int:
    rate_bytes = parse_rate(text)
    if rate_bytes < THROTTLE_MIN_BYTES:
        what = f"--throttle {text} is {rate_bytes} bytes a second: too slow for any copy to arrive"
        raise CliError(Problem.ARGUMENT_VALUE, what, "give a unit, such as 50MB/s")
    return rate_bytes


def check_throttle(text: str | None) -> None:
    """Raises :class:`CliError` for what is neither a rate nor auto."""
    if text is not None and text != AUTO:
        parse_throttle(text)


def parse_fill(text: str | None) -> float:
    """Parses percents, ``90`` or ``90%``, to a share."""
    if text is None:
        return FILL_MAX
    found = _PERCENT.fullmatch(text.strip())
    percent = float(found[1]) if found else 0
    if not 1 <= percent <= 100:
        what = f"--max-fill takes percents from 1 to 100, not {text!r}"
        raise CliError(Problem.ARGUMENT_VALUE, what, "write 90, or 90%")
    return percent / 100


def parse_limit(text: str | None) -> Limit:
    """``50`` is partitions, ``10GB`` bytes."""
    if text is None:
        return Limit()
    if text.isascii() and text.isdecimal():
        if not 1 <= int(text) <= INT32_MAX:
            raise CliError(Problem.ARGUMENT_VALUE, f"--batch {text} is no number of partitions")
        return Limit(partitions=int(text))
    try:
        return Limit(bytes=parse_rate(text))
    except CliError:
        what = f"--batch {text!r} is neither a number of partitions nor bytes"
        raise CliError(Problem.ARGUMENT_VALUE, what, "write 50, or 10GB") from None


def duration(seconds: float) -> str:
    """Seconds for people."""
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def parse_plan(text: str, source: str) -> dict[PartitionKey, tuple[int, ...]]:
    found: dict[PartitionKey, tuple[int, ...]] = {}
    for item in _items(text, source, "partitions"):
        try:
            place = _text(item["topic"]), _number(item["partition"])
            if not isinstance(item["replicas"], list):
                raise TypeError("replicas is no list")
            replicas = tuple(map(_number, item["replicas"]))
        except (KeyError, TypeError, ValueError) as error:
            raise _no_plan(source, f"{type(error).__name__}: {error}") from None
        if place in found:
            raise _no_plan(source, f"{place[0]}-{place[1]} is named twice")
        found[place] = replicas
    return found


def parse_log_dirs(text: str, source: str) -> dict[tuple[PartitionKey, int], str]:
    """The directories that a plan names, by partition and broker; "any" is none."""
    found = {}
    for item in _items(text, source, "partitions"):
        place, replicas = (item["topic"], item["partition"]), item["replicas"]
        paths = item.get("log_dirs") or [_ANY_LOG_DIR] * len(replicas)
        if not isinstance(paths, list) or len(paths) != len(replicas):
            name = f"{place[0]}-{place[1]}"
            raise _no_plan(source, f"{name} has {len(replicas)} replicas and other log_dirs")
        for broker, path in zip(replicas, paths, strict=True):
            if path == _ANY_LOG_DIR:
                continue
            if not isinstance(path, str) or not path.startswith("/"):
                raise _no_plan(source, f"{path!r} is no absolute path of a log directory")
            found[place, broker] = path
    return found


def parse_topics(text: str, source: str) -> list[str]:
    try:
        return [_text(item["topic"]) for item in _items(text, source, "topics")]
    except (KeyError, TypeError) as error:
        raise _no_plan(source, f"{type(error).__name__}: {error}") from None


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _number(value: object) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r} is no whole number")
    if not 0 <= value <= INT32_MAX:
        raise ValueError(f"{value} is no number of a partition or a broker")
    return value


def _items(text: str, source: str, key: str) -> list[Any]:
    try:
        content = json.loads(text)
        items = content[key]
    except (ValueError, KeyError, TypeError) as error:
        raise _no_plan(source, f"{type(error).__name__}: {error}") from None
    if not isinstance(items, list):
        raise _no_plan(source, f"{key} is no list")
    return items


def _no_plan(source: str, why: str) -> CliError:
    what = f"{source} is not what kafka-reassign-partitions reads ({why})"
    return CliError(Problem.FILE_CONTENT, what, "see `pyrklog cluster reassign plan`")


def render_plan(placement: Placement, directories: Directories | None = None) -> str:
    """Kafka's reassignment JSON."""
    named = directories or {}
    partitions = [
        {
            "topic": topic,
            "partition": index,
            "replicas": list(replicas),
            "log_dirs": [named.get(((topic, index), one), _ANY_LOG_DIR) for one in replicas],
        }
        for (topic, index), replicas in sorted(placement.items())
    ]
    return json.dumps({"version": 1, "partitions": partitions}, separators=(",", ":")) + "\n"
