"""``pyrklog cluster txns``: list, describe, producers, abort; on any Kafka cluster."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from pyrklog.base.problems import Problem
from pyrklog.cli.admin_common import confirm, connect, show
from pyrklog.cli.durations import parse_seconds
from pyrklog.cli.failures import CliError, Exit, refuse_empty, tell
from pyrklog.cli.options import (
    CONNECTION,
    INT32_MAX,
    OnlySaid,
    Output,
    OutputFormat,
    Settings,
    Yes,
    argument,
    command,
    command_group,
    option,
)

if TYPE_CHECKING:
    from pyrklog.cli.connection import PartitionKey
    from pyrklog.cli.txns_admin import Marker, TransactionAdmin
    from pyrklog.cli.txns_hanging import OpenTransaction

app = command_group("See transactions, find those that hang, and abort them.")

INT16_MAX = 2**15 - 1
INT64_MAX = 2**63 - 1
HANGING_AFTER = "15m"
"""Kafka's default of ``transaction.max.timeout.ms``: no transaction may be open for longer."""


@contextmanager
def _admin(options: Settings) -> "Iterator[tuple[TransactionAdmin, str | None]]":
    """Asks the cluster; also its id."""
    from pyrklog.cli.cluster_requests import ClusterRequests
    from pyrklog.cli.txns_admin import TransactionAdmin

    with ClusterRequests(options, instead="kafka-transactions.sh") as requests:
        connect(options).check_properties()
        yield TransactionAdmin(requests), requests.metadata(()).cluster_id


@command(app, "list", *CONNECTION)
def list_transactions(
    options: Settings,
    states: list[str] | None = option("--state STATE", "Only ids in it; may be repeated.", None),
    producer_ids: list[int] | None = option(
        "--producer-id N", "Only this producer's; may be repeated.", None, min=0, max=INT64_MAX
    ),
    longer_than: str | None = option(
        "--longer-than TIME",
        "Only transactions open for longer, such as 90s (Kafka 3.8 or later); with --hanging: "
        f"without a record for so long, default {HANGING_AFTER}.",
        None,
    ),
    hanging: bool = option(
        "--hanging", "Transactions open in a partition that no coordinator will end.", False
    ),
    topics: list[str] | None = option(
        "-t, --topic TOPIC[:P]", "With --hanging: look only there; may be repeated.", None
    ),
    broker: int | None = option(
        "--broker N",
        "With --hanging: ask this broker for its replicas, not the leaders.",
        None,
        min=0,
        max=INT32_MAX,
    ),
    output: Output = OutputFormat.TABLE,
) -> None:
    """List transactional ids with their coordinators, or hanging transactions (--hanging)."""
    from pyrklog.cli import txns_tables
    from pyrklog.cli.too_few_brokers import tell_too_few_brokers
    from pyrklog.transactions.manager import TRANSACTION_TOPIC

    longer_ms = None if longer_than is None else _milliseconds(longer_than)
    if hanging:
        if states or producer_ids:
            what = "--hanging excludes --state and --producer-id"
            raise CliError(
                Problem.ARGUMENTS_DISAGREE, what, "they are of transactions that coordinators know"
            )
        _list_hanging(options, topics or [], broker, longer_than, output)
        return
    if topics or broker is not None:
        raise CliError(Problem.ARGUMENTS_DISAGREE, "--topic and --broker need --hanging")
    known = _states(states or [])
    with _admin(options) as (admin, cluster_id):
        longer = {} if longer_ms is None else {"longer_than_ms": longer_ms}
        found = admin.listed(known, producer_ids or (), **longer)
        show(txns_tables.listed(found, cluster_id), output)
    if not found:
        tell_too_few_brokers(options, TRANSACTION_TOPIC)


def _list_hanging(
    options: Settings,
    topics: Sequence[str],
    broker: int | None,
    longer_than: str | None,
    output: OutputFormat,
) -> None:
    from pyrklog.cli import txns_tables
    from pyrklog.cli.cluster_election import parse_places
    from pyrklog.cli.txns_admin import now_ms
    from pyrklog.cli.txns_hanging import find_hanging

    wanted = parse_places(topics).topics
    now = now_ms()
    longer = longer_than or HANGING_AFTER
    before_ms = now - _milliseconds(longer)
    with _admin(options) as (admin, cluster_id):
        found = find_hanging(admin, wanted, broker, before_ms=before_ms)
        show(txns_tables.hanging(found, now, cluster_id), output)
        if not found and not options.quiet:
            typer.echo(_none_hangs(longer), err=True)
        _tell_without_leader(admin.without_leader)


def _none_hangs(longer: str) -> str:
    unit = " s" if longer.strip()[-1:].isdecimal() else ""
    return (
        f"note: none without a coordinator has been idle for {longer}{unit} (--longer-than); "
        "`pyrklog cluster txns list --state Ongoing` lists open ones that have one"
    )


