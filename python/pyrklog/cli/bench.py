"""``pyrklog bench``: produce, consume, pair, latency, sweep."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pyrklog.base.problems import Problem
from pyrklog.cli.admin_common import connect, show
from pyrklog.cli.durations import parse_seconds
from pyrklog.cli.failures import CliError, Exit
from pyrklog.cli.options import (
    CONNECTION,
    Output,
    OutputFormat,
    Settings,
    command,
    command_group,
    option,
)

if TYPE_CHECKING:
    from pyrklog.benchmark.load import Load
    from pyrklog.cli.bench_runs import Bench, Done
    from pyrklog.cli.connection import Connection

app = command_group("Measure a Kafka: throughput, latency, processor time.")

RECORDS = 1_000_000
SIZE_MAX = 64 * 2**20
CONNECTIONS_MAX = 1024
BATCH_OVERHEAD_BYTES = 128
"""A batch holds at least one record, and its header."""
_PLAINTEXT = "plaintext"

Topic = Annotated[
    str | None,
    option("-t, --topic TOPIC", "A topic that is there. Default: a new one, deleted at the end."),
]
Records = Annotated[int | None, option("-n, --records N", "Records.", min=1, max=2**50)]
Size = Annotated[int, option("--size BYTES", "Bytes of a record's value.", min=1, max=SIZE_MAX)]
Batch = Annotated[int, option("--batch BYTES", "Bytes of a batch.", min=1, max=SIZE_MAX)]
Producers = Annotated[int, option("--producers N", "Producers.", min=1, max=CONNECTIONS_MAX)]
Consumers = Annotated[int, option("--consumers N", "Consumers, which share the partitions.", min=1)]
Partitions = Annotated[int, option("--partitions N", "Of a new topic.", min=1, max=10_000)]
Replicas = Annotated[
    int, option("--rf N", "Replicas of a new topic; -1: the broker's default.", min=-1)
]
Acks = Annotated[str, option("--acks 0|1|all", "What producers wait for.")]
Rate = Annotated[
    float | None, option("--rate N", "Records a second, of all producers.", min=0.1, max=1e8)
]
For = Annotated[str, option("--for TIME", "Ends a load, too: 30s, 5m.")]
WarmUp = Annotated[str, option("--warm-up TIME", "Before measuring.")]
EngineName = Annotated[
    str,
    option(
        "--engine NAME",
        "native (the cheapest), librdkafka (as a Python program), or java (Kafka's own tools).",
    ),
]
KafkaHome = Annotated[
    Path | None,
    option("--kafka-home DIR", "Kafka's folder, for --engine java; environment KAFKA_HOME."),
]
Keep = Annotated[bool, option("--keep", "Do not delete the new topic.")]
Out = Annotated[Path | None, option("--out DIR", "Add results.csv, progress.csv and a picture.")]


@dataclass(frozen=True)
class Wanted:
    """What the command line asks for, beside the broker."""

    topic: str | None = None
    records: int | None = None
    size: int = 100
    batch: int = 16_384
    producers: int = 1
    consumers: int = 1
    partitions: int = 1
    replicas: int = -1
    acks: str = "all"
    rate: float | None = None
    seconds: float = 60.0
    warm_up_s: float = 0.0
    keep: bool = False


@command(app, "produce", *CONNECTION, "quiet")
def produce(
    options: Settings,
    topic: Topic = None,
    records: Records = None,
    size: Size = 100,
    batch: Batch = 16_384,
    producers: Producers = 1,
    partitions: Partitions = 1,
    replicas: Replicas = -1,
    acks: Acks = "all",
    rate: Rate = None,
    limit: For = "60s",
    warm_up: WarmUp = "0s",
    engine: EngineName = "native",
    kafka_home: KafkaHome = None,
    keep: Keep = False,
    out: Out = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Write records, and measure. Latency is a request's (of librdkafka and java a record's), from
    when it was due."""
    wanted = Wanted(
        topic=topic,
        records=records or RECORDS,
        size=size,
        batch=batch,
        producers=producers,
        partitions=partitions,
        replicas=replicas,
        acks=_acks(acks),
        rate=rate,
        seconds=_seconds(limit, "--for"),
        warm_up_s=_seconds(warm_up, "--warm-up", 0.0),
        keep=keep,
    )
    _measure(options, wanted, _bench(options, engine, kafka_home), run_produce, out, output)


