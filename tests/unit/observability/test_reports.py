"""Reports: the line of the log, CSV files, StatsD, and reporters that fail or hang."""

import csv
import errno
import io
import json
import os
import socket
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
import trio
import trio.testing

from pyrklog.base import logs
from pyrklog.observability import report_csv
from pyrklog.observability.growth import Growth
from pyrklog.observability.latency_samples import of_times
from pyrklog.observability.metric import Metric
from pyrklog.observability.report_csv import CsvReporter
from pyrklog.observability.report_log import RATES, VALUES, LogReporter
from pyrklog.observability.report_statsd import PACKET_BYTES_MAX, StatsdReporter, lines, packets
from pyrklog.observability.reporting import run_reporters
from pyrklog.observability.samples import Readings, Sample, of_broker
from pyrklog.observability.tally import Tally
from tests.support.latencies import histogram, times

REQUESTS = Metric(
    "kafka_network_requestmetrics_requests_total", "counter", "Requests.", ("request",)
)
QUEUES = Metric("pyrklog_queue_waiting", "gauge", "Waiting.", ("log_dir", "queue"))
DEPTH = Metric("pyrklog_depth", "gauge", "Depth.")
AT = 1_764_354_600.4


def requests(produce: float, fetch: float = 0) -> list[Sample]:
    return [Sample(REQUESTS, ("Produce",), produce), Sample(REQUESTS, ("Fetch",), fetch)]


def table(path: Path) -> list[list[str]]:
    return list(csv.reader(io.StringIO(path.read_text())))


# --- counters ------------------------------------------------------------------------------------


def test_counters_grow_from_the_start_of_the_broker_on() -> None:
    growth = Growth()
    name = REQUESTS.name
    assert growth.take(requests(5, 2)) == {(name, ("Produce",)): 5, (name, ("Fetch",)): 2}
    assert growth.take([*requests(5, 7), Sample(DEPTH, (), 3)]) == {
        (name, ("Produce",)): 0,
        (name, ("Fetch",)): 5,
    }


# --- log -----------------------------------------------------------------------------------------


def whole(requests: int, cpu_seconds: float) -> list[Sample]:
    """Of a broker that was asked so often."""
    statistics = {
        "requests.Produce": requests,
        "requests.Fetch": requests,
        "connections": 4,
        "unwritten_bytes.0": 10,
        "unwritten_bytes.1": 20,
        **dict.fromkeys(("received_bytes", "sent_bytes", "produced_bytes"), requests * 1000),
        **{f"fetched_bytes.{path}": requests for path in ("cached", "copy")},
        "control_queue_depth": 0,
    }
    readings = Readings(2, 1, 1, 3, cpu_seconds, 4096, AT)
    return of_broker(statistics, Tally(*range(14)), readings, ["/a", "/b"])


def test_the_line_of_the_log_has_rates_of_the_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, dict[str, float]]] = []
    monkeypatch.setattr(logs.Logger, "info", lambda _, event, **kw: told.append((event, kw)))
    clock = iter((1000.0, 1000.0, 1010.0))
    reporter = LogReporter(100.0, lambda: next(clock))
    reporter.report(AT, whole(50, 20.0))
    # The time of day was set back meanwhile.
    reporter.report(AT - 3600, whole(150, 22.5))
    assert [event for event, _ in told] == ["metrics", "metrics"]
    (_, first), (_, second) = told
    assert set(first) == {"seconds", *VALUES, *RATES}
    assert (first["seconds"], first["requests_per_second"]) == (100, 1)
    assert (second["seconds"], second["requests_per_second"]) == (10, 20)
    assert (first["cpu_cores"], second["cpu_cores"]) == (0.2, 0.25)
    assert second["produced_bytes_per_second"] == 10_000
    assert second["fetched_bytes_per_second"] == 20
    assert (second["connections"], second["unwritten_bytes"], second["ready"]) == (4, 30, 1)
    assert json.dumps(second)


