"""``pyrklog log merge-state``: reads logs from files or brokers, and prints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyrklog.base.problems import Problem
from pyrklog.cli.admin_common import connect
from pyrklog.cli.broker_connection import BrokerConnection
from pyrklog.cli.cluster_reading import read_state
from pyrklog.cli.cluster_views import is_plain
from pyrklog.cli.config_cluster import refuse_others
from pyrklog.cli.connection import missing_topic
from pyrklog.cli.failures import CliError, Exit, tell
from pyrklog.cli.options import OutputFormat, Settings
from pyrklog.cli.output import Listing, print_listing
from pyrklog.cli.state_changes import COLUMNS, SCHEMA, Change, Filter, parse, read_paths, timeline
from pyrklog.observability.health_rules import ClusterState
from pyrklog.protocol.errors import ErrorCode
from pyrklog.protocol.verification import STATE_CHANGES, StateChangesRequest

PIECE_BYTES = 2**20
WRONG_SHOWN_MAX = 5


def merge(settings: Settings, paths: Sequence[Path], wanted: Filter, output: OutputFormat) -> Exit:
    """Prints the timeline; returns the exit code. Raises :class:`CliError` without any log."""
    errors: list[str] = []
    state = None
    if paths:
        logs = read_paths(paths)
    else:
        state = _state(settings)
        logs = _of_brokers(state, settings, errors)
    cluster_id = None if state is None else state.cluster_id
    changes = [parse(source, data, errors) for source, data in logs.items()]
    if wanted.topic is not None and not errors:
        _refuse_unknown(wanted.topic, changes, state)
    items = list(timeline(changes, wanted))
    print_listing(Listing(SCHEMA, COLUMNS, items, cluster_id), output)
    for error in errors[:WRONG_SHOWN_MAX]:
        tell(CliError(Problem.PARTLY_DONE, error))
    if len(errors) > WRONG_SHOWN_MAX:
        more = f"{len(errors) - WRONG_SHOWN_MAX} more like these"
        tell(CliError(Problem.PARTLY_DONE, more))
    return Exit.PARTIAL if errors else Exit.OK


def _refuse_unknown(
    topic: str, logs: Sequence[Sequence[Change]], state: ClusterState | None
) -> None:
    """Raises :class:`CliError` for a topic that no line of any time names, and that does not
    exist."""
    if any(change.fields.get("topic") == topic for log in logs for change in log):
        return
    if state is None:
        raise CliError(Problem.NO_DATA, f"no log has a line about a topic {topic}")
    existing = sorted({one.topic for one in state.partitions})
    if topic not in existing:
        raise missing_topic(topic, existing)


def _state(settings: Settings) -> ClusterState:
    connection = connect(settings)
    if not is_plain(settings):
        what = "this command reaches brokers over plain text only"
        raise CliError(Problem.PLAIN_TEXT_ONLY, what, "name their files instead")
    refuse_others(settings, "name files of pyrklog's brokers, or use kafka-topics.sh --describe")
    return read_state(connection)


def _of_brokers(state: ClusterState, settings: Settings, errors: list[str]) -> dict[str, bytes]:
    logs: dict[str, bytes] = {}
    for one in state.brokers:
        try:
            with BrokerConnection((one.host, one.port), settings.timeout_s) as broker:
                logs[f"broker {one.number}"] = log_of(broker)
        except OSError as error:
            errors.append(f"broker {one.number} at {one.host}:{one.port}: {error}")
    if not logs:
        raise CliError(Problem.NO_BROKER, "; ".join(errors) or "no broker is alive", "name files")
    return logs


def log_of(broker: BrokerConnection) -> bytes:
    """Both files of a broker. Raises :class:`OSError`."""
    file_id, written = _file(broker, older=False)
    older_id, older = _file(broker, older=True)
    # If the current file was rotated meanwhile, the older one has all of it.
    return older if older_id == file_id else older + written


def _file(broker: BrokerConnection, *, older: bool) -> tuple[int, bytes]:
    found = bytearray()
    first_id = 0
    while True:
        asked = StateChangesRequest(older, len(found), PIECE_BYTES)
        answer = broker.ask(STATE_CHANGES, 0, asked)
        if answer.error_code:
            raise OSError(ErrorCode(answer.error_code).name)
        if not found:
            first_id = answer.file_id
        elif answer.file_id != first_id:
            # The file was rotated: its read part is in the older file.
            found.clear()
            continue
        if not answer.data:
            return first_id, bytes(found)
        found += answer.data
