"""``format("pyrklog")`` beside Spark's stock Kafka connector, both at the same broker: jobs of
``spark_job`` on two local threads, each in a process of its own and warmed up.

``of_stock`` is the ratio of rows a second; of ``spark-follow`` that of the 99th percentiles of
latency, where less is better. With Apache Kafka as the broker the same jobs show the stock
connector at home.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benches import loadgen, scan_cases, spark_feed, topics
from benches.brokers import ROOT, BenchError, Broker
from benches.effort import Case, Effort, Row
from benches.meter import Meter
from benches.produce_cases import RECORD_BYTES

_JARS = ROOT / ".cache" / "spark"
_PATIENCE_S = 1_200.0
_SHOWN = ("rows_per_s", "stock_rows_per_s", "of_stock", "job_cpu_s", "stock_job_cpu_s", "cpu_s")

_BESIDE_FLOOR = (*_SHOWN[:3], "floor_rows_per_s", *_SHOWN[3:])


def _run(format_: str, job: str, broker: Broker, topic: str, rows: int) -> Row:
    jars = sorted(map(str, _JARS.glob("*.jar")))
    if not jars:
        raise BenchError(f"no jars in {_JARS}: run `make .cache/spark.done`")
    command = [sys.executable, "-m", "benches.spark_job", format_, job, broker.bootstrap, topic]
    with tempfile.TemporaryDirectory(prefix="pyrklog-spark-") as folder:
        done = subprocess.run(
            [*command, str(rows), folder, ",".join(jars)],
            capture_output=True,
            text=True,
            cwd=ROOT,
            timeout=_PATIENCE_S,
            env={**os.environ, "SPARK_LOCAL_DIRS": str(Path(folder) / "local")},
        )
    if done.returncode:
        raise BenchError(f"{job} by {format_}: {done.stderr.strip()[-2_000:]}")
    figures: Row = json.loads(done.stdout.splitlines()[-1])
    return figures


def _beside_stock(job: str, broker: Broker, topics_of: Callable[[str], str], rows: int) -> Row:
    """Both formats, the stock connector first. The broker's cost is that of ours, warm-up
    included."""
    stock = _run("kafka", job, broker, topics_of("kafka"), rows)
    meter = Meter(broker)
    ours = _run("pyrklog", job, broker, topics_of("pyrklog"), rows)
    rows_per_s, stock_per_s = (one["rows"] / one["seconds"] for one in (ours, stock))
    return {
        **meter.figures(ours["seconds"], 0),
        "rows_per_s": rows_per_s,
        "stock_rows_per_s": stock_per_s,
        "of_stock": rows_per_s / stock_per_s,
        "job_cpu_s": ours["cpu_s"],
        "stock_job_cpu_s": stock["cpu_s"],
    }


def _with_floor(found: Row, job: str, broker: Broker, topic: str, rows: int) -> Row:
    """Also what a source or sink in Python reaches that does nothing else."""
    floor = _run("floor", job, broker, topic, rows)
    return {**found, "floor_rows_per_s": floor["rows"] / floor["seconds"]}


def _read(job: str, broker: Broker, effort: Effort) -> Row:
    topic = f"spark-{job}"
    topics.create(broker, topic)
    sent = loadgen.run(
        *("produce", broker.bootstrap, topic),
        record_bytes=RECORD_BYTES,
        bytes=effort.spark_rows * RECORD_BYTES,
        seconds=60,
        connections=2,
    )
    topics.wait_for_files(broker, topic, sent.bytes)
    found = _beside_stock(job, broker, lambda format_: topic, sent.records)
    return _with_floor(found, job, broker, topic, sent.records)


def _read_json(broker: Broker, effort: Effort) -> Row:
    topic = "spark-read-json"
    topics.create(broker, topic)
    rows = effort.spark_rows // 4
    sent_bytes = scan_cases.fill_events(broker, topic, rows)
    topics.wait_for_files(broker, topic, sent_bytes)
    return _beside_stock("read-json", broker, lambda format_: topic, rows)


def _write(job: str, broker: Broker, effort: Effort) -> Row:
    names = {format_: f"spark-{job}-{format_}" for format_ in ("kafka", "pyrklog")}
    for name in names.values():
        topics.create(broker, name)
    rows = effort.spark_rows // 2
    found = _beside_stock(job, broker, names.__getitem__, rows)
    return _with_floor(found, job, broker, names["pyrklog"], rows)


def _follow(broker: Broker, effort: Effort) -> Row:
    names = {format_: f"spark-follow-{format_}" for format_ in ("kafka", "pyrklog")}
    for name in names.values():
        topics.create(broker, name)
    rows = spark_feed.ROWS_PER_S * (spark_feed.WARM_S + int(effort.measure_seconds))
    stock = _run("kafka", "follow", broker, names["kafka"], rows)
    meter = Meter(broker)
    ours = _run("pyrklog", "follow", broker, names["pyrklog"], rows)
    return {
        **meter.figures(ours["seconds"], 0),
        "p50_ms": ours["p50_ms"],
        "p99_ms": ours["p99_ms"],
        "stock_p99_ms": stock["p99_ms"],
        "of_stock": ours["p99_ms"] / stock["p99_ms"],
        "job_cpu_s": ours["cpu_s"],
        "stock_job_cpu_s": stock["cpu_s"],
    }


CASES = (
    Case("spark-read", "Spark: raw read into a sum", partial(_read, "read"), shown=_BESIDE_FLOOR),
    Case(
        "spark-stream",
        "Spark: a stream with availableNow",
        partial(_read, "stream"),
        shown=_BESIDE_FLOOR,
    ),
    Case("spark-read-json", "Spark: JSON to five fields, grouped", _read_json, shown=_SHOWN),
    Case("spark-write", "Spark: raw write", partial(_write, "write"), shown=_BESIDE_FLOOR),
    Case(
        "spark-write-json",
        "Spark: five fields to JSON",
        partial(_write, "write-json"),
        shown=_BESIDE_FLOOR,
    ),
    Case(
        "spark-follow",
        "Spark: a stream of 10,000 rows a second",
        _follow,
        shown=("p50_ms", "p99_ms", "stock_p99_ms", *_SHOWN[2:]),
    ),
)
