"""The benchmark of a broker that comes: space, series, figures, goals, what is kept."""

import array
import json
from pathlib import Path

import pytest
from rich.console import Console

from benches import expansion, expansion_figures, expansion_load, expansion_sampler, expansion_ways
from benches.brokers import BenchError
from benches.effort import Row
from benches.expansion_figures import best_of_kafka, figures_of, row_of
from benches.expansion_load import Request
from benches.expansion_sampler import Sample
from benches.expansion_side import NEW, SidePyrklog, Size, side
from benches.expansion_ways import NO_TIMES, Times, Trial, Way

MB = 1_000_000
BEGIN_S = 1_010.0
"""After ten seconds without an expansion."""


def sample(second: float, old_read: int, written: int, following: int, in_sync: int = 0) -> Sample:
    """All brokers use half a processor before, and a whole one from ``BEGIN_S`` on."""
    since = second - (BEGIN_S - 10)
    cpu_s = 0.5 * min(since, 10) + max(0.0, since - 10)
    reads = (old_read, 0, 0, 7 * MB)
    return Sample(second, reads, written, cpu_s, 2 * old_read, since / 4, following, in_sync)


def trial(record: Times = NO_TIMES, **more: float) -> Trial:
    """Two seconds until the new broker follows 3 of 4 partitions, ten until it is whole."""
    samples = [sample(1_000.0 + second / 2, 0, 0, 0) for second in range(21)]
    samples += [
        sample(BEGIN_S + step / 2, step * MB, 10 * step * MB, min(3, step // 2 + 1))
        for step in range(1, 24)
    ]
    requests = [
        Request(1_000.0 + number / 100, 0.030 if 100_000 + number >= BEGIN_S * 100 else 0.010, 0.0)
        for number in range(2_000)
    ]
    times = 1_000.0, BEGIN_S, BEGIN_S + 10, BEGIN_S + 10
    return Trial(samples, requests, *times, planned=3, record=record, **more)


def small() -> Size:
    return expansion.size_of(expansion.parse(["--small", "--partitions", "4"]))


def test_figures_of_an_expansion() -> None:
    row = row_of(trial(Times(12.0, 10.0, 9.0, 4.0)), small())
    assert row["quiet_p99.9_ms"] == pytest.approx(10)
    assert row["p99.9_ms"] == pytest.approx(30)
    assert row["growth"] == pytest.approx(3)
    assert row["blocks_growth"] == row["blocks_growth_low"] == pytest.approx(3)
    assert row["blocks_growth_high"] == pytest.approx(3)
    assert (row["third_s"], row["tail_s"], row["whole_s"]) == (1.0, 2.0, 10.0)
    assert row["read_until_tail_mb"] == row["more_until_tail_mb"] == 4
    assert row["more_until_tail_percent"] == pytest.approx(400 / 225)
    assert row["read_mb"] == 20, "the new broker's own reads do not count"
    assert row["taken_gb"] == 0.2
    assert row["cpu_s"] == pytest.approx(5), "what the producers cost before is not the expansion's"
    assert row["cpu_s_per_gb"] == pytest.approx(25)
    assert row["off_percent"] == pytest.approx(20)
    assert row["corrected_off_percent"] == pytest.approx(-10)
    assert row["corrected_after_s"] == 4.0


def test_what_was_not_whole_in_time_has_no_time() -> None:
    found = trial()
    cut = Trial(found.samples, found.requests, 1_000.0, BEGIN_S, BEGIN_S + 10, None, planned=4)
    row = row_of(cut, small())
    assert "third_s" in row
    assert {"tail_s", "whole_s", "read_until_tail_mb", "off_percent"}.isdisjoint(row)


def test_a_drain_has_the_end_of_its_leaders() -> None:
    row = row_of(trial(gone_s=2.5, handover_s=0.4), small())
    assert (row["gone_s"], row["handover_s"]) == (2.5, 0.4)
    assert row["handing_growth"] == pytest.approx(3)
    assert "tail_s" not in row


def test_seconds_begin_with_the_expansion(tmp_path: Path) -> None:
    found = trial()
    series = expansion_sampler.seconds(found.samples, found.requests, BEGIN_S)
    by_number = {one.second: one for one in series}
    assert min(by_number) < 0 < max(by_number)
    assert by_number[-1].p999_ms == pytest.approx(10)
    assert by_number[0].p999_ms == pytest.approx(30)
    assert by_number[0].requests == 100
    assert by_number[1].read_mb[0] == pytest.approx(2)
    assert by_number[1].new_written_mb == pytest.approx(20)
    assert by_number[1].device_busy_percent == pytest.approx(25)
    path = tmp_path / "series.csv"
    expansion_sampler.write(path, series)
    assert expansion_sampler.read(path) == series


def test_a_series_of_three_brokers_has_all_columns(tmp_path: Path) -> None:
    found = trial()
    three = [Sample(one.at_s, one.read_bytes[:3], 0, 0, 0, 0, 0, 0) for one in found.samples]
    expansion_sampler.write(
        tmp_path / "s.csv", expansion_sampler.seconds(three, found.requests, BEGIN_S)
    )
    lines = (tmp_path / "s.csv").read_text().splitlines()
    assert len({line.count(",") for line in lines}) == 1


def test_the_fastest_throttle_that_producers_hardly_feel_is_the_best() -> None:
    rows: dict[str, Row] = {
        "kafka": {"whole_s": 10, "growth": 4.0},
        "kafka-25": {"whole_s": 90, "growth": 1.0},
        "kafka-40": {"whole_s": 50, "growth": 1.1},
        "kafka-80": {"growth": 1.0},
        "pyrklog-copy": {"whole_s": 1, "growth": 1.0},
    }
    assert best_of_kafka(rows) == "kafka-40"
    del rows["kafka-25"], rows["kafka-40"]
    assert best_of_kafka(rows) == "kafka"
    assert best_of_kafka({}) is None


def test_goals_are_those_of_what_was_measured() -> None:
    rows: dict[str, Row] = {
        "pyrklog-tail": {"more_until_tail_percent": 0.0, "growth": 1.0, "tail_s": 2.0},
        "pyrklog-fill-auto": {"growth": 1.2, "whole_s": 60.0, "off_percent": -25.0},
        "pyrklog-copy": {"growth": 1.0, "off_percent": 70.0, "corrected_off_percent": 8.0},
        "kafka": {"growth": 1.05, "whole_s": 50.0, "tail_s": 40.0},
        "pyrklog-drain": {"handover_s": 1.4, "gone_s": 2.0, "handing_growth": 1.4, "growth": 9},
    }
    found = {one.name: one for one in figures_of(rows)}
    missed = {name for name, one in found.items() if one.is_missed}
    assert missed == {
        "pyrklog-fill-auto: p99.9 / undisturbed",
        "pyrklog-fill-auto: whole, s / kafka",
        "pyrklog-fill-auto: predicted duration off by, %",
        "pyrklog-drain: leaders handed over, s",
        "pyrklog-drain: p99.9, copies too / undisturbed",
    }
    assert found["pyrklog-copy: duration by the measured speed off by, %"].median == 8.0
    assert found["tail: its share, s / Kafka without a throttle"].median == 0.05
    assert found["pyrklog-drain: from the command to the last leader, s"].verdict() == ""
    assert figures_of({}) == []
    table = expansion_figures.markdown(rows, {"kafka": "Kafka's tool"}).splitlines()
    assert [line.split(" | ")[0] for line in table[2:]] == [
        "| pyrklog-tail",
        "| pyrklog-fill-auto",
        "| pyrklog-copy",
        "| Kafka's tool",
    ]


def test_twelve_gigabytes_need_what_the_machine_must_have() -> None:
    full = expansion.size_of(expansion.parse([]))
    assert full.is_memory_a_tenth
    assert full.memory_bytes == 3_600_000_000
    assert 45 < full.disk_bytes() / 1e9 < 50
    less = expansion.size_of(expansion.parse(["--gb", "1.5", "--throttles", "30,60"]))
    assert less.data_bytes == 1_500_000_000
    assert less.rates_mb == (30, 60)
    names = [way.name for way in expansion_ways.ways(less)]
    assert names[2] == "pyrklog-fill-60"
    assert names[-4:-2] == ["kafka-30", "kafka-60"]
    assert not less.is_memory_a_tenth
    given = expansion.size_of(expansion.parse(["--gb", "1.5", "--memory-gb", "0.4"]))
    assert given.memory_bytes == 400_000_000
    assert given.is_memory_a_tenth


def test_a_disk_that_is_too_full_is_refused(tmp_path: Path) -> None:
    size = expansion.size_of(expansion.parse(["--gb", "1000000"]))
    with (
        pytest.raises(BenchError, match="GB are needed: choose another folder"),
        side("pyrklog", tmp_path, size),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_what_was_measured_is_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tried: list[str] = []

    def tries(self: expansion.Bench, way: Way, place: Path) -> Trial:
        tried.append(place.name)
        if len(tried) == 2:
            raise BenchError("a broker ended")
        return trial()

    monkeypatch.setattr(expansion.Bench, "_try", tries)
    words = ["--small", "--partitions", "4", "--out", str(tmp_path)]
    words += ["--only", "pyrklog-tail,kafka"]

    def bench(*more: str) -> expansion.Bench:
        return expansion.Bench(expansion.parse([*words, *more]), Console(width=140))

    assert bench().run() == ["kafka"]
    assert "kafka: error: a broker ended" in capsys.readouterr().out
    assert tried == ["pyrklog-tail", "kafka"]
    assert bench().run() == []
    assert tried == ["pyrklog-tail", "kafka", "kafka"]
    assert "pyrklog-tail: kept from an earlier run" in capsys.readouterr().out
    bench("--quiet-seconds", "9").run()
    assert len(tried) == 5, "other sizes are measured anew"
    bench("--quiet-seconds", "9").finish()
    assert {path.name for path in tmp_path.iterdir()} == {
        *("cases", "table.md", "results.json", "expansion.svg", "expansion.png")
    }
    assert set(json.loads((tmp_path / "results.json").read_text())) == {"pyrklog-tail", "kafka"}
    with pytest.raises(BenchError, match="no case other; there are pyrklog-tail"):
        _ = expansion.Bench(expansion.parse(["--only", "other"]), Console()).names


def test_a_plan_is_done_once_its_replicas_alone_are_in_sync(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    entries = [
        {"topic": "history", "partition": 0, "replicas": [4, 2, 3]},
        {"topic": "other", "partition": 1, "replicas": [4, 2, 3]},
    ]
    path.write_text(json.dumps({"version": 1, "partitions": entries}))
    plan = expansion_ways.read_plan(path)
    assert plan == {0: frozenset({2, 3, 4})}
    assert not expansion_ways.is_done(plan, {0: frozenset({1, 2, 3, 4}), 1: frozenset()})
    assert expansion_ways.is_done(plan, {0: frozenset({2, 3, 4}), 1: frozenset({1})})
    assert not expansion_ways.is_done({}, {})


def test_a_record_tells_what_was_predicted(tmp_path: Path) -> None:
    path = tmp_path / "plan.json.progress.json"
    assert expansion_ways.read_record(path) == NO_TIMES
    record = {
        "predicted": {"seconds": 20.0, "corrected": None},
        "real": {"seconds": 21.5, "watched": True},
    }
    path.write_text(json.dumps(record))
    assert expansion_ways.read_record(path) == Times(20.0, 21.5)
    better = {"seconds": 20.0, "corrected": {"after_s": 10.5, "seconds": 22.0, "rate_bytes": 7}}
    path.write_text(json.dumps({"predicted": better, "real": None}))
    assert expansion_ways.read_record(path) == Times(20.0, None, 22.0, 10.5)


def test_requests_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "requests.bin"
    path.write_bytes(array.array("d", [1.0, 0.5, 0.1, 2.0, -1.0, 0.0]).tobytes())
    assert expansion_load.read(path) == [Request(1.0, 0.5, 0.1), Request(2.0, -1.0, 0.0)]


def test_a_replica_that_is_a_moment_behind_follows() -> None:
    assert expansion_sampler.near(100.0) == 200
    assert expansion_sampler.near(0.1) == expansion_sampler._NEAR_LEAST


def test_the_new_broker_gets_its_own_settings(tmp_path: Path) -> None:
    broker = SidePyrklog(tmp_path, NEW, "127.0.0.1:1/bench")
    broker.more = ("pyrklog.expansion.rate=0",)
    broker.cache_bytes = 5
    command = " ".join(broker.command())
    assert "--set pyrklog.expansion.rate=0" in command
    assert "--set pyrklog.cache.max.bytes=5" in command
    assert "--set log.retention.check.interval.ms=5000" in command
