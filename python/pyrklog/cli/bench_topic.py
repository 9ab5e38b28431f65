"""The topic of a load: one of its own, which goes again, or one that is there."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from pyrklog.base.problems import Problem
from pyrklog.cli.connection import Connection, missing_topic
from pyrklog.cli.failures import CliError, cli_error

PREFIX = "pyrklog-bench-"
_LOOK_S = 0.05


@contextmanager
def topic_of(
    connection: Connection, name: str | None, *, partitions: int, replicas: int, keep: bool
) -> Iterator[str]:
    """``name``, which must exist and stays; or a new topic, deleted at the end unless ``keep``.
    Raises :class:`CliError` for a missing topic, and for one that cannot be made."""
    if name is not None:
        topics = connection.metadata().topics
        if name not in topics:
            raise missing_topic(name, list(topics))
        yield name
        return
    made = f"{PREFIX}{secrets.token_hex(4)}"
    _create(connection, made, partitions, replicas)
    try:
        yield made
    finally:
        if keep:
            typer.echo(f"note: topic {made} stays", err=True)
        else:
            _delete(connection, made)


def leaders_of(connection: Connection, topic: str) -> int:
    """How many brokers lead its partitions, once all have a leader. Raises :class:`CliError` if
    that takes longer than the time-out.

    A broker may learn of a new topic a moment after the controller has told that it is made."""
    deadline = time.monotonic() + connection.settings.timeout_s
    while True:
        found = connection.metadata().topics.get(topic)
        leaders = {one.leader for one in found.partitions.values()} if found is not None else set()
        if leaders and min(leaders) >= 0:
            return len(leaders)
        if time.monotonic() >= deadline:
            what = f"partitions of {topic} have no leader"
            raise CliError(Problem.NO_LEADER, what, "see `pyrklog cluster health`")
        time.sleep(_LOOK_S)


def _create(connection: Connection, name: str, partitions: int, replicas: int) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import NewTopic

    wanted = NewTopic(name, num_partitions=partitions, replication_factor=replicas)
    timeout_s = connection.settings.timeout_s
    futures = connection.admin.create_topics(
        [wanted], operation_timeout=timeout_s, request_timeout=timeout_s + 5.0
    )
    try:
        futures[name].result()
    except KafkaException as error:
        fix = "see `pyrklog cluster brokers`, and give fewer with --rf" if replicas > 1 else None
        raise cli_error(error.args[0], f"topic {name}", fix, topic=name) from None


def _delete(connection: Connection, name: str) -> None:
    """A topic that stays is told: the figures are there nevertheless."""
    from confluent_kafka import KafkaException

    try:
        connection.admin.delete_topics([name])[name].result()
    except KafkaException as error:
        why = cli_error(error.args[0], f"topic {name} stays")
        typer.echo(f"note: {why.what}; `pyrklog topic delete {name}` deletes it", err=True)
