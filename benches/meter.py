from benches import process
from benches.brokers import Broker
from benches.loadgen import Load


class Meter:
    """Counts from its creation, over every process of the broker or brokers."""

    def __init__(self, *brokers: Broker) -> None:
        self._pids = [broker.pid for broker in brokers]
        self._before = process.usage_of(self._pids)
        self._cores = process.cores()

    def figures(self, seconds: float, moved_bytes: float) -> dict[str, float]:
        """The cost so far, as figures of a row."""
        after = process.usage_of(self._pids)
        cpu_s = after.cpu_s - self._before.cpu_s
        found = {
            "cpu_s": cpu_s,
            "cpu_percent": 100 * cpu_s / seconds,
            "cores_busy_percent": process.cores().busy_percent_since(self._cores),
            "seconds": seconds,
            "bytes": moved_bytes,
            **memory(after),
        }
        if moved_bytes:
            found["cpu_s_per_gb"] = cpu_s / (moved_bytes / 1e9)
        return found

    def cpu_s(self) -> float:
        return process.usage_of(self._pids).cpu_s - self._before.cpu_s


def memory(found: process.Usage) -> dict[str, float]:
    """Resident memory and threads, as figures of a row."""
    return {
        "rss_mb": found.rss_bytes / 1e6,
        "own_rss_mb": found.own_rss_bytes / 1e6,
        "shared_mb": found.shared_bytes / 1e6,
        "threads": found.threads,
    }


def latencies(load: Load) -> dict[str, float]:
    """A load's percentiles, as figures of a row."""
    return {f"{name}_ms": value for name, value in load.latency_ms.items()}
