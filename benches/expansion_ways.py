"""Ways to give a fourth broker its share, each on a cluster of its own; and a drain."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import NewTopic

from benches.brokers import BenchError, java
from benches.cluster_probe import Probe
from benches.expansion_load import Producer, Request
from benches.expansion_sampler import Sample, Sampler
from benches.expansion_side import HISTORY, LED, NEW, OLD, Side, SidePyrklog, Size

AUTO, DRAIN = "auto", "drain"
_LOOK_S = 0.1
_LED_LOOK_S = 0.01
_COMMAND_S = 300.0
"""Longest run of a command that does not wait for its plan's end."""
_AFTER_S = 3.0
_TOOL_FLAGS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
_VICTIM = 1
Plan = Mapping[int, frozenset[int]]
"""Replicas of the history's partitions that change, by partition."""


@dataclass(frozen=True)
class Way:
    """``mode``: of ``cluster expand``, or ``drain``. ``throttle``: of the command, in MB/s or
    ``auto``; None: none."""

    name: str
    title: str
    kind: str
    mode: str
    throttle: str | None = None
    is_filled: bool = True
    """Whether pyrklog's new broker back-fills."""


class Times(NamedTuple):
    """Of a plan, as its command keeps them; None: it has no such figure. ``corrected_s``: as it
    was predicted once its speed was measured, ``corrected_after_s`` after its begin."""

    predicted_s: float | None = None
    real_s: float | None = None
    corrected_s: float | None = None
    corrected_after_s: float | None = None


NO_TIMES = Times()


@dataclass(frozen=True)
class Trial:
    """Raw measurements of one way. ``whole_s`` None: it was not whole in time. Times are
    CLOCK_MONOTONIC."""

    samples: Sequence[Sample]
    requests: Sequence[Request]
    quiet_from_s: float
    begin_s: float
    end_s: float
    whole_s: float | None
    planned: int
    """Replicas that the new broker gets."""
    record: Times = NO_TIMES
    gone_s: float | None = None
    """Of a drain: from the command to the last leader's end."""
    handover_s: float | None = None
    """Of a drain: from when the command begins to hand over to the last leader's end."""


def ways(size: Size) -> list[Way]:
    """All, in the order of running."""
    fixed = [str(rate) for rate in size.rates_mb]
    first = fixed[len(fixed) // 2]
    ours = "pyrklog, from the leaders' ends"
    tool = "Kafka, kafka-reassign-partitions"
    return [
        Way("pyrklog-tail", f"{ours}, no back-fill", "pyrklog", "tail", is_filled=False),
        Way("pyrklog-fill-auto", f"{ours}, --throttle auto", "pyrklog", "tail", AUTO),
        Way(f"pyrklog-fill-{first}", f"{ours}, {first} MB/s", "pyrklog", "tail", first),
        Way("pyrklog-copy", "pyrklog, --mode copy", "pyrklog", "copy"),
        Way(f"pyrklog-copy-{first}", f"pyrklog, copy, {first} MB/s", "pyrklog", "copy", first),
        Way("kafka", f"{tool}, no throttle", "kafka", "copy"),
        *(Way(f"kafka-{rate}", f"{tool}, {rate} MB/s", "kafka", "copy", rate) for rate in fixed),
        Way("pyrklog-drain", "pyrklog, drain", "pyrklog", DRAIN),
        Way("pyrklog-drain-auto", "pyrklog, drain, --throttle auto", "pyrklog", DRAIN, AUTO),
    ]


def prepare(side: Side, way: Way) -> None:
    """The history, on the disk alone."""
    if isinstance(side.new, SidePyrklog) and not way.is_filled:
        side.new.more = ("pyrklog.expansion.rate=0",)
    side.start(side.old)
    side.fill()
    side.forget_memory()


class _Command:
    """A command that runs; its output is in a file."""

    def __init__(self, words: Sequence[str], output: Path) -> None:
        self._words, self._output = words, output
        environment = {
            **os.environ,
            "XDG_CONFIG_HOME": str(output.parent),
            "XDG_CACHE_HOME": str(output.parent),
        }
        with output.open("ab") as sink:
            sink.write(f"$ {' '.join(words)}\n".encode())
            sink.flush()
            self._process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, env=environment
            )

    def is_over(self) -> bool:
        """BenchError if it failed."""
        code = self._process.poll()
        if code:
            said = self._output.read_text(errors="replace")[-1_500:]
            raise BenchError(f"`{' '.join(self._words[-8:])}` ended with {code}:\n{said}")
        return code is not None

    def wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self.is_over():
            if time.monotonic() > deadline:
                raise BenchError(f"`{' '.join(self._words[-8:])}` takes more than {seconds:.0f} s")
            time.sleep(_LOOK_S)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def _ours(side: Side, *words: str) -> list[str]:
    return [sys.executable, "-m", "pyrklog", "-q", "-b", side.bootstrap, "cluster", *words]


