"""Hand-made histories with every anomaly, and sound ones without."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.checker.analysis import Evidence, check, summary
from tests.checker.history import (
    NONE,
    Action,
    Op,
    Outcome,
    value_of,
    writer_of,
)

WRITERS = (1, 2)


class Script:
    """Operations in order, in partition 0."""

    def __init__(self) -> None:
        self.ops: list[Op] = []

    def add(
        self, client: str, action: Action, outcome: Outcome, value: int = NONE, offset: int = NONE
    ) -> None:
        self.ops.append(Op(len(self.ops), client, action, outcome, 0, value, offset))

    def sent(self, value: int, offset: int, outcome: Outcome = "ok") -> None:
        self.add(f"writer-{writer_of(value)}", "send", "invoke", value)
        self.add(f"writer-{writer_of(value)}", "send", outcome, value, offset)

    def reads(self, client: str, *places: tuple[int, int]) -> None:
        for offset, value in places:
            self.add(client, "read", "ok", value, offset)

    def polls(self, client: str, *places: tuple[int, int]) -> None:
        for offset, value in places:
            self.add(client, "poll", "ok", value, offset)

    def commits(self, client: str, offset: int, outcome: Outcome = "ok") -> None:
        self.add(client, "commit", "invoke", offset=offset)
        self.add(client, "commit", outcome, offset=offset)


A, B, C, D = (value_of(1, count) for count in range(4))


def plain() -> Script:
    """Four records, one reader, and one member that committed half of them."""
    script = Script()
    for offset, value in enumerate((A, B, C, D)):
        script.sent(value, offset)
    script.reads("reader", (0, A), (1, B), (2, C), (3, D))
    script.add("one", "assign", "ok")
    script.polls("one", (0, A), (1, B))
    script.commits("one", 2)
    script.polls("one", (2, C), (3, D))
    script.add("watcher", "latest", "ok", offset=4)
    return script


LOG = {0: A, 1: B, 2: C, 3: D}


def kinds(script: Script, log: dict[int, int] | None = None) -> set[str]:
    final = {0: LOG if log is None else log}
    return {anomaly.kind for anomaly in check(Evidence(script.ops, final))}


def test_sound_history_has_no_anomaly() -> None:
    assert kinds(plain()) == set()


def test_missing_acknowledged_value_is_an_anomaly() -> None:
    script = Script()
    script.sent(A, 0)
    script.sent(B, 1)
    assert kinds(script, {0: A}) == {"lost"}


def test_missing_value_that_a_reader_saw_is_an_anomaly() -> None:
    script = Script()
    script.sent(A, 0)
    script.sent(B, NONE, "unknown")
    script.reads("reader", (0, A), (1, B))
    assert kinds(script, {0: A}) == {"lost"}


def test_unacknowledged_value_may_be_missing_or_present() -> None:
    script = Script()
    script.sent(A, 0)
    script.sent(B, NONE, "unknown")
    assert kinds(script, {0: A}) == set()
    assert kinds(script, {0: A, 1: B}) == set()


def test_an_acknowledgement_without_an_offset() -> None:
    script = Script()
    script.sent(A, NONE)
    assert kinds(script, {0: A}) == set()
    assert kinds(script, {}) == {"lost"}


def test_value_at_two_offsets_is_an_anomaly() -> None:
    script = Script()
    script.sent(A, 0)
    assert kinds(script, {0: A, 1: A}) == {"duplicate"}


def test_a_writer_without_promises_repeats_its_own() -> None:
    script = Script()
    script.sent(A, NONE, "unknown")
    assert kinds(script, {0: A, 1: A}) == set()


def test_an_acknowledgement_with_the_offset_of_another() -> None:
    script = Script()
    script.sent(A, 0)
    script.sent(B, 0)
    assert kinds(script, {0: A, 1: B}) == {"inconsistent", "duplicate"}


def test_two_readers_see_different_values_at_one_offset() -> None:
    script = Script()
    script.sent(A, 0)
    script.sent(B, NONE, "unknown")
    script.reads("first", (0, B))
    script.reads("second", (0, A))
    assert "inconsistent" in kinds(script, {0: A})


def test_a_writers_values_out_of_order() -> None:
    script = Script()
    script.sent(A, 1)
    script.sent(B, 0)
    assert kinds(script, {0: B, 1: A}) == {"reordered"}


def test_a_writer_that_was_promised_nothing_has_no_order() -> None:
    script = Script()
    script.sent(A, NONE, "unknown")
    script.sent(B, NONE, "unknown")
    assert kinds(script, {0: B, 1: A}) == set()


def test_values_of_two_writers_have_no_order() -> None:
    script = Script()
    other = value_of(2, 0)
    script.sent(B, 0)
    script.sent(other, 1)
    assert kinds(script, {0: B, 1: other}) == set()


def test_value_that_was_never_sent_is_an_anomaly() -> None:
    script = Script()
    script.sent(A, 0)
    assert kinds(script, {0: A, 1: value_of(9, 9)}) == {"phantom"}


def test_value_of_a_failed_send_is_an_anomaly() -> None:
    script = Script()
    script.sent(A, NONE, "fail")
    assert kinds(script, {0: A}) == {"phantom"}


def test_a_reader_that_passes_over_an_offset() -> None:
    script = Script()
    for offset, value in LOG.items():
        script.sent(value, offset)
    script.reads("reader", (0, A), (2, C))
    assert kinds(script) == {"skipped"}


def test_a_reader_that_does_not_begin_at_the_start() -> None:
    script = Script()
    for offset, value in LOG.items():
        script.sent(value, offset)
    script.reads("reader", (1, B))
    assert kinds(script) == {"skipped"}


def test_offset_without_any_reader_may_be_skipped() -> None:
    script = Script()
    script.sent(A, 0)
    script.sent(B, 2)
    script.reads("reader", (0, A), (2, B))
    assert kinds(script, {0: A, 2: B}) == set()


@pytest.mark.parametrize("back", [0, 1])
def test_a_reader_that_goes_back(back: int) -> None:
    script = Script()
    for offset, value in LOG.items():
        script.sent(value, offset)
    script.reads("reader", (0, A), (1, B), (back, LOG[back]))
    assert "backwards" in kinds(script)


def test_a_member_that_goes_back_or_skips_without_a_rebalance() -> None:
    back = plain()
    back.polls("one", (1, B))
    assert kinds(back) == {"backwards"}
    skips = Script()
    for offset, value in LOG.items():
        skips.sent(value, offset)
    skips.add("one", "assign", "ok")
    skips.polls("one", (0, A), (3, D))
    skips.add("two", "assign", "ok")
    skips.polls("two", (0, A), (1, B), (2, C), (3, D))
    assert kinds(skips) == {"skipped"}


def test_a_member_that_gets_its_partition_again_begins_at_the_commit() -> None:
    script = plain()
    script.add("one", "revoke", "ok")
    script.add("one", "assign", "ok")
    script.polls("one", (2, C), (3, D))
    assert kinds(script) == set()


def test_the_end_goes_back_for_one_client() -> None:
    script = plain()
    script.add("watcher", "latest", "ok", offset=3)
    assert kinds(script) == {"watermark"}


def test_another_client_may_see_an_earlier_end() -> None:
    script = plain()
    script.add("another", "latest", "ok", offset=3)
    script.add("watcher", "latest", "unknown")
    assert kinds(script) == set()


def test_a_reader_is_told_that_its_position_is_not_there() -> None:
    script = plain()
    script.add("reader", "read", "fail")
    assert kinds(script) == {"unreadable"}


def test_value_that_the_group_never_read_is_an_anomaly() -> None:
    script = Script()
    for offset, value in LOG.items():
        script.sent(value, offset)
    script.add("one", "assign", "ok")
    script.polls("one", (0, A), (1, B))
    assert kinds(script) == {"unconsumed"}


def test_commit_beyond_the_read_records_is_an_anomaly() -> None:
    script = Script()
    for offset, value in LOG.items():
        script.sent(value, offset)
    script.add("one", "assign", "ok")
    script.polls("one", (0, A))
    script.commits("one", 3)
    script.polls("one", (1, B), (2, C), (3, D))
    assert kinds(script) == {"passed"}


def test_a_member_that_begins_before_an_acknowledged_commit() -> None:
    script = plain()
    script.add("one", "revoke", "ok")
    script.add("two", "assign", "ok")
    script.polls("two", (1, B), (2, C))
    assert kinds(script) == {"forgotten"}


def test_a_member_that_begins_beyond_every_commit() -> None:
    script = plain()
    script.add("one", "revoke", "ok")
    script.add("two", "assign", "ok")
    script.polls("two", (3, D))
    assert kinds(script) == {"forgotten"}


def test_a_commit_that_came_while_a_member_was_assigned_may_be_missed() -> None:
    script = plain()
    script.add("one", "revoke", "ok")
    script.add("two", "assign", "ok")
    script.commits("one", 4)
    script.polls("two", (2, C), (3, D))
    assert kinds(script) == set()


@pytest.mark.parametrize("begins", [2, 3])
def test_a_commit_without_an_answer_may_be_there_or_not(begins: int) -> None:
    script = plain()
    script.commits("one", 3, "unknown")
    script.add("one", "revoke", "ok")
    script.add("two", "assign", "ok")
    script.polls("two", *[(offset, LOG[offset]) for offset in range(begins, 4)])
    assert kinds(script) == set()


def test_the_group_is_told_less_than_was_acknowledged() -> None:
    script = plain()
    script.add("verifier", "committed", "ok", offset=1)
    assert kinds(script) == {"forgotten"}


def test_the_group_is_told_what_was_committed() -> None:
    script = plain()
    script.add("verifier", "committed", "ok", offset=2)
    assert kinds(script) == set()


# --- any history ---------------------------------------------------------------------------------


def simulate(seed: int, count: int) -> tuple[list[Op], dict[int, int]]:
    """A log and correct clients of it: (operations, the log)."""
    source = random.Random(seed)
    script, log = Script(), dict[int, int]()
    counts = dict.fromkeys(WRITERS, 0)
    positions = {"reader-1": 0, "reader-2": 0}
    member, position, committed = "", 0, 0
    for _ in range(count):
        match source.choice(("send", "read", "poll", "commit", "move", "latest")):
            case "send":
                writer = source.choice(WRITERS)
                value = value_of(writer, counts[writer])
                counts[writer] += 1
                outcome: Outcome = "ok" if source.random() < 0.7 else "unknown"
                if outcome == "ok" or source.random() < 0.5:
                    log[len(log)] = value
                script.sent(value, len(log) - 1 if outcome == "ok" else NONE, outcome)
            case "read":
                name = source.choice(list(positions))
                if positions[name] < len(log):
                    script.reads(name, (positions[name], log[positions[name]]))
                    positions[name] += 1
            case "poll" if member and position < len(log):
                script.polls(member, (position, log[position]))
                position += 1
            case "commit" if member and position > committed:
                committed = position
                script.commits(member, committed)
            case "move":
                if member:
                    script.add(member, "revoke", "ok")
                member = f"member-{len(script.ops)}"
                position = committed
                script.add(member, "assign", "ok")
            case "latest":
                script.add("watcher", "latest", "ok", offset=len(log))
    if member:
        script.polls(member, *[(offset, log[offset]) for offset in range(position, len(log))])
    return script.ops, log


HISTORIES = st.tuples(st.integers(0, 2**32), st.integers(1, 300))


@given(HISTORIES)
@settings(max_examples=200, deadline=None)
def test_simulated_sound_histories_have_no_anomaly(terms: tuple[int, int]) -> None:
    ops, log = simulate(*terms)
    assert check(Evidence(ops, {0: log})) == []


def _cut_the_end(ops: Sequence[Op], log: dict[int, int]) -> None:
    del log[max(log)]


def _repeat_one(ops: Sequence[Op], log: dict[int, int]) -> None:
    log[len(log)] = log[len(log) - 1]


def _swap_two(ops: Sequence[Op], log: dict[int, int]) -> None:
    log[0], log[1] = log[1], log[0]


PLANTED: dict[str, tuple[Callable[[Sequence[Op], dict[int, int]], None], set[str]]] = {
    "the last record is gone": (_cut_the_end, {"lost"}),
    "a record is there twice": (_repeat_one, {"duplicate"}),
    "two records have changed places": (_swap_two, {"inconsistent"}),
}


@pytest.mark.parametrize("plant", PLANTED)
@given(terms=HISTORIES)
@settings(max_examples=50, deadline=None)
def test_fault_injected_into_a_sound_history_is_found(plant: str, terms: tuple[int, int]) -> None:
    ops, log = simulate(*terms)
    told = Script()
    # Somebody must have seen the changed records.
    for number in range(2):
        log[len(log)] = value_of(7, number)
        told.sent(value_of(7, number), len(log) - 1)
    told.reads("late", *log.items())
    change, expected = PLANTED[plant]
    evidence = Evidence([*ops, *told.ops], {0: log})
    change(evidence.ops, log)
    assert expected <= {anomaly.kind for anomaly in check(evidence)}


# --- beside --------------------------------------------------------------------------------------


def test_summary_shortens_many_anomalies_of_a_kind() -> None:
    final = {0: {offset: value_of(1, 0) for offset in range(3)}}
    found = check(Evidence([], final))
    text = summary([*found * 30])
    assert "phantom: 20 more" in text
    assert len(text.splitlines()) == 22
