"""Offsets and options of topics."""

import time
from collections.abc import Sequence
from typing import Any

from pyrklog.base.problems import Problem
from pyrklog.cli.connection import Connection
from pyrklog.cli.failures import CliError, Exit, cli_error, exit_code, problem_of_all
from pyrklog.cli.option_advice import advice, like_or_listed
from pyrklog.errors import ErrorCode

_OTHER_EPOCHS = (ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.FENCED_LEADER_EPOCH)
"""The client has heard of the next leader before that one, or after."""
_LEADER_MOVES = (
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    *_OTHER_EPOCHS,
)
_ASKED_AGAIN_SECONDS = 0.1


def url_safe(uuid: str) -> str:
    """A topic's id as in Kafka's tools and ``partition.metadata`` (RFC 4648, section 5)."""
    return uuid.replace("+", "-").replace("/", "_").rstrip("=")


def query_offsets(
    connection: Connection, places: Sequence[tuple[str, int]], spec: Any, *, committed: bool = False
) -> dict[tuple[str, int], int]:
    """The offset of ``spec`` in each partition; -1 if no record is at or after a time.

    Retries while leaders move, which librdkafka does not.
    """
    from confluent_kafka import IsolationLevel, KafkaException, TopicPartition

    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    deadline = time.monotonic() + connection.settings.timeout_s
    found: dict[tuple[str, int], int] = {}
    while missing := [place for place in places if place not in found]:
        futures = connection.admin.list_offsets(
            {TopicPartition(*place): spec for place in missing},
            isolation_level=level,
            request_timeout=connection.settings.timeout_s,
        )
        is_stale = False
        for place, future in futures.items():
            try:
                found[place.topic, place.partition] = future.result().offset
            except KafkaException as error:
                code = error.args[0].code()
                if code in _LEADER_MOVES and time.monotonic() < deadline:
                    is_stale |= code in _OTHER_EPOCHS
                    continue
                about = f"offsets of {place.topic} [{place.partition}]"
                raise connection.explain(error.args[0], about) from None
        if len(found) < len(set(places)):
            time.sleep(_ASKED_AGAIN_SECONDS)
        if is_stale:
            # librdkafka would ask with the same epoch again.
            connection.metadata()
    return found


def describe_configs(
    connection: Connection, names: list[str], *, skips_missing: bool = False
) -> dict[str, list[dict[str, Any]]]:
    """Options of each topic by name: value, source, whether hidden or read-only.

    A missing topic is an error, unless ``skips_missing``.
    """
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import ConfigResource, ConfigSource, ResourceType

    futures = connection.admin.describe_configs(
        [ConfigResource(ResourceType.TOPIC, name) for name in names],
        request_timeout=connection.settings.timeout_s,
    )
    found: dict[str, list[dict[str, Any]]] = {}
    for resource, future in futures.items():
        try:
            entries = future.result()
        except KafkaException as error:
            if skips_missing and exit_code(error.args[0]) is Exit.NOT_FOUND:
                continue
            raise connection.explain(error.args[0], f"topic {resource.name}") from None
        found[resource.name] = [
            {
                "name": entry.name,
                "value": entry.value,
                "source": _source(ConfigSource(entry.source).name),
                "sensitive": bool(entry.is_sensitive),
                "read_only": bool(entry.is_read_only),
            }
            for entry in sorted(entries.values(), key=lambda entry: str(entry.name))
        ]
    return found


def _source(name: str) -> str:
    """``DYNAMIC_TOPIC_CONFIG`` -> ``topic``, and so on."""
    words = name.removesuffix("_CONFIG").lower().split("_")
    return "topic" if "topic" in words else "-".join(words)


UNCONFIRMED = "pyrklog.adopted.unconfirmed"
_CENTURY_MS = "3155760000000"
_KEPT_BY_ADOPTION = {
    "cleanup.policy": "delete",
    "delete.retention.ms": _CENTURY_MS,
    "min.compaction.lag.ms": _CENTURY_MS,
    "retention.bytes": "-1",
    "retention.ms": "-1",
}
"""Values of adopted topics for options that are not known, until they are confirmed."""