def _tell_without_leader(keys: "Sequence[PartitionKey]") -> None:
    if not keys:
        return
    (topic, index), count = keys[0], len(keys)
    partitions = "1 partition has" if count == 1 else f"{count} partitions have"
    what = f"note: {partitions} no leader, such as {topic} [{index}], and told nothing"
    typer.echo(what, err=True)
    raise typer.Exit(Exit.PARTIAL)


def _states(given: Sequence[str]) -> list[str]:
    from pyrklog.cli.txns_admin import STATES

    known = {name.lower(): name for name in STATES}
    for one in given:
        if one.lower() not in known:
            what = f"--state {one!r} is no state of a transaction"
            raise CliError(Problem.ARGUMENT_VALUE, what, f"one of {', '.join(STATES)}")
    return [known[one.lower()] for one in given]


def _milliseconds(text: str) -> int:
    return min(INT64_MAX, int(parse_seconds(text, "--longer-than") * 1000))


@command(app, "describe", *CONNECTION)
def describe(
    options: Settings,
    ids: list[str] = argument("ID..."),
    output: Output = OutputFormat.TABLE,
) -> None:
    """Describe transactional ids: state, time-out, age and partitions of the transaction."""
    from pyrklog.cli import txns_tables
    from pyrklog.cli.txns_admin import now_ms

    refuse_empty("ID", "transactional id", ids)
    with _admin(options) as (admin, cluster_id):
        found, unknown = admin.described(ids)
        if found or not unknown:
            show(txns_tables.described(found, now_ms(), cluster_id), output)
    for one in unknown:
        tell(_unknown(one))
    if unknown:
        raise typer.Exit(Exit.PARTIAL if found else Exit.NOT_FOUND)


def _unknown(transactional_id: str) -> CliError:
    from pyrklog.cli.output import cell

    what = f"transactional id {cell(transactional_id)} does not exist"
    return CliError(Problem.TRANSACTION_NOT_FOUND, what, "see `pyrklog cluster txns list`")


@command(app, "producers", *CONNECTION)
def producers(
    options: Settings,
    places: list[str] = argument("TOPIC[:P]..."),
    broker: int | None = option(
        "--broker N", "Ask this broker, not the leaders.", None, min=0, max=INT32_MAX
    ),
    output: Output = OutputFormat.TABLE,
) -> None:
    """List the producers that partitions know. START is where an open transaction begins."""
    from pyrklog.cli import txns_tables
    from pyrklog.cli.cluster_election import parse_places

    wanted = parse_places(places).topics
    with _admin(options) as (admin, cluster_id):
        found = sorted(admin.producers(wanted, broker), key=lambda one: one[0])
        show(txns_tables.producers(found, cluster_id), output)


