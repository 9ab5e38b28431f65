"""Topics and partitions that a stream dropped, and that come back."""

from __future__ import annotations

import json

import pytest

from pyrklog.spark import view
from pyrklog.spark.offsets import TopicPartition, from_json
from pyrklog.spark.stream_engine import DataLossError
from tests.support.engine_stream import Stream
from tests.support.fake_cluster import FakeCluster, FakeLog


@pytest.fixture
def cluster() -> FakeCluster:
    made = FakeCluster()
    made.topic("a", 10)
    made.topic("b", 4, 6)
    return made


def begun(cluster: FakeCluster, **options: str) -> Stream:
    stream = Stream(cluster, **{"subscribe": "a,b", "failOnDataLoss": "false"} | options)
    stream.batch()
    return stream


def dropped(stream: Stream) -> list[str]:
    gone = from_json(json.loads(stream.kept[-1])).gone
    return [f"{name}-{number}" for name, one in gone.items() for number in one.positions]


def look_without_b(stream: Stream) -> None:
    """Brokers that have just started know nothing of it."""
    cluster, ids = stream.cluster, dict(stream.cluster.ids)
    logs = dict(cluster.logs)
    cluster.delete("b")
    stream.batch()
    cluster.ids, cluster.logs = ids, logs


@pytest.mark.parametrize("restarts", [True, False])
def test_a_topic_goes_on_where_it_was(cluster: FakeCluster, restarts: bool) -> None:
    stream = begun(cluster)
    look_without_b(stream)
    assert dropped(stream) == ["b-0", "b-1"]
    cluster.log("a").last = 11
    if restarts:
        stream.restart()
    cluster.log("b", 1).last = 8
    assert stream.batch() == {"a-0": (10, 11), "b-1": (6, 8)}
    assert stream.read[TopicPartition("b", 0)] == list(range(4))
    assert dropped(stream) == []
    assert stream.batch() == {}


def test_a_partition_goes_on_where_it_was(cluster: FakeCluster) -> None:
    stream = begun(cluster)
    log = cluster.logs.pop(TopicPartition("b", 1))
    stream.batch()
    assert dropped(stream) == ["b-1"]
    cluster.logs[TopicPartition("b", 1)] = log
    log.last = 9
    assert stream.batch() == {"b-1": (6, 9)}


def test_a_batch_with_what_came_back_is_repeated_as_it_was(cluster: FakeCluster) -> None:
    stream = begun(cluster)
    look_without_b(stream)
    cluster.log("b").last = 5
    assert stream.plan()
    cluster.log("b").last = 9
    stream.restart()
    assert stream.last_ranges() == {"b-0": (4, 5)}


def test_what_retention_took_meanwhile_is_told(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    stream = begun(cluster)
    look_without_b(stream)
    cluster.log("b").first, cluster.log("b").last = 7, 9
    assert stream.batch() == {"b-0": (7, 9)}
    assert "offsets 4 to 6 of b-0 were deleted" in caplog.text
    look_without_b(stream)
    stream.options["failOnDataLoss"] = "true"
    stream.restart()
    cluster.log("b").first = cluster.log("b").last = 12
    with pytest.raises(DataLossError, match="offsets 9 to 11 of b-0 were deleted"):
        stream.plan()


def test_another_topic_of_the_name_is_read_from_its_beginning(cluster: FakeCluster) -> None:
    stream = begun(cluster)
    cluster.delete("b")
    stream.batch()
    cluster.topic("b", 2, topic_id="another")
    assert stream.batch() == {"b-0": (0, 2)}
    assert dropped(stream) == []


def test_a_topic_of_a_broker_that_tells_no_id_is_the_same(cluster: FakeCluster) -> None:
    stream = begun(cluster)
    look_without_b(stream)
    cluster.ids["b"], cluster.log("b").last = "", 5
    assert stream.batch() == {"b-0": (4, 5)}


def test_without_an_id_nothing_is_kept(cluster: FakeCluster) -> None:
    cluster.ids["b"] = ""
    stream = begun(cluster)
    look_without_b(stream)
    assert dropped(stream) == []


def test_what_the_query_gives_up_is_forgotten(cluster: FakeCluster) -> None:
    stream = begun(cluster)
    look_without_b(stream)
    stream.options["subscribe"] = "a"
    stream.restart()
    cluster.log("a").last += 1
    stream.batch()
    assert dropped(stream) == []


def test_a_run_that_began_without_it_keeps_it(cluster: FakeCluster) -> None:
    """Its target has no end for it: the next run goes on."""
    stream = begun(cluster)
    look_without_b(stream)
    logs, ids = dict(cluster.logs), dict(cluster.ids)
    cluster.delete("b")
    cluster.log("a").last = 12
    stream.engine.prepare_available_now()
    cluster.logs, cluster.ids = {**logs, TopicPartition("a", 0): FakeLog(last=12)}, ids
    assert stream.batch() == {"a-0": (10, 12)}
    assert dropped(stream) == ["b-0", "b-1"]
    stream.restart()
    cluster.log("b").last = 5
    stream.engine.prepare_available_now()
    assert stream.batch() == {"b-0": (4, 5)}


def test_the_latest_are_kept(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a pattern of topics that come and go makes no endless offset."""
    monkeypatch.setattr(view, "GONE_MAX", 3)
    cluster.topic("c", 1)
    cluster.topic("d", 1)
    stream = begun(cluster, subscribe="a,b,c,d")
    for name, kept in (("c", ["c-0"]), ("b", ["b-0", "b-1", "c-0"]), ("d", ["b-0", "b-1", "d-0"])):
        cluster.delete(name)
        stream.batch()
        assert sorted(dropped(stream)) == kept
