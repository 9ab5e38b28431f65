import json
from pathlib import Path

from pyrklog.controller.state_log import LogPiece, StateChangeLog


def test_state_log_is_read_in_pieces(tmp_path: Path) -> None:
    log = StateChangeLog(tmp_path)
    assert log.read(older=False, position=0, max_bytes=100) == LogPiece(0, b"")
    log.write("one", {"topic": "t", "partition": 1})
    log.write("two", {"controller_epoch": 3})
    log.flush()
    data, file_id = b"", 0
    while piece := log.read(older=False, position=len(data), max_bytes=7).data:
        assert len(piece) <= 7
        data += piece
    events = [json.loads(line)["event"] for line in data.splitlines()]
    assert events == ["one", "two"]
    file_id = log.read(older=False, position=0, max_bytes=1).file_id
    assert log.read(older=True, position=0, max_bytes=1) == LogPiece(0, b"")
    log.close()
    assert log.read(older=False, position=0, max_bytes=1).file_id == file_id


def test_a_file_that_became_the_older_one_keeps_its_number(tmp_path: Path) -> None:
    log = StateChangeLog(tmp_path, size_max_bytes=100)
    log.write("first", {})
    log.flush()
    before = log.read(older=False, position=0, max_bytes=1_000)
    log.write("second", {"text": "x" * 100})
    log.write("third", {})
    log.flush()
    older = log.read(older=True, position=0, max_bytes=1_000)
    assert older.file_id == before.file_id
    assert older.data.startswith(before.data)
    newer = log.read(older=False, position=0, max_bytes=1_000)
    assert newer.file_id != older.file_id
    assert b"third" in newer.data
    log.close()