@command(app, "abort", *CONNECTION, "quiet")
def abort(
    options: Settings,
    transactional_id: str | None = argument(
        "ID", "A transactional id: its producer is fenced.", None
    ),
    partition: str | None = option(
        "--partition TOPIC:P", "Instead: end a hanging transaction in this partition.", None
    ),
    start_offset: int | None = option(
        "--start-offset N", "Where it begins there.", None, min=0, max=INT64_MAX
    ),
    producer_id: int | None = option(
        "--producer-id N",
        "Instead of --start-offset, for brokers before 3.0, with the next two.",
        None,
        min=0,
        max=INT64_MAX,
    ),
    producer_epoch: int | None = option(
        "--producer-epoch N", "Its epoch.", None, min=0, max=INT16_MAX
    ),
    coordinator_epoch: int | None = option(
        "--coordinator-epoch N", "Its coordinator's epoch; -1: none.", None, min=-1, max=INT32_MAX
    ),
    force: bool = option("--force", "Also if a coordinator knows the transaction.", False),
    yes: Yes = False,
    dry_run: OnlySaid = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Abort the transaction of a transactional id, or a hanging one in a partition."""
    from pyrklog.cli import txns_tables

    if transactional_id is not None and partition is not None:
        what = "ID and --partition exclude each other"
        raise CliError(
            Problem.ARGUMENTS_DISAGREE, what, "with ID the coordinator ends it in all partitions"
        )
    if transactional_id is None and partition is None:
        raise CliError(
            Problem.ARGUMENT_MISSING, "which transaction?", "give ID, or --partition TOPIC:P"
        )
    marker = _marker(producer_id, producer_epoch, coordinator_epoch)
    if partition is None and (start_offset is not None or marker is not None or force):
        raise CliError(
            Problem.ARGUMENTS_DISAGREE,
            "--start-offset, --producer-... and --force need --partition",
        )
    if partition is not None and (start_offset is None) == (marker is None):
        what = "which transaction of the partition?"
        raise CliError(
            Problem.ARGUMENT_MISSING, what, "give --start-offset, see `cluster txns list --hanging`"
        )
    refuse_empty("ID", "transactional id", [] if transactional_id is None else [transactional_id])
    key = None if partition is None else _one_place(partition)
    with _admin(options) as (admin, cluster_id):
        if key is None:
            item = _abort_id(admin, transactional_id or "", yes=yes, dry_run=dry_run)
        else:
            item = _abort_there(
                admin, key, start_offset, marker, force=force, yes=yes, dry_run=dry_run
            )
        if not options.quiet:
            show(txns_tables.aborted(item, cluster_id), output)


def _marker(
    producer_id: int | None, producer_epoch: int | None, coordinator_epoch: int | None
) -> "Marker | None":
    from pyrklog.cli.txns_admin import Marker

    given = (producer_id, producer_epoch, coordinator_epoch)
    if given == (None, None, None):
        return None
    if producer_id is None or producer_epoch is None or coordinator_epoch is None:
        what = "--producer-id, --producer-epoch and --coordinator-epoch belong together"
        raise CliError(Problem.ARGUMENTS_DISAGREE, what)
    return Marker(producer_id, producer_epoch, coordinator_epoch)


def _one_place(text: str) -> "PartitionKey":
    from pyrklog.cli.cluster_election import parse_places

    ((topic, indices),) = parse_places([text]).topics.items()
    if len(indices) != 1:
        raise CliError(Problem.ARGUMENT_VALUE, f"--partition takes TOPIC:PARTITION, not {text!r}")
    return topic, indices[0]


def _abort_id(
    admin: "TransactionAdmin", transactional_id: str, *, yes: bool, dry_run: bool
) -> Mapping[str, Any]:
    from pyrklog.cli import txns_tables
    from pyrklog.cli.output import cell

    found, _ = admin.described([transactional_id])
    if not found:
        raise _unknown(transactional_id)
    state = found[0].state
    about = f"transactional id {cell(transactional_id)}"
    if state.transaction_state.startswith("Prepare"):
        what = f"{about} is in {state.transaction_state}: its coordinator is ending it"
        raise CliError(
            Problem.TRANSACTION_IN_HAND, what, "wait, or see `cluster txns list --hanging`"
        )
    if state.transaction_state != "Ongoing":
        what = f"{about} has no open transaction, it is in {cell(state.transaction_state)}"
        raise CliError(
            Problem.TRANSACTION_NOT_FOUND, what, "see `cluster txns list --state Ongoing`"
        )
    if not dry_run:
        if not yes:
            action = "abort its transaction and fence its producer"
            confirm([transactional_id], action, noun="aborting", done="aborted")
        admin.fence(state)
    return txns_tables.aborted_id(state, dry_run=dry_run)


def _abort_there(
    admin: "TransactionAdmin",
    key: "PartitionKey",
    start_offset: int | None,
    marker: "Marker | None",
    *,
    force: bool,
    yes: bool,
    dry_run: bool,
) -> Mapping[str, Any]:
    from pyrklog.cli import txns_tables
    from pyrklog.cli.txns_admin import Marker

    if marker is None:
        producer = _open_at(admin, key, start_offset, force=force).producer
        marker = Marker(producer.producer_id, producer.producer_epoch, producer.coordinator_epoch)
    if not dry_run:
        if not yes:
            action = "abort a transaction in it"
            confirm([f"{key[0]}:{key[1]}"], action, noun="aborting", done="aborted")
        admin.write_abort(key, marker)
    return txns_tables.aborted_there(key, marker, start_offset, dry_run=dry_run)


def _open_at(
    admin: "TransactionAdmin", key: "PartitionKey", start_offset: int | None, *, force: bool
) -> "OpenTransaction":
    """The partition's transaction that begins at an offset. Refuses one that a coordinator knows:
    an abort in one partition would tear it."""
    from pyrklog.cli import txns_hanging
    from pyrklog.cli.output import cell

    topic, index = key
    found = txns_hanging.open_transactions(admin, {topic: [index]})
    matching = [one for one in found if one.start_offset == start_offset]
    if not matching:
        if not found:
            what = f"{topic} [{index}] has no open transaction"
            raise CliError(
                Problem.TRANSACTION_NOT_FOUND, what, "see `pyrklog cluster txns list --hanging`"
            )
        starts = ", ".join(str(one.start_offset) for one in found[:5])
        what = f"no open transaction of {topic} [{index}] starts at {start_offset}"
        raise CliError(Problem.TRANSACTION_NOT_FOUND, what, f"open ones start at {starts}")
    one = matching[0]
    known = None if force else txns_hanging.owner(one, txns_hanging.owners(admin, [one]))
    if known is not None:
        name = cell(known.transactional_id)
        what = f"transactional id {name} has this transaction, in {known.transaction_state}"
        raise CliError(
            Problem.TRANSACTION_IN_HAND, what, f"`cluster txns abort {name}`, or --force"
        )
    return one
