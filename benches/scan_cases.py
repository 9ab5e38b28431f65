"""``pyrklog.scan`` beside confluent-kafka's ``consume``: 600 MB in memory, of records of 100 bytes.

Both read in a process of their own; a row is a record. Each is warmed first.
"""

import json
import subprocess
import sys

from benches import loadgen, topics
from benches.brokers import ROOT, BenchError, Broker
from benches.effort import Case, Effort, Row
from benches.meter import Meter
from benches.produce_cases import RECORD_BYTES
from benches.read_cases import WARM_BYTES

TOPIC = "scan"
_PATIENCE_S = 600.0


def _read(reader: str, broker: Broker, seconds: float) -> Row:
    command = [sys.executable, "-m", "benches.scan_reader", reader]
    done = subprocess.run(
        [*command, broker.bootstrap, TOPIC, str(seconds)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=_PATIENCE_S,
    )
    if done.returncode:
        raise BenchError(f"{reader} of {TOPIC}: {done.stderr.strip()}")
    figures: Row = json.loads(done.stdout)
    return figures


def scan(broker: Broker, effort: Effort) -> Row:
    topics.create(broker, TOPIC)
    sent = loadgen.run(
        *("produce", broker.bootstrap, TOPIC),
        record_bytes=RECORD_BYTES,
        bytes=WARM_BYTES,
        seconds=60,
        connections=2,
    )
    topics.wait_for_files(broker, TOPIC, sent.bytes)
    _read("consume", broker, effort.warm_seconds)
    consumed = _read("consume", broker, effort.measure_seconds)
    _read("scan", broker, effort.warm_seconds)
    meter = Meter(broker)
    scanned = _read("scan", broker, effort.measure_seconds)
    if scanned["rows"] % sent.records or consumed["rows"] % sent.records:
        raise BenchError(f"{TOPIC} has {sent.records} records; read: {scanned}, {consumed}")
    read_bytes = round(sent.bytes * scanned["rows"] / sent.records)
    rows_per_s = scanned["rows"] / scanned["seconds"]
    consumed_per_s = consumed["rows"] / consumed["seconds"]
    return {
        **meter.figures(scanned["seconds"], read_bytes),
        "rows_per_s": rows_per_s,
        "rows_per_client_cpu_s": scanned["rows"] / scanned["cpu_s"],
        "client_rss_mb": scanned["most_bytes"] / 1e6,
        "consumed_rows_per_s": consumed_per_s,
        "of_consumer": rows_per_s / consumed_per_s,
    }


CASES = (
    Case(
        "scan",
        "pyrklog.scan of warm data",
        scan,
        shown=("rows_per_s", "rows_per_client_cpu_s", "of_consumer", "client_rss_mb"),
    ),
)
