"""A redrive without progress: the group's first one, or one whose progress brokers have forgotten,
or which is not of this log.

Brokers delete the offsets of a group without members after ``offsets.retention.minutes`` (KIP-211).
So a group without offsets may have redriven what is older than that, and nothing that is younger.
"""

import time
from collections.abc import Mapping

import typer

from pyrklog.base.problems import Problem
from pyrklog.cli.connection import Connection, PartitionKey
from pyrklog.cli.failures import CliError
from pyrklog.cli.group_state import committed_offsets
from pyrklog.cli.topic_details import query_offsets

RETENTION = "offsets.retention.minutes"
RETENTION_MIN = 7 * 24 * 60
"""Kafka's default: where brokers do not tell theirs."""
_HOUR_MIN, _DAY_MIN = 60, 24 * 60


def check_first(
    connection: Connection,
    group: str,
    spans: Mapping[PartitionKey, tuple[int, int]],
    *,
    is_told_only: bool,
) -> None:
    """``spans``: where the records of each partition begin and end. Raises :class:`CliError` if the
    group has no offset of any, and some records are so old that it may have had one;
    ``is_told_only``: notes that."""
    filled = {key: span for key, span in spans.items() if span[0] < span[1]}
    if not filled or committed_offsets(connection, group, spans):
        return
    minutes = _retention_min(connection)
    if not _has_older(connection, filled, minutes):
        _note(connection, f"group {group} has no progress yet: it begins at the first record")
        return
    topic = min(filled)[0]
    age = _told(minutes)
    what = f"group {group} has no progress, and {topic} has records older than {age}"
    why = (
        "after so long without a run brokers forget what a group has redriven, so some may have "
        "been"
    )
    fix = (
        f"--again redrives all of them, also the first time; `pyrklog group seek {group} --topic "
        f"{topic} --to @-{age}` before leaves the older ones out"
    )
    if not is_told_only:
        raise CliError(Problem.PROGRESS_EXPIRED, what, fix, why=why)
    _note(connection, f"{what}: {why}; without --dry-run: {fix}")


def refuse_lost(
    connection: Connection,
    group: str,
    key: PartitionKey,
    offsets: tuple[int, int],
    *,
    is_told_only: bool,
) -> None:
    """``offsets``: the committed one, and the end of the partition before it. Raises
    :class:`CliError`, since nobody knows which of the records there were redriven;
    ``is_told_only``: notes that."""
    topic, partition = key
    committed, end = offsets
    what = (
        f"group {group} has redriven {topic} [{partition}] up to {committed}, but it ends at {end}"
    )
    why = (
        "its last records were lost, as by an unclean election, or the topic was created anew: "
        "which of the records were redriven is not known"
    )
    fix = (
        f"--again redrives all of them; `pyrklog group seek {group} --topic {topic} --to end` "
        "before leaves them out"
    )
    if not is_told_only:
        raise CliError(Problem.PROGRESS_EXPIRED, what, fix, why=why)
    _note(connection, f"{what}: {why}; without --dry-run: {fix}")


def _has_older(
    connection: Connection, filled: Mapping[PartitionKey, tuple[int, int]], minutes: int
) -> bool:
    from confluent_kafka.admin import OffsetSpec

    since_ms = time.time_ns() // 1_000_000 - minutes * 60_000
    if since_ms < 0:
        return False
    younger = query_offsets(connection, list(filled), OffsetSpec.for_timestamp(since_ms))
    return any(younger[key] < 0 or younger[key] > start for key, (start, _) in filled.items())


def _retention_min(connection: Connection) -> int:
    """That of one broker: all should have the same."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import ConfigResource, ResourceType

    broker = ConfigResource(ResourceType.BROKER, str(min(connection.metadata().brokers)))
    futures = connection.admin.describe_configs(
        [broker], request_timeout=connection.settings.timeout_s
    )
    try:
        (entries,) = [future.result() for future in futures.values()]
    except KafkaException:
        return RETENTION_MIN
    value = entries[RETENTION].value if RETENTION in entries else None
    return int(value) if value else RETENTION_MIN


def _told(minutes: int) -> str:
    for unit, length in (("d", _DAY_MIN), ("h", _HOUR_MIN)):
        if minutes % length == 0:
            return f"{minutes // length}{unit}"
    return f"{minutes}m"


def _note(connection: Connection, text: str) -> None:
    if not connection.settings.quiet:
        typer.echo(f"note: {text}", err=True)
