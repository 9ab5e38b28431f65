"""Where librdkafka's engine begins to read."""

from hypothesis import given
from hypothesis import strategies as st

from pyrklog.benchmark.librdkafka import last_records


def test_each_partition_gives_its_share() -> None:
    assert last_records({0: (0, 100), 1: (50, 100), 2: (0, 100)}, 30) == {0: 90, 1: 90, 2: 90}


def test_a_partition_with_more_records_gives_what_others_lack() -> None:
    assert last_records({0: (0, 2), 1: (7, 7), 2: (0, 100)}, 30) == {0: 0, 1: 7, 2: 72}


def test_no_more_than_there_is_is_read() -> None:
    assert last_records({0: (5, 10), 1: (0, 3)}, 1000) == {0: 5, 1: 0}
    assert last_records({}, 10) == {}


_spans = st.tuples(st.integers(0, 50), st.integers(0, 50)).map(lambda span: (span[0], sum(span)))


@given(st.dictionaries(st.integers(0, 20), _spans), st.integers(0, 2000))
def test_as_many_are_read_as_were_asked_for(spans: dict[int, tuple[int, int]], count: int) -> None:
    begins = last_records(spans, count)
    assert all(low <= begins[number] <= high for number, (low, high) in spans.items())
    there = sum(high - low for low, high in spans.values())
    read = sum(high - begins[number] for number, (_, high) in spans.items())
    assert read == min(count, there)
