"""Spark: sessions with its stock Kafka connector, from the jars that ``make test`` fetched, and
sessions with ours, which needs none."""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

import pyrklog.spark
from tests.support import jvm

END_S = 120
"""It may write an archive of its classes."""
_WORKERS = Path(__file__).with_name("spark_workers")

_kept: list[Any] = []


def start_session(folder: Path) -> Any:
    """A session with two threads; one per process. The caller stops it."""
    stop_session_without_jars()
    jars = sorted(jvm.SPARK_JARS.glob("*.jar"))
    assert len(jars) == 4, f"no jars in {jvm.SPARK_JARS}: run `make .cache/spark.done`"
    return _builder(folder).config("spark.jars", ",".join(map(str, jars))).getOrCreate()


def session_without_jars(
    folder: Path, master: str = "local[2]", java_flags: Sequence[str] = ()
) -> Any:
    """As :func:`start_session`, with ``format("pyrklog")`` instead. It is kept for the next caller:
    a session and its first query take many seconds."""
    if _kept:
        return _kept[0]
    builder = (
        _builder(folder, java_flags).master(master).config("spark.pyspark.python", sys.executable)
    )
    for name, value in worker_environment().items():
        builder = builder.config(f"spark.executorEnv.{name}", value)
    session = builder.getOrCreate()
    pyrklog.spark.register(session)
    _kept.append(session)
    return session


def worker_environment() -> dict[str, str]:
    """Of Python workers: they find what this process finds, and their daemon imports it for all."""
    return {
        "PYTHONPATH": os.pathsep.join(filter(None, [str(_WORKERS), *sys.path])),
        # No thread of the allocator's: a fork does not take it along.
        "JE_ARROW_MALLOC_CONF": "background_thread:false",
    }


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
    gateway.proc.wait(END_S)


def _builder(folder: Path, java_flags: Sequence[str] = ()) -> Any:
    flags = (*jvm.FLAGS, *jvm.archive_flags(jvm.SPARK_JARS), *java_flags)
    return (
        SparkSession.builder.master("local[2]")
        .appName("pyrklog-tests")
        .config("spark.ui.enabled", False)
        .config("spark.driver.extraJavaOptions", " ".join(flags))
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
