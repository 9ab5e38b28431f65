"""Transactions: produce in them, many producers that commit often, reading what is committed."""

import statistics
from collections.abc import Callable
from typing import Any

from benches import loadgen, topics
from benches.brokers import Broker
from benches.effort import Case, Effort, Row
from benches.meter import Meter, latencies
from benches.produce_cases import IN_FLIGHT, row_of

BATCH_BYTES = 16_384
COMMIT_MS = 100
COMMIT_BATCHES = 10
PRODUCERS = 1_000
THREADS = 2
ABORT_PERCENT = 10
# A transaction of each takes turns with those of the others, so that a broker's wait for one
# coordinator's answer does not slow the filling.
_FILLING_PRODUCERS = 10
_SMALL_BATCH_BYTES = 1_024
_READ_ROUNDS = 12


def transactional(**how: int) -> Callable[[Broker, Effort], Row]:
    """One producer, in transactions; ``how`` is when they end, and in which version.

    ``of_idempotent`` is the throughput's share of that of an idempotent producer on the same
    broker. Latencies are those of commits.
    """

    def measure(broker: Broker, effort: Effort) -> Row:
        name = "-".join(f"{key.replace('_', '-')}-{value}" for key, value in how.items())
        plain = _producer(broker, effort, f"idempotent-beside-{name}", "idempotent", {})
        row = _producer(broker, effort, f"transactions-{name}", "transactions", how)
        return {
            **row,
            "commits_per_s": row["requests_per_s"],
            "idempotent_mb_per_s": plain["mb_per_s"],
            "of_idempotent": row["mb_per_s"] / plain["mb_per_s"],
        }

    return measure


def _producer(broker: Broker, effort: Effort, topic: str, mode: str, how: dict[str, int]) -> Row:
    topics.create(broker, topic)
    topics.wait_until_led(broker, topic)

    def load(seconds: float, most_bytes: int) -> loadgen.Running:
        options: dict[str, Any] = {"batch_bytes": BATCH_BYTES, "in_flight": IN_FLIGHT, **how}
        if mode == "transactions":
            options["transactional_id"] = topic
        return loadgen.Running(
            *(mode, broker.bootstrap, topic),
            **options,
            seconds=seconds,
            bytes=most_bytes,
            announce=True,
        )

    with load(effort.warm_seconds, effort.warm_bytes) as running:
        warm = running.result().bytes
    topics.wait_for_files(broker, topic, warm)
    with load(effort.measure_seconds, effort.measure_bytes) as running:
        running.wait_until_started()
        meter = Meter(broker)
        done = running.result()
    written = topics.wait_for_files(broker, topic, warm + done.bytes)
    return row_of(done, written, meter)


def thousand_producers(version: int) -> Callable[[Broker, Effort], Row]:
    """1,000 producers, each with a connection, a batch of 1 KB and a commit ten times a second.

    A producer that is late commits as soon as it can; ``commits_per_s`` shows what was reached.
    """

    def measure(broker: Broker, effort: Effort) -> Row:
        topic = f"thousand-{version}"
        topics.create(broker, topic)
        topics.wait_until_led(broker, topic)
        with loadgen.Running(
            *("transactions", broker.bootstrap, topic),
            producers=PRODUCERS,
            threads=THREADS,
            commit_ms=COMMIT_MS,
            commit_batches=1,
            batch_bytes=_SMALL_BATCH_BYTES,
            transactional_id=topic,
            transaction_version=version,
            warmup_seconds=effort.warm_seconds,
            seconds=effort.measure_seconds,
            bytes=10**15,
            announce=True,
        ) as running:
            running.wait_until_started()
            meter = Meter(broker)
            done = running.result()
        # The meter includes the warm-up, which is the same work.
        figures = meter.figures(effort.warm_seconds + done.seconds, done.bytes)
        del figures["cpu_s_per_gb"]  # of a few MB it would be noise
        return {
            **latencies(done),
            **figures,
            "commits_per_s": done.requests_per_s,
            "commits_per_cpu_s": 100 * done.requests_per_s / figures["cpu_percent"],
        }

    return measure


