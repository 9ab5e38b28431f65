"""The engine that Python programs have: confluent-kafka, in one process.

``python -m pyrklog.benchmark.librdkafka`` takes a load as JSON on its standard input's first line;
the input's end ends it.
"""

from __future__ import annotations

import json
import random
import string
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from pyrklog.base.librdkafka import RECONNECT, once_logger
from pyrklog.benchmark.load import Load, Mode
from pyrklog.benchmark.result import PERCENTILES, Progress, Result

PROGRESS_S = 0.25
POLL_S = 0.1
CONSUMED_AT_ONCE = 1000
ENDING_S = 30.0
"""For the answers to what was sent when a load ends."""
_LATENCIES_MAX = 1_000_000
"""Of so many, picked evenly at random, percentiles are told: bounded memory in a long run."""
_QUEUED_MAX = 100_000
_STAMP_BYTES = 8


def to_line(load: Load) -> str:
    return json.dumps(asdict(load))


def from_line(line: str) -> Load:
    found = json.loads(line)
    return Load(**{**found, "mode": Mode(found["mode"])})


class Latencies:
    """A sample of latencies in seconds."""

    def __init__(self) -> None:
        self._seen = 0
        self._kept: list[float] = []
        self._random = random.Random(0)

    def add(self, seconds: float) -> None:
        self._seen += 1
        if len(self._kept) < _LATENCIES_MAX:
            self._kept.append(seconds)
            return
        place = self._random.randrange(self._seen)
        if place < _LATENCIES_MAX:
            self._kept[place] = seconds

    def told(self) -> dict[str, float]:
        """Percentiles in milliseconds; empty without a latency."""
        if not self._kept:
            return {}
        ordered = sorted(self._kept)
        shares = {name: float(name[1:]) / 100 for name in PERCENTILES if name != "max"}
        found = {name: _percentile(ordered, share) for name, share in shares.items()}
        return {
            name: round(value * 1e3, 4) for name, value in (found | {"max": ordered[-1]}).items()
        }


def _percentile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


@dataclass
class Counts:
    """What is measured so far. Monotonic times in seconds."""

    measure_from: float
    records: int = 0
    bytes: int = 0
    finished: float = 0.0
    latencies: Latencies = field(default_factory=Latencies)
    errors: dict[str, int] = field(default_factory=dict)

    def add(self, size: int, now: float) -> None:
        self.records += 1
        self.bytes += size
        self.finished = now

    def error(self, name: str) -> None:
        self.errors[name] = self.errors.get(name, 0) + 1

    def result(self, cpu_s: float, lost: int = 0) -> Result:
        return Result(
            records=self.records,
            bytes=self.bytes,
            seconds=max(0.0, self.finished - self.measure_from),
            latency_ms=self.latencies.told(),
            client_cpu_s=cpu_s,
            errors=self.errors,
            lost=lost,
        )


class Run:
    """A load under way."""

    def __init__(self, load: Load, is_stopped: Callable[[], bool]) -> None:
        self.load = load
        self._is_stopped = is_stopped
        self.begin()

    def begin(self) -> None:
        """Begins, perhaps once more when all connections are there."""
        self.start = self._told = time.monotonic()
        self.counts = Counts(self.start + self.load.warmup_seconds)
        self._ends = self.counts.measure_from + self.load.seconds
        self._cpu_s: float | None = None

    def is_over(self, now: float) -> bool:
        return now >= self._ends or self._is_stopped()

    def tell(self, now: float) -> None:
        """Prints how far the run is, now and then, and notes when measuring begins."""
        if self._cpu_s is None and now >= self.counts.measure_from:
            self._cpu_s = time.process_time()
        if now - self._told < PROGRESS_S or now < self.counts.measure_from:
            return
        self._told = now
        done = Progress(now - self.counts.measure_from, self.counts.records, self.counts.bytes)
        sys.stderr.write(json.dumps(asdict(done)) + "\n")
        sys.stderr.flush()

    def cpu_s(self) -> float:
        return time.process_time() - (self._cpu_s or 0.0)


