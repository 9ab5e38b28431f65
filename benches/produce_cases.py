"""Produce: sizes of batches and records, numbers of partitions, Java's own producer."""

import re
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass

from benches import loadgen, topics
from benches.brokers import JVM_FLAGS, KAFKA_JARS, BenchError, Broker
from benches.effort import Effort, Row
from benches.loadgen import Load
from benches.meter import Meter, latencies

RECORD_BYTES = 100
IN_FLIGHT = 5
JAVA_RECORD_BYTES = 100
_JAVA_WARM_PART = 4


@dataclass(frozen=True)
class Work:
    """Produce of one kind: one batch a request, five requests in flight, acks=1."""

    batch_bytes: int
    connections: int
    record_bytes: int = RECORD_BYTES
    partitions: int = topics.PARTITIONS

    @property
    def topic(self) -> str:
        return (
            f"produce-{self.batch_bytes}-{self.connections}-{self.record_bytes}-{self.partitions}"
        )

    def create(self, broker: Broker) -> float:
        """Creates the topic; seconds until every partition has a leader."""
        began = time.monotonic()
        topics.create(broker, self.topic, self.partitions)
        topics.wait_until_led(broker, self.topic)
        return time.monotonic() - began

    def warm(self, broker: Broker, effort: Effort) -> int:
        """Some seconds that are not measured; returns the topic's bytes then."""
        with self._load(broker, effort.warm_seconds, effort.warm_bytes) as running:
            sent = running.result().bytes
        topics.wait_for_files(broker, self.topic, sent, self.partitions)
        return sent

    def measure(self, broker: Broker, effort: Effort, sent_before: int) -> Row:
        """Clock and CPU count stop when every byte is in its file."""
        with self._load(broker, effort.measure_seconds, effort.measure_bytes) as running:
            # Looking up thousands of partitions is not part of the work.
            running.wait_until_started()
            meter = Meter(broker)
            done = running.result()
        expected = sent_before + done.bytes
        written = topics.wait_for_files(broker, self.topic, expected, self.partitions)
        return {**row_of(done, written, meter), "partitions": self.partitions}

    def _load(self, broker: Broker, seconds: float, most_bytes: int) -> loadgen.Running:
        return loadgen.Running(
            "produce",
            broker.bootstrap,
            self.topic,
            batch_bytes=self.batch_bytes,
            record_bytes=self.record_bytes,
            connections=self.connections,
            in_flight=IN_FLIGHT,
            acks=1,
            seconds=seconds,
            bytes=most_bytes,
            announce=True,
        )


def produce(work: Work, *, warm: bool = True) -> Callable[[Broker, Effort], Row]:
    """The work on a topic of its own, which without ``warm`` is fresh."""

    def measure(broker: Broker, effort: Effort) -> Row:
        create_s = work.create(broker)
        sent = work.warm(broker, effort) if warm else 0
        return {**work.measure(broker, effort, sent), "create_s": create_s}

    return measure


def row_of(done: Load, written: float, meter: Meter) -> Row:
    """The figures of a produce whose last byte was in its file at ``written`` (monotonic)."""
    # The generator's clock is the same CLOCK_MONOTONIC. A broker may have written the last byte
    # long before its acknowledgement.
    seconds = max(written, done.finished_ns / 1e9) - done.started_ns / 1e9
    return {
        **latencies(done),
        **meter.figures(seconds, done.bytes),
        "mb_per_s": done.bytes / 1e6 / seconds,
        "records_per_s": done.records / seconds,
        "requests_per_s": done.requests / seconds,
        "client_cpu_s_per_gb": done.client_cpu_s_per_gb,
    }


# --- Java ----------------------------------------------------------------------------------------

_JAVA_RESULT = re.compile(
    r"(?P<records>\d+) records sent, (?P<records_per_s>[\d.]+) records/sec \([\d.]+ MB/sec\), "
    r"[\d.]+ ms avg latency, (?P<max_ms>[\d.]+) ms max latency, (?P<p50_ms>\d+) ms 50th, "
    r"\d+ ms 95th, (?P<p99_ms>\d+) ms 99th, (?P<p999_ms>\d+) ms 99.9th\."
)


def parse_java(output: str) -> Row:
    """The figures of ProducerPerformance's last line; BenchError without one."""
    found = None
    for line in output.splitlines():
        found = _JAVA_RESULT.match(line) or found
    if found is None:
        raise BenchError(f"ProducerPerformance printed no result:\n{output[-1_000:]}")
    figures = {name: float(value) for name, value in found.groupdict().items()}
    return {"p99.9_ms": figures.pop("p999_ms"), **figures}


def _java_performance(broker: Broker, topic: str, records: int) -> Row:
    java = shutil.which("java")
    if java is None:
        raise BenchError("java is not on the PATH")
    command = [
        # Its start script's flags, with the heap that the script of this tool sets.
        *(java, *(flag for flag in JVM_FLAGS if not flag.startswith("-Xm")), "-Xmx512M"),
        *("-cp", f"{KAFKA_JARS}/*", "org.apache.kafka.tools.ProducerPerformance"),
        *("--topic", topic, "--num-records", str(records)),
        *("--record-size", str(JAVA_RECORD_BYTES), "--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={broker.bootstrap}"),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise BenchError(f"ProducerPerformance failed:\n{done.stdout}{done.stderr}")
    row = parse_java(done.stdout)
    if row["records"] != records:
        raise BenchError(f"ProducerPerformance sent {row['records']:.0f} of {records} records")
    return row


def java_defaults(broker: Broker, effort: Effort) -> Row:
    """ProducerPerformance with its defaults (idempotent, acks=all) and 100-byte records."""
    topic = "java"
    topics.create(broker, topic)
    warm = effort.java_records // _JAVA_WARM_PART
    _java_performance(broker, topic, warm)
    warmed = topics.wait_until_at_rest(broker, topic, warm * JAVA_RECORD_BYTES)
    meter = Meter(broker)
    row = _java_performance(broker, topic, effort.java_records)
    least = warmed + effort.java_records * JAVA_RECORD_BYTES
    moved = topics.wait_until_at_rest(broker, topic, least) - warmed
    seconds = row.pop("records") / row["records_per_s"]
    return {**row, **meter.figures(seconds, moved), "mb_per_s": moved / 1e6 / seconds}
