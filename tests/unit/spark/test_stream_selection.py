"""Which topics a stream reads: those that a pattern selects, that come and go, or are given up."""

from __future__ import annotations

import logging

import pytest

from pyrklog.spark.cluster import GoneError
from pyrklog.spark.resolve import SelectionError
from pyrklog.spark.stream_engine import VIEWS_MAX, DataLossError
from tests.support.engine_stream import Stream
from tests.support.fake_cluster import FakeCluster


@pytest.fixture
def cluster() -> FakeCluster:
    made = FakeCluster()
    made.topic("a", 10, 20)
    return made


def by_pattern(cluster: FakeCluster, pattern: str, **options: str) -> Stream:
    stream = Stream(cluster, **options)
    del stream.options["subscribe"]
    stream.options["subscribePattern"] = pattern
    stream.restart()
    return stream


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("orders", {"my-orders-eu", "orders", "orders-bad"}),
        ("^orders", {"orders", "orders-bad"}),
        ("orders$", {"orders"}),
        ("eu|bad", {"my-orders-eu", "orders-bad"}),
        ("^eu|bad$", {"orders-bad"}),
        ("^order$", set()),
    ],
)
def test_a_pattern_is_found_anywhere_in_a_name(pattern: str, found: set[str]) -> None:
    """As by the stock connector since Spark 3.4."""
    cluster = FakeCluster()
    for name in ("my-orders-eu", "orders", "orders-bad", "other"):
        cluster.topic(name, 3)
    stream = by_pattern(cluster, pattern)
    assert stream.batch() == {f"{name}-0": (0, 3) for name in found}
    for name in found:
        cluster.log(name).last = 4
    stream.restart()
    assert stream.batch() == {f"{name}-0": (3, 4) for name in found}


def test_a_stock_checkpoint_of_a_pattern_goes_on(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """It has topics whose names the pattern does not match as a whole."""
    cluster.topic("my-a-eu", 9)
    stream = by_pattern(cluster, "a")
    stream.kept.append('{"a": {"0": 4, "1": 20}, "my-a-eu": {"0": 2}}')
    assert stream.batch() == {"a-0": (4, 10), "my-a-eu-0": (2, 9)}
    assert warnings(caplog) == []


def test_what_the_options_give_up_is_told_once_a_run(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """A misspelt name would abandon a backlog in silence."""
    cluster.topic("b", 5, 7)
    stream = Stream(cluster, subscribe="a,b")
    stream.batch()
    stream.options["subscribe"] = "a"
    stream.restart()
    cluster.delete("a")
    for _ in range(2):
        with pytest.raises(DataLossError):
            stream.plan()
    told = warnings(caplog)
    assert len(told) == 1
    assert "no longer selected by the options" in told[0]
    assert told[0].endswith(": b-0 from offset 5, b-1 from offset 7")


def test_many_that_are_given_up_are_told_in_one_line(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.topic("b", *[5] * 13)
    stream = by_pattern(cluster, ".")
    stream.batch()
    stream.options["subscribePattern"] = "^a$"
    stream.restart()
    stream.batch()
    told = warnings(caplog)
    assert len(told) == 1
    assert told[0].endswith("b-9 from offset 5 and 3 more")
    caplog.clear()
    stream.restart()
    stream.batch()
    assert warnings(caplog) == []


def test_topics_that_come_and_go_stop_no_pattern(cluster: FakeCluster) -> None:
    """As those of CI jobs: deleted after they were described, more of them than there are tries."""
    stream = by_pattern(cluster, ".")
    stream.batch()
    names = [f"job-{number}" for number in range(VIEWS_MAX + 2)]
    for name in names:
        cluster.topic(name, 1)
    cluster.deleted_meanwhile = list(names)
    cluster.topic("stays", 4)
    cluster.log("a").last = 11
    before = cluster.described
    assert stream.batch() == {"a-0": (10, 11), "stays-0": (0, 4)}
    assert cluster.deleted_meanwhile == []
    assert cluster.described == before + 1


def test_nothing_waits_for_topics_of_a_pattern_that_are_not_known(cluster: FakeCluster) -> None:
    """But for those of the stream, and at the start, where a topic left out would be new later."""
    stream = by_pattern(cluster, ".")
    stream.engine.initial()
    assert cluster.passing == set()
    stream.batch()
    cluster.topic("b", 1)
    stream.plan()
    assert cluster.passing == {"b"}
    stream.plan()
    assert cluster.passing == set()
    cluster.topic("job", 1)
    cluster.deleted_meanwhile = ["job"]
    stream.plan()
    assert cluster.passing == {"job"}


def test_a_run_waits_for_the_topics_of_its_target(cluster: FakeCluster) -> None:
    """What was there when it began is read by it."""
    stream = by_pattern(cluster, ".")
    stream.batch()
    cluster.topic("b", 1)
    stream.engine.prepare_available_now()
    assert cluster.passing == set()
    cluster.topic("c", 1)
    assert stream.batch() == {"b-0": (0, 1)}
    assert cluster.passing == {"c"}


def test_topics_that_the_stream_knows_are_looked_for_again(cluster: FakeCluster) -> None:
    """A leader that says that one is gone may have just started."""
    stream = by_pattern(cluster, ".", failOnDataLoss="false")
    cluster.topic("b", 1)
    stream.batch()
    cluster.deleted_meanwhile = ["b"]
    before = cluster.described
    stream.plan()
    assert cluster.described == before + 2


def test_a_topic_of_the_stream_that_goes_again_and_again_fails_the_query(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = by_pattern(cluster, ".")
    stream.batch()
    monkeypatch.setattr(cluster, "delete", lambda _: None)
    cluster.deleted_meanwhile = ["a"] * VIEWS_MAX
    before = cluster.described
    with pytest.raises(GoneError, match="topic a does not exist"):
        stream.plan()
    assert cluster.described == before + VIEWS_MAX


@pytest.mark.parametrize("fails", [True, False])
def test_a_subscribed_name_that_goes_meanwhile_is_missing(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture, fails: bool
) -> None:
    """Its name was given, and so is not passed over."""
    stream = Stream(cluster, failOnDataLoss=str(fails).lower())
    stream.batch()
    cluster.topic("b", 5)
    stream.options["subscribe"] = "a,b"
    stream.restart()
    cluster.deleted_meanwhile = ["b"]
    if fails:
        with pytest.raises(SelectionError, match="there is no topic b"):
            stream.plan()
    else:
        assert not stream.plan()
        assert "there is no topic b" in caplog.text
    assert cluster.passing == set()
