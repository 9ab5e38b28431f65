"""``pyrklog.scan`` beside confluent-kafka's ``consume``: 600 MB in memory, of records of 100 bytes.

Both read in a process of their own; a row is a record. Each is warmed first. ``scan-json`` has a
million values of five fields, and both decode them to typed columns on one processor.
"""

import json
import subprocess
import sys

from confluent_kafka import Producer

from benches import loadgen, topics
from benches.brokers import ROOT, BenchError, Broker
from benches.effort import Case, Effort, Row
from benches.meter import Meter
from benches.produce_cases import RECORD_BYTES
from benches.read_cases import WARM_BYTES
from benches.scan_reader import event

TOPIC = "scan"
JSON_TOPIC = "scan-json"
JSON_ROWS = 1_000_000
_PATIENCE_S = 600.0


def _read(reader: str, broker: Broker, seconds: float, topic: str = TOPIC) -> Row:
    command = [sys.executable, "-m", "benches.scan_reader", reader]
    done = subprocess.run(
        [*command, broker.bootstrap, topic, str(seconds)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=_PATIENCE_S,
    )
    if done.returncode:
        raise BenchError(f"{reader} of {topic}: {done.stderr.strip()}")
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
    return _figures(meter, scanned, consumed, read_bytes)


def scan_json(broker: Broker, effort: Effort) -> Row:
    topics.create(broker, JSON_TOPIC)
    sent_bytes = fill_events(broker, JSON_TOPIC, JSON_ROWS)
    topics.wait_for_files(broker, JSON_TOPIC, sent_bytes)
    _read("consume-json", broker, effort.warm_seconds, JSON_TOPIC)
    consumed = _read("consume-json", broker, effort.measure_seconds, JSON_TOPIC)
    _read("scan-json", broker, effort.warm_seconds, JSON_TOPIC)
    meter = Meter(broker)
    scanned = _read("scan-json", broker, effort.measure_seconds, JSON_TOPIC)
    if scanned["rows"] % JSON_ROWS or consumed["rows"] % JSON_ROWS:
        raise BenchError(f"{JSON_TOPIC} has {JSON_ROWS} records; read: {scanned}, {consumed}")
    read_bytes = round(sent_bytes * scanned["rows"] / JSON_ROWS)
    return _figures(meter, scanned, consumed, read_bytes)


def fill_events(broker: Broker, topic: str, rows: int) -> int:
    """Writes events; returns the bytes of their values."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 50})
    sent = 0
    for number in range(rows):
        value = event(number)
        sent += len(value)
        while True:
            try:
                producer.produce(topic, value, partition=number % topics.PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(_PATIENCE_S):
        raise BenchError(f"{topic} was not written")
    return sent


def _figures(meter: Meter, scanned: Row, consumed: Row, read_bytes: int) -> Row:
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
    Case(
        "scan-json",
        "pyrklog.scan of JSON to five typed columns, one processor",
        scan_json,
        shown=("rows_per_s", "rows_per_client_cpu_s", "of_consumer", "client_rss_mb"),
    ),
)
