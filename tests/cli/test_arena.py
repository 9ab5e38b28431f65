import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pyrklog.cli.app import app
from pyrklog.testing import TestBroker
from tests.support.faults.machine import forget_boot
from tests.support.wire import (
    Connection,
    batch_headers,
    create_topic,
    produce,
    record_batch,
    wait_until_led,
)

Make = Callable[..., TestBroker]
OK, FAILED, NOT_FOUND, DENIED = 0, 1, 4, 6


def run(*arguments: str, code: int = OK) -> str:
    done = CliRunner().invoke(app, ["arena", *arguments])
    assert done.exit_code == code, f"{arguments}: {done.stdout}{done.stderr}{done.exception}"
    return done.stdout if code == OK else done.stderr


def listed(directory: Path) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = json.loads(run("list", "--dir", str(directory), "-o", "json"))[
        "items"
    ]
    return items


@pytest.fixture
def cache_dir(tmp_path: Path) -> Path:
    place = tmp_path / "cache"
    place.mkdir()
    return place


def filled(new_broker: Make, cache_dir: Path, topic: str) -> tuple[TestBroker, int]:
    """A broker whose last records are only in the arena, and its number of records."""
    options = {
        "pyrklog.cache.dir": str(cache_dir),
        "pyrklog.cache.flush.ms": 3_600_000,
        "pyrklog.cache.flush.bytes": 1_000_000_000,
    }
    broker = new_broker(options=options).start()
    folder = broker.data / "logs" / f"{topic}-0"
    with Connection(broker.bootstrap) as connection:
        assert create_topic(connection, topic) == 0
        wait_until_led(connection, topic)
        for number in range(20_000):
            batch = record_batch([b"%d" % number])
            assert produce(connection, topic, batch).base_offset == number
            if number % 100 == 0 and number > len(written(folder)) + 50:
                return broker, number + 1
    raise AssertionError("nothing goes to the cache")


def written(folder: Path) -> list[int]:
    segments = sorted(folder.glob("*.log"))
    return [one.base_offset for path in segments for one in batch_headers(path.read_bytes())]


def test_a_killed_brokers_arena_is_listed_kept_and_drained(
    new_broker: Make, cache_dir: Path, topic: str
) -> None:
    broker, count = filled(new_broker, cache_dir, topic)
    (row,) = listed(cache_dir)
    logs = broker.data / "logs"
    assert (row["state"], row["log_dir"]) == ("in use", str(logs))
    broker.kill()
    (row,) = listed(cache_dir)
    assert (row["state"], row["partitions"]) == ("left over", 1)
    assert row["unwritten_bytes"] > 0
    refused = run("remove", row["path"], code=DENIED)
    assert "nowhere else" in refused
    assert "arena drain" in refused
    folder = logs / f"{topic}-0"
    assert len(written(folder)) < count
    told = f"1 partition, {row['unwritten_bytes']} bytes written"
    assert run("drain", str(logs), "--dry-run") == f"{told} (not done)\n"
    assert "nowhere else" in run("remove", row["path"], "--dry-run", code=DENIED)
    assert (
        run("remove", row["path"], "--force", "--dry-run") == f"{row['path']} removed (not done)\n"
    )
    assert len(written(folder)) < count
    assert len(listed(cache_dir)) == 1
    assert run("drain", str(logs)) == f"{told}\n"
    assert written(folder) == list(range(count))
    assert listed(cache_dir) == []
    assert run("drain", str(logs)) == "0 partitions, 0 bytes written\n"
    broker.start()
    assert broker.stop() == 0
    assert written(folder) == list(range(count))


def test_a_broker_in_the_way_is_named(new_broker: Make, cache_dir: Path, topic: str) -> None:
    broker, _ = filled(new_broker, cache_dir, topic)
    (row,) = listed(cache_dir)
    told = run("remove", row["path"], "--force", code=DENIED)
    assert told.endswith("is in use by a broker\n  fix: stop its broker first\n")
    told = run("drop", str(broker.data / "logs"), "--dir", str(cache_dir), code=DENIED)
    assert told.endswith("is in use, and not dropped\n  fix: stop its broker first\n")
    logs = broker.data / "logs"
    assert "in use" in run("drain", str(logs), "--dry-run", code=DENIED)
    assert "in use" in run("remove", row["path"], "--force", "--dry-run", code=DENIED)
    assert "in use" in run("drop", str(logs), "--dir", str(cache_dir), "--dry-run", code=DENIED)
    told = run("drain", str(logs), code=DENIED)
    what = f"{logs} is in use by a running broker (pid {broker.pid})"
    assert told == f"error[PK88]: {what}\n  fix: stop its broker first\n"
    done = CliRunner().invoke(app, ["log", "export-kraft", "--data", str(broker.data)])
    assert done.exit_code == DENIED
    assert done.stderr == f"error[PK88]: {what}\n  fix: stop it first\n"


