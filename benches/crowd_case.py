"""10,000 partitions: throughput beside that of 6 on the same broker, memory, time to start."""

import time

from benches import loadgen, process, topics
from benches.effort import Effort, Row, Scenario
from benches.meter import memory
from benches.produce_cases import produce
from benches.stage import Stage

BATCH_BYTES = 16_384
CONNECTIONS = 2
_START_TIMEOUT_S = 900.0


def measure(stage: Stage, effort: Effort) -> Row:
    """16 KB batches, two connections, fresh topics: of 6, then of many partitions; then a restart.

    `own_kb_per_partition` is what the broker's resident memory outside shared memory grew by, from
    the end of the work with 6 partitions to the end of that with many.
    """
    broker = stage.prepare()
    stage.start(broker)
    topics.fill(broker, effort.fill_bytes)
    six = produce(BATCH_BYTES, CONNECTIONS, warm=False)(broker, effort)
    topics.remove_all(broker)
    before = process.usage(broker.pid)
    many = effort.many_partitions
    row = produce(BATCH_BYTES, CONNECTIONS, partitions=many, warm=False)(broker, effort)
    after = process.usage(broker.pid)
    topic = broker.topics[-1]
    broker.stop()
    began = time.monotonic()
    startup_s = stage.start(broker, _START_TIMEOUT_S)
    patience = {"timeout_seconds": _START_TIMEOUT_S}
    with loadgen.Running("probe", broker.bootstrap, topic, **patience) as probe:
        led = loadgen.parse_served(probe.output())
    row |= {
        **memory(after),
        "partitions": many,
        "of_six": row["mb_per_s"] / six["mb_per_s"],
        "own_kb_per_partition": (after.own_rss_bytes - before.own_rss_bytes) / 1e3 / many,
        "startup_s": startup_s,
        "led_s": led.led_ns / 1e9 - began,
    }
    broker.stop()
    return row


SCENARIO = Scenario(
    name="partitions10000",
    title="produce 16 KB, 10,000 partitions",
    measure=measure,
    quick=False,
    shown=(
        "mb_per_s",
        "cpu_s_per_gb",
        "p99_ms",
        "of_six",
        "create_s",
        "startup_s",
        "led_s",
        "own_kb_per_partition",
        "partitions",
    ),
    disk_bytes=lambda effort: effort.fill_bytes + 2 * effort.measure_bytes,
)
