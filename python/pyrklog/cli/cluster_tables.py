import sys

from pyrklog.cli.failures import counted
from pyrklog.cli.options import OutputFormat
from pyrklog.cli.output import Listing, columns, plain_table, print_listing
from pyrklog.observability.restart_rules import Restart

BLOCKER_COLUMNS = columns("topic, partition>, reason, leader>, isr, min_insync_replicas> MIN ISR")


def print_restart_safe(found: Restart, output: OutputFormat, cluster_id: str | None) -> None:
    """``yes`` or ``no``, with reasons and the partitions in the way; for programs one item.

    People get no list of partitions for the only broker.
    """
    if output in (OutputFormat.TABLE, OutputFormat.WIDE):
        sys.stdout.write(restart_page(found))
        sys.stdout.flush()
        return
    item = found.item()
    items = item["partitions"]
    if output not in (OutputFormat.CSV, OutputFormat.NAME):
        items = [{**item, "reasons": [one.item() for one in found.reasons]}]
    print_listing(Listing("pyrklog.restart-safe/1", BLOCKER_COLUMNS, items, cluster_id), output)


def restart_page(found: Restart) -> str:
    if found.is_safe:
        if not found.reasons:
            return "yes\n"
        return "yes, with a warning: " + "; ".join(one.what for one in found.reasons) + "\n"
    rows = [one.item() for one in found.blockers]
    page = ""
    ending = "".join(f"; {one.what}" for one in found.reasons if one.kind == "ending")
    for one in found.reasons:
        if one.severity == "error":
            in_the_way = f", {counted(len(rows), 'partition')} in the way{ending}"
            page += f"no{in_the_way if one.kind == 'in_the_way' else f': {one.what}'}\n"
    if any(one.kind == "in_the_way" for one in found.reasons):
        page += plain_table(BLOCKER_COLUMNS, rows)
    return page