def test_arena_removed_by_force_is_missed_at_the_next_start(
    new_broker: Make, cache_dir: Path, topic: str
) -> None:
    broker, _ = filled(new_broker, cache_dir, topic)
    broker.kill()
    (row,) = listed(cache_dir)
    run("remove", row["path"], "--force")
    assert listed(cache_dir) == []
    broker.start()
    assert any("may be lost" in line for line in broker.log)


def test_arena_of_another_boot_can_be_removed(
    new_broker: Make, cache_dir: Path, topic: str
) -> None:
    broker, _ = filled(new_broker, cache_dir, topic)
    broker.kill()
    forget_boot(broker.data)
    assert "earlier boot" in run("drain", str(broker.data / "logs"), code=FAILED)


def test_file_that_is_no_arena_is_refused(cache_dir: Path) -> None:
    (cache_dir / "pyrklog-1.arena").write_bytes(b"nonsense" * 1000)
    other = cache_dir / "other"
    other.write_bytes(b"a segment, say")
    for force in ((), ("--force",)):
        assert "other is no arena" in run("remove", str(other), *force, code=DENIED)
    assert other.exists()
    (row,) = listed(cache_dir)
    assert (row["state"], row["reason"]) == ("damaged", "it is not an arena")
    run("list", "--dir", str(cache_dir / "none"), code=NOT_FOUND)
    run("remove", str(cache_dir / "none"), code=NOT_FOUND)
    assert "is no log directory" in run("drain", str(cache_dir), code=NOT_FOUND)


def test_unusable_arenas_are_listed_and_dropped(cache_dir: Path) -> None:
    name = f"pyrklog-{'0' * 32}.arena"
    (cache_dir / name).write_bytes(b"")
    (cache_dir / f"{name}.damaged").write_bytes(b"nonsense" * 1000)
    states = {Path(row["path"]).name: row["state"] for row in listed(cache_dir)}
    assert states == {name: "unfinished", f"{name}.damaged": "set aside"}
    told = run("drop", "--dir", str(cache_dir), "--dry-run")
    assert len(listed(cache_dir)) == 2
    dropped = run("drop", "--dir", str(cache_dir))
    assert dropped.startswith("2 arenas dropped")
    assert told == f"{dropped.rstrip()} (not done)\n"
    assert listed(cache_dir) == []


def test_a_directory_that_is_not_there_is_told(cache_dir: Path) -> None:
    gone = cache_dir / "none"
    told = run("drop", str(gone), "--dir", str(cache_dir), code=NOT_FOUND)
    assert told.startswith(f"error[PK87]: there is no directory {gone}")
    (cache_dir / "logs").mkdir()
    told = run("drop", str(cache_dir), "--dir", str(cache_dir), code=NOT_FOUND)
    fix = f"`pyrklog arena drop {cache_dir}/logs`"
    assert told == f"error[PK87]: {cache_dir} is no log directory\n  fix: {fix}\n"
    (cache_dir / "meta.properties").touch()
    assert run("drop", str(cache_dir), "--dir", str(cache_dir)).startswith("0 arenas dropped")


def test_drop_reports_an_arena_it_keeps(new_broker: Make, cache_dir: Path, topic: str) -> None:
    broker, _ = filled(new_broker, cache_dir, topic)
    logs = broker.data / "logs"
    broker.kill()
    (row,) = listed(cache_dir)
    told = run("drop", str(logs), "--dir", str(cache_dir), code=FAILED)
    assert "is left over, and not dropped" in told
    assert f"`pyrklog arena drain {logs}`" in told
    assert f"`pyrklog arena remove {row['path']}`" in told
    (logs / ".pyrklog-arena").unlink()  # the file that names it
    told = run("drop", str(logs), "--dir", str(cache_dir), code=FAILED)
    assert f"is abandoned, and not dropped\n  fix: `pyrklog arena remove {row['path']}`" in told
