"""What pyrklog, Apache Kafka's tools, kcat and rpk can do: the rows of docs/using/compared.md.

Each row has a test of its name in one of ``MODULES``, which does it with pyrklog, tries the others,
and claims what it found; and one in ``RPK_MODULES``, which tries rpk. `make test` runs the first,
`make test-rpk` the second. tests/cli/test_feature_table.py holds page, rows and tests against each
other. ``python -m tests.support.feature_table`` writes the page's tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "using" / "compared.md"
MODULES = (
    "tests/cli/test_feature_table.py",
    "tests/cli/test_features_of_records.py",
    "tests/cli/test_features_of_groups.py",
    "tests/cli/test_features_of_clusters.py",
    "tests/spark/test_feature_of_spark.py",
)
RPK_MODULES = (
    "tests/cli/rpk/test_at_hand.py",
    "tests/cli/rpk/test_records.py",
    "tests/cli/rpk/test_groups_and_clusters.py",
)

YES, PARTLY, NO = "●", "◐", "–"
BEGIN = "<!-- Made by `python -m tests.support.feature_table`. -->"
END = "<!-- The end of what is made. -->"


class Row(NamedTuple):
    """``how`` is pyrklog's way."""

    name: str
    pyrklog: str
    kafka: str
    kcat: str
    rpk: str
    how: str

    @property
    def slug(self) -> str:
        return re.sub(r"[^a-z0-9]+", "_", self.name.lower()).strip("_")


