"""Runs a pipeline from the command line."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import pyrklog.spark
from pyrklog.spark.pipelines.run import Run

NAMES = ("duplicates", "files", "groups", "joins", "silences", "windows")


def main(arguments: Sequence[str]) -> None:
    """Returns when what is there is done, or never with ``--every``."""
    parser = argparse.ArgumentParser(prog="python -m pyrklog.spark.pipelines")
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("bootstrap", help="HOST:PORT of a broker")
    parser.add_argument("folder", type=Path, help="for checkpoints and files")
    parser.add_argument("--every", metavar="TIME", help="go on for ever, a batch every 10s")
    parser.add_argument("--records", type=int, help="of a batch, at most")
    parser.add_argument("--mirror", metavar="HOST:PORT", help="the other cluster of groups")
    given = parser.parse_args(arguments)
    if (given.name == "groups") != (given.mirror is not None):
        parser.error("groups, and no other, needs --mirror")
    spark = SparkSession.builder.appName(given.name).getOrCreate()
    pyrklog.spark.register(spark)
    trigger: dict[str, Any] = (
        {"processingTime": given.every} if given.every else {"availableNow": True}
    )
    run = Run(spark, given.bootstrap, given.folder.absolute(), trigger, given.records)
    given.folder.mkdir(parents=True, exist_ok=True)
    others = [given.mirror] if given.mirror else []
    # What one needs the others do without.
    pipeline = importlib.import_module(f"pyrklog.spark.pipelines.{given.name}")
    queries = pipeline.start(run, *others)
    # Raises the error of the first that fails.
    while [query for query in queries if not query.awaitTermination(1)]:
        pass


if __name__ == "__main__":
    main(sys.argv[1:])
