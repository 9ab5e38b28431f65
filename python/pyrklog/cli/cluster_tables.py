import sys
from collections.abc import Sequence

from pyrklog.cli.options import OutputFormat
from pyrklog.cli.output import Listing, columns, plain_table, print_listing
from pyrklog.observability.health_rules import Blocker

BLOCKER_COLUMNS = columns("topic, partition>, reason, leader>, isr, min_insync_replicas> MIN ISR")


def print_restart_safe(
    broker: int,
    found: Sequence[Blocker],
    output: OutputFormat,
    cluster_id: str | None,
    *,
    is_alone: bool = False,
) -> None:
    """``yes``, or ``no`` with the partitions; for programs one item with both.

    People get no list for the only broker (``is_alone``).
    """
    rows = [one.item() for one in found]
    if output in (OutputFormat.TABLE, OutputFormat.WIDE):
        if found and is_alone:
            print("no: it is the only broker, and a restart stops all service until it is back")
            return
        count = "1 partition" if len(found) == 1 else f"{len(found)} partitions"
        sys.stdout.write(f"no, {count} in the way\n" if found else "yes\n")
        sys.stdout.write(plain_table(BLOCKER_COLUMNS, rows) if found else "")
        sys.stdout.flush()
        return
    items = rows
    if output not in (OutputFormat.CSV, OutputFormat.NAME):
        items = [{"broker": broker, "safe": not found, "partitions": rows}]
    print_listing(Listing("pyrklog.restart-safe/1", BLOCKER_COLUMNS, items, cluster_id), output)