def configuration(load: Load, **more: Any) -> dict[str, Any]:
    """The user's properties override ours."""
    logger = once_logger("pyrklog.benchmark.librdkafka")
    ours = {"client.id": "pyrklog-bench", **RECONNECT, "logger": logger}
    return {**ours, **more, **load.properties, "bootstrap.servers": load.bootstrap}


def values(size: int) -> list[bytes]:
    """Letters at random, which compress as badly as the native engine's."""
    letters = random.Random(0)
    return [bytes(letters.choices(string.ascii_letters.encode(), k=size)) for _ in range(64)]


class Sender:
    """Producers that take turns, paced if the load has a rate."""

    def __init__(self, run: Run) -> None:
        from confluent_kafka import Producer

        load = run.load
        # A record a request where each one's latency is what is measured.
        is_paced = load.mode is Mode.LATENCY
        given = configuration(
            load,
            acks=load.acks,
            **{
                "batch.size": load.batch_bytes,
                "linger.ms": 0 if is_paced else 5,
                "queue.buffering.max.messages": _QUEUED_MAX,
                "delivery.report.only.error": False,
            },
        )
        self._run = run
        self._producers = [Producer(given) for _ in range(load.connections)]
        self.sent = 0
        self.acknowledged = 0

    def serve(self, wait_s: float) -> None:
        """Takes answers."""
        for producer in self._producers:
            producer.poll(wait_s)

    def send_due(self, now: float, make: Callable[[int, float], bytes]) -> bool:
        """Sends what is due, at most a few; whether there may be more at once."""
        load = self._run.load
        for _ in range(CONSUMED_AT_ONCE):
            due = now if load.rate is None else self._run.start + self.sent / load.rate
            if due > now:
                return False
            producer = self._producers[self.sent % len(self._producers)]
            try:
                producer.produce(load.topic, make(self.sent, due), on_delivery=self._on_answer(due))
            except BufferError:
                return False
            self.sent += 1
            if load.records is not None and self.sent >= load.records:
                return False
        return True

    def _on_answer(self, due: float) -> Callable[[Any, Any], None]:
        def answered(error: Any, message: Any) -> None:
            counts = self._run.counts
            if error is not None:
                counts.error(error.name())
                return
            self.acknowledged += 1
            if self._run.load.mode is Mode.PRODUCE and due >= counts.measure_from:
                now = time.monotonic()
                counts.add(len(message.value() or b""), now)
                counts.latencies.add(now - due)

        return answered

    def finish(self) -> None:
        """Waits for the answers."""
        deadline = time.monotonic() + ENDING_S
        for producer in self._producers:
            left = producer.flush(max(0.0, deadline - time.monotonic()))
            for _ in range(left):
                self._run.counts.error("_TIMED_OUT")


def produce(run: Run) -> Result:
    sender = Sender(run)
    content = values(run.load.record_bytes)
    while True:
        now = time.monotonic()
        run.tell(now)
        is_done = run.load.records is not None and sender.sent >= run.load.records
        if is_done or run.is_over(now):
            break
        has_more = sender.send_due(now, lambda number, _due: content[number % len(content)])
        sender.serve(0.0 if has_more else 0.001)
    sender.finish()
    return run.counts.result(run.cpu_s())


