"""Moves of an expansion that are under way: a later command goes on with them, and takes their
throttle away once nothing moves."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import typer

from pyrklog.cli.admin_common import say
from pyrklog.cli.connection import Connection, PartitionKey
from pyrklog.cli.expansion import backlogs, rates_at_run_time
from pyrklog.cli.failures import Exit
from pyrklog.cli.options import OutputFormat, Settings
from pyrklog.cli.reassign_cluster import ReassignmentAdmin, target_of
from pyrklog.cli.reassign_rate import Rate
from pyrklog.cli.reassign_run import conclude, outlast, watch
from pyrklog.cli.throttles import FILL_RATE, Throttles
from pyrklog.protocol.reassignments import OngoingPartitionReassignment

Moving = Mapping[PartitionKey, OngoingPartitionReassignment]


class Expansion(NamedTuple):
    """``brokers``: the new ones."""

    connection: Connection
    admin: ReassignmentAdmin
    options: Settings
    output: OutputFormat
    cluster_id: str | None
    brokers: Collection[int]

    @property
    def where(self) -> str:
        """`` to broker 4``; nothing for all brokers."""
        return f" to broker {_listed(self.brokers)}" if self.brokers else ""


def how_to_end(brokers: Collection[int]) -> str:
    """What to do about moves and a throttle that a command leaves when it is stopped."""
    command = f"`pyrklog cluster expand --broker {_listed(brokers)}"
    goes = f"the same command goes on, {command} --cancel` ends it"
    return f"{goes}, {command} --status` takes the throttle away once it is done"


def go_on(known: Expansion, moving: Moving, throttle: str | None) -> Exit:
    """Waits for moves that another command has begun, at this throttle, and takes it away."""
    rate = None if throttle is None else Rate(known.connection, known.admin, throttle)
    targets = {key: target_of(one) for key, one in moving.items()}
    try:
        if rate is not None:
            partial = {
                key
                for key, lacks in backlogs(known.admin, moving).items()
                if any(one.is_partial for one in lacks)
            }
            filled = {key: after for key, after in targets.items() if key in partial}
            copied = {key: after for key, after in targets.items() if key not in partial}
            say(known.options, rate.begin(known.admin.origins()[0], copied, filled))

        def step() -> None:
            said = None if rate is None else rate.step()
            say(known.options, *([said] if said else []))

        shown = known.admin, known.options, set(targets), known.output, known.cluster_id
        watch(*shown, step=step)
        outlast(lambda: end_throttle(known))
    except BaseException:
        told = f"what moves, moves on; {how_to_end(known.brokers)}"
        typer.echo(f"note: {told}", err=True)
        raise
    return outlast(lambda: conclude(known.admin, known.options, targets))


def end_throttle(known: Expansion, ended: Collection[PartitionKey] = ()) -> None:
    """Takes away what is named of moves to these brokers that are over, and the rates of their
    back-fills, without those of brokers that get more. ``ended``: moves that have just been
    cancelled. A rate of 0 holds back-fills up, and is no plan's."""
    throttles = Throttles(known.connection, known.admin)
    if ended:
        throttles.end(ended)
    for broker in known.brokers:
        throttles.end_of(broker)
    busy = {
        broker
        for key, one in known.admin.moving().items()
        if key not in ended
        for broker in one.adding_replicas
    }
    over = rates_at_run_time(known.admin, set(known.brokers) - busy)
    throttles.set_fill_rate(over, None)
    for broker in over:
        say(known.options, f"{FILL_RATE} of broker {broker} is that of its own options again")


def tell_left(known: Expansion) -> None:
    """Where no broker is named and nothing moves: rates that may be what a stopped command left."""
    live = [one.broker_id for one in known.admin.describe().brokers]
    for broker, rate in rates_at_run_time(known.admin, live).items():
        fix = f"`pyrklog cluster expand --broker {broker} --status` takes it away"
        told = f"nothing moves, and broker {broker} has {FILL_RATE}={rate} still; {fix}"
        typer.echo(f"note: {told}", err=True)


def _listed(brokers: Collection[int]) -> str:
    return ",".join(map(str, sorted(brokers)))
