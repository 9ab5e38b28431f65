"""The extension matches its stub and refuses values that it cannot convert."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pyrklog import _core
from pyrklog.config.connection_quotas import ConnectionQuotas, ListenerQuota
from pyrklog.config.load import load_config
from pyrklog.config.resolved import LogConfig, Throttled
from pyrklog.config.topic import TopicDefaults
from pyrklog.plane.plane_settings import plane_settings
from pyrklog.plane.seam import PlaneSettings
from pyrklog.plane.values import (
    BrokerImage,
    FollowerSpec,
    ImageDelta,
    LeaderSpec,
    PartitionImage,
    TopicImage,
)


def test_the_stub_matches_the_extension() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "pyrklog._core"],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def settings(tmp_path: Path) -> PlaneSettings:
    config = load_config(
        overrides=[f"pyrklog.data.dir={tmp_path}", "pyrklog.cache.max.bytes=0"], environ={}
    )
    return plane_settings(config, 1, "cluster")


@pytest.fixture
def plane(settings: PlaneSettings) -> Iterator[_core.DataPlane]:
    plane = _core.DataPlane(settings)
    yield plane
    plane.abandon()


@pytest.fixture
def log(tmp_path: Path) -> LogConfig:
    config = load_config(overrides=[f"pyrklog.data.dir={tmp_path}"], environ={})
    return TopicDefaults(config).resolve({}).log


def delta_of(log: LogConfig, version: int = 1, **changes: Any) -> ImageDelta:
    partition = PartitionImage(0, 1, 0, replicas=[1], isr=(1,), offline=[])
    topic = TopicImage("t", bytes(16), False, log, 1, [partition], Throttled([(0, 1)], None))
    other = TopicImage("u", bytes(15) + b"u", True, log, 1, [])
    broker = BrokerImage(1, None, [("PLAINTEXT", "localhost", 9092)])
    return ImageDelta(version, 1, [broker], [topic._replace(**changes), other], ["gone"])


def test_good_values_are_taken(plane: _core.DataPlane, log: LogConfig) -> None:
    plane.apply_image(delta_of(log))
    with pytest.raises(ValueError, match="version"):
        plane.apply_image(delta_of(log))
    assert plane.become_leaders([LeaderSpec("t", 0, 0, [1], (1,), True)]) > 0
    assert plane.become_followers([FollowerSpec("u", 0, 2, 0, [1, 2], [2], is_new=False)]) > 0


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"message_timestamp_type": "createtime"}, ValueError),
        ({"compression_type": "brotli"}, ValueError),
        ({"compression_zstd_level": 1 << 31}, OverflowError),
        ({"segment_bytes": -1}, OverflowError),
        ({"segment_bytes": 1 << 32}, OverflowError),
        ({"retention_ms": 1 << 63}, OverflowError),
        ({"cleanup_delete": "yes"}, TypeError),
        ({"retention_ms": None}, TypeError),
    ],
)
def test_bad_log_options_are_refused(
    plane: _core.DataPlane, log: LogConfig, changes: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error, match=next(iter(changes)).partition("_")[0]):
        plane.apply_image(delta_of(log._replace(**changes)))


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"fetch_read_path": "mmap"}, ValueError),
        ({"network_threads": -1}, OverflowError),
        ({"cache_flush_ms": 1 << 63}, OverflowError),
        ({"node_id": None}, TypeError),
        ({"log_dirs": "abc"}, TypeError),
        ({"cluster": ("PLAINTEXT", 1)}, AttributeError),
    ],
)
def test_bad_settings_are_refused(
    settings: PlaneSettings, changes: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        _core.DataPlane(settings._replace(**changes))


def test_every_setting_reaches_rust(settings: PlaneSettings) -> None:
    """Each field is read: without it the settings are refused."""
    for name in settings._fields:
        others = {field: value for field, value in settings._asdict().items() if field != name}
        with pytest.raises(AttributeError, match=name):
            _core.DataPlane(SimpleNamespace(**others))  # type: ignore[arg-type]


def test_a_topic_id_has_sixteen_bytes(plane: _core.DataPlane, log: LogConfig) -> None:
    with pytest.raises(ValueError, match="16 bytes, not 15"):
        plane.apply_image(delta_of(log, id=bytes(15)))


def test_wrong_types_in_an_image_are_refused(plane: _core.DataPlane, log: LogConfig) -> None:
    with pytest.raises(AttributeError, match="has no attribute"):
        plane.apply_image(delta_of(log, partitions=[object()]))
    with pytest.raises(TypeError):
        plane.apply_image(delta_of(log, partitions="abc"))


def test_the_api_table_is_sorted_and_sound() -> None:
    table = _core.api_table()
    keys = [row.key for row in table]
    assert keys == sorted(set(keys))
    for row in table:
        assert 0 <= row.min_version <= row.max_version, row.name
        assert row.flexible_since >= 0, row.name
        assert row.owner in ("rust", "python")


def test_dump_errors_are_those_of_files(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        list(_core.dump_file(str(tmp_path / f"{0:020}.log"), records=False, verify=False))
    assert caught.value.filename == str(tmp_path / f"{0:020}.log")
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(ValueError, match=r"notes\.txt"):
        list(_core.dump_file(str(tmp_path / "notes.txt"), records=False, verify=False))


QUOTAS = ConnectionQuotas(5, 4, [("127.0.0.1", 3), ("::1", 2)], 100, [ListenerQuota("A", 2, 1)])


def test_limits_of_connections_are_taken(plane: _core.DataPlane) -> None:
    plane.set_connection_quotas(QUOTAS)
    plane.set_connection_quotas(QUOTAS._replace(max_of_hosts=[], of_listeners=()))


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"max": -1}, OverflowError),
        ({"max_per_host": None}, TypeError),
        ({"max_of_hosts": [("localhost", 1)]}, ValueError),
        ({"of_listeners": [("A", 1)]}, AttributeError),
    ],
)
def test_bad_limits_of_connections_are_refused(
    plane: _core.DataPlane, changes: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        plane.set_connection_quotas(QUOTAS._replace(**changes))
