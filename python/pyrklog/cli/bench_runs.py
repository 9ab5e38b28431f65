"""Runs loads of ``pyrklog bench``, shows how far they are, and makes rows of their results."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyrklog.base.problems import Problem
from pyrklog.benchmark.engine import Running
from pyrklog.benchmark.load import Engine, Load
from pyrklog.benchmark.result import PERCENTILES, LoadError, Progress, Result
from pyrklog.cli.failures import CliError
from pyrklog.cli.output import Column, columns

COLUMNS: tuple[Column, ...] = (
    *columns("mode, engine, topic*, records>, seconds>, records_per_s> REC/S, mb_per_s> MB/S"),
    *(Column(name, name.upper(), right=True) for name in ("p50", "p95", "p99", "p99.9", "max")),
    *columns("client_cpu_s_per_gb> CPU_S/GB, errors>, lost>*"),
)
LOOK_S = 0.1
_CATCHES_UP_S = 60.0
"""For the consumer of a pair, once its producer has ended."""


@dataclass(frozen=True)
class Done:
    """A load, what it measured, and how it went meanwhile."""

    engine: Engine
    load: Load
    result: Result
    progress: Sequence[Progress]
    is_interrupted: bool = False
    """By Ctrl-C."""

    def row(self) -> dict[str, Any]:
        found = self.result
        cpu = found.client_cpu_s_per_gb
        return {
            "mode": self.load.mode.value,
            "engine": self.engine.value,
            "topic": self.load.topic,
            "records": found.records,
            "bytes": found.bytes,
            "seconds": round(found.seconds, 3),
            "records_per_s": round(found.records_per_s),
            "mb_per_s": round(found.mb_per_s, 2),
            **{name: found.latency_ms.get(name) for name in PERCENTILES},
            "client_cpu_s_per_gb": None if cpu is None else round(cpu, 3),
            "errors": sum(found.errors.values()),
            "error_codes": dict(found.errors),
            "lost": found.lost,
        }


@dataclass(frozen=True)
class Bench:
    """How loads are run."""

    engine: Engine
    kafka_home: Path | None = None
    shows_progress: bool = False

    def run(self, load: Load) -> Done:
        """Ctrl-C ends the load, and what was measured is told. Raises :class:`CliError`."""
        with Running(self.engine, load, self.kafka_home) as running:
            with Shown(self.shows_progress) as shown:
                is_interrupted = self._wait([running], shown)
            return self._done(running, is_interrupted)

    def pair(self, producing: Load, consuming: Load) -> list[Done]:
        """A producer and, beside it, a consumer of what it writes."""
        consuming = replace(consuming, follows=True)
        with (
            Running(self.engine, consuming, self.kafka_home) as reader,
            Running(self.engine, producing, self.kafka_home) as writer,
        ):
            with Shown(self.shows_progress) as shown:
                is_interrupted = self._wait([writer, reader], shown)
                if not reader.is_running:
                    writer.stop()  # its result tells what failed
                written = self._done(writer, is_interrupted)
                deadline = time.monotonic() + _CATCHES_UP_S
                while reader.is_running and time.monotonic() < deadline:
                    if reader.progress and reader.progress[-1].records >= written.result.records:
                        break  # a warm-up's records are read, too, so it may end some early
                    shown.show([reader])
                    time.sleep(LOOK_S)
            reader.stop()
            return [written, self._done(reader, is_interrupted)]

    def _wait(self, loads: list[Running], shown: Shown) -> bool:
        """Until the first ends; true if Ctrl-C has ended all."""
        try:
            while all(one.is_running for one in loads):
                shown.show(loads)
                time.sleep(LOOK_S)
        except KeyboardInterrupt:
            for one in loads:
                one.stop()
            return True
        return False

    def _done(self, running: Running, is_interrupted: bool) -> Done:
        try:
            result = running.result()
        except LoadError as error:
            raise CliError(Problem.BENCH_FAILED, str(error), _fix(str(error))) from None
        return Done(self.engine, running.load, result, list(running.progress), is_interrupted)


def _fix(reason: str) -> str | None:
    if "cannot keep up" in reason:
        return "lower --rate"
    if "No module named 'confluent_kafka'" in reason:
        return "pip install confluent-kafka"
    return None


class Shown:
    """One line on a terminal's standard error that tells how far loads are."""

    def __init__(self, is_wanted: bool) -> None:
        self._is_wanted = is_wanted and sys.stderr.isatty()
        self._width = 0

    def __enter__(self) -> Shown:
        return self

    def __exit__(self, *_: object) -> None:
        if self._width:
            self._write("")
            sys.stderr.write("\r")
            sys.stderr.flush()

    def show(self, loads: Sequence[Running]) -> None:
        if not self._is_wanted:
            return
        told = [f"{one.load.mode} {_speed(one.progress)}" for one in loads if one.progress]
        if told:
            self._write("   ".join(told))

    def _write(self, line: str) -> None:
        sys.stderr.write("\r" + line.ljust(self._width))
        sys.stderr.flush()
        self._width = len(line)


def _speed(progress: Sequence[Progress]) -> str:
    """Of the last second or so, after how many seconds."""
    now = progress[-1]
    before = next((one for one in reversed(progress) if now.seconds - one.seconds >= 1.0), None)
    records, size, seconds = now.records, now.bytes, now.seconds
    if before is not None:
        records, size = records - before.records, size - before.bytes
        seconds -= before.seconds
    if seconds <= 0:
        return f"{now.seconds:.0f} s"
    return (
        f"{now.seconds:.0f} s  {records / seconds:,.0f} records/s  {size / seconds / 1e6:,.1f} MB/s"
    )
