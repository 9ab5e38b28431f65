"""What waits for a broker's disk is told apart: other requests wait for its answer."""

from pyrklog.controller.broker_request_batch import SLOW_REPLICAS_MAX
from tests.unit.controller.test_reassignment import cluster, in_sync, move, without_metadata


def test_many_new_replicas_are_told_in_parts_apart_from_those_that_are_there() -> None:
    """A broker gets its next request once it has made the logs of this one."""
    count = 2 * SLOW_REPLICAS_MAX + 1
    runner = cluster(*[(1, 2)] * count, brokers=(1, 2, 3))
    lines = without_metadata(move(runner, {("t", index): (1, 3) for index in range(count)}))
    told = [line.split() for line in lines if " <- lead " in line]
    new = [words for words in told if words[-1] == "new"]
    assert [words[0] for words in told] == ["1", "2", "3", "3", "3"]
    assert new == told[2:]
    assert [words.count("new") for words in new] == [SLOW_REPLICAS_MAX, SLOW_REPLICAS_MAX, 1]
    found = [word for words in new for word in words[3:] if word != "new"]
    assert found == [f"t-{index}:1@4" for index in range(count)]
    lines = []
    for index in range(count):
        lines += in_sync(runner, 1, 2, 3, partition=index)
    assert sum(line.startswith("2 <- stop ") and "delete" in line for line in lines) == count
