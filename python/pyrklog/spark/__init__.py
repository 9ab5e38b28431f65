"""``format("pyrklog")``: topics of any Kafka in PySpark, without a jar.

``pyrklog.spark.register(spark)`` makes it known to a session. How it is used:
``docs/using/spark.md``; what is promised: ``docs/understanding/spark-source.md``.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]

SPARK_LEAST = (4, 2)


def register(spark: SparkSession) -> None:
    """Makes ``format("pyrklog")`` known to a session, and ``format("pyrklog-postgres")``.

    Workers of a local session run this interpreter from now on, unless PYSPARK_PYTHON names one:
    PySpark would take the first ``python3`` on the PATH, which may not have the package.

    Raises ImportError, with what to install, for a PySpark without limits and targets of streams.
    """
    try:
        import pyspark
    except ImportError as error:
        raise ImportError(_what_to_install("PySpark is not installed")) from error
    release = pyspark.__version__
    if tuple(int(part) for part in release.split(".")[:2]) < SPARK_LEAST:
        raise ImportError(_what_to_install(f"PySpark {release} is older than 4.2"))
    from pyrklog.spark.postgres.source import PostgresSource
    from pyrklog.spark.source import PyrklogSource

    _run_workers_here(spark)
    spark.dataSource.register(PyrklogSource)
    spark.dataSource.register(PostgresSource)


def _run_workers_here(spark: SparkSession) -> None:
    # Spark Connect has none: its workers are elsewhere.
    context = getattr(spark, "sparkContext", None)
    is_named = bool(os.environ.get("PYSPARK_PYTHON"))
    if context is not None and context.master.startswith("local") and not is_named:
        context.pythonExec = sys.executable


def _what_to_install(why: str) -> str:
    return f'{why}: pip install "pyrklog[spark]"'
