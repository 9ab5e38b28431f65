"""Spark: sessions with its stock Kafka connector, from the jars that ``make test`` fetched, and
sessions with ours, which needs none."""

import json
import os
import sys
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

import pyrklog.spark
from tests.support.jvm import SPARK_JARS

_kept: list[Any] = []


def start_session(folder: Path) -> Any:
    """A session with two threads; one per process. The caller stops it."""
    stop_session_without_jars()
    jars = sorted(SPARK_JARS.glob("*.jar"))
    assert len(jars) == 4, f"no jars in {SPARK_JARS}: run `make .cache/spark.done`"
    return _builder(folder).config("spark.jars", ",".join(map(str, jars))).getOrCreate()


def session_without_jars(folder: Path, master: str = "local[2]") -> Any:
    """As :func:`start_session`, with ``format("pyrklog")`` instead. It is kept for the next caller:
    a session and its first query take many seconds."""
    if _kept:
        return _kept[0]
    python = sys.executable
    paths = os.pathsep.join(filter(None, sys.path))
    session = (
        _builder(folder)
        .master(master)
        .config("spark.pyspark.python", python)
        .config("spark.executorEnv.PYTHONPATH", paths)
        .getOrCreate()
    )
    pyrklog.spark.register(session)
    _kept.append(session)
    return session


def stop_session_without_jars() -> None:
    """Stops the session that is kept, if there is one, and its Java virtual machine: one that was
    started without jars cannot load them later."""
    if not _kept:
        return
    _kept.pop().stop()
    gateway = SparkContext._gateway
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(30)


def _builder(folder: Path) -> Any:
    return (
        SparkSession.builder.master("local[2]")
        .appName("pyrklog-tests")
        .config("spark.ui.enabled", False)
        # Short-lived: the better compiler would not pay.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", 2)
        .config("spark.sql.warehouse.dir", str(folder))
        .config("spark.log.level", "ERROR")
    )


def source(reader: Any, bootstrap: str, topic: str, **options: str) -> Any:
    """A topic as a table, by a batch or stream reader and the stock connector."""
    settings = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic} | options
    return reader.format("kafka").options(**settings).load()


def our_source(reader: Any, bootstrap: str, topic: str | None, **options: str) -> Any:
    """The same by our source."""
    settings = {"kafka.bootstrap.servers": bootstrap} | options
    if topic is not None:
        settings["subscribe"] = topic
    return reader.format("pyrklog").options(**settings).load()


def positions(document: str | None, topic: str) -> dict[int, int]:
    """By partition, of an offset of our source as progress shows it."""
    topics = json.loads(document or '{"topics": {}}')["topics"]
    found = topics.get(topic, {"partitions": {}})["partitions"]
    return {int(number): place["offset"] for number, place in found.items()}
