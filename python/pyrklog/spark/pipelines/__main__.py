"""Runs a pipeline from the command line."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pyrklog.spark.given import duration_ms, servers

PROGRAMS = {
    "changes": "PostgreSQL's table to a topic, and its changes: planes -> planes-changes",
    "duplicates": "records that were sent again, by an id: flights-twice -> flights-once",
    "files": "Parquet by hour: flights -> FOLDER/flights-by-hour",
    "groups": "a dashboard, files, and a mirror: flights -> FOLDER, flights of --mirror",
    "joins": "with the hour's weather, and the planes: flights, weather, planes -> "
    "flights-with-weather, flights-with-planes",
    "lake": "a Delta table, without a jar: flights -> FOLDER/flights-delta",
    "silences": "planes that do not start for two days: flights -> silent-planes",
    "upserts": "a topic into PostgreSQL's table: planes -> planes of --postgres",
    "windows": "by hour, and days of planes: flights -> flights-by-hour, plane-days",
}
"""What each does: topics that it reads -> what it writes."""
_WITH_POSTGRES = ("changes", "upserts")
_SPARK = ("spark", ("pyspark", "pyarrow"))
_NEEDS = {
    "changes": ("postgres", ("psycopg",)),
    "lake": ("delta", ("deltalake",)),
    "silences": ("stateful", ("pandas", "google.protobuf")),
    "upserts": ("postgres", ("psycopg",)),
}
"""The extra of a program, and what it brings."""
_INTERRUPTED = 130


def parser() -> argparse.ArgumentParser:
    programs = "".join(f"  {name:<11} {about}\n" for name, about in PROGRAMS.items())
    found = argparse.ArgumentParser(
        prog="python -m pyrklog.spark.pipelines",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"programs, and the topics that each reads -> writes; all must exist:\n{programs}",
    )
    found.add_argument("name", choices=PROGRAMS, help="a program, see below")
    found.add_argument("bootstrap", type=brokers, help="HOST:PORT of a broker; several with commas")
    found.add_argument("folder", type=Path, help="for checkpoints and files")
    found.add_argument(
        "--every",
        metavar="TIME",
        type=milliseconds,
        help="go on for ever, with a batch every 500ms, 10s, 5m or 1h; 0s: one after the other",
    )
    found.add_argument("--records", type=records, metavar="N", help="of a batch, at most")
    found.add_argument(
        "--mirror", metavar="HOST:PORT", type=brokers, help="the other cluster of groups"
    )
    found.add_argument(
        "--postgres", metavar="CONNINFO", help="the database of changes and upserts, as for psql"
    )
    found.add_argument(
        "--watermark",
        metavar="COLUMN",
        help="changes: without logical decoding, by a column that rises with each change",
    )
    return found


def milliseconds(text: str) -> int:
    """Raises ArgumentTypeError for what is no time."""
    try:
        return round(duration_ms(text))
    except ValueError:
        what = f"{text!r} is no time, such as 500ms, 10s, 5m or 1h"
        raise argparse.ArgumentTypeError(what) from None


def brokers(text: str) -> str:
    """Raises ArgumentTypeError for what is no address."""
    try:
        return servers(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def records(text: str) -> int:
    """Raises ArgumentTypeError for what is no number of records."""
    if not (text.isascii() and text.isdecimal() and 0 < int(text) < 2**63):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return int(text)


def missing(name: str, is_there: Callable[[str], object] = find_spec) -> str | None:
    """What to install for a program, as a sentence; None if all is there."""
    for extra, modules in (_SPARK, *([_NEEDS[name]] if name in _NEEDS else [])):
        for module in modules:
            try:
                found = is_there(module)
            except ModuleNotFoundError:
                # Of a package within another one.
                found = None
            if found is None:
                return f'{name} needs {module}: pip install "pyrklog[{extra}]"'
    return None


def main(arguments: Sequence[str]) -> None:
    """Returns when what is there is done, or never with ``--every``. Ctrl-C stops the queries;
    the next run goes on where their checkpoints are."""
    usage = parser()
    given = usage.parse_args(arguments)
    if (given.name == "groups") != (given.mirror is not None):
        usage.error("groups, and no other, needs --mirror")
    if (given.name in _WITH_POSTGRES) != (given.postgres is not None):
        usage.error("changes and upserts, and no other, need --postgres")
    if given.watermark is not None and given.name != "changes":
        usage.error("--watermark is of changes")
    lacks = missing(given.name)
    if lacks is not None:
        usage.exit(1, f"{usage.prog}: {lacks}\n")
    # These need PySpark, without which the usage can be told.
    from pyspark.sql import SparkSession

    import pyrklog.spark
    from pyrklog.spark.pipelines.run import Run

    spark = SparkSession.builder.appName(given.name).getOrCreate()
    pyrklog.spark.register(spark)
    trigger: dict[str, Any] = {"availableNow": True}
    if given.every is not None:
        trigger = {"processingTime": f"{given.every} milliseconds"}
    run = Run(spark, given.bootstrap, given.folder.absolute(), trigger, given.records)
    given.folder.mkdir(parents=True, exist_ok=True)
    others = [one for one in (given.mirror, given.postgres, given.watermark) if one is not None]
    # What one needs the others do without.
    pipeline = importlib.import_module(f"pyrklog.spark.pipelines.{given.name}")
    queries = pipeline.start(run, *others)
    try:
        # Raises the error of the first that fails.
        while [query for query in queries if not query.awaitTermination(1)]:
            pass
    except KeyboardInterrupt:
        for query in queries:
            query.stop()
        usage.exit(_INTERRUPTED, "stopped; the same command goes on where it was\n")


if __name__ == "__main__":
    main(sys.argv[1:])
