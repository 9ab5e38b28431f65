"""Clients of Kafka 0.10: fetch that is down-converted, produce that is up-converted."""

from benches import loadgen, topics
from benches.brokers import Broker
from benches.effort import Case, Effort, Row
from benches.meter import Meter, latencies
from benches.produce_cases import IN_FLIGHT, RECORD_BYTES
from benches.read_cases import WARM_BYTES

BATCH_BYTES = 16_384


def _figures(done: loadgen.Load, meter: Meter) -> Row:
    row = meter.figures(done.seconds, done.bytes)
    return {
        **latencies(done),
        **row,
        "mb_per_s": done.mb_per_s,
        "records_per_s": done.records_per_s,
        "mb_per_cpu_s": done.bytes / 1e6 / row["cpu_s"],
        "client_cpu_s_per_gb": done.client_cpu_s_per_gb,
    }


def fetch(broker: Broker, effort: Effort) -> Row:
    """Reads record batches in memory again and again, as message sets of format 1."""
    topic = "old-fetch"
    topics.create(broker, topic)
    sent = loadgen.run(
        *("produce", broker.bootstrap, topic), bytes=WARM_BYTES, seconds=60, connections=2
    )
    topics.wait_for_files(broker, topic, sent.bytes)

    def load(seconds: float) -> loadgen.Load:
        return loadgen.run(
            *("fetch", broker.bootstrap, topic),
            old_format=True,
            in_flight=IN_FLIGHT,
            repeat=True,
            seconds=seconds,
            bytes=effort.fetch_bytes,
        )

    load(effort.warm_seconds)
    meter = Meter(broker)
    return _figures(load(effort.measure_seconds), meter)


def produce(broker: Broker, effort: Effort) -> Row:
    """Message sets of format 1, of 16 KB. The log's bytes are fewer: batches hold them tighter."""
    topic = "old-produce"
    topics.create(broker, topic)
    topics.wait_until_led(broker, topic)

    def load(seconds: float, most_bytes: int) -> loadgen.Load:
        return loadgen.run(
            *("produce", broker.bootstrap, topic),
            old_format=True,
            batch_bytes=BATCH_BYTES,
            record_bytes=RECORD_BYTES,
            in_flight=IN_FLIGHT,
            seconds=seconds,
            bytes=most_bytes,
        )

    warm = load(effort.warm_seconds, effort.warm_bytes)
    topics.wait_until_at_rest(broker, topic, warm.records * RECORD_BYTES)
    meter = Meter(broker)
    done = load(effort.measure_seconds, effort.measure_bytes)
    least = (warm.records + done.records) * RECORD_BYTES
    topics.wait_until_at_rest(broker, topic, least)
    return _figures(done, meter)


_SHOWN = ("mb_per_cpu_s", "mb_per_s", "records_per_s", "cpu_s_per_gb", "p99_ms")

CASES = (
    Case("old-client-fetch", "down-converted fetch (Kafka 0.10's)", fetch, shown=_SHOWN),
    Case("old-client-produce", "up-converted produce (Kafka 0.10's)", produce, shown=_SHOWN),
)