def read_committed(broker: Broker, effort: Effort) -> Row:
    """Fetch of a log in memory of whose transactions 10 % are aborted, with both isolation levels
    in turn. The generator drops nothing: it reads what the broker sends."""
    topic = "read-committed"
    topics.create(broker, topic)
    topics.wait_until_led(broker, topic)
    sent = loadgen.run(
        *("transactions", broker.bootstrap, topic),
        producers=_FILLING_PRODUCERS,
        threads=THREADS,
        commit_batches=COMMIT_BATCHES,
        abort_percent=ABORT_PERCENT,
        batch_bytes=BATCH_BYTES,
        transactional_id=topic,
        seconds=600,
        bytes=effort.transactions_bytes,
    )
    topics.wait_for_files(broker, topic, sent.bytes)

    def load(*, committed: bool, seconds: float) -> loadgen.Load:
        return loadgen.run(
            *("fetch", broker.bootstrap, topic),
            in_flight=IN_FLIGHT,
            repeat=True,
            read_committed=committed,
            seconds=seconds,
            bytes=effort.fetch_bytes,
        )

    rates: dict[bool, list[float]] = {False: [], True: []}
    rows = []
    for committed in (False, True):
        load(committed=committed, seconds=effort.warm_seconds)
    for _ in range(_READ_ROUNDS):
        for committed in (False, True):
            meter = Meter(broker)
            done = load(committed=committed, seconds=effort.measure_seconds / _READ_ROUNDS)
            rates[committed].append(done.mb_per_s)
            if committed:
                rows.append({**latencies(done), **meter.figures(done.seconds, done.bytes)})
    return {**rows[-1], **isolation_figures(rates[False], rates[True])}


def isolation_figures(uncommitted: list[float], committed: list[float]) -> Row:
    """Medians in MB/s, and that of the ratios of neighbours."""
    ratios = [one / other for one, other in zip(committed, uncommitted, strict=True)]
    return {
        "mb_per_s": statistics.median(committed),
        "uncommitted_mb_per_s": statistics.median(uncommitted),
        "of_uncommitted": statistics.median(ratios),
    }


_PRODUCE = (
    *("mb_per_s", "cpu_s_per_gb", "idempotent_mb_per_s", "of_idempotent"),
    *("commits_per_s", "p50_ms", "p99_ms"),
)
_COMMITS = ("p50_ms", "p99_ms", "p99.9_ms", "commits_per_s", "commits_per_cpu_s", "cpu_percent")
_READ = ("mb_per_s", "uncommitted_mb_per_s", "of_uncommitted", "cpu_s_per_gb", "p99_ms")

CASES = (
    *(
        Case(
            f"transactions-{short}{suffix}",
            f"transactions of 16 KB batches, a commit each {title}{said}",
            transactional(**how, transaction_version=version),
            shown=_PRODUCE,
            only_ours=version == 2,
        )
        for short, title, how in (
            ("100ms", f"{COMMIT_MS} ms", {"commit_ms": COMMIT_MS}),
            ("10", f"{COMMIT_BATCHES} batches", {"commit_batches": COMMIT_BATCHES}),
        )
        for version, suffix, said in ((1, "", ""), (2, "-v2", ", version 2"))
    ),
    *(
        Case(
            f"transactional-1000{suffix}",
            f"1,000 transactional producers, 10 commits/s each{said}",
            thousand_producers(version),
            shown=_COMMITS,
            only_ours=version == 2,
        )
        for version, suffix, said in ((1, "", ""), (2, "-v2", ", version 2"))
    ),
    Case(
        "read-committed",
        "read_committed, 10 % aborted",
        read_committed,
        shown=_READ,
    ),
)
