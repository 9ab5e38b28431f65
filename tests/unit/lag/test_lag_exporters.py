"""What `make test-lag` reads of other programs' answers, and what it holds them against."""

import pytest

from tests.support import lag_exporters
from tests.support.paced_groups import Pace, PacedProducer

EXPOSITION = """\
# HELP kafka_consumergroup_lag Current Approximate Lag of a ConsumerGroup at Topic/Partition
# TYPE kafka_consumergroup_lag gauge
kafka_consumergroup_lag{consumergroup="a",partition="0",topic="t"} 17
kafka_consumergroup_lag{consumergroup="a",partition="1",topic="t"} 0
kafka_consumergroup_lag{consumergroup="a",partition="0",topic="u"} 5
kafka_consumergroup_lag{consumergroup="b",partition="0",topic="t"} 9
# HELP kafka_consumergroup_lag_sum Current Approximate Lag of a ConsumerGroup at Topic
# TYPE kafka_consumergroup_lag_sum gauge
kafka_consumergroup_lag_sum{consumergroup="a",topic="t"} 17
"""
TABLE = """\
GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID
a t 0 10 27 17 c-1 /127.0.0.1 c
a t 1 27 27 0 c-1 /127.0.0.1 c
a t 2 - 27 - c-1 /127.0.0.1 c
a u 0 1 6 5 - - -
Consumer group 'b' has no active members.
b t 0 18 27 9 - - -
"""


def test_an_exposition_has_lags_and_their_sum() -> None:
    assert lag_exporters.exported_lags(EXPOSITION, "a", "t") == {0: 17, 1: 0}
    assert lag_exporters.exported_total(EXPOSITION, "a", "t") == 17
    assert lag_exporters.exported_lags(EXPOSITION, "c", "t") == {}
    assert lag_exporters.exported_total(EXPOSITION, "b", "t") == -1


def test_rows_of_apaches_tool_are_read() -> None:
    found = lag_exporters.described(TABLE.splitlines(), "t")
    assert found == {"a": {0: 17, 1: 0}, "b": {0: 9}}


def test_the_age_of_an_offset_follows_from_the_times_of_its_record() -> None:
    producer = PacedProducer("127.0.0.1:1", "t", 1, Pace(1, 1), Pace(1))
    producer.sent[0] = [10.0, 20.0, 30.0]
    producer.acknowledged[0] = [11.0, 22.0]
    assert producer.age_s(0, 0, 40.0, 41.0) == (29.0, 31.0)
    assert producer.age_s(0, 1, 21.0, 41.0) == (0.0, 21.0)
    assert producer.age_s(0, 2, 40.0, 41.0) == (0.0, 11.0)
    assert producer.age_s(0, 3, 40.0, 41.0) == (0.0, 0.0)


def test_a_program_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(lag_exporters._PLACES, "burrow", lag_exporters.ROOT / "nowhere" / "Burrow")
    with pytest.raises(AssertionError, match="burrow is not there: `make test-lag"):
        lag_exporters.program("burrow")