def _tool(side: Side, plan: Path, *words: str) -> list[str]:
    given = ("--bootstrap-server", side.bootstrap, "--reassignment-json-file", str(plan))
    return [*java(side.old[0].folder, _TOOL_FLAGS), _REASSIGN, *given, *words]


def read_plan(path: Path) -> Plan:
    """A plan in Kafka's JSON."""
    found = json.loads(path.read_text())["partitions"]
    return {
        int(one["partition"]): frozenset(one["replicas"])
        for one in found
        if one["topic"] == HISTORY
    }


def _begin(side: Side, way: Way, plan: Path, output: Path) -> _Command:
    """Begins the expansion; the plan's file is there once its moves have begun."""
    if way.kind == "kafka":
        throttle = ("--throttle", str(1_000_000 * int(way.throttle))) if way.throttle else ()
        return _Command(_tool(side, plan, "--execute", *throttle), output)
    words = ["expand", "--broker", str(NEW), "--mode", way.mode, "--plan", str(plan), "-y"]
    if way.throttle:
        rate = way.throttle if way.throttle == AUTO else f"{way.throttle}MB/s"
        words += ["--throttle", rate]
    if way.is_filled:
        words.append("-w")
    return _Command(_ours(side, *words), output)


def is_done(plan: Plan, isr: Plan) -> bool:
    return bool(plan) and all(isr.get(index) == replicas for index, replicas in plan.items())


def expand(side: Side, way: Way, files: Path) -> Trial:
    """Producers run from before the expansion until after it."""
    size, plan, output = side.size, files / "plan.json", files / "commands.log"
    if way.kind == "kafka":
        planning = _ours(side, "reassign", "plan", "--add", str(NEW), "--write", str(plan))
        _Command([*planning, "--by", "bytes,leaders,replicas"], output).wait(_COMMAND_S)
    with _producer(side, HISTORY, size.partitions, files) as producer, Sampler(side) as sampler:
        quiet_from = _rest(size, producer, sampler)
        begin = time.monotonic()
        command = _begin(side, way, plan, output)
        try:
            whole = _wait_until_whole(sampler, producer, command, plan, begin + size.most_s)
            end = time.monotonic()
            if whole is not None:
                command.wait(_COMMAND_S)
        finally:
            command.kill()
        if way.kind == "kafka" and way.throttle:
            _Command(_tool(side, plan, "--verify"), output).wait(_COMMAND_S)
        time.sleep(_AFTER_S)
        _check(sampler)
        requests = producer.finish()
    kept = read_record(plan.with_name(plan.name + ".progress.json"))
    planned = sum(NEW in replicas for replicas in read_plan(plan).values())
    times = quiet_from, begin, end if whole is None else whole, whole
    return Trial(sampler.samples, requests, *times, planned, kept)


def _producer(side: Side, topic: str, partitions: int, files: Path) -> Producer:
    size = side.size
    return Producer(
        *(side.bootstrap, topic, partitions),
        per_s=size.per_s,
        size=size.record_bytes,
        file=files / "requests.bin",
    )