def test_the_line_of_the_log_has_quantiles_of_the_interval(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[dict[str, float]] = []
    monkeypatch.setattr(logs.Logger, "info", lambda _, _event, **kw: told.append(kw))
    reporter = LogReporter(100.0)
    slow, fast = histogram(*[15_000_000] * 100), histogram(*[15_000_000] * 100, *[150_000] * 100)
    for found in (slow, fast, fast):
        reporter.report(AT, of_times(times({"request.Produce.served": found}), {}))
    first, second, third = told
    assert 0.01 < first["produce_p99_seconds"] <= 0.05
    assert 0.0001 < second["produce_p99_seconds"] <= 0.0002
    assert "produce_p99_seconds" not in third
    assert "fetch_p99_seconds" not in first


# --- CSV -----------------------------------------------------------------------------------------


def test_each_metric_has_a_file_with_a_row_for_each_series(tmp_path: Path) -> None:
    reporter = CsvReporter(tmp_path / "new" / "broker-1")
    odd = 'a,"b"\n\udcff'
    reporter.report(AT, [*requests(5, 2), Sample(QUEUES, (odd, "ahead"), 0.25)])
    reporter.report(AT + 60, requests(7, 2))
    where = tmp_path / "new" / "broker-1"
    assert table(where / f"{REQUESTS.name}.csv") == [
        ["time", "request", "value"],
        ["2025-11-28T18:30:00Z", "Produce", "5"],
        ["2025-11-28T18:30:00Z", "Fetch", "2"],
        ["2025-11-28T18:31:00Z", "Produce", "7"],
        ["2025-11-28T18:31:00Z", "Fetch", "2"],
    ]
    written = (where / f"{QUEUES.name}.csv").read_text(errors="surrogateescape")
    assert list(csv.reader(io.StringIO(written)))[1] == [
        "2025-11-28T18:30:00Z",
        odd,
        "ahead",
        "0.25",
    ]
    assert len(list(where.iterdir())) == 2


def test_the_next_start_continues_the_file(tmp_path: Path) -> None:
    CsvReporter(tmp_path).report(AT, requests(5))
    CsvReporter(tmp_path).report(AT + 60, requests(1))
    assert [row[-1] for row in table(tmp_path / f"{REQUESTS.name}.csv")] == [
        "value",
        *("5", "0"),
        *("1", "0"),
    ]
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    "found", [b"time,version,request,value\n", b"time,request,value\n2025,Pro"]
)
def test_a_file_that_cannot_be_continued_is_kept_beside(tmp_path: Path, found: bytes) -> None:
    path = tmp_path / f"{REQUESTS.name}.csv"
    path.write_bytes(found)
    CsvReporter(tmp_path).report(AT, requests(5))
    assert len(table(path)) == 3
    assert (tmp_path / f"{REQUESTS.name}.1.csv").read_bytes() == found


def test_two_files_of_bounded_size_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_csv, "FILE_BYTES_MAX", 200)
    reporter = CsvReporter(tmp_path)
    for number in range(20):
        reporter.report(AT + number, requests(number))
    now, before = (tmp_path / f"{REQUESTS.name}{end}.csv" for end in ("", ".1"))
    assert {one.name for one in tmp_path.iterdir()} == {now.name, before.name}
    assert max(now.stat().st_size, before.stat().st_size) <= 200
    assert table(now)[0] == table(before)[0] == ["time", "request", "value"]
    produced = [row[2] for row in table(before) + table(now) if row[1] == "Produce"]
    assert produced == [str(number) for number in range(20 - len(produced), 20)]


