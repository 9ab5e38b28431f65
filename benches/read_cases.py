"""Fetch of fresh and of warm data, producer and consumer together, latency from end to end."""

import time
from collections.abc import Callable

from benches import loadgen, topics
from benches.brokers import Broker
from benches.effort import Effort, Row
from benches.meter import Meter, latencies
from benches.produce_cases import IN_FLIGHT, row_of

# The warm case's data: it fits into the memory cgroup beside Kafka's heap.
WARM_BYTES = 600_000_000
# Produced and then read, in each round of the fresh case.
FRESH_BYTES = 400_000_000
_CATCH_UP_S = 0.5


def fetch_warm(connections: int) -> Callable[[Broker, Effort], Row]:
    """Reads 600 MB from memory, again and again."""

    def measure(broker: Broker, effort: Effort) -> Row:
        topic = f"fetch-{connections}"
        topics.create(broker, topic)
        sent = loadgen.run(
            "produce", broker.bootstrap, topic, bytes=WARM_BYTES, seconds=60, connections=2
        )
        topics.wait_for_files(broker, topic, sent.bytes)

        def load(seconds: float) -> loadgen.Load:
            return loadgen.run(
                "fetch",
                broker.bootstrap,
                topic,
                connections=connections,
                in_flight=IN_FLIGHT,
                repeat=True,
                seconds=seconds,
                bytes=effort.fetch_bytes,
            )

        load(effort.warm_seconds)
        meter = Meter(broker)
        done = load(effort.measure_seconds)
        return {
            **latencies(done),
            **meter.figures(done.seconds, done.bytes),
            "mb_per_s": done.mb_per_s,
            "records_per_s": done.records_per_s,
            "requests_per_s": done.requests_per_s,
            "client_cpu_s_per_gb": done.client_cpu_s_per_gb,
        }

    return measure


def fetch_fresh(connections: int) -> Callable[[Broker, Effort], Row]:
    """Rounds: produces 400 MB, waits until they are in their files, reads them for the first time.
    Only the reading is measured."""

    def measure(broker: Broker, effort: Effort) -> Row:
        topic = f"fresh-{connections}"
        topics.create(broker, topic)
        unmeasured = max(1, effort.fresh_rounds // 3)
        written, figures = 0, []
        for round_number in range(unmeasured + effort.fresh_rounds):
            sent = loadgen.run(
                "produce", broker.bootstrap, topic, bytes=FRESH_BYTES, seconds=60, connections=2
            )
            written += sent.bytes
            topics.wait_for_files(broker, topic, written)
            meter = Meter(broker)
            done = loadgen.run(
                "fetch",
                broker.bootstrap,
                topic,
                connections=connections,
                in_flight=IN_FLIGHT,
                last_records=sent.records,
                seconds=60,
                bytes=2 * FRESH_BYTES,
            )
            if round_number >= unmeasured:
                figures.append((done, meter.figures(done.seconds, done.bytes)))
        return _added(figures)

    return measure


def _added(rounds: list[tuple[loadgen.Load, Row]]) -> Row:
    """The sum of all rounds; percentiles are the worst round's."""
    loads = [done for done, _ in rounds]
    rows = [row for _, row in rounds]
    seconds = sum(done.seconds for done in loads)
    moved = sum(done.bytes for done in loads)
    cpu_s = sum(row["cpu_s"] for row in rows)
    worst = {name: max(latencies(done)[name] for done in loads) for name in latencies(loads[0])}
    return {
        **rows[-1],
        **worst,
        "mb_per_s": moved / 1e6 / seconds,
        "records_per_s": sum(done.records for done in loads) / seconds,
        "requests_per_s": sum(done.requests for done in loads) / seconds,
        "cpu_s": cpu_s,
        "cpu_s_per_gb": cpu_s / (moved / 1e9),
        "cpu_percent": 100 * cpu_s / seconds,
        "bytes": moved,
        "seconds": seconds,
    }


def together(broker: Broker, effort: Effort) -> Row:
    """A producer of 16 KB batches as fast as it can, and a consumer at the end of the log.

    CPU and bytes of ``cpu_s_per_gb`` are those of both, per GB produced.
    """
    topic = "together"
    topics.create(broker, topic)

    def both(seconds: float, most_bytes: int, before: int) -> tuple[loadgen.Load, Row]:
        with loadgen.Running(
            *("fetch", broker.bootstrap, topic),
            follow=True,
            until_eof=True,
            last_records=1,
            seconds=3_600,
            bytes=10**15,
        ) as consumer:
            meter = Meter(broker)
            done = loadgen.run(
                *("produce", broker.bootstrap, topic),
                in_flight=IN_FLIGHT,
                seconds=seconds,
                bytes=most_bytes,
            )
            written = topics.wait_for_files(broker, topic, before + done.bytes)
            row = row_of(done, written, meter)
            time.sleep(_CATCH_UP_S)
            consumed = consumer.result()
        reading_s = (consumed.finished_ns - done.started_ns) / 1e9
        row["consumer_mb_per_s"] = consumed.bytes / 1e6 / reading_s
        row["consumed_percent"] = 100 * consumed.bytes / done.bytes
        return done, row

    warm, _ = both(effort.warm_seconds, effort.warm_bytes, 0)
    _, row = both(effort.measure_seconds, effort.measure_bytes, warm.bytes)
    return row


def end_to_end(records_per_s: int) -> Callable[[Broker, Effort], Row]:
    """Single records at fixed times, each in its own request; latency from the intended time of
    sending to the reader."""

    def measure(broker: Broker, effort: Effort) -> Row:
        topic = f"end-to-end-{records_per_s}"
        topics.create(broker, topic)

        def load(seconds: float) -> loadgen.Load:
            return loadgen.run(
                "end-to-end", broker.bootstrap, topic, rate=records_per_s, seconds=seconds
            )

        load(effort.warm_seconds)
        meter = Meter(broker)
        done = load(effort.measure_seconds)
        row = {**latencies(done), **meter.figures(done.seconds, done.bytes)}
        del row["cpu_s_per_gb"]  # of a few MB it would be noise
        return {**row, "records_per_s": done.records_per_s}

    return measure
