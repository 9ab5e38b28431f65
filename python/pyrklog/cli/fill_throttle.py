"""The end of a throttle of back-fills: an option of the new brokers, which other plans, or the
operator, may have set meanwhile."""

from __future__ import annotations

import time
from collections.abc import Collection

import typer

from pyrklog.balance.record import Record
from pyrklog.cli.connection import PartitionKey
from pyrklog.cli.expansion import backlogs, fill_rates
from pyrklog.cli.reassign_cluster import ReassignmentAdmin
from pyrklog.cli.reassign_plan import AUTO, parse_throttle
from pyrklog.cli.reassign_rate import fresh_brokers
from pyrklog.cli.throttles import FILL_RATE, Throttles

NO_FILL = "0"
"""A rate that a broker keeps in any case."""
SETTLED_S = 1.0
SETTLED_PAUSE_S = 0.1


def end_fills(admin: ReassignmentAdmin, throttles: Throttles, record: Record | None) -> None:
    """Brokers that a throttled plan had back-fill do so at their own rates again."""
    if record is None or record.throttle is None:
        return
    filled = {key: record.after[key] for key in record.at_end}
    rate = None if record.throttle == AUTO else parse_throttle(record.throttle)
    brokers = fresh_brokers(record.before, filled)
    end_rate(admin, throttles, brokers, record.entries.keys(), rate)


def end_rate(
    admin: ReassignmentAdmin,
    throttles: Throttles,
    brokers: Collection[int],
    done: Collection[PartitionKey],
    rate_bytes: int | None = None,
) -> None:
    """Takes the rate of these brokers' back-fills away, without those that back-fill for other
    moves than the ``done`` ones. ``rate_bytes``: what it was set to; None: it followed the
    brokers, or is not known. Another value is not the plan's, and 0 never is."""
    ending = _of_plan(admin, brokers, rate_bytes) if brokers else set()
    busy = _filling_for_others(admin, ending, done) if ending else set()
    if busy:
        note = f"broker {_list(busy)} back-fills for other moves still: {FILL_RATE} stays"
        fix = "`pyrklog config alter --unset` takes it away"
        typer.echo(f"note: {note}; {fix}", err=True)
    throttles.set_fill_rate(ending - busy, None)


def _of_plan(
    admin: ReassignmentAdmin, brokers: Collection[int], rate_bytes: int | None
) -> set[int]:
    """Brokers that have the plan's rate. What they tell may be a moment old."""
    deadline = time.monotonic() + SETTLED_S
    while True:
        rates = fill_rates(admin, brokers)
        given = {broker for broker, rate in rates.items() if rate not in (None, NO_FILL)}
        found = {b for b in given if rate_bytes is None or rates[b] == str(rate_bytes)}
        if found == given or time.monotonic() > deadline:
            break
        time.sleep(SETTLED_PAUSE_S)
    silent = set(brokers) - rates.keys()
    if silent:
        typer.echo(f"note: broker {_list(silent)} does not answer: {FILL_RATE} stays", err=True)
    return found


def _filling_for_others(
    admin: ReassignmentAdmin, brokers: set[int], done: Collection[PartitionKey]
) -> set[int]:
    """Those with new replicas that lack older records, or do not tell yet whether they do."""
    others = {
        key: one
        for key, one in admin.moving().items()
        if key not in done and not brokers.isdisjoint(one.adding_replicas)
    }
    return brokers & {
        one.broker
        for lacks in backlogs(admin, others).values()
        for one in lacks
        if one.is_partial or one.start is None or one.leader_start is None
    }


def _list(brokers: Collection[int]) -> str:
    return ",".join(map(str, sorted(brokers)))
