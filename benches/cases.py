"""What is measured: each case runs on a warm broker and gives one row of figures."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka.admin import AdminClient, NewTopic

from benches import group_cases, loadgen, process
from benches.brokers import BenchError, Broker

PARTITIONS = 6
RECORD_BYTES = 100
IN_FLIGHT = 5
# Bytes that a broker may hold and not yet have written: pyrklog.unwritten.max.bytes. Kafka has none
# beyond the page cache, where its acknowledged bytes lie too.
UNWRITTEN_MAX_BYTES = {"pyrklog": 64 << 20}
# What the fetch case reads again and again: it fits into the memory group beside Kafka's heap.
FETCHED_BYTES = 600_000_000
_SETTLE_S = 5.0
_FILES_TIMEOUT_S = 60.0

# Figures of a row; a case fills in those that it knows.
METRICS = (
    "mb_per_s",
    "records_per_s",
    "requests_per_s",
    "p50_ms",
    "p99_ms",
    "p99.9_ms",
    "max_ms",
    "cpu_s_per_gb",
    "cpu_percent",
    "rss_mb",
    "threads",
    "startup_s",
    "requests_per_cpu_s",
    "settle_s",
    "settle_max_s",
    "delay_ms",
    "client_cpu_s_per_gb",
    "bytes",
    "seconds",
)
Row = dict[str, float]


@dataclass(frozen=True)
class Effort:
    """How much is done; `quick` is for a look, `full` for figures to quote."""

    pairs: int
    starts: int
    fill_bytes: int
    warm_seconds: float
    warm_bytes: int
    measure_seconds: float
    measure_bytes: int
    fetch_bytes: int
    idle_seconds: float


QUICK = Effort(1, 2, 4_000_000_000, 2, 1_000_000_000, 6, 2_000_000_000, 15_000_000_000, 5)
FULL = Effort(3, 5, 4_000_000_000, 10, 1_000_000_000, 20, 3_000_000_000, 40_000_000_000, 30)


@dataclass(frozen=True)
class Case:
    """A named measurement of a running broker."""

    name: str
    title: str
    measure: Callable[[Broker, Effort], Row]


def create_topic(broker: Broker, name: str) -> None:
    """Creates a topic of six partitions; BenchError when the broker refuses."""
    settings = {"bootstrap.servers": broker.bootstrap, "log_level": 0}
    admin = AdminClient(settings)
    for future in admin.create_topics([NewTopic(name, PARTITIONS, 1)]).values():
        try:
            future.result(timeout=30)
        except Exception as error:
            raise BenchError(f"{broker.name} did not create topic {name}: {error}") from error


def fill(broker: Broker, effort: Effort) -> None:
    """Touches the memory that the broker and its page cache will use."""
    create_topic(broker, "fill")
    loadgen.run(
        "produce",
        broker.bootstrap,
        "fill",
        connections=4,
        batch_bytes=131_072,
        bytes=effort.fill_bytes,
        seconds=120,
    )


def _wait_for_files(broker: Broker, topic: str, expected: int) -> float:
    """The monotonic time at which the topic's segments hold `expected` bytes."""
    deadline = time.monotonic() + _FILES_TIMEOUT_S
    folders = [broker.partition_folder(topic, index) for index in range(PARTITIONS)]
    while True:
        found = sum(loadgen.segment_bytes(folder) for folder in folders)
        now = time.monotonic()
        if found >= expected:
            return now
        if now > deadline:
            raise BenchError(
                f"{broker.name}: segments of {topic} hold {found} of {expected} bytes "
                f"{_FILES_TIMEOUT_S:.0f} s after the last acknowledgement"
            )
        time.sleep(0.002)


def _latencies(load: loadgen.Load) -> Row:
    return {f"{name}_ms": value for name, value in load.latency_ms.items()}


def produce(batch_bytes: int, connections: int) -> Callable[[Broker, Effort], Row]:
    """acks=1, five requests in flight. Clock and CPU count stop when every byte is in its file."""

    def measure(broker: Broker, effort: Effort) -> Row:
        topic = f"produce-{batch_bytes}-{connections}"
        create_topic(broker, topic)

        def load(seconds: float, most_bytes: int) -> loadgen.Load:
            return loadgen.run(
                "produce",
                broker.bootstrap,
                topic,
                batch_bytes=batch_bytes,
                record_bytes=RECORD_BYTES,
                connections=connections,
                in_flight=IN_FLIGHT,
                acks=1,
                seconds=seconds,
                bytes=most_bytes,
            )

        warm = load(effort.warm_seconds, effort.warm_bytes)
        _wait_for_files(broker, topic, warm.bytes)
        before = process.stat(broker.pid)
        done = load(effort.measure_seconds, effort.measure_bytes)
        written = _wait_for_files(broker, topic, warm.bytes + done.bytes)
        after = process.stat(broker.pid)
        # The generator's clock is the same CLOCK_MONOTONIC. Where every byte was in its file by
        # the last acknowledgement, the first look (a little later) must not count.
        acknowledged = done.finished_ns / 1e9
        late = written - acknowledged
        finished = written if late > 0.05 else acknowledged
        seconds = finished - done.started_ns / 1e9
        return {
            **_latencies(done),
            "mb_per_s": done.bytes / 1e6 / seconds,
            "records_per_s": done.records / seconds,
            "requests_per_s": done.requests / seconds,
            "cpu_s_per_gb": (after.cpu_s - before.cpu_s) / (done.bytes / 1e9),
            "cpu_percent": 100 * (after.cpu_s - before.cpu_s) / seconds,
            "rss_mb": after.rss_bytes / 1e6,
            "threads": after.threads,
            "client_cpu_s_per_gb": done.client_cpu_s_per_gb,
            "bytes": done.bytes,
            "seconds": seconds,
        }

    return measure


