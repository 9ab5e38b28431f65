"""Benchmarks without a reference broker: goals, tables, files, turns, space."""

import json
from contextlib import nullcontext
from pathlib import Path

import pytest
from rich.console import Console

from benches import alone, figures, many_groups, metrics_cost, scheduling, scrapes, testing_speed
from benches.alone import Benchmark
from benches.brokers import BenchError, Pyrklog
from benches.figures import Figure, goal
from benches.metrics_cost import Pair, Plan, Turn
from benches.scrapes import Stretch

FIGURES = [
    Figure("produce, MB/s, with / without", (0.991, 0.96, 1.01), goal(">=", 0.98, ratio=True)),
    Figure("own memory, MB", (31.0, 40.0), goal("<=", 30)),
    Figure("answer, ms", (4.0,)),
]


def test_the_median_of_a_figure_is_held_against_its_goal() -> None:
    assert [one.verdict() for one in FIGURES] == ["reached (>= 0.98x)", "missed (<= 30)", ""]
    assert [one.is_missed for one in FIGURES] == [False, True, False]


def test_the_table_has_every_measurement() -> None:
    assert figures.markdown(FIGURES).splitlines() == [
        "| figure | median | each | goal |",
        "| -|-:|-:|- |",
        "| produce, MB/s, with / without | 0.991 | 0.991 0.960 1.010 | reached (>= 0.98x) |",
        "| own memory, MB | 35.5 | 31 40 | missed (<= 30) |",
        "| answer, ms | 4 | 4 |  |",
    ]


