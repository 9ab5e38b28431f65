"""Recovery after kill -9 under load: 10 GB in 1,000 partitions, until all of it is served again."""

import time

from benches import loadgen, process, topics
from benches.brokers import Broker
from benches.effort import Effort, Row, Scenario
from benches.loadgen import Running
from benches.meter import memory
from benches.stage import Stage

TOPIC = "recovery"
# Few, large requests: they fill the disk and measure nothing.
_BATCH_BYTES = 524_288
# Nobody writes faster.
_BYTES_PER_S = 3_000_000_000
_PROBE_TIMEOUT_S = 1_200


def measure(stage: Stage, effort: Effort) -> Row:
    """Fills, kills during a produce at full speed, starts, and probes from the start on.

    ``metadata_s``: a Metadata reply names the broker; ``produced_s``: some partition acknowledges a
    record; ``led_s``: every partition says where it ends; ``read_s``: the end of each was read.
    """
    broker = stage.prepare()
    stage.start(broker)
    topics.create(broker, TOPIC, effort.recovery_partitions)
    filled = loadgen.run(
        *("produce", broker.bootstrap, TOPIC),
        connections=4,
        batch_bytes=_BATCH_BYTES,
        bytes=effort.recovery_bytes,
        seconds=3_600,
        timeout_seconds=120,
    )
    _kill_under_load(broker, effort.recovery_load_seconds)
    with Running("probe", broker.bootstrap, TOPIC, timeout_seconds=_PROBE_TIMEOUT_S) as probe:
        # The generator already runs and retries: the clock starts with the broker's process.
        began = time.monotonic()
        metadata_s = stage.start(broker, _PROBE_TIMEOUT_S)
        served = loadgen.parse_served(probe.output())
    row: Row = {
        **memory(process.usage(broker.pid)),
        "partitions": served.partitions,
        "log_gb": filled.bytes / 1e9,
        "metadata_s": metadata_s,
        "produced_s": served.produced_ns / 1e9 - began,
        "led_s": served.led_ns / 1e9 - began,
        "read_s": served.read_ns / 1e9 - began,
    }
    broker.stop()
    return row


def _kill_under_load(broker: Broker, load_s: float) -> None:
    """SIGKILL while the producers, or the broker, are at their limit."""
    load = Running(
        *("produce", broker.bootstrap, TOPIC),
        connections=4,
        batch_bytes=_BATCH_BYTES,
        bytes=10**15,
        seconds=3_600,
    )
    with load:
        time.sleep(load_s)
        broker.kill()


SCENARIO = Scenario(
    name="recovery",
    title="start after kill -9 under load",
    measure=measure,
    quick=True,
    shown=("metadata_s", "produced_s", "led_s", "read_s", "log_gb", "partitions"),
    disk_bytes=lambda effort: (
        effort.recovery_bytes + round(effort.recovery_load_seconds * _BYTES_PER_S)
    ),
)
