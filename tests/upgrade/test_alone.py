"""Today's broker takes up the directories of a lone broker of each earlier version."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pyrklog.testing import TestBroker
from tests.support import wire
from tests.upgrade.content import BROKER_OPTIONS
from tests.upgrade.making import ALONE, FIXTURES, UNWRITTEN, written_end
from tests.upgrade.observation import Seen, read
from tests.upgrade.packing import ARENA_VERSION_AT, ARENAS, MARKER, read_header, write_header
from tests.upgrade.taking_up import check_found, check_kept, clock_of, go_on, unpacked

VERSIONS = sorted(path.name for path in FIXTURES.iterdir())
LAYOUTS_READ = (2, 3)
LAYOUTS_OTHER = (1, 99)
CACHED = 100
Make = Callable[..., TestBroker]


class Left:
    """What a broker of then left, unpacked."""

    def __init__(self, fixture: Path, folder: Path, new_broker: Make) -> None:
        self.seen: Seen = unpacked(fixture, folder / "left")
        self.data = folder / "left" / ALONE
        self.logs = self.data / "logs"
        self.arenas = folder / "left" / ARENAS
        self.unwritten = self.logs / f"{UNWRITTEN}-0"
        self._new_broker = new_broker
        self._clock = clock_of(self.seen, folder / "clock")

    def start(self, **options: object) -> TestBroker:
        given = {**BROKER_OPTIONS, "pyrklog.cache.dir": str(self.arenas), **options}
        environment = self._clock.environment
        broker = self._new_broker(self.data, options=given, environment=environment)
        return broker.start()

    def arena(self) -> Path:
        [found] = self.arenas.glob("*.arena")
        return found

    def set_layout(self, version: int) -> None:
        header = bytearray(read_header(self.arena()))
        header[ARENA_VERSION_AT] = version
        write_header(self.arena(), bytes(header))


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> Path:
    return FIXTURES / str(request.param)


def errors(broker: TestBroker) -> list[object]:
    return [one for one in broker.events() if one.get("level") in ("error", "critical")]


def end_of_unwritten(broker: TestBroker) -> int:
    """How many of its records are there."""
    place = (UNWRITTEN, 0)
    found = read(broker.bootstrap, [place], "read_committed")[place]
    assert [line.split()[3] for line in found.records] == [f"'{n}'" for n in range(found.end)]
    return found.end


def check_records(seen: Seen, broker: TestBroker, but: str = "") -> None:
    wanted = {
        (name, int(number)): partition["records"]
        for name, topic in seen["topics"].items()
        for number, partition in topic["partitions"].items()
        if name != but
    }
    found = read(broker.bootstrap, list(wanted), "read_uncommitted")
    assert {place: log.records for place, log in found.items()} == wanted


@pytest.mark.parametrize("end", ["clean", "killed"])
def test_everything_is_there_and_goes_on(
    version: Path, end: str, tmp_path: Path, new_broker: Make
) -> None:
    left = Left(version / end, tmp_path, new_broker)
    if end == "killed":
        ends = left.seen[UNWRITTEN]
        assert 0 < ends["file"] < ends["log"]
        assert written_end(left.unwritten) == ends["file"]
    broker = left.start()
    check_found(left.seen, broker.bootstrap)
    assert errors(broker) == []
    go_on(left.seen, broker.bootstrap)
    assert broker.stop() == 0
    broker.start()
    check_kept(left.seen, broker.bootstrap)
    assert errors(broker) == []


@pytest.mark.parametrize("layout", LAYOUTS_READ)
def test_a_block_cache_of_a_layout_that_is_known_is_reattached(
    version: Path, layout: int, tmp_path: Path, new_broker: Make
) -> None:
    left = Left(version / "killed", tmp_path, new_broker)
    left.set_layout(layout)
    broker = left.start()
    assert end_of_unwritten(broker) == left.seen[UNWRITTEN]["log"]
    assert errors(broker) == []
    assert broker.stop() == 0
    assert written_end(left.unwritten) == left.seen[UNWRITTEN]["log"]


@pytest.mark.parametrize("layout", LAYOUTS_OTHER)
def test_a_block_cache_of_another_layout_is_refused_and_thrown_away(
    version: Path, layout: int, tmp_path: Path, new_broker: Make
) -> None:
    """What it alone had is lost, and the broker says so; what is in the files stays."""
    left = Left(version / "killed", tmp_path, new_broker)
    left.set_layout(layout)
    refused = left.arena()
    broker = left.start()
    lines = list(broker.log)
    assert any("may be lost" in line for line in lines), errors(broker)
    assert any(f"its version is {layout}" in line for line in lines)
    in_files = left.seen[UNWRITTEN]["file"]
    assert end_of_unwritten(broker) == in_files
    check_records(left.seen, broker, but=UNWRITTEN)
    aside = refused.with_name(f"{refused.name}.damaged")
    assert aside.exists()
    assert left.arena() != refused
    assert broker.stop() == 0
    broker.start()
    assert not aside.exists()


@pytest.mark.parametrize("layout", LAYOUTS_OTHER)
def test_a_kept_block_cache_of_another_layout_costs_nothing(
    version: Path, layout: int, tmp_path: Path, new_broker: Make
) -> None:
    """An orderly end has written everything: only the cache is lost."""
    left = Left(version / "clean", tmp_path, new_broker)
    broker = left.start(**{"pyrklog.cache.keep": True})
    cached = "cached"
    with wire.Connection(broker.bootstrap) as connection:
        assert wire.create_topic(connection, cached) == 0
        sent = wire.record_batch([b"%d" % number for number in range(CACHED)])
        assert wire.produce(connection, cached, sent) == wire.Produced(0, 0)
    assert broker.stop() == 0
    assert "kept=" in (left.logs / MARKER).read_text()
    kept = left.arena()
    left.set_layout(layout)
    broker.start()
    assert any(f"its version is {layout}" in line for line in list(broker.log))
    assert errors(broker) == []
    check_records(left.seen, broker)
    found = read(broker.bootstrap, [(cached, 0)], "read_committed")[cached, 0]
    assert len(found.records) == CACHED
    assert not kept.exists()