def _rest(size: Size, producer: Producer, sampler: Sampler) -> float:
    """Warms up and lets producers run undisturbed; when that began."""
    time.sleep(size.warm_s)
    quiet_from = time.monotonic()
    time.sleep(size.quiet_s)
    producer.check()
    _check(sampler)
    return quiet_from


def _check(sampler: Sampler) -> None:
    if not sampler.is_running:
        raise BenchError("a broker ended, or does not answer")


def _wait_until_whole(
    sampler: Sampler, producer: Producer, command: _Command, plan: Path, until_s: float
) -> float | None:
    """When all new replicas were in sync and all old ones gone; None if not in time."""
    wanted: Plan = {}
    while time.monotonic() < until_s:
        is_over = command.is_over()
        producer.check()
        _check(sampler)
        if not wanted and plan.exists():
            wanted = read_plan(plan)
        if is_over and not wanted:
            raise BenchError("the expansion has nothing to do")
        if is_done(wanted, sampler.isr):
            return time.monotonic()
        time.sleep(_LOOK_S)
    return None


def read_record(path: Path) -> Times:
    if not path.exists():
        return NO_TIMES
    found = json.loads(path.read_text())
    predicted, real = found.get("predicted") or {}, found.get("real") or {}
    corrected = predicted.get("corrected") or {}
    return Times(
        predicted.get("seconds"),
        real.get("seconds") if real.get("watched") else None,
        corrected.get("seconds"),
        corrected.get("after_s"),
    )


# --- a drain -------------------------------------------------------------------------------------


def drain(side: Side, way: Way, files: Path) -> Trial:
    """Three brokers lead as many partitions each; the first one is drained under load."""
    size = side.size
    del side.brokers[OLD:]
    side.start(side.old)
    count = OLD * size.leaders
    assignment = [[1 + index % OLD, 1 + (index + 1) % OLD] for index in range(count)]
    side.create(NewTopic(LED, count, replica_assignment=assignment))
    side.elect(LED)
    led = Probe(side.old[1].port)
    record = files / "plan.json.progress.json"
    words = ["drain", "--broker", str(_VICTIM), "-w", "-y", "--plan", str(files / "plan.json")]
    if way.throttle:
        words += ["--throttle", way.throttle]
    with _producer(side, LED, count, files) as producer, Sampler(side) as sampler:
        quiet_from = _rest(size, producer, sampler)
        begin = time.monotonic()
        command = _Command(_ours(side, *words), files / "commands.log")
        try:
            # It is written right before the leaders go.
            first, gone = _wait_until_gone(
                lambda: _leaders(led), record.exists, command, begin + size.most_s
            )
            command.wait(size.most_s)
        finally:
            command.kill()
        end = time.monotonic()
        # As long as before, so that both have as many requests.
        time.sleep(max(_AFTER_S, begin + size.quiet_s - end + _AFTER_S))
        _check(sampler)
        requests = producer.finish()
    led.close()
    times = quiet_from, begin, max(end, begin + size.quiet_s), end
    handover = gone - first
    return Trial(
        *(sampler.samples, requests, *times, count, read_record(record)),
        gone_s=gone - begin,
        handover_s=handover,
    )


def _leaders(probe: Probe) -> int:
    return sum(one.leader == _VICTIM for one in probe.partitions(LED).values())


def _wait_until_gone(
    leaders: Callable[[], int], is_begun: Callable[[], bool], command: _Command, until_s: float
) -> tuple[float, float]:
    """When it began to hand over, and when the last leader had gone."""
    first = None
    while time.monotonic() < until_s:
        looked = time.monotonic()
        if first is None and is_begun():
            first = looked
        if not leaders():
            return first or looked, time.monotonic()
        command.is_over()
        time.sleep(_LED_LOOK_S)
    raise BenchError(f"broker {_VICTIM} leads {leaders()} partitions still")
