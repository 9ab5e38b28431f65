"""``pyrklog mirror run --once`` beside Apache's MirrorMaker 2, from one pyrklog to another.

Each copies the same records with its defaults, and has copied others of the topic before.
MirrorMaker runs since then, so that neither its start nor cold code counts, and begins while the
records are written; ours is a new process, whose start counts, and copies when MirrorMaker is done.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from benches import loadgen, process, topics
from benches.brokers import JVM_FLAGS, ROOT, BenchError, Broker, Pyrklog, Unavailable, java
from benches.effort import Effort, Row, Scenario
from benches.produce_cases import RECORD_BYTES
from benches.stage import Stage
from pyrklog.scanning import UnknownTopicError, scan

TOPIC = "mirror"
OURS, THEIRS = "ours", "theirs"
"""The source's alias for each: the topic's prefix at the target."""
JARS = ROOT / ".cache" / "connect"
_MAIN = "org.apache.kafka.connect.mirror.MirrorMaker"
# The heap of Kafka's own start script, connect-mirror-maker.sh, and its other flags.
_FLAGS = ("-Xms256M", "-Xmx2G", *JVM_FLAGS[2:])
_WARM_PART = 0.5
_PATIENCE_S = 900.0
_LOOK_S = 0.1


@dataclass(frozen=True)
class Copied:
    """What a program took for the records that count."""

    cpu_s: float
    seconds: float
    rss_bytes: int


class _Target(Pyrklog):
    """In the same memory group as the source, of which it leaves most to that."""

    def command(self) -> list[str]:
        return [*super().command(), "--set", "pyrklog.cache.max.bytes=500000000"]


def properties(source: str, target: str) -> str:
    """Of MirrorMaker: as its distribution's connect-mirror-maker.properties, with our places."""
    settings = {
        "clusters": f"{THEIRS}, west",
        f"{THEIRS}.bootstrap.servers": source,
        "west.bootstrap.servers": target,
        f"{THEIRS}->west.enabled": "true",
        f"{THEIRS}->west.topics": TOPIC,
        f"west->{THEIRS}.enabled": "false",
        **{
            f"{name}replication.factor": "1"
            for name in (
                *("", "checkpoints.topic.", "heartbeats.topic.", "offset-syncs.topic."),
                *("offset.storage.", "status.storage.", "config.storage."),
            )
        },
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


class MirrorMaker:
    """A process that copies until it is left."""

    def __init__(self, folder: Path, source: Broker, target: Broker) -> None:
        if not any(JARS.glob("connect-mirror-3*.jar")):
            raise BenchError(f"no MirrorMaker in {JARS}: run `make bench`, which fetches it")
        folder.mkdir()
        (folder / "mm2.properties").write_text(properties(source.bootstrap, target.bootstrap))
        (folder / "log4j.properties").write_text(
            "log4j.rootLogger=WARN, out\n"
            "log4j.appender.out=org.apache.log4j.ConsoleAppender\n"
            "log4j.appender.out.layout=org.apache.log4j.PatternLayout\n"
            "log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n\n"
        )
        self._output = folder / "output.log"
        command = [*java(folder, _FLAGS, JARS), _MAIN, str(folder / "mm2.properties")]
        with self._output.open("wb") as sink:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT, cwd=folder
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def usage(self) -> process.Usage:
        return process.usage(self._process.pid)

    def wait_for(self, is_done: Callable[[], bool]) -> None:
        """Raises BenchError if it ends, or takes too long."""
        deadline = time.monotonic() + _PATIENCE_S
        while not is_done():
            if self._process.poll() is not None or time.monotonic() > deadline:
                text = self._output.read_text(errors="replace")[-2_000:]
                raise BenchError(f"MirrorMaker 2 did not copy {TOPIC}:\n{text}")
            time.sleep(_LOOK_S)


def measure(stage: Stage, effort: Effort) -> Row:
    if stage.name != "pyrklog":
        raise Unavailable("both mirrors copy between two brokers of pyrklog")
    source, target = stage.prepare(), _Target(stage.folder / "target")
    target.prepare()
    try:
        stage.start(source)
        stage.start(target)
        topics.create(source, TOPIC)
        warm = _produce(source, round(_WARM_PART * effort.mirror_bytes))
        with MirrorMaker(stage.folder / "mirrormaker", source, target) as theirs:
            theirs.wait_for(lambda: _end(target, THEIRS) >= warm.records)
            _ours(source, target)
            before, began = theirs.usage(), time.monotonic()
            sent = _produce(source, effort.mirror_bytes)
            records = warm.records + sent.records
            theirs.wait_for(lambda: _end(target, THEIRS) >= records)
            after = theirs.usage()
            of_theirs = Copied(
                after.cpu_s - before.cpu_s, time.monotonic() - began, after.rss_bytes
            )
        of_ours = _ours(source, target)
        for alias in (OURS, THEIRS):
            found = _records(target, alias)
            if found != records:
                raise BenchError(f"{alias}: {found} of {records} records are at the target")
    finally:
        target.remove()
    return figures(of_ours, of_theirs, sent.bytes)


def figures(ours: Copied, theirs: Copied, copied_bytes: int) -> Row:
    """Of the same bytes."""
    megabytes = copied_bytes / 1e6
    return {
        "mb_per_cpu_s": megabytes / ours.cpu_s,
        "mb_per_s": megabytes / ours.seconds,
        "client_rss_mb": ours.rss_bytes / 1e6,
        "mirrormaker_mb_per_cpu_s": megabytes / theirs.cpu_s,
        "mirrormaker_mb_per_s": megabytes / theirs.seconds,
        "mirrormaker_rss_mb": theirs.rss_bytes / 1e6,
        "of_mirrormaker": theirs.cpu_s / ours.cpu_s,
        "cpu_s": ours.cpu_s,
        "seconds": ours.seconds,
        "bytes": copied_bytes,
    }


def _produce(source: Broker, size_bytes: int) -> loadgen.Load:
    sent = loadgen.run(
        *("produce", source.bootstrap, TOPIC),
        record_bytes=RECORD_BYTES,
        bytes=size_bytes,
        seconds=_PATIENCE_S,
        connections=2,
    )
    if sent.bytes < size_bytes:
        raise BenchError(f"only {sent.bytes / 1e6:.0f} MB were produced")
    return sent


def _ours(source: Broker, target: Broker) -> Copied:
    """Copies what is new, in a process of its own, all of whose CPU time counts."""
    command = [
        *(str(Path(sys.executable).with_name("pyrklog")), "mirror", "run", "--once", "-q"),
        *("--from", f"{OURS}={source.bootstrap}", "--to", f"west={target.bootstrap}"),
        *("--topics", TOPIC),
    ]
    began = time.monotonic()
    running = subprocess.Popen(command, stdin=subprocess.DEVNULL, cwd=ROOT)
    _, status, used = os.wait4(running.pid, 0)
    running.returncode = os.waitstatus_to_exitcode(status)
    if running.returncode:
        raise BenchError(f"pyrklog mirror ended with {running.returncode}")
    # Of Linux: the largest resident memory, in KiB.
    rss_bytes = 1024 * used.ru_maxrss
    return Copied(used.ru_utime + used.ru_stime, time.monotonic() - began, rss_bytes)


def _end(target: Broker, alias: str) -> int:
    """Of all partitions; without transactions that is how many records are there."""
    try:
        with scan(f"{alias}.{TOPIC}", columns=[], bootstrap_servers=target.bootstrap) as planned:
            return sum(one.end for one in planned.progress())
    except UnknownTopicError:
        return 0


def _records(target: Broker, alias: str) -> int:
    topic = f"{alias}.{TOPIC}"
    with scan(topic, columns=["offset"], bootstrap_servers=target.bootstrap) as reading:
        return sum(batch.num_rows for batch in reading.reader())


SCENARIO = Scenario(
    name="mirror",
    title="a mirror of records of 100 B, beside MirrorMaker 2",
    measure=measure,
    quick=False,
    shown=(
        *("mb_per_cpu_s", "mirrormaker_mb_per_cpu_s", "of_mirrormaker"),
        *("mb_per_s", "mirrormaker_mb_per_s", "client_rss_mb", "mirrormaker_rss_mb"),
    ),
    # Once at the source, twice at the target.
    disk_bytes=lambda effort: round(3 * (1 + _WARM_PART) * effort.mirror_bytes),
)
