"""The extension matches its stub and refuses values that it cannot convert."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pyrklog import _core

LOG: dict[str, Any] = {
    "segment_bytes": 1 << 30,
    "segment_ms": 604_800_000,
    "segment_jitter_ms": 0,
    "segment_index_bytes": 10 << 20,
    "index_interval_bytes": 4096,
    "max_message_bytes": 1_048_588,
    "message_timestamp_type": "CreateTime",
    "message_timestamp_before_max_ms": 2**63 - 1,
    "message_timestamp_after_max_ms": 2**63 - 1,
    "compression_type": "producer",
    "flush_messages": 2**63 - 1,
    "flush_ms": 2**63 - 1,
    "retention_ms": -1,
    "retention_bytes": -1,
    "file_delete_delay_ms": 60_000,
    "cleanup_delete": True,
    "cleanup_compact": False,
}


def test_the_stub_matches_the_extension() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "pyrklog._core"],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def topic_of(**changes: Any) -> _core.TopicImage:
    fields: dict[str, Any] = {
        "name": "t",
        "id": bytes(16),
        "internal": False,
        "log": _core.LogConfig(**LOG),
        "min_insync_replicas": 1,
        "leading_throttled": [],
        "following_throttled": None,
        "partitions": [],
    }
    return _core.TopicImage(**fields | changes)


def test_good_values_are_taken() -> None:
    partition = _core.PartitionImage(
        index=0, leader=1, leader_epoch=0, replicas=[1], isr=(1,), offline=[]
    )
    broker = _core.BrokerImage(id=1, rack=None, endpoints=[("PLAINTEXT", "localhost", 9092)])
    delta = _core.ImageDelta(
        version=1,
        controller_id=1,
        brokers=[broker],
        topics=[topic_of(partitions=[partition])],
        removed_topics=["gone"],
    )
    assert isinstance(delta, _core.ImageDelta)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"message_timestamp_type": "createtime"}, ValueError),
        ({"compression_type": "brotli"}, ValueError),
        ({"segment_bytes": -1}, OverflowError),
        ({"segment_bytes": 1 << 32}, OverflowError),
        ({"retention_ms": 1 << 63}, OverflowError),
        ({"cleanup_delete": "yes"}, TypeError),
        ({"retention_ms": None}, TypeError),
    ],
)
def test_bad_log_options_are_refused(changes: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        _core.LogConfig(**LOG | changes)


def test_a_topic_id_has_sixteen_bytes() -> None:
    with pytest.raises(ValueError, match="16 bytes, not 15"):
        topic_of(id=bytes(15))


def test_lists_hold_what_they_should() -> None:
    with pytest.raises(TypeError):
        topic_of(partitions=[object()])
    with pytest.raises(TypeError):
        topic_of(partitions="abc")


def test_what_is_made_cannot_be_changed() -> None:
    broker = _core.BrokerImage(id=1, rack="r", endpoints=[])
    with pytest.raises(AttributeError):
        broker.id = 2  # type: ignore[attr-defined]


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
