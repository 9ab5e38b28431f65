"""The comparison reports replicas that differ, and no others."""

import struct
from pathlib import Path

import pytest

from tests.checker.replicas import Batch, differences, epochs_begun
from tests.support.wire import record_batch

ONE = Batch(0, 4, 1, "aa")
TWO = Batch(5, 5, 1, "bb")
THREE = Batch(6, 9, 3, "cc")
LOG = [ONE, TWO, THREE]


def test_equal_logs_have_no_differences() -> None:
    assert differences({1: LOG, 2: LOG, 3: LOG}, is_open=False) == []
    assert differences({1: [], 2: []}, is_open=False) == []


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ([ONE, TWO._replace(digest="xx"), THREE], "5..5 of epoch 1 (bb) is 5..5 of epoch 1 (xx)"),
        ([ONE, TWO._replace(leader_epoch=2), THREE], "5..5 of epoch 1 (bb) is 5..5 of epoch 2"),
        ([ONE, Batch(5, 9, 3, "cc")], "5..5 of epoch 1 (bb) is 5..9"),
        ([ONE, TWO], "one ends at 9, the other at 5"),
        ([], "one is empty"),
    ],
)
def test_differing_batch_is_shown(other: list[Batch], said: str) -> None:
    (text,) = differences({1: LOG, 2: LOG, 3: other}, is_open=False)
    assert text.startswith(f"brokers 1 and 3: {said}")


def test_a_log_that_is_still_written_to_may_be_longer() -> None:
    assert differences({1: LOG, 2: [ONE, TWO]}, is_open=True) == []
    assert differences({1: LOG, 2: []}, is_open=True) == []
    assert len(differences({1: LOG, 2: [ONE, THREE]}, is_open=True)) == 2


def test_a_log_that_begins_later_is_compared_from_there() -> None:
    assert differences({1: LOG, 2: [TWO, THREE]}, is_open=False) == []
    assert len(differences({1: LOG, 2: [TWO._replace(digest="x"), THREE]}, is_open=False)) == 1


def test_gaps_and_epochs_that_fall() -> None:
    assert differences({1: [ONE, THREE]}, is_open=False) == ["broker 1: offset 6 follows 4"]
    falling = [ONE._replace(leader_epoch=2), TWO]
    assert differences({1: falling}, is_open=False) == ["broker 1: epoch 1 at 5 follows 2"]


def test_new_epochs_of_producers_are_found_in_a_log(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    batches = []
    for offset, (producer, epoch) in enumerate(((7, 0), (8, 3), (7, 0), (7, 1), (8, 3))):
        batch = record_batch([b"v"], timestamp_ms=1, producer=(producer, epoch, offset))
        batches.append(struct.pack(">q", offset) + batch[8:])
    (tmp_path / "t-0" / f"{0:020}.log").write_bytes(b"".join(batches))
    assert epochs_begun(tmp_path, "t") == ["producer 7 begins epoch 1 in t-0 at 3"]
