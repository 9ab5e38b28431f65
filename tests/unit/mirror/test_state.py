"""What a mirror keeps at the target."""

import pytest

from pyrklog.mirror.errors import Kind, MirrorError
from pyrklog.mirror.spans import Span
from pyrklog.mirror.state import (
    Origin,
    Progress,
    State,
    again_row,
    chain_of,
    chain_row,
    check_origin,
    forgotten_row,
    mark_row,
    origin_row,
    patterns_row,
    progress_row,
    read_spans,
    read_state,
    spans_row,
)

ORIGIN = Origin("A", "B", "prefix")
ONE = Progress("east.t", 10, 2, 30, records=7, topic_id="id", span=Span(3, 20, 7))


def test_what_is_written_is_read() -> None:
    rows = [
        origin_row("s", ORIGIN),
        progress_row("s", ("t", 0), ONE._replace(position=5)),
        progress_row("s", ("t", 0), ONE),
        progress_row("s", ("t", 1), ONE._replace(span=None)),
        chain_row("s", "t", ["A", "C"]),
        patterns_row("s", ["t.*", "u"]),
    ]
    state = read_state("s", [(row.key, row.value) for row in rows])
    assert state.origin == ORIGIN
    assert state.partitions == {("t", 0): ONE, ("t", 1): ONE._replace(span=None)}
    assert state.chains == {"t": ["A", "C"]}
    assert state.patterns == ["t.*", "u"]


def test_a_mark_says_nothing() -> None:
    one, other = mark_row("s", "1"), mark_row("s", "2")
    assert one.value is None
    assert one.key != other.key
    assert read_state("s", [(one.key, one.value)]) == State()


def test_topics_that_are_due_again_are_remembered_until_they_have_begun() -> None:
    rows = [again_row("s", "t", is_due=True), again_row("s", "u", is_due=True)]
    assert read_state("s", [(row.key, row.value) for row in rows]).again == {"t", "u"}
    rows.append(again_row("s", "t", is_due=False))
    assert read_state("s", [(row.key, row.value) for row in rows]).again == {"u"}


def test_two_clusters_that_are_one_are_refused() -> None:
    one = Origin("A", "A", "prefix")
    with pytest.raises(MirrorError, match="--from and --to have the same cluster id, A") as refused:
        check_origin("s", None, one)
    assert refused.value.kind is Kind.USAGE
    assert "pyrklog topic copy" in (refused.value.fix or "")
    # One that has begun goes on: two clusters may have one id, for example from a backup.
    check_origin("s", one, one)
    check_origin("s", None, Origin("", "", "prefix"))


def test_what_is_forgotten_is_gone() -> None:
    rows = [progress_row("s", ("t", 0), ONE), forgotten_row("s", ("t", 0))]
    assert read_state("s", [(row.key, row.value) for row in rows]).partitions == {}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"x", b"{}"),
        (b'["mirror"]', b'{"version":2,"source_id":"","target_id":"","policy":""}'),
        (b'["partition","t",0]', b'{"position":1}'),
        (b'["other"]', b"{}"),
        (b'["partition","t",0]', b"[]"),
    ],
)
def test_what_no_mirror_writes_stops(key: bytes, value: bytes) -> None:
    with pytest.raises(MirrorError, match="topic s has a record that no mirror"):
        read_state("s", [(key, value)])


def test_spans() -> None:
    row = spans_row("o", ("t", 3), [Span(1, 2, 3), Span(9, 5, 1)])
    assert list(read_spans("o", [(row.key, row.value)])) == [
        (("t", 3), [Span(1, 2, 3), Span(9, 5, 1)])
    ]
    with pytest.raises(MirrorError, match="none of its"):
        list(read_spans("o", [(None, b"x")]))


def test_another_mirrors_state_is_refused() -> None:
    check_origin("s", None, ORIGIN)
    check_origin("s", ORIGIN, ORIGIN)
    with pytest.raises(MirrorError, match="from cluster A to B, and not from C to B"):
        check_origin("s", ORIGIN, ORIGIN._replace(source_id="C"))
    with pytest.raises(MirrorError, match="--policy prefix, not identity"):
        check_origin("s", ORIGIN, ORIGIN._replace(policy="identity"))


def test_a_chain_has_all_clusters_before() -> None:
    upstream = [State(chains={"t": ["C", "D"], "u": ["E"]}), State(chains={"t": ["D", "F"]})]
    assert chain_of("t", "A", upstream) == ["A", "C", "D", "F"]
    assert chain_of("v", "A", upstream) == ["A"]