@command(app, "consume", *CONNECTION, "quiet")
def consume(
    options: Settings,
    topic: Topic = None,
    records: Records = None,
    size: Size = 100,
    consumers: Consumers = 1,
    partitions: Partitions = 1,
    replicas: Replicas = -1,
    limit: For = "60s",
    engine: EngineName = "native",
    kafka_home: KafkaHome = None,
    keep: Keep = False,
    out: Out = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Read records, and measure: the last of --topic, or those of a new topic, written before."""
    wanted = Wanted(
        topic=topic,
        records=records if topic is not None else records or RECORDS,
        size=size,
        consumers=consumers,
        partitions=partitions,
        replicas=replicas,
        seconds=_seconds(limit, "--for"),
        keep=keep,
    )
    _measure(options, wanted, _bench(options, engine, kafka_home), run_consume, out, output)


@command(app, "pair", *CONNECTION, "quiet")
def pair(
    options: Settings,
    topic: Topic = None,
    records: Records = None,
    size: Size = 100,
    batch: Batch = 16_384,
    producers: Producers = 1,
    consumers: Consumers = 1,
    partitions: Partitions = 1,
    replicas: Replicas = -1,
    acks: Acks = "all",
    rate: Rate = None,
    limit: For = "60s",
    engine: EngineName = "native",
    keep: Keep = False,
    out: Out = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Write and read at the same time, and measure both."""
    wanted = Wanted(
        topic=topic,
        records=records or RECORDS,
        size=size,
        batch=batch,
        producers=producers,
        consumers=consumers,
        partitions=partitions,
        replicas=replicas,
        acks=_acks(acks),
        rate=rate,
        seconds=_seconds(limit, "--for"),
        keep=keep,
    )
    if topic is not None:
        what = "a pair reads a topic from its beginning, and writes its own"
        raise CliError(Problem.ARGUMENTS_DISAGREE, what, "leave out --topic")
    _measure(options, wanted, _bench(options, engine, None), run_pair, out, output)


@command(app, "latency", *CONNECTION, "quiet")
def latency(
    options: Settings,
    topic: Topic = None,
    rate: Rate = 1000.0,
    size: Size = 100,
    partitions: Partitions = 1,
    replicas: Replicas = -1,
    acks: Acks = "all",
    limit: For = "10s",
    warm_up: WarmUp = "1s",
    engine: EngineName = "native",
    keep: Keep = False,
    out: Out = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Write records at a rate, and measure from when each was due until a consumer has it: what
    waits behind a slow answer counts."""
    wanted = Wanted(
        topic=topic,
        size=size,
        partitions=partitions,
        replicas=replicas,
        acks=_acks(acks),
        rate=rate,
        seconds=_seconds(limit, "--for"),
        warm_up_s=_seconds(warm_up, "--warm-up", 0.0),
        keep=keep,
    )
    if size < 8:
        raise CliError(
            Problem.ARGUMENT_VALUE, "--size must be 8 or more: each record holds its time"
        )
    _measure(options, wanted, _bench(options, engine, None), run_latency, out, output)


@command(app, "sweep", *CONNECTION, "quiet")
def sweep(
    options: Settings,
    out: Path | None = option(
        "--out DIR", "The sweep's folder, which it needs; started again, it goes on.", None
    ),
    variables: list[str] | None = option(
        "--var K=V,V", "size, partitions, producers, batch or rate; V..V for all between.", None
    ),
    preset: str | None = option("--preset NAME", "article: record sizes, and partitions.", None),
    repeat: int = option("--repeat N", "Runs of each value.", 3, min=1, max=1000),
    against: str | None = option(
        "--against HOST:PORT", "Another Kafka, in turns; its ratio is told.", None
    ),
    records: Records = None,
    size: Size = 100,
    batch: Batch = 16_384,
    producers: Producers = 1,
    partitions: Partitions = 1,
    replicas: Replicas = -1,
    acks: Acks = "all",
    rate: Rate = None,
    limit: For = "60s",
    engine: EngineName = "native",
    output: Output = OutputFormat.TABLE,
) -> None:
    """Produce again and again, with one thing changed at a time; medians, CSV and pictures."""
    wanted = Wanted(
        records=records or RECORDS,
        size=size,
        batch=batch,
        producers=producers,
        partitions=partitions,
        replicas=replicas,
        acks=_acks(acks),
        rate=rate,
        seconds=_seconds(limit, "--for"),
    )
    from pyrklog.cli.bench_sweeps import given_of, run_sweep

    given = given_of(out, variables or [], preset, repeat, against)
    run_sweep(options, wanted, _bench(options, engine, None), given, output)


Runner = Callable[["Connection", Wanted, "Bench", str], Sequence["Done"]]


def _measure(
    options: Settings,
    wanted: Wanted,
    bench: Bench,
    runner: Runner,
    out: Path | None,
    output: OutputFormat,
) -> None:
    from pyrklog.cli import bench_files
    from pyrklog.cli.bench_runs import COLUMNS
    from pyrklog.cli.output import Listing

    if out is not None:
        bench_files.folder_for(out)
    done = on_topic(connect(options), wanted, bench, runner)
    rows = [one.row() for one in done]
    show(Listing("pyrklog.bench/1", COLUMNS, rows), output)
    if out is not None and not bench_files.write(out, done) and not options.quiet:
        typer.echo(bench_files.NO_MATPLOTLIB, err=True)
    refuse_errors(done)
    if any(one.is_interrupted for one in done):
        raise typer.Exit(Exit.INTERRUPTED)


def on_topic(
    connection: Connection, wanted: Wanted, bench: Bench, runner: Runner
) -> Sequence[Done]:
    from pyrklog.cli.bench_topic import leaders_of, topic_of

    with topic_of(
        connection,
        wanted.topic,
        partitions=wanted.partitions,
        replicas=wanted.replicas,
        keep=wanted.keep,
    ) as topic:
        # The native engine's connections lead to one broker each.
        leaders = leaders_of(connection, topic)
        wanted = replace(
            wanted,
            producers=max(wanted.producers, leaders),
            consumers=max(wanted.consumers, leaders),
        )
        return runner(connection, wanted, bench, topic)


def refuse_errors(done: Sequence[Done]) -> None:
    """Raises :class:`CliError` for what a broker has refused or lost."""
    for one in done:
        if not one.result.is_clean:
            codes = ", ".join(f"{name} {count}" for name, count in one.result.errors.items())
            lost = f"{one.result.lost} records lost" if one.result.lost else ""
            told = "; ".join(filter(None, (codes, lost)))
            raise CliError(Problem.BENCH_FAILED, f"{one.load.mode} had errors: {told}")


def run_produce(connection: Connection, wanted: Wanted, bench: Bench, topic: str) -> Sequence[Done]:
    return [bench.run(_load(connection, wanted, bench, topic, "produce"))]


def run_consume(connection: Connection, wanted: Wanted, bench: Bench, topic: str) -> Sequence[Done]:
    from pyrklog.benchmark.load import Engine

    if wanted.topic is None:
        filler = bench
        if bench.engine is Engine.JAVA:
            filler = replace(bench, engine=Engine.LIBRDKAFKA)
        refuse_errors([filler.run(_load(connection, wanted, filler, topic, "produce"))])
    return [bench.run(_load(connection, wanted, bench, topic, "consume"))]


def run_pair(connection: Connection, wanted: Wanted, bench: Bench, topic: str) -> Sequence[Done]:
    producing = _load(connection, wanted, bench, topic, "produce")
    consuming = replace(_load(connection, wanted, bench, topic, "consume"), records=None)
    return bench.pair(producing, replace(consuming, seconds=2 * producing.seconds + 60.0))


def run_latency(connection: Connection, wanted: Wanted, bench: Bench, topic: str) -> Sequence[Done]:
    return [bench.run(_load(connection, wanted, bench, topic, "latency"))]


def _load(connection: Connection, wanted: Wanted, bench: Bench, topic: str, mode: str) -> Load:
    from pyrklog.benchmark.load import Engine, Load, Mode

    settings = connection.settings
    is_native = bench.engine is Engine.NATIVE
    kind = Mode(mode)
    return Load(
        mode=kind,
        bootstrap=_one_address(connection) if is_native else settings.bootstrap,
        topic=topic,
        records=wanted.records,
        seconds=wanted.seconds,
        record_bytes=wanted.size,
        batch_bytes=max(wanted.batch, wanted.size + BATCH_OVERHEAD_BYTES),
        connections=wanted.consumers if kind is Mode.CONSUME else wanted.producers,
        acks=wanted.acks,
        rate=wanted.rate,
        warmup_seconds=wanted.warm_up_s,
        properties=settings.properties,
    )


def _one_address(connection: Connection) -> str:
    """Of a broker of the cluster, as it advertises itself."""
    brokers = connection.metadata().brokers
    first = brokers[min(brokers)]
    host = f"[{first.host}]" if ":" in first.host else first.host
    return f"{host}:{first.port}"


def _bench(options: Settings, name: str, kafka_home: Path | None) -> Bench:
    """Raises :class:`CliError` for an engine that cannot do it."""
    from pyrklog.benchmark.load import Engine
    from pyrklog.cli.bench_runs import Bench

    if name not in list(Engine):
        what = f"--engine takes {', '.join(Engine)}, not {name!r}"
        raise CliError(Problem.ARGUMENT_VALUE, what)
    engine = Engine(name)
    if engine is Engine.NATIVE:
        if options.security_protocol != _PLAINTEXT:
            what = f"the native engine has no security.protocol={options.security_protocol}"
            raise CliError(Problem.ARGUMENTS_DISAGREE, what, "give --engine librdkafka")
        if options.properties:
            what = f"the native engine takes no properties ({', '.join(options.properties)})"
            raise CliError(Problem.ARGUMENTS_DISAGREE, what, "give --engine librdkafka")
    home = kafka_home or (Path(os.environ["KAFKA_HOME"]) if "KAFKA_HOME" in os.environ else None)
    if engine is Engine.JAVA:
        _check_java(home)
    return Bench(engine, home, shows_progress=not options.quiet)


def _check_java(home: Path | None) -> None:
    from pyrklog.benchmark.java import jars
    from pyrklog.benchmark.result import LoadError

    if home is None:
        what = "--engine java needs Apache Kafka's jars"
        raise CliError(Problem.ARGUMENT_MISSING, what, "give --kafka-home DIR, or set KAFKA_HOME")
    try:
        jars(home)
    except LoadError as error:
        raise CliError(Problem.FILE_NOT_FOUND, str(error), "give --kafka-home DIR") from None


def _acks(text: str) -> str:
    if text not in ("0", "1", "all", "-1"):
        raise CliError(Problem.ARGUMENT_VALUE, f"--acks takes 0, 1 or all, not {text!r}")
    return "all" if text == "-1" else text


def _seconds(text: str, name: str, least: float = 0.1) -> float:
    found = parse_seconds(text, name)
    if not least <= found <= 86_400:
        raise CliError(
            Problem.ARGUMENT_VALUE, f"{name} takes {least:g} seconds to a day, not {text!r}"
        )
    return found


def tell(options: Settings) -> Callable[[str], Any]:
    """Prints notes on standard error, unless it is to be quiet."""
    return lambda text: None if options.quiet else typer.echo(text, err=True)