def last_records(spans: Mapping[int, tuple[int, int]], count: int) -> dict[int, int]:
    """Where to begin in each partition, to read the last ``count`` records of all. The partitions'
    shares are even, except where one has fewer records.

    ``spans``: first offset and end of each partition."""
    found = {}
    left = count
    by_size = sorted(spans, key=lambda number: spans[number][1] - spans[number][0])
    for place, number in enumerate(by_size):
        low, high = spans[number]
        found[number] = max(low, high - -(-left // (len(by_size) - place)))
        left -= high - found[number]
    return found


class Receiver:
    """A consumer of a share of a topic's partitions, without a group."""

    def __init__(
        self, load: Load, *, share: int = 0, shares: int = 1, at_end: bool = False
    ) -> None:
        from confluent_kafka import Consumer, TopicPartition

        more = {
            "group.id": "pyrklog-bench",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
        self.consumer = Consumer(configuration(load, **more))
        metadata = self.consumer.list_topics(load.topic, timeout=ENDING_S)
        numbers = sorted(metadata.topics[load.topic].partitions)
        spans = {
            number: self.consumer.get_watermark_offsets(
                TopicPartition(load.topic, number), timeout=ENDING_S
            )
            for number in numbers
        }
        begins = {number: high if at_end else low for number, (low, high) in spans.items()}
        if load.records is not None and not at_end:
            begins = last_records(spans, load.records)
        self.unread = set(numbers[share::shares])
        """Partitions whose end was not reached yet."""
        self.consumer.assign(
            [TopicPartition(load.topic, number, begins[number]) for number in self.unread]
        )

    def take(self, wait_s: float, counts: Counts) -> list[Any]:
        """Messages without those that tell of errors, which it counts, or of ends."""
        from confluent_kafka import KafkaError

        found = []
        for message in self.consumer.consume(CONSUMED_AT_ONCE, wait_s):
            error = message.error()
            if error is None:
                found.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                self.unread.discard(message.partition())
            else:
                counts.error(error.name())
        return found


def consume(run: Run) -> Result:
    load = run.load
    receivers = [
        Receiver(load, share=number, shares=load.connections) for number in range(load.connections)
    ]
    run.begin()
    while True:
        now = time.monotonic()
        run.tell(now)
        is_read = not load.follows and not any(one.unread for one in receivers)
        if is_read or run.is_over(now):
            break
        for receiver in receivers:
            for message in receiver.take(POLL_S / len(receivers), run.counts):
                size = len(message.value() or b"") + len(message.key() or b"")
                run.counts.add(size, time.monotonic())
    for receiver in receivers:
        receiver.consumer.close()
    return run.counts.result(run.cpu_s())


def latency(run: Run) -> Result:
    """A record's first bytes are when it was due, in nanoseconds."""
    load = run.load
    receiver = Receiver(load, at_end=True)
    run.begin()
    sender = Sender(run)
    padding = values(max(0, load.record_bytes - _STAMP_BYTES))[0]
    seen = 0

    def receive(wait_s: float) -> int:
        found = receiver.take(wait_s, run.counts)
        now = time.monotonic()
        for message in found:
            due = int.from_bytes(message.value()[:_STAMP_BYTES], "big") / 1e9
            if due >= run.counts.measure_from:
                run.counts.add(len(message.value()), now)
                run.counts.latencies.add(now - due)
        return len(found)

    def stamped(_number: int, due: float) -> bytes:
        return round(due * 1e9).to_bytes(_STAMP_BYTES, "big") + padding

    while not run.is_over(now := time.monotonic()):
        run.tell(now)
        sender.send_due(now, stamped)
        sender.serve(0.0)
        seen += receive(0.0005)
    sender.finish()
    deadline = time.monotonic() + ENDING_S
    while seen < sender.acknowledged and time.monotonic() < deadline:
        seen += receive(POLL_S)
    receiver.consumer.close()
    return run.counts.result(run.cpu_s(), lost=max(0, sender.acknowledged - seen))


_RUNS: Mapping[Mode, Callable[[Run], Result]] = {
    Mode.PRODUCE: produce,
    Mode.CONSUME: consume,
    Mode.LATENCY: latency,
}


def main() -> int:
    """Returns 1 for a load that failed, with the reason on standard error."""
    from confluent_kafka import KafkaException

    load = from_line(sys.stdin.readline())
    stopped = threading.Event()

    def watch() -> None:
        sys.stdin.read()
        stopped.set()

    threading.Thread(target=watch, daemon=True).start()
    try:
        result = _RUNS[load.mode](Run(load, stopped.is_set))
    except (KafkaException, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(result.line() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
