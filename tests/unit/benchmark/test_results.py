"""What engines are asked and what they print."""

from dataclasses import replace

import pytest

from pyrklog.benchmark import java, native
from pyrklog.benchmark.librdkafka import Latencies, from_line, to_line, values
from pyrklog.benchmark.load import Load, Mode
from pyrklog.benchmark.result import LoadError, Progress, Result, parse, parse_progress

LOAD = Load(Mode.PRODUCE, "127.0.0.1:9092", "orders", records=1000, rate=50.0)
PRODUCED = """\
499 records sent, 99.8 records/sec (0.01 MB/sec), 1.2 ms avg latency, 9.0 ms max latency.
1000 records sent, 250.000000 records/sec (0.02 MB/sec), 0.97 ms avg latency, 9.00 ms max latency, \
1 ms 50th, 2 ms 95th, 7 ms 99th, 9 ms 99.9th.
""".splitlines()
CONSUMED = [
    "2026-01-31 23:59:59:500, 2026-02-01 00:00:01:750, 0.5000, 0.2222, 5242, 2329.7, 3, 2247, "
    "0.2225, 2332.8",
]


def test_a_result_comes_back_as_it_was() -> None:
    result = Result(10, 1200, 2.0, {"p50": 1.5}, 0.25, {"NOT_LEADER_OR_FOLLOWER": 1}, 2)
    assert parse(result.line()) == result
    assert (result.records_per_s, result.mb_per_s) == (5.0, 0.0006)
    assert result.client_cpu_s_per_gb == pytest.approx(0.25 / 1.2e-6)
    assert not result.is_clean


def test_a_result_of_nothing_divides_by_nothing() -> None:
    nothing = Result(0, 0, 0.0, client_cpu_s=0.1)
    assert (nothing.records_per_s, nothing.mb_per_s) == (0.0, 0.0)
    assert nothing.client_cpu_s_per_gb is None
    assert nothing.is_clean


@pytest.mark.parametrize("line", ["", "[]", "3", '{"records": 1}', "Exception in thread"])
def test_what_is_no_result_is_shown(line: str) -> None:
    with pytest.raises(LoadError, match="printed no result"):
        parse(line)


def test_progress_and_other_lines() -> None:
    assert parse_progress('{"seconds": 1.5, "records": 3, "bytes": 4}') == Progress(1.5, 3, 4)
    for line in ("started", "[1]", "{}", '{"seconds": "x", "records": 1, "bytes": 1}'):
        assert parse_progress(line) is None


def test_a_load_comes_back_as_it_was() -> None:
    load = replace(LOAD, properties={"linger.ms": "5"}, mode=Mode.LATENCY, rate=None)
    assert from_line(to_line(load)) == load


def test_native_is_given_what_its_mode_takes() -> None:
    producing = native.arguments(LOAD)
    assert producing[0] == "produce"
    assert producing[producing.index("--records") + 1] == "1000"
    assert producing[producing.index("--rate") + 1] == "50.000"
    consuming = native.arguments(replace(LOAD, mode=Mode.CONSUME, follows=True))
    assert consuming[0] == "fetch"
    assert "--follow" in consuming
    assert consuming[consuming.index("--last-records") + 1] == "1000"
    assert not {"--acks", "--rate", "--records"} & set(consuming)
    pacing = native.arguments(replace(LOAD, mode=Mode.LATENCY))
    assert pacing[0] == "end-to-end"
    assert not {"--connections", "--records", "--batch-bytes"} & set(pacing)


def test_latencies_are_told_by_percentile() -> None:
    found = Latencies()
    assert found.told() == {}
    for ms in range(1, 1001):
        found.add(ms / 1000)
    told = found.told()
    assert told == {"p50": 501.0, "p95": 951.0, "p99": 991.0, "p99.9": 1000.0, "max": 1000.0}


def test_values_have_the_size_and_differ() -> None:
    made = values(32)
    assert {len(one) for one in made} == {32}
    assert len(set(made)) == len(made)


def test_the_last_line_of_kafkas_producer_is_the_result() -> None:
    found = java.produced(LOAD, PRODUCED)
    assert (found.records, found.bytes, found.seconds) == (1000, 100_000, 4.0)
    assert found.latency_ms == {"max": 9.0, "p50": 1.0, "p95": 2.0, "p99": 7.0, "p99.9": 9.0}
    with pytest.raises(LoadError, match="no result"):
        java.produced(LOAD, PRODUCED[:1])


def test_the_line_of_kafkas_consumer_is_the_result() -> None:
    found = java.consumed(["WARN something", *CONSUMED])
    assert (found.records, found.bytes) == (5242, 524_288)
    assert found.seconds == pytest.approx(2.25)
    with pytest.raises(LoadError, match="no result"):
        java.consumed(["WARN something"])
