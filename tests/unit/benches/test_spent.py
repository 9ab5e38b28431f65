"""What a benchmark leaves behind, during the run and afterwards."""

from pathlib import Path

from benches import spent


def test_bytes_go_at_once_and_files_at_the_end(tmp_path: Path) -> None:
    folder = tmp_path / "data-1"
    (folder / "t-0").mkdir(parents=True)
    segment = folder / "t-0" / "00000000000000000000.log"
    segment.write_bytes(b"records")
    other = tmp_path / "data-of-somebody-else"
    other.write_bytes(b"kept")
    (folder / "link").symlink_to(other)

    spent.empty(folder)
    assert segment.stat().st_size == 0
    assert other.read_bytes() == b"kept"

    spent.sweep()
    assert not folder.exists()
    assert other.exists()
    spent.sweep()
