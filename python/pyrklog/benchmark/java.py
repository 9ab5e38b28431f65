"""The engine that Apache Kafka ships: its performance tools, in a Java of one's own.

``python -m pyrklog.benchmark.java KAFKA_HOME`` takes a load as JSON on its standard input's first
line; the input's end ends it. KAFKA_HOME is a folder with Kafka's jars, or with ``libs`` that has
them.
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from pyrklog.benchmark.librdkafka import from_line
from pyrklog.benchmark.load import Load, Mode
from pyrklog.benchmark.result import LoadError, Progress, Result

_PACKAGE = "org.apache.kafka.tools"
_SENT = re.compile(r"^(\d+) records sent, ")
_LATENCY = re.compile(r"([0-9.]+) ms (max|50th|95th|99th|99\.9th)")
_NAMES = {"max": "max", "50th": "p50", "95th": "p95", "99th": "p99", "99.9th": "p99.9"}
_RATE = re.compile(r" sent, ([0-9.]+) records/sec ")
_MIB = 2**20
_CONSUMED, _BYTES, _START, _END = 4, 2, 0, 1
"""Columns of ConsumerPerformance."""
_COLUMNS_MIN = 10
_TAIL_LINES = 5


def jars(home: Path) -> str:
    """A class path. Raises :class:`LoadError` if there is no Kafka."""
    for folder in (home / "libs", home):
        if any(folder.glob("kafka-tools-*.jar")):
            return str(folder / "*")
    raise LoadError(f"no kafka-tools-*.jar in {home} or {home / 'libs'}")


def command(load: Load, home: Path) -> list[str]:
    """Raises :class:`LoadError` for a load that Kafka's tools do not have."""
    if load.records is None:
        raise LoadError("Kafka's performance tools need a number of records")
    java = [os.environ.get("JAVA", "java"), "-cp", jars(home)]
    given = [f"{name}={value}" for name, value in load.properties.items()]
    if load.mode is Mode.PRODUCE:
        own = [f"bootstrap.servers={load.bootstrap}", f"acks={load.acks}"]
        own.append(f"batch.size={load.batch_bytes}")
        rate = -1 if load.rate is None else round(load.rate)
        return [
            *(*java, f"{_PACKAGE}.ProducerPerformance", "--topic", load.topic),
            *("--num-records", str(load.records), "--record-size", str(load.record_bytes)),
            *("--throughput", str(rate), "--producer-props", *own, *given),
        ]
    if load.mode is Mode.CONSUME and not given:
        return [
            *(*java, f"{_PACKAGE}.ConsumerPerformance", "--topic", load.topic),
            *("--bootstrap-server", load.bootstrap, "--messages", str(load.records)),
            *("--timeout", str(round(load.seconds * 1000)), "--hide-header"),
            *("--date-format", "yyyy-MM-dd HH:mm:ss:SSS"),
        ]
    raise LoadError(f"Kafka's performance tools have no such load: {load.mode} with properties")


def produced(load: Load, lines: Iterable[str]) -> Result:
    """The result in ProducerPerformance's last line. Raises :class:`LoadError` without one."""
    found = [line for line in lines if _SENT.match(line) and "50th" in line]
    if not found:
        raise LoadError("ProducerPerformance printed no result")
    records = int(_SENT.findall(found[-1])[0])
    rate = float(_RATE.findall(found[-1])[0])
    return Result(
        records=records,
        bytes=records * load.record_bytes,
        seconds=records / rate if rate else 0.0,
        latency_ms={_NAMES[name]: float(ms) for ms, name in _LATENCY.findall(found[-1])},
    )


def consumed(lines: Iterable[str]) -> Result:
    """The result in ConsumerPerformance's line. Raises :class:`LoadError` without one."""
    rows = [line.split(", ") for line in lines]
    found = [row for row in rows if len(row) >= _COLUMNS_MIN and row[_CONSUMED].isdecimal()]
    if not found:
        raise LoadError("ConsumerPerformance printed no result")
    row = found[-1]
    return Result(
        records=int(row[_CONSUMED]),
        bytes=round(float(row[_BYTES]) * _MIB),
        seconds=_seconds(row[_END]) - _seconds(row[_START]),
    )


def _seconds(text: str) -> float:
    whole, _, ms = text.strip().rpartition(":")
    return time.mktime(time.strptime(whole, "%Y-%m-%d %H:%M:%S")) + int(ms) / 1000


def run(load: Load, home: Path) -> Result:
    """Raises :class:`LoadError` if the tool ends with an error, or takes too long."""
    started = time.monotonic()
    tool = subprocess.Popen(
        command(load, home), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    ended = threading.Timer(load.seconds, tool.send_signal, (signal.SIGTERM,))
    ended.daemon = True
    ended.start()
    _end_with_input(tool)
    assert tool.stdout is not None
    lines, sent = [], 0
    for line in tool.stdout:
        lines.append(line.strip())
        if (partly := _SENT.match(line)) and "50th" not in line:
            sent += int(partly[1])
            done = Progress(time.monotonic() - started, sent, sent * load.record_bytes)
            sys.stderr.write(json.dumps(asdict(done)) + "\n")
            sys.stderr.flush()
    ended.cancel()
    if tool.wait() != 0:
        tail = " / ".join(filter(None, lines[-_TAIL_LINES:])) or "nothing said"
        raise LoadError(f"Kafka's tool ended with {tool.returncode}: {tail}")
    found = produced(load, lines) if load.mode is Mode.PRODUCE else consumed(lines)
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Result(**{**asdict(found), "client_cpu_s": spent.ru_utime + spent.ru_stime})


def _end_with_input(tool: subprocess.Popen[str]) -> None:
    def watch() -> None:
        sys.stdin.read()
        tool.terminate()

    threading.Thread(target=watch, daemon=True).start()


def main(words: list[str]) -> int:
    """Returns 1 for a load that failed, with the reason on standard error."""
    load = from_line(sys.stdin.readline())
    try:
        result = run(load, Path(words[0]))
    except (LoadError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(result.line() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
