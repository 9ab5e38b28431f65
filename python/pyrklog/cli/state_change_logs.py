"""``pyrklog log merge-state``: reads logs from files or brokers, and prints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer

from pyrklog.cli.admin_common import connect
from pyrklog.cli.broker_connection import BrokerConnection
from pyrklog.cli.cluster_reading import read_state
from pyrklog.cli.cluster_views import is_plain
from pyrklog.cli.failures import CliError, Exit
from pyrklog.cli.options import OutputFormat, Settings
from pyrklog.cli.output import Listing, print_listing
from pyrklog.cli.state_changes import COLUMNS, SCHEMA, Filter, parse, read_paths, timeline
from pyrklog.protocol.errors import ErrorCode
from pyrklog.protocol.verification import STATE_CHANGES, StateChangesRequest

PIECE_BYTES = 2**20
WRONG_SHOWN_MAX = 5


def merge(settings: Settings, paths: Sequence[Path], wanted: Filter, output: OutputFormat) -> Exit:
    """Prints the timeline; returns the exit code. Raises :class:`CliError` without any log."""
    errors: list[str] = []
    cluster_id = None
    if paths:
        logs = read_paths(paths)
    else:
        logs, cluster_id = _of_brokers(settings, errors)
    changes = [parse(source, data, errors) for source, data in logs.items()]
    items = list(timeline(changes, wanted))
    print_listing(Listing(SCHEMA, COLUMNS, items, cluster_id), output)
    for error in errors[:WRONG_SHOWN_MAX]:
        typer.echo(f"error: {error}", err=True)
    if len(errors) > WRONG_SHOWN_MAX:
        typer.echo(f"error: {len(errors) - WRONG_SHOWN_MAX} more like these", err=True)
    return Exit.PARTIAL if errors else Exit.OK


def _of_brokers(settings: Settings, errors: list[str]) -> tuple[dict[str, bytes], str | None]:
    connection = connect(settings)
    if not is_plain(settings):
        what = "this command reaches brokers over plain text only"
        raise CliError(Exit.FAILED, what, "name their files instead")
    state = read_state(connection)
    logs: dict[str, bytes] = {}
    for one in state.brokers:
        try:
            with BrokerConnection((one.host, one.port), settings.timeout_s) as broker:
                logs[f"broker {one.number}"] = _log_of(broker)
        except OSError as error:
            errors.append(f"broker {one.number} at {one.host}:{one.port}: {error}")
    if not logs:
        raise CliError(Exit.UNREACHABLE, "; ".join(errors) or "no broker is alive", "name files")
    return logs, state.cluster_id


def _log_of(broker: BrokerConnection) -> bytes:
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
