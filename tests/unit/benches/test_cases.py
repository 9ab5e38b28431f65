"""The cases' arithmetic: rounds, phases, steps, Java's result, curves, segments."""

import time
from pathlib import Path

import pytest
from rich.console import Console

from benches import (
    against_kafka,
    brokers,
    cases,
    crowd_case,
    effort,
    lag_case,
    loadgen,
    old_cases,
    plot_sweeps,
    produce_cases,
    read_cases,
    report,
    topics,
)
from benches.brokers import BenchError
from benches.loadgen import Load


def load(p99: float, *, megabytes: float = 100, seconds: float = 1, records: int = 1_000) -> Load:
    return Load(
        bytes=round(megabytes * 1e6),
        records=records,
        requests=10,
        mb_per_s=megabytes / seconds,
        records_per_s=records / seconds,
        requests_per_s=10 / seconds,
        latency_ms={"p50": p99 / 2, "p99": p99, "p99.9": 2 * p99, "max": 3 * p99},
        client_cpu_s_per_gb=0.1,
        started_ns=5_000_000_000,
        finished_ns=5_000_000_000 + round(seconds * 1e9),
    )


def test_a_large_topic_grows_in_steps() -> None:
    assert topics.steps(1_000, 1_000) == []
    assert topics.steps(6, 6) == []
    assert topics.steps(1_000, 1_500) == [1_500]
    assert topics.steps(1_000, 4_000) == [2_000, 3_000, 4_000]


def test_added_rounds_give_total_rates_and_the_worst_latency() -> None:
    rows = [{"cpu_s": 0.2, "rss_mb": 1.0}, {"cpu_s": 0.4, "rss_mb": 2.0}]
    loads = [load(1.0, megabytes=100, seconds=1), load(3.0, megabytes=300, seconds=3)]
    found = read_cases._added(list(zip(loads, rows, strict=True)))
    assert found["mb_per_s"] == pytest.approx(100)
    assert found["records_per_s"] == pytest.approx(500)
    assert found["cpu_s_per_gb"] == pytest.approx(0.6 / 0.4)
    assert (found["p99_ms"], found["rss_mb"], found["seconds"]) == (3.0, 2.0, 4)


def phase(producer: float, tail: float, read_mb: float, old: float = 0.0) -> lag_case.Phase:
    newest = lag_case.Newest(2_000.0, read_mb, read_mb + 1)
    return lag_case.Phase(load(producer), load(tail), newest, old)


def test_lag_grows_within_its_pair_and_the_worst_reading_counts() -> None:
    quiet = [phase(1.0, 2.0, 0), phase(2.0, 2.0, 0), phase(1.0, 1.0, 0)]
    lag = [phase(1.1, 20.0, 0, 500), phase(2.0, 2.0, 700, 600), phase(3.0, 1.0, 0, 900)]
    found = lag_case.figures(quiet, lag)
    assert found["producer_p99_growth"] == pytest.approx(1.1)
    assert found["tail_p99_growth"] == pytest.approx(1.0)
    assert (found["tail_p99_ms"], found["tail_lag_p99_ms"]) == (2.0, 2.0)
    assert (found["newest_read_mb"], found["old_mb_per_s"], found["phases"]) == (700, 600, 3)
    assert set(lag_case.SCENARIO.shown) <= set(found)


def test_old_data_case_reports_both_readings_in_one_row(tmp_path: Path) -> None:
    rows = [{"cpu_s_per_gb": 0.3, "rss_mb": 9.0}, {"cpu_s_per_gb": 0.2, "rss_mb": 8.0}]
    loads = [load(5.0, megabytes=3_000, seconds=3), load(2.0, megabytes=3_000, seconds=1)]
    found = old_cases.figures(loads[0], loads[1], rows, [3_000.0, 1.0])
    assert (found["mb_per_s"], found["again_mb_per_s"]) == (1_000, 3_000)
    assert (found["cpu_s_per_gb"], found["again_cpu_s_per_gb"]) == (0.3, 0.2)
    assert (found["read_mb"], found["again_read_mb"], found["p99_ms"]) == (3_000, 1, 5)
    for scenario in old_cases.SCENARIOS:
        assert set(scenario.shown) <= {*found, "device_mb_per_s", "of_device"}
        assert set(scenario.shown) <= set(effort.METRICS)


JAVA = (
    "500000 records sent, 99990.0 records/sec (9.54 MB/sec), 1.2 ms avg latency, 250.0 ms max "
    "latency.\n"
    "1000000 records sent, 697350.069735 records/sec (66.50 MB/sec), 5.31 ms avg latency, "
    "243.00 ms max latency, 1 ms 50th, 27 ms 95th, 52 ms 99th, 61 ms 99.9th.\n"
)


def test_result_of_a_java_tool_is_its_last_line() -> None:
    assert produce_cases.parse_java(JAVA) == {
        "records": 1_000_000,
        "records_per_s": 697350.069735,
        "p50_ms": 1,
        "p99_ms": 52,
        "p99.9_ms": 61,
        "max_ms": 243,
    }
    with pytest.raises(BenchError, match="no result"):
        produce_cases.parse_java("org.apache.kafka.common.errors.TimeoutException\n")


def test_probe_output_is_parsed() -> None:
    text = '{"mode": "probe", "partitions": 3, "produced_ns": 1, "led_ns": 2, "read_ns": 4}\n'
    assert loadgen.parse_served(text) == loadgen.Served(3, 1, 2, 4)


def test_segment_files_give_written_bytes_and_the_last_write_time(tmp_path: Path) -> None:
    assert loadgen.segment_bytes(tmp_path / "absent") == (0, 0.0)
    (tmp_path / "0.log").write_bytes(b"12345")
    (tmp_path / "5.log").write_bytes(b"67")
    (tmp_path / "0.index").write_bytes(b"no segment")
    size, written = loadgen.segment_bytes(tmp_path)
    assert size == 7
    assert abs(time.time() - written) < 60


