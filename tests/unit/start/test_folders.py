"""Folders and metadata: messages at a start about missing ones."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from pyrklog.base import logs
from pyrklog.cluster.image import ClusterImage
from pyrklog.config.load import load_config
from pyrklog.config.topic import TopicDefaults
from pyrklog.plane.seam import FoundPartition
from pyrklog.plane.values import PartitionImage
from pyrklog.start.folders import HIGH_WATERMARKS, compare_folders

ID = b"a" * 16


@pytest.fixture
def image() -> ClusterImage:
    image = ClusterImage(TopicDefaults(load_config()))
    image.set_partitions("t", ID, [PartitionImage(i, 1, 0, (1,), (1,), ()) for i in range(3)])
    return image


@pytest.fixture
def output(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    monkeypatch.setattr(logs, "_sink", logs._Sink())
    out = io.StringIO()
    logs.configure(out)
    return out


def told(output: io.StringIO) -> dict[str, dict[str, Any]]:
    lines = [json.loads(line) for line in output.getvalue().splitlines()]
    return {line["event"]: line for line in lines}


def compare(image: ClusterImage, log_dir: Path, *, known: bool) -> frozenset[str]:
    found = [FoundPartition("t", 0, ID, str(log_dir))]
    return compare_folders(1, found, image, [], [log_dir], {log_dir} if known else set())


def test_missing_folders_without_records_are_made_anew(
    image: ClusterImage, output: io.StringIO, tmp_path: Path
) -> None:
    (tmp_path / HIGH_WATERMARKS).write_text("0\n2\nt 0 7\nt 1 0\n")
    compare(image, tmp_path, known=True)
    lines = told(output)
    assert lines.keys() == {"partition_folders_made"}
    assert lines["partition_folders_made"]["count"] == 2


def test_missing_folders_with_records_are_reported(
    image: ClusterImage, output: io.StringIO, tmp_path: Path
) -> None:
    (tmp_path / HIGH_WATERMARKS).write_text("0\n3\nt 0 7\nt 1 0\nt 2 5\n")
    compare(image, tmp_path, known=True)
    lines = told(output)
    assert lines["partition_folders_made"]["count"] == 1
    lost = lines["partition_folders_missing"]
    assert (lost["level"], lost["count"], lost["folders"]) == ("warning", 1, ["t-2"])
    assert lost["consequence"] == "created anew and empty; their records are gone"


@pytest.mark.parametrize("content", [None, "0\n1\nt 1\n", "0\n0\n"])
def test_missing_folders_without_a_checkpoint_are_reported(
    image: ClusterImage, output: io.StringIO, tmp_path: Path, content: str | None
) -> None:
    """The directory replaces a lost one, or its notes are damaged or missing."""
    if content is not None:
        (tmp_path / HIGH_WATERMARKS).write_text(content)
    compare(image, tmp_path, known=content is None or "t" in content)
    lines = told(output)
    assert lines.keys() == {"partition_folders_missing"}
    assert lines["partition_folders_missing"]["folders"] == ["t-1", "t-2"]
    consequence = lines["partition_folders_missing"]["consequence"]
    assert "gone" not in consequence
    assert "if their records lie elsewhere, stop the broker" in consequence