def test_no_half_row_is_left_by_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reporter = CsvReporter(tmp_path)
    reporter.report(AT, requests(1))
    path = tmp_path / f"{REQUESTS.name}.csv"
    before = path.read_bytes()

    def half(file: io.FileIO, data: bytes) -> None:
        file.write(data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(report_csv, "_write", half)
        with pytest.raises(OSError, match="No space"):
            reporter.report(AT + 60, requests(2))
    assert path.read_bytes() == before
    reporter.report(AT + 120, requests(3))
    assert len(table(path)) == 5


# --- StatsD --------------------------------------------------------------------------------------


def test_lines_of_statsd() -> None:
    found = [*requests(5, 0), Sample(QUEUES, ("/var/data,1|x", "ahead"), 0.25)]
    found += [Sample(DEPTH, (), -3), Sample(DEPTH, (), 1e-7)]
    grown = Growth().take(found)
    assert list(lines(found, grown, 7, tags=False)) == [
        b"broker.7.kafka_network_requestmetrics_requests_total.Produce:5|c",
        b"broker.7.pyrklog_queue_waiting._var_data_1_x.ahead:0.25|g",
        b"broker.7.pyrklog_depth:0|g",
        b"broker.7.pyrklog_depth:-3|g",
        b"broker.7.pyrklog_depth:0.0000001|g",
    ]
    assert list(lines(found, grown, 7, tags=True))[:2] == [
        b"kafka_network_requestmetrics_requests_total:5|c|#broker:7,request:Produce",
        b"pyrklog_queue_waiting:0.25|g|#broker:7,log_dir:/var/data_1_x,queue:ahead",
    ]


def test_lines_share_datagrams_that_fit_a_frame() -> None:
    found = [bytes([65 + n % 26]) * (n * 37 % 300 + 1) for n in range(200)] + [b"z" * 3000]
    packed = list(packets(found))
    assert b"\n".join(packed).split(b"\n") == found
    assert max(map(len, packed[:-1])) <= PACKET_BYTES_MAX
    assert len(packed) < 50


def test_what_statsd_gets_adds_up_to_the_counter() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(30)
        reporter = StatsdReporter(("127.0.0.1", server.getsockname()[1]), 1)
        got = []
        for total in (5, 5, 9):
            reporter.report(AT, [*requests(total), Sample(DEPTH, (), total)])
            got += server.recv(65536).split(b"\n")
    counted = [line.rpartition(b":")[2] for line in got if b"Produce" in line]
    assert counted == [b"5|c", b"4|c"]
    assert [line.rpartition(b":")[2] for line in got if b"depth" in line] == [
        b"5|g",
        b"5|g",
        b"9|g",
    ]


def test_nothing_is_counted_as_sent_while_the_host_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(30)
        reporter = StatsdReporter(("stats.example", server.getsockname()[1]), 1)

        def unknown(*_: object, **__: object) -> object:
            raise socket.gaierror(-2, "Name or service not known")

        found = socket.getaddrinfo("127.0.0.1", server.getsockname()[1], type=socket.SOCK_DGRAM)
        with monkeypatch.context() as away:
            away.setattr(socket, "getaddrinfo", unknown)
            with pytest.raises(OSError, match="not known"):
                reporter.report(AT, requests(5))
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        reporter.report(AT, requests(7))
        assert server.recv(65536).endswith(b"Produce:7|c")


# --- the driver ----------------------------------------------------------------------------------


class Recorder:
    """Fails with these errors first; ``hangs`` until set."""

    def __init__(
        self, name: str, failures: Sequence[int] = (), hangs: threading.Event | None = None
    ) -> None:
        self.name = name
        self.got: list[Sequence[Sample]] = []
        self.is_closed = False
        self._failures = failures
        self._hangs = hangs

    def report(self, at: float, samples: Sequence[Sample]) -> None:
        self.got.append(samples)
        if self._hangs is not None:
            self._hangs.wait()
        if len(self.got) <= len(self._failures):
            raise OSError(os.strerror(self._failures[len(self.got) - 1]))

    def close(self) -> None:
        self.is_closed = True


async def reported(reporters: Sequence[Recorder], times: int) -> None:
    """Until the last one has reported so often."""

    async def read() -> Sequence[Sample]:
        return requests(1)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_reporters, reporters, 0.01, read)
        with trio.fail_after(30):
            while len(reporters[-1].got) < times:  # noqa: ASYNC110 - it is told in a thread
                await trio.sleep(0.01)
        nursery.cancel_scope.cancel()


async def test_a_reporter_that_hangs_delays_neither_the_others_nor_the_end() -> None:
    release = threading.Event()
    hung = Recorder("hung", hangs=release)
    try:
        await reported([hung, Recorder("well")], 5)
        assert len(hung.got) == 1
        assert hung.is_closed
    finally:
        release.set()


async def test_what_fails_is_told_once_for_each_reason_and_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[tuple[str, str | None]] = []

    def tell(_: object, event: str, to: str, reason: str | None = None) -> None:
        assert to == "disk"
        told.append((event, reason))

    for level in ("info", "warning"):
        monkeypatch.setattr(logs.Logger, level, tell)
    full, broken = os.strerror(errno.ENOSPC), os.strerror(errno.EIO)
    failures = [errno.ENOSPC] * 2 + [errno.EIO] * 2 + [errno.ENOSPC]
    await reported([Recorder("disk", failures)], 8)
    assert told == [
        *(("metrics_unreported", reason) for reason in (full, broken, full)),
        ("metrics_reported_again", None),
    ]


async def test_a_broken_reader_does_not_end_the_reports() -> None:
    calls = 0

    async def read() -> Sequence[Sample]:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise RuntimeError("a bug")
        return requests(1)

    one = Recorder("one")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_reporters, [one], 0.01, read)
        with trio.fail_after(30):
            while not one.got:  # noqa: ASYNC110 - it is told in a thread
                await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