def test_wait_until_written_returns_the_time_of_the_last_write() -> None:
    broker = brokers.Pyrklog(Path("unused"))
    sizes = iter([3, 7, 10])
    long_ago = time.time() - 100
    done = topics.wait_until_written(broker, "t", 10, lambda: (next(sizes), long_ago))
    assert time.monotonic() - done == pytest.approx(100, abs=5)


def test_partition_is_found_in_the_directory_with_its_folder(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    broker = brokers.Kafka(tmp_path, (one, other))
    assert broker.partition_folder("t", 0) == one / "t-0"
    (other / "t-0").mkdir(parents=True)
    assert broker.partition_folder("t", 0) == other / "t-0"
    assert broker.settings()["log.dirs"] == f"{one},{other}"


def test_removing_a_killed_broker_removes_its_arena_and_marker(tmp_path: Path) -> None:
    broker = brokers.Pyrklog(tmp_path / "data")
    arena = tmp_path / "pyrklog-0.arena"
    arena.write_bytes(b"blocks")
    broker.default_log_dir().mkdir(parents=True)
    marker = broker.default_log_dir() / ".pyrklog-arena"
    marker.write_text(f"version=1\nuuid=00\nboot=1\npath={arena}\n")
    broker.remove()
    assert not arena.exists()
    assert not marker.exists()


def lines() -> list[report.Line]:
    return [
        report.Line("partitions1", "mb_per_s", 77.0, 500.0, (6.5,)),
        report.Line("partitions6", "mb_per_s", 171.0, 700.0, (4.1,), floor=900.0),
        report.Line("partitions6", "p99_ms", 1.0, 0.5, (0.5,)),
        report.Line("lag", "producer_p99_ms", 2.3, 0.5, ()),
        report.Line("lag", "producer_lag_p99_ms", 10.0, 0.6, ()),
    ]


def test_curve_has_the_measured_points() -> None:
    sweep = next(one for one in plot_sweeps.SWEEPS if one.axis == "partitions")
    assert plot_sweeps.points(sweep, lines()) == {
        "kafka": [(1, 77.0), (6, 171.0)],
        "pyrklog": [(1, 500.0), (6, 700.0)],
        "floor": [(6, 900.0)],
    }


def test_every_curve_names_existing_cases() -> None:
    for sweep in plot_sweeps.SWEEPS:
        for case in sweep.cases:
            assert sweep.metric in cases.SHOWN[case], (sweep.title, case)
    for _, case, bars in plot_sweeps.STALLS:
        assert {name for bar in bars for name in bar[1:]} <= set(cases.SHOWN[case])


def test_plot_is_a_png_and_without_data_no_file(tmp_path: Path) -> None:
    assert plot_sweeps.draw(tmp_path / "s.png", lines(), "test")
    assert (tmp_path / "s.png").read_bytes().startswith(b"\x89PNG")
    assert not plot_sweeps.draw(tmp_path / "none.png", lines()[:1], "test")
    assert not (tmp_path / "none.png").exists()


def test_options_change_what_is_done() -> None:
    line = "--quick --phases 4 --old-gb 1.5 --recovery-gb 2 --many 50 --pairs 2 --floor"
    options = against_kafka.parse(line.split())
    found = against_kafka._effort(options)
    assert (found.phases, found.old_bytes, found.pairs) == (4, 1_500_000_000, 2)
    assert (found.recovery_bytes, found.many_partitions) == (2_000_000_000, 50)
    assert found.warm_seconds == effort.QUICK.warm_seconds
    assert options.brokers == ["kafka", "pyrklog", "floor"]
    assert against_kafka._effort(against_kafka.parse([])) == effort.FULL


def bench(line: str) -> against_kafka.Bench:
    return against_kafka.Bench(against_kafka.parse(line.split()), Console(quiet=True))


def test_floor_runs_only_its_cases_and_long_scenarios_run_once() -> None:
    full = bench("--floor")
    assert {case.name for case in full.shared("floor")} >= {"produce1k", "produce16k-4", "fresh"}
    assert all(case.floor for case in full.shared("floor"))
    with_floor = [scenario.name for scenario in full.scenarios(1, "floor")]
    assert set(with_floor) == {crowd_case.SCENARIO.name, lag_case.SCENARIO.name}
    assert full.scenarios(1, "kafka") == list(cases.SCENARIOS)
    assert full.scenarios(2, "kafka") == []
    assert bench("--only lag").scenarios(2, "kafka") == [lag_case.SCENARIO]
    assert bench("--only lag").shared("kafka") == []


def test_only_overrides_the_choice_of_quick() -> None:
    quick = [case.name for case in bench("--quick").shared("kafka")]
    assert "produce16k" in quick
    assert "records10" not in quick
    assert [case.name for case in bench("--quick --only records10").shared("kafka")] == [
        "records10"
    ]


def test_progress_bar_counts_the_steps_to_do() -> None:
    assert bench("--only lag --pairs 3").steps() == 2 * 3
    assert bench("--only produce16k --brokers kafka,floor").steps() == 3 * (2 + 2)
    assert bench("--only idle,recovery --pairs 1").steps() == 2 * (1 + 1 + 1)


def test_too_little_space_is_reported_before_the_run(tmp_path: Path) -> None:
    fits = bench(f"--only idle --out {tmp_path}")
    fits.check_space()
    too_much = bench(f"--only recovery --recovery-gb 1000000 --out {tmp_path}")
    with pytest.raises(BenchError, match="fewer cases with --only"):
        too_much.check_space()
