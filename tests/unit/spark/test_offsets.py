"""A stream's offsets as documents: canonical, exact, and refused when they are something else."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrklog.spark.offsets import (
    Gone,
    OffsetFormatError,
    OffsetRange,
    Position,
    StreamOffset,
    TopicPartition,
    from_json,
    ranges_between,
    sentence_of,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)

POSITIONS = st.builds(Position, st.integers(0, 2**63 - 1), st.integers(-1, 2**31 - 1))
PLACES = st.builds(
    TopicPartition, st.sampled_from(["a", "b.c", "version", "topics", "d-1"]), st.integers(0, 12)
)


@st.composite
def offsets(draw: st.DrawFn) -> StreamOffset:
    positions = draw(st.dictionaries(PLACES, POSITIONS, max_size=12))
    begins = {place: draw(POSITIONS) for place in positions if draw(st.booleans())}
    topics = {place.topic for place in positions}
    ids = {topic: f"id of {topic}" for topic in topics if draw(st.booleans())}
    numbers = st.integers(0, 2**40)
    positions_gone = st.dictionaries(st.integers(0, 12), POSITIONS, min_size=1, max_size=3)
    gone = draw(
        st.dictionaries(
            st.sampled_from(["a", "x"]),
            st.builds(Gone, st.text("id", min_size=1), numbers, positions_gone),
        )
    )
    return StreamOffset(positions, ids, begins, draw(numbers), draw(st.booleans()), gone)


@given(offsets())
def test_a_document_is_read_back_as_it_was(offset: StreamOffset) -> None:
    assert from_json(json.loads(json.dumps(offset.to_json()))) == offset


@given(offsets(), st.randoms())
def test_equal_offsets_are_equal_texts(offset: StreamOffset, chance: object) -> None:
    """Spark compares texts: the order in which partitions were found must not show."""
    places = list(offset.positions)
    chance.shuffle(places)  # type: ignore[attr-defined]
    other = StreamOffset(
        {place: offset.positions[place] for place in places},
        dict(reversed(list(offset.topic_ids.items()))),
        {place: offset.begins[place] for place in places if place in offset.begins},
        offset.number,
        offset.is_initial,
        dict(reversed(list(offset.gone.items()))),
    )
    assert json.dumps(other.to_json()) == json.dumps(offset.to_json())


def test_the_document() -> None:
    """The format of ``docs/understanding/spark-source.md``, which checkpoints out there have."""
    offset = StreamOffset(
        {B0: Position(7), A1: Position(40, 12), A0: Position(9120447, 12)},
        {"a": "Xw0o"},
        {A1: Position(0), B0: Position(5, 2)},
        17,
    )
    assert json.dumps(offset.to_json()) == (
        '{"version": 1, "number": 17, "topics": {'
        '"a": {"id": "Xw0o", "partitions": {"0": {"offset": 9120447, "epoch": 12}, '
        '"1": {"offset": 40, "epoch": 12, "from": 0}}}, '
        '"b": {"partitions": {"0": {"offset": 7, "from": 5, "fromEpoch": 2}}}}}'
    )
    gone = Gone("Yf1p", 12, {10: Position(3), 9: Position(8, 2)})
    assert json.dumps(StreamOffset({}, number=18, gone={"c": gone}).to_json()) == (
        '{"version": 1, "number": 18, "topics": {}, "gone": {"c": {"id": "Yf1p", "number": 12, '
        '"partitions": {"9": {"offset": 8, "epoch": 2}, "10": {"offset": 3}}}}}'
    )
    assert StreamOffset({}, is_initial=True).to_json() == {
        "version": 1,
        "initial": True,
        "number": 0,
        "topics": {},
    }


def test_partitions_are_sorted_by_number() -> None:
    offset = StreamOffset({TopicPartition("a", number): Position(0) for number in (10, 9, 2)})
    topics = offset.to_json()["topics"]
    assert isinstance(topics, dict)
    assert list(topics["a"]["partitions"]) == ["2", "9", "10"]


def test_the_stock_connectors_documents() -> None:
    stock = from_json({"a": {"0": 5, "1": 0}, "version": {"0": 7}})
    assert stock == StreamOffset(
        {A0: Position(5), A1: Position(0), TopicPartition("version", 0): Position(7)}
    )
    assert from_json({}) == StreamOffset({})


@pytest.mark.parametrize(
    ("document", "told"),
    [
        (None, "not an object"),
        (5, "not an object"),
        ([], "not an object"),
        ({"version": 2, "topics": {}}, "version 2; this pyrklog reads version 1"),
        ({"version": "1"}, "version '1'"),
        ({"version": 1, "number": 0}, "topics"),
        ({"version": 1, "topics": {}}, "number"),
        ({"version": 1, "topics": {}, "number": True}, "number"),
        ({"version": 1, "number": 0, "topics": {"a": 5}}, "topic a"),
        ({"version": 1, "number": 0, "topics": {"a": {}}}, "partitions of topic a"),
        ({"version": 1, "number": 0, "topics": {"a": {"id": 3, "partitions": {}}}}, "id 3"),
        ({"version": 1, "number": 0, "topics": {}, "gone": 3}, "what is gone"),
        ({"version": 1, "number": 0, "topics": {}, "gone": {"a": {"id": 3}}}, "partitions of"),
        (
            {"version": 1, "number": 0, "topics": {}, "gone": {"a": {"id": 3, "partitions": {}}}},
            "id 3",
        ),
        (
            {"version": 1, "number": 0, "topics": {}, "gone": {"a": {"partitions": {}}}},
            "number is None",
        ),
        ({"a": {"x": 5}}, "partition 'x'"),
        ({"a": {"-1": 5}}, "partition '-1'"),
        ({"a": {"²": 5}}, "partition"),
        ({"a": {"99999999999999999999999": 5}}, "partition"),
        ({"a": {"0": -1}}, "a-0"),
        ({"a": {"0": 2**63}}, "a-0"),
        ({"a": {"0": 1.5}}, "a-0"),
        ({"a": {"0": "1"}}, "a-0"),
        ({"logOffset": 5}, "topic logOffset"),
    ],
)
def test_what_is_no_offset_is_refused(document: object, told: str) -> None:
    with pytest.raises(OffsetFormatError, match=told):
        from_json(document)


@pytest.mark.parametrize(
    "fields", [{}, {"offset": -1}, {"offset": 1, "epoch": -2}, {"offset": 1, "from": None}, 7]
)
def test_a_wrong_position_is_refused(fields: object) -> None:
    document = {"version": 1, "number": 0, "topics": {"a": {"partitions": {"0": fields}}}}
    with pytest.raises(OffsetFormatError, match="a-0"):
        from_json(document)


def test_ranges_are_what_lies_between() -> None:
    start = StreamOffset({A0: Position(5, 1), A1: Position(9), B0: Position(3)})
    end = StreamOffset(
        {A0: Position(8, 2), A1: Position(9, 2), TopicPartition("b", 1): Position(2)}
    )
    assert ranges_between(start, end) == [OffsetRange("a", 0, 5, 8, 1), OffsetRange("b", 1, 0, 2)]


def test_a_batch_begins_where_its_end_says() -> None:
    """It makes the first batch repeatable: its start, asked for again, is another one."""
    asked_again = StreamOffset({A0: Position(70), A1: Position(1)}, is_initial=True)
    end = StreamOffset({A0: Position(50), A1: Position(4)}, begins={A0: Position(40, 3)})
    assert ranges_between(asked_again, end) == [
        OffsetRange("a", 0, 40, 50, 3),
        OffsetRange("a", 1, 1, 4),
    ]


def test_an_end_before_its_start_is_refused() -> None:
    start, end = StreamOffset({A0: Position(5)}), StreamOffset({A0: Position(4)})
    with pytest.raises(OffsetFormatError, match="offset 4 of a-0, before its start at 5"):
        ranges_between(start, end)


def test_long_lists_are_cut() -> None:
    places = [TopicPartition("a", number) for number in range(12)]
    assert sentence_of(places[:2]) == "a-0, a-1"
    assert sentence_of(places, 3) == "a-0, a-1, a-2 and 9 more"
