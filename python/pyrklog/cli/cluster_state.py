"""A cluster's health for people, and why a cluster does not answer."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from pyrklog.base.problems import Problem
from pyrklog.cli.failures import CliError
from pyrklog.cli.output import columns
from pyrklog.observability.health_rules import (
    ClusterState,
    Reason,
    count_of,
    examine,
    is_healthy,
)

HEALTH_COLUMNS = columns("kind, severity, what, broker>, partitions, fix")

_CAUSES = ("advertised", "log_dir_full", "log_dir_failed", "offline", "below_min_isr", "silent")


def cause(state: ClusterState, topics: Collection[str]) -> CliError | None:
    """Why the cluster does not answer requests, or those for these topics; None if it does.

    Only directories of brokers that lead partitions of the topics count.
    """
    leaders = {one.leader for one in state.partitions if one.topic in topics}
    mine = [one for one in state.partitions if one.topic in topics]
    dirs = [one for one in state.log_dirs if one.broker in leaders]
    reasons = {one.kind: one for one in examine(replace(state, partitions=mine, log_dirs=dirs))}
    for kind in _CAUSES:
        if kind in reasons and (kind != "silent" or reasons[kind].broker in leaders or not topics):
            return CliError(Problem.BROKER_REFUSED, reasons[kind].what, reasons[kind].fix)
    return None


def health_page(state: ClusterState, reasons: Sequence[Reason]) -> str:
    """The verdict for people: a line, and one for each further reason."""
    rows: list[tuple[str, str]] = [
        (reason.severity if reason.severity in ("warning", "info") else "", _told(reason))
        for reason in reasons
    ]
    if is_healthy(reasons):
        brokers = "1 broker" if len(state.brokers) == 1 else f"{len(state.brokers)} brokers"
        what = f"{brokers} · {count_of(state.partitions)} · controller {state.controller}"
        rows.insert(0, ("HEALTHY", what))
    else:
        # Errors come first.
        verdict = "NOT SAFE" if reasons[0].severity == "error" else "DEGRADED"
        rows[0] = (verdict, rows[0][1])
    return "".join(f"{mark:<10}{what}\n" for mark, what in rows)


def _told(reason: Reason) -> str:
    return f"{reason.what}; fix: {reason.fix}" if reason.fix else reason.what