def to_confirm(
    connection: Connection, names: list[str], changes: dict[str, str], unset: list[str]
) -> list[tuple[list[str], list[str]]]:
    """Topics and the options to reset so that they get ``changes`` and else the defaults.

    Values set since stay. Raises :class:`CliError` for a topic that waits for no confirmation.
    """
    connection.topic_partitions(names)
    options = {
        name: {entry["name"]: entry["value"] for entry in entries}
        for name, entries in describe_configs(connection, names).items()
    }
    for name in names:
        if UNCONFIRMED not in options[name]:
            raise CliError(
                Problem.ARGUMENTS_DISAGREE,
                f"topic {name} waits for no confirmation",
                "only topics taken over without their options do (see `topic describe --configs`)",
            )
    groups: dict[tuple[str, ...], list[str]] = {}
    for name in names:
        wanted = [*unset, *_untouched(options[name]), UNCONFIRMED]
        gone = tuple(option for option in dict.fromkeys(wanted) if option not in changes)
        groups.setdefault(gone, []).append(name)
    return [(some, list(gone)) for gone, some in groups.items()]


def _untouched(options: dict[str, Any]) -> list[str]:
    """Options that still have the values of the adoption."""
    marked = str(options[UNCONFIRMED]).split(",")
    given = {**_KEPT_BY_ADOPTION}
    # Not above the topic's largest.
    given["min.compaction.lag.ms"] = str(
        min(int(_CENTURY_MS), int(options["max.compaction.lag.ms"]))
    )
    return [option for option in given if option in marked and options[option] == given[option]]


def alter_configs(
    connection: Connection,
    names: list[str],
    changes: dict[str, str],
    unset: list[str],
    dry_run: bool,
) -> list[str]:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    connection.topic_partitions(names)
    before = describe_configs(connection, names)
    for name in names:
        _refuse_unknown(name, unset, [entry["name"] for entry in before[name]])
    operations: list[tuple[str, str | None, Any]] = [
        (name, value, AlterConfigOpType.SET) for name, value in changes.items()
    ]
    operations += [(name, None, AlterConfigOpType.DELETE) for name in unset]
    resources = [
        ConfigResource(
            ResourceType.TOPIC,
            name,
            incremental_configs=[
                ConfigEntry(option, value, incremental_operation=operation)
                for option, value, operation in operations
            ],
        )
        for name in names
    ]
    futures = connection.admin.incremental_alter_configs(
        resources, validate_only=dry_run, request_timeout=connection.settings.timeout_s
    )
    codes: list[Exit] = []
    errors: list[CliError] = []
    for resource, future in futures.items():
        try:
            future.result()
            codes.append(Exit.OK)
        except KafkaException as error:
            codes.append(exit_code(error.args[0]))
            known = [entry["name"] for entry in before[resource.name]]
            fix = advice(str(error.args[0].str()), changes, known)
            errors.append(cli_error(error.args[0], f"topic {resource.name}", fix))
    if errors:
        what = "; ".join(error.what for error in errors)
        raise CliError(problem_of_all(errors, codes), what, errors[0].fix)
    touched = [option for option, _, _ in operations]
    if dry_run:
        return [f"{name}: {', '.join(touched)} would be changed" for name in names]
    after = describe_configs(connection, names)
    return [
        f"{name}: {option} {_value(before[name], option)} -> {_value(after[name], option)}"
        for name in names
        for option in touched
    ]


def _refuse_unknown(topic: str, options: Sequence[str], known: Sequence[str]) -> None:
    """Refuses to reset unknown options, which the broker would silently accept."""
    for option in options:
        if option not in known:
            what = f"topic {topic} has no option {option}"
            raise CliError(
                Problem.OPTION_NOT_CHANGED, what, like_or_listed(option, known, "topic", topic)
            )


def _value(entries: list[dict[str, Any]], option: str) -> str:
    for entry in entries:
        if entry["name"] == option:
            return "(hidden)" if entry["sensitive"] else str(entry["value"])
    return "(none)"