SECTIONS: dict[str, tuple[Row, ...]] = {
    "At hand": (
        Row("pip install, no JVM", YES, NO, NO, NO, "`pip install pyrklog`"),
        Row("Multi-broker, one command", YES, NO, NO, PARTLY, "`dev start -n 3`"),
        Row(
            "Multi-broker, real, no Docker",
            YES,
            PARTLY,
            NO,
            PARTLY,
            "processes, files and a ZooKeeper",
        ),
        Row("Chaos verbs", YES, NO, NO, NO, "`dev kill`, `pause`, `isolate`, `heal`"),
        Row("JSON everywhere", YES, PARTLY, YES, PARTLY, "`-o json` of all that lists or changes"),
        Row("CSV", YES, PARTLY, NO, NO, "`-o csv`"),
        Row("Documented exit codes", YES, NO, NO, NO, "`pyrklog --help`"),
        Row("Completion", YES, NO, NO, YES, "`completion bash`: topics and groups, too"),
        Row("Profiles", YES, NO, PARTLY, YES, "`profile create`, `-p`"),
        Row("Read-only", YES, NO, NO, NO, "`profile create --read-only`"),
        Row(
            "Universal dry-run",
            YES,
            PARTLY,
            NO,
            PARTLY,
            "`--dry-run` of all that changes a cluster or this machine",
        ),
        Row("pytest plug-in", YES, NO, NO, NO, "the fixtures `pyrklog`, `pyrklog_cluster`"),
        Row("Dashboards shipped", YES, NO, NO, PARTLY, "`deploy grafana`, `deploy alerts`"),
        Row("Sweep, plot, compare", YES, NO, NO, NO, "`bench sweep --against`"),
        Row("Diagnostic bundle", YES, NO, NO, PARTLY, "`doctor --bundle`"),
        Row("Advertised-address diagnosis", YES, NO, NO, NO, "`doctor`"),
    ),
    "Records": (
        Row("Format verbs", YES, PARTLY, YES, YES, "`consume -f '%t %p %o'`"),
        Row("Time-range read", YES, NO, YES, YES, "`consume -o @-1h:end`"),
        Row(
            "Lossless JSON pipe",
            YES,
            NO,
            NO,
            NO,
            "`consume -f jsonl`, then `produce -f jsonl`",
        ),
        Row("Tombstones", YES, YES, YES, PARTLY, "`produce --tombstone`, `-Z`"),
        Row("Avro and Protobuf", YES, NO, NO, YES, "`consume --schema`, `produce --schema`"),
        Row("Message export", YES, PARTLY, YES, YES, "`consume -e -f jsonl`"),
        Row("Bulk produce", YES, YES, YES, YES, "`produce --from FILE`"),
        Row("Bulk DLQ redrive", YES, NO, NO, NO, "`redrive`"),
        Row(
            "Segment dump",
            YES,
            YES,
            NO,
            NO,
            "`log dump`; `--records` decodes offsets, groups and transactions",
        ),
        Row("Mirror with group offsets", YES, PARTLY, NO, NO, "`mirror run --groups`"),
        Row("Jar-free Spark, visible lag", YES, NO, NO, NO, '`format("pyrklog")`, `commitGroup`'),
        Row("Search budget and resume", NO, NO, NO, NO, "the console's; not there yet"),
        Row("Capped tail, drop count", NO, NO, NO, NO, "the console's; not there yet"),
    ),
    "Groups": (
        Row("Lag totals", YES, NO, NO, YES, "`group describe`"),
        Row("Lag seconds", YES, NO, NO, NO, "`group describe`, of pyrklog's brokers"),
        Row(
            "Lag history built in",
            YES,
            NO,
            NO,
            NO,
            "`group lag --since 6h`, of pyrklog's brokers: 14 days",
        ),
        Row("Seek to any offset", YES, YES, NO, YES, "`group seek --to`"),
        Row("Rebalance reasons", YES, NO, NO, NO, "`group history`, of pyrklog's brokers"),
    ),
    "Topics and clusters": (
        Row("Add partitions", YES, YES, NO, YES, "`topic add-partitions --to`"),
        Row("Change replication factor", YES, PARTLY, NO, PARTLY, "`cluster reassign plan --rf`"),
        Row("Count skew", YES, NO, NO, NO, "`topic skew --by leaders`, `replicas`"),
        Row("Byte-rate skew", YES, NO, NO, NO, "`topic skew --by rate`"),
        Row("Reassignment plan", YES, YES, NO, NO, "`cluster reassign plan`"),
        Row("Plan with bytes and time", YES, NO, NO, NO, "`cluster reassign plan`"),
        Row("Progress in percent, cancel", YES, PARTLY, NO, PARTLY, "`cluster reassign status`"),
        Row(
            "Expand without bulk copy",
            YES,
            NO,
            NO,
            NO,
            "`cluster expand`, of pyrklog's brokers",
        ),
        Row("Preferred election", YES, YES, NO, PARTLY, "`cluster elect-leaders --preferred`"),
        Row("Health wait and watch", YES, NO, NO, PARTLY, "`cluster health -e`, `-w`"),
        Row("Restart-safe", YES, NO, NO, PARTLY, "`cluster restart-safe`"),
        Row("Replica verification", YES, PARTLY, NO, NO, "`log verify`, by digests"),
        Row("State-log merge", YES, PARTLY, NO, NO, "`log merge-state`, of brokers or files"),
        Row("KIP-714 exposed", YES, PARTLY, NO, NO, "`/metrics/clients`"),
        Row("Cache and disk by topic", YES, PARTLY, NO, PARTLY, "`/metrics/detail?topic=`"),
        Row("ACL explain", NO, NO, NO, NO, "there are no ACLs yet"),
        Row("Masking", NO, NO, NO, NO, "the console's; not there yet"),
        Row("Dialog shows command", NO, NO, NO, NO, "the console's; not there yet"),
    ),
}
ROWS = tuple(row for section in SECTIONS.values() for row in section)
BY_SLUG = {row.slug: row for row in ROWS}


def page() -> str:
    """The page's own text, with the tables in their place."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, behind = rest.partition(END)
    return "\n".join([before + BEGIN, "", *_tables(), END + behind])


def _tables() -> Iterator[str]:
    for title, rows in SECTIONS.items():
        yield f"## {title}\n"
        yield "| feature | pyrklog | Kafka's tools | kcat | rpk 23.3 | with pyrklog |"
        yield "|-|-|-|-|-|-|"
        for row in rows:
            cells = (row.name, row.pyrklog, row.kafka, row.kcat, row.rpk, row.how)
            yield f"| {' | '.join(cells)} |"
        yield ""


if __name__ == "__main__":
    PAGE.write_text(page())