def fetch(broker: Broker, effort: Effort) -> Row:
    """One connection reads 600 MB that lie in memory, again and again."""
    topic = "fetch"
    create_topic(broker, topic)
    loadgen.run("produce", broker.bootstrap, topic, bytes=FETCHED_BYTES, seconds=60, connections=2)

    def load(seconds: float, most_bytes: int) -> loadgen.Load:
        return loadgen.run(
            "fetch",
            broker.bootstrap,
            topic,
            in_flight=IN_FLIGHT,
            repeat=True,
            seconds=seconds,
            bytes=most_bytes,
        )

    load(effort.warm_seconds, effort.fetch_bytes)
    before = process.stat(broker.pid)
    done = load(effort.measure_seconds, effort.fetch_bytes)
    after = process.stat(broker.pid)
    seconds = (done.finished_ns - done.started_ns) / 1e9
    return {
        **_latencies(done),
        "mb_per_s": done.mb_per_s,
        "records_per_s": done.records_per_s,
        "requests_per_s": done.requests_per_s,
        "cpu_s_per_gb": (after.cpu_s - before.cpu_s) / (done.bytes / 1e9),
        "cpu_percent": 100 * (after.cpu_s - before.cpu_s) / seconds,
        "rss_mb": after.rss_bytes / 1e6,
        "threads": after.threads,
        "client_cpu_s_per_gb": done.client_cpu_s_per_gb,
        "bytes": done.bytes,
        "seconds": seconds,
    }


def end_to_end(broker: Broker, effort: Effort) -> Row:
    """1,000 records a second, each a request of its own, from intended sending to the reader."""
    topic = "end-to-end"
    create_topic(broker, topic)

    def load(seconds: float) -> loadgen.Load:
        return loadgen.run("end-to-end", broker.bootstrap, topic, rate=1_000, seconds=seconds)

    load(effort.warm_seconds)
    before = process.stat(broker.pid)
    done = load(effort.measure_seconds)
    after = process.stat(broker.pid)
    seconds = (done.finished_ns - done.started_ns) / 1e9
    return {
        **_latencies(done),
        "records_per_s": done.records_per_s,
        "cpu_percent": 100 * (after.cpu_s - before.cpu_s) / seconds,
        "rss_mb": after.rss_bytes / 1e6,
        "threads": after.threads,
        "bytes": done.bytes,
        "seconds": seconds,
    }


def idle(broker: Broker, effort: Effort) -> Row:
    """A broker that was just started and that nobody talks to."""
    time.sleep(_SETTLE_S)
    before = process.stat(broker.pid)
    time.sleep(effort.idle_seconds)
    after = process.stat(broker.pid)
    return {
        "cpu_percent": 100 * (after.cpu_s - before.cpu_s) / effort.idle_seconds,
        "rss_mb": after.rss_bytes / 1e6,
        "threads": after.threads,
        "seconds": effort.idle_seconds,
    }


def in_groups(
    measure: Callable[[Broker, float, float], Row],
) -> Callable[[Broker, Effort], Row]:
    """A case of group_cases; they share a topic, since offsets need one that exists."""

    def run(broker: Broker, effort: Effort) -> Row:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        if group_cases.TOPIC not in admin.list_topics(timeout=30).topics:
            create_topic(broker, group_cases.TOPIC)
        return measure(broker, effort.warm_seconds, effort.measure_seconds)

    return run


# "start-up" is measured by whoever starts the broker; "idle" before the memory is filled.
START_UP = "start-up"
IDLE = Case("idle", "idle after start", idle)
CASES = (
    Case("produce1k", "produce 1 KB, 1 connection", produce(1_024, 1)),
    Case("produce16k", "produce 16 KB, 1 connection", produce(16_384, 1)),
    Case("produce128k", "produce 128 KB, 1 connection", produce(131_072, 1)),
    Case("produce1k-4", "produce 1 KB, 4 connections", produce(1_024, 4)),
    Case("produce16k-4", "produce 16 KB, 4 connections", produce(16_384, 4)),
    Case("produce128k-4", "produce 128 KB, 4 connections", produce(131_072, 4)),
    Case("fetch", "fetch of warm data, 1 connection", fetch),
    Case("end-to-end", "end to end at 1,000 records/s", end_to_end),
    Case("heartbeats", "heartbeats of 1,000 members", in_groups(group_cases.heartbeats)),
    Case("commits1", "commits of 1,000 members, 1 partition", in_groups(group_cases.commits(1))),
    Case("commits6", "commits of 1,000 members, 6 partitions", in_groups(group_cases.commits(6))),
    Case("settle", "one of 500 members leaves", in_groups(group_cases.settle)),
)
TITLES = {START_UP: "start to first Metadata"} | {c.name: c.title for c in (IDLE, *CASES)}