@pytest.fixture(autouse=True)
def unchanged_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test does not change how the kernel schedules."""
    monkeypatch.setattr(scheduling, "without_autogroups", lambda: nullcontext("as it is"))


def benchmark(disk_bytes: int = 1, found: list[Figure] | None = None) -> Benchmark:
    def measure(folder: Path, console: Console) -> list[Figure]:
        assert folder.is_dir()
        if found is None:
            raise BenchError("a broker did not start")
        return found

    return Benchmark("any", {"pairs": 3}, disk_bytes, ", or less with --pairs", measure)


def test_a_run_leaves_its_figures_and_nothing_else(tmp_path: Path) -> None:
    assert alone.run(benchmark(found=FIGURES), str(tmp_path), strict=False) == 0
    assert alone.run(benchmark(found=FIGURES), str(tmp_path), strict=True) == 1
    assert alone.run(benchmark(found=FIGURES[:1]), str(tmp_path), strict=True) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"results.json", "table.md"}
    written = json.loads((tmp_path / "results.json").read_text())
    assert written["settings"] == {"pairs": 3}
    assert written["environment"]["scheduling"] == "as it is"
    assert written["figures"] == [
        {
            "name": "produce, MB/s, with / without",
            "median": 0.991,
            "each": [0.991, 0.96, 1.01],
            "goal": ">= 0.98x",
            "reached": True,
        }
    ]


def test_what_cannot_be_measured_is_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert alone.run(benchmark(), str(tmp_path), strict=False) == 3
    assert "error: a broker did not start" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_too_full_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert alone.run(benchmark(disk_bytes=10**18, found=FIGURES), str(tmp_path), strict=False) == 3
    assert "choose another folder with --out" in " ".join(capsys.readouterr().out.split())
    plan = benchmark(disk_bytes=2_000_000_000)
    assert alone.too_little_space(plan, tmp_path, 2_200_000_000) is None
    assert alone.too_little_space(plan, Path("/d"), 2_100_000_000) == (
        "/d has 2.1 GB free, 2.2 GB are needed: choose another folder with --out, or less with "
        "--pairs"
    )


# --- what metrics cost ---------------------------------------------------------------------------


def turn(produce: tuple[float, float], fetch: tuple[float, float], own_mb: int) -> Turn:
    produced, fetched = (
        {"mb_per_s": mb_per_s, "cpu_s_per_gb": cpu_s_per_gb}
        for mb_per_s, cpu_s_per_gb in (produce, fetch)
    )
    return Turn(produced, fetched, own_mb * 1_000_000)


def test_ratios_and_memory_are_those_within_a_pair() -> None:
    pairs = [
        Pair(turn((99, 1.1), (500, 0.2), 150), turn((100, 1.0), (400, 0.2), 130)),
        Pair(turn((50, 2.0), (300, 0.1), 160), turn((100, 1.0), (300, 0.2), 120)),
    ]
    found = {one.name: one.each for one in metrics_cost.compare(pairs)}
    assert found["produce, MB/s, with / without"] == (0.99, 0.5)
    assert found["produce, CPU-s/GB, with / without"] == (1.1, 2.0)
    assert found["fetch, MB/s, with / without"] == (1.25, 1.0)
    assert found["fetch, CPU-s/GB, with / without"] == (1.0, 0.5)
    assert found["own memory, with - without, MB"] == (20.0, 40.0)
    assert found["own memory without, MB"] == (130.0, 120.0)


def test_every_second_pair_runs_the_other_way_round() -> None:
    order = []

    def one(name: str) -> Turn:
        order.append(name)
        return turn((1, 1), (1, 1), 1 if name == "on" else 0)

    noted: list[int] = []
    pairs = metrics_cost.in_turn(
        3, lambda: one("on"), lambda: one("off"), lambda number, _: noted.append(number)
    )
    assert order == ["on", "off", "off", "on", "on", "off"]
    assert all(pair.on.own_bytes > pair.off.own_bytes for pair in pairs)
    assert noted == [1, 2, 3]


def test_the_plan_knows_its_disk_space() -> None:
    options = metrics_cost.parse(["--partitions", "100", "--turn-gb", "0.3", "--warm-gb", "2"])
    plan = metrics_cost.plan_of(options)
    assert (plan.partitions, plan.many, plan.turn_bytes, plan.pairs) == (100, 94, 300_000_000, 5)
    reserve = Pyrklog.unwritten_max_bytes * 5 // 4
    assert plan.disk_bytes() == 2 * (100 * metrics_cost._PARTITION_BYTES + reserve) + 2 * 10**9
    assert Plan(1, 1, 1, 1.0, 3 * 10**9, 1, 1).disk_bytes() >= 4 * 10**9
    with pytest.raises(SystemExit):
        metrics_cost.parse(["--pairs", "0"])


def test_own_memory_is_neither_shared_nor_of_files() -> None:
    status = "VmRSS:\t 900 kB\nRssAnon:\t 100 kB\nRssFile:\t 300 kB\nRssShmem:\t 500 kB\n"
    assert metrics_cost.own_bytes([status, "RssAnon:\t 1 kB\n"]) == 101 * 1024


def test_details_are_asked_for_in_turn() -> None:
    paths = scrapes.detail_paths("t", ["a", "b"])
    assert [next(paths) for _ in range(4)] == [
        "/metrics/detail?topic=t",
        "/metrics/detail?group=a",
        "/metrics/detail?group=b",
        "/metrics/detail?topic=t",
    ]


def test_a_scrape_costs_what_is_beyond_rest() -> None:
    rest = [Stretch(cpu_s=0.1, seconds=10), Stretch(cpu_s=0.3, seconds=10)]
    scraped = [Stretch(cpu_s=0.7, seconds=10), Stretch(cpu_s=0.6, seconds=20)]
    assert scrapes.each_ms(rest, scraped, 100) == pytest.approx([5.0, 2.0])


def test_groups_spread_over_all_partitions() -> None:
    assert many_groups.places(0, 25) == list(range(10))
    assert many_groups.places(2, 25) == [20, 21, 22, 23, 24, 0, 1, 2, 3, 4]
    assert many_groups.places(7, 3) == [1, 2, 0]
    assert {place for number in range(3) for place in many_groups.places(number, 25)} == set(
        range(25)
    )


# --- how fast tests are --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "last", ["40 passed in 1.52s", "== 40 passed in 61.20s (0:01:01) ==", "40 passed in 2.00s\n"]
)
def test_passed_tests_are_counted(last: str) -> None:
    assert testing_speed.passed(f"....\n{last}") == 40


@pytest.mark.parametrize(
    "output",
    ["", "1 failed, 39 passed in 1.52s", "40 passed, 1 warning in 2.00s", "40 passed in 1s\nmore"],
)
def test_any_other_end_is_refused(output: str) -> None:
    with pytest.raises(BenchError, match="the tests did not pass"):
        testing_speed.passed(output)


def test_kinds_take_turns() -> None:
    order: list[tuple[str, int]] = []

    def run(kind: testing_speed.Kind, tests: int) -> float:
        order.append((kind.name, tests))
        return float(len(order))

    plan = testing_speed.Plan(tests=40, new_brokers=5, runs=2, starts=1)
    found = testing_speed.rounds(plan, run, lambda _: None)
    assert order[:4] == list(reversed(order[4:]))
    assert [tests for _, tests in order[:4]] == [40, 40, 5, 5]
    assert list(found.values()) == [[1.0, 8.0], [2.0, 7.0], [3.0, 6.0], [4.0, 5.0]]


def test_only_named_plug_ins_run() -> None:
    assert "xdist" not in testing_speed.command(1)
    assert testing_speed.command(2)[-4:] == ["-p", "xdist", "-n", "2"]
    found = testing_speed.surroundings({"PYTEST_ADDOPTS": "-x", "PYTHONPATH": "/p", "HOME": "/h"})
    assert (found.get("PYTEST_ADDOPTS"), found["HOME"]) == (None, "/h")
    assert found["PYTHONPATH"].endswith("/python:/p")
