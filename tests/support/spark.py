"""Spark with its stock Kafka connector, from the jars that ``make test`` fetched."""

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.support.jvm import SPARK_JARS


def start_session(folder: Path) -> Any:
    """A session with two threads; one per process. The caller stops it."""
    jars = sorted(SPARK_JARS.glob("*.jar"))
    assert len(jars) == 4, f"no jars in {SPARK_JARS}: run `make .cache/spark.done`"
    return (
        SparkSession.builder.master("local[2]")
        .appName("pyrklog-tests")
        .config("spark.jars", ",".join(map(str, jars)))
        .config("spark.ui.enabled", False)
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", 2)
        .config("spark.sql.warehouse.dir", str(folder))
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )


def source(reader: Any, bootstrap: str, topic: str, **options: str) -> Any:
    """A topic as a table, by a batch or stream reader."""
    settings = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic} | options
    return reader.format("kafka").options(**settings).load()
