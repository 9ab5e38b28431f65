"""Hand-made histories of transactions: each anomaly, and what looks like it but is sound."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.checker.history import (
    NONE,
    Action,
    Op,
    Outcome,
    TransactionId,
    decode_copy,
    encode_copy,
    value_of,
)
from tests.checker.transactions import Copies, Copy, Copying, check_copying

A, B, C, D = (value_of(1, count) for count in range(4))
SOURCE = {0: {0: A, 1: B, 2: C}, 1: {0: D}}
T1, T2 = "one/1/1", "one/1/2"
OTHER = "two/1/1"
HEIR = "one/2/1"

Log = dict[int, Copy]


class Script:
    """Operations in order, each at its own time."""

    def __init__(self) -> None:
        self.ops: list[Op] = []

    def add(
        self,
        client: str,
        action: Action,
        outcome: Outcome = "ok",
        partition: int = NONE,
        *,
        value: int = NONE,
        offset: int = NONE,
        note: str = "",
        transaction: str = "",
    ) -> None:
        now_ns = len(self.ops)
        op = Op(now_ns, client, action, outcome, partition, value, offset, note, transaction)
        self.ops.append(op)

    def init(self, client: str) -> None:
        self.init_asks(client)
        self.init_done(client)

    def init_asks(self, client: str) -> None:
        self.add(client, "init", "invoke", note=client.split("/")[0])

    def init_done(self, client: str) -> None:
        self.add(client, "init", "ok", note=client.split("/")[0])

    def writes(self, name: str, *values: tuple[int, int], offsets: dict[int, int]) -> None:
        """Up to its end: (partition, value) of each record."""
        self.begins(name, *values)
        self.ends(name, "send_offsets", "invoke", offsets)

    def begins(self, name: str, *values: tuple[int, int]) -> None:
        client = name.rsplit("/", 1)[0]
        self.add(client, "begin", transaction=name)
        for partition, value in values:
            self.add(client, "send", "invoke", partition, value=value, transaction=name)

    def ends(
        self, name: str, action: Action, outcome: Outcome, offsets: dict[int, int] | None = None
    ) -> None:
        client = name.rsplit("/", 1)[0]
        for partition, offset in (offsets or {NONE: NONE}).items():
            self.add(client, action, outcome, partition, offset=offset, transaction=name)

    def commits(self, name: str, outcome: Outcome = "ok") -> None:
        self.ends(name, "commit_transaction", "invoke")
        if outcome != "invoke":
            self.ends(name, "commit_transaction", outcome)

    def aborts(self, name: str) -> None:
        self.ends(name, "abort_transaction", "invoke")
        self.ends(name, "abort_transaction", "ok")

    def reads(self, client: str, partition: int, log: Log) -> None:
        for offset, (value, name) in log.items():
            self.add(client, "read", "ok", partition, value=value, offset=offset, transaction=name)

    def is_stable(self, client: str, partition: int, offset: int) -> None:
        self.add(client, "stable", "ok", partition, offset=offset)


FIRST: Log = {0: Copy(A, T1), 1: Copy(B, T1)}
"""A marker follows at 2."""
SECOND: Log = {3: Copy(C, T2)}
ASIDE: Log = {0: Copy(D, T1)}


def plain() -> Script:
    """Two transactions, which copy A, B, D and C; a reader of the first partition."""
    script = Script()
    script.init("one/1")
    script.writes(T1, (0, A), (0, B), (1, D), offsets={0: 2, 1: 1})
    script.commits(T1)
    script.reads("reader", 0, FIRST)
    script.is_stable("reader", 0, 3)
    script.writes(T2, (0, C), offsets={0: 3})
    script.commits(T2)
    script.reads("reader", 0, SECOND)
    script.is_stable("reader", 0, 5)
    script.add("watcher", "committed", "ok", 0, offset=3)
    return script


def first_alone() -> Script:
    """Copies A, B and D. It is up to the test how that ends."""
    script = Script()
    script.init("one/1")
    script.writes(T1, (0, A), (0, B), (1, D), offsets={0: 2, 1: 1})
    return script


WHOLE: Copies = {0: FIRST | SECOND, 1: ASIDE}
ONLY_FIRST: Copies = {0: FIRST, 1: ASIDE}
NOTHING: Copies = {0: {}, 1: {}}


def kinds(
    script: Script,
    committed: Copies = WHOLE,
    *,
    raw: Copies | None = None,
    offsets: dict[int, int] | None = None,
) -> set[str]:
    found = Copying(
        script.ops,
        SOURCE,
        committed,
        raw or committed,
        {0: 3, 1: 1} if offsets is None else offsets,
    )
    return {anomaly.kind for anomaly in check_copying(found)}


def test_sound_history_has_no_anomaly() -> None:
    assert kinds(plain()) == set()


def test_records_of_a_transaction_name_it() -> None:
    content = encode_copy(B, T2)
    assert decode_copy(content) == (B, T2)
    assert decode_copy(b"%d padding" % B) == (B, "")
    assert decode_copy(None) == (NONE, "")
    assert str(TransactionId.parse("a/b/7/3")) == "a/b/7/3"
    assert TransactionId.parse("a/b/7/3") == TransactionId("a/b", 7, 3)


# --- lost and torn writes ------------------------------------------------------------------------


def test_a_record_of_a_committed_transaction_is_gone() -> None:
    assert kinds(plain(), {0: FIRST | SECOND, 1: {}}) == {"lost_write", "ahead"}


@pytest.mark.parametrize("outcome", ["invoke", "unknown"])
def test_a_commit_without_an_answer_may_be_there_or_not(outcome: Outcome) -> None:
    script = first_alone()
    script.commits(T1, outcome)
    assert kinds(script, NOTHING, offsets={}) == set()
    assert kinds(script, ONLY_FIRST, offsets={0: 2, 1: 1}) == set()


def test_a_commit_without_an_answer_is_not_there_in_part() -> None:
    script = first_alone()
    script.commits(T1, "unknown")
    assert kinds(script, {0: FIRST, 1: {}}, offsets={0: 2}) == {"torn"}
    assert kinds(script, {0: {0: Copy(A, T1)}, 1: ASIDE}, offsets={0: 1, 1: 1}) == {"torn"}


def test_what_a_reader_saw_is_gone() -> None:
    script = first_alone()
    script.commits(T1, "unknown")
    script.reads("reader", 0, FIRST)
    assert kinds(script, NOTHING, raw=ONLY_FIRST, offsets={}) == {"lost_write"}
    assert kinds(script, ONLY_FIRST, offsets={0: 2, 1: 1}) == set()


# --- G1a -----------------------------------------------------------------------------------------


def test_a_record_of_an_aborted_transaction_is_read() -> None:
    script = first_alone()
    script.aborts(T1)
    assert kinds(script, NOTHING, raw=ONLY_FIRST, offsets={}) == set()
    assert "aborted_read" in kinds(script, ONLY_FIRST, offsets={0: 2, 1: 1})


def test_a_record_of_a_transaction_whose_commit_failed_is_read() -> None:
    script = first_alone()
    script.commits(T1, "fail")
    assert kinds(script, NOTHING, raw=ONLY_FIRST, offsets={}) == set()
    assert "aborted_read" in kinds(script, ONLY_FIRST, offsets={0: 2, 1: 1})


def test_a_record_of_a_transaction_that_nobody_ended_is_read() -> None:
    script = first_alone()
    assert kinds(script, NOTHING, raw=ONLY_FIRST, offsets={}) == set()
    assert "aborted_read" in kinds(script, ONLY_FIRST, offsets={0: 2, 1: 1})


def test_a_record_is_read_before_its_commit() -> None:
    script = first_alone()
    script.reads("reader", 0, FIRST)
    script.commits(T1)
    assert kinds(script, ONLY_FIRST, offsets={0: 2, 1: 1}) == {"aborted_read"}


def test_a_record_is_read_before_its_commit_is_answered() -> None:
    script = first_alone()
    script.ends(T1, "commit_transaction", "invoke")
    script.reads("reader", 0, FIRST)
    script.ends(T1, "commit_transaction", "ok")
    assert kinds(script, ONLY_FIRST, offsets={0: 2, 1: 1}) == set()


# --- G1b -----------------------------------------------------------------------------------------


def test_a_reader_at_a_stable_offset_has_half_of_a_transaction() -> None:
    script = first_alone()
    script.commits(T1)
    script.reads("reader", 0, {0: Copy(A, T1)})
    script.is_stable("reader", 0, 1)
    script.reads("reader", 0, {1: Copy(B, T1)})
    assert kinds(script, ONLY_FIRST, offsets={0: 2, 1: 1}) == {"intermediate_read"}


def test_a_reader_that_is_not_at_a_stable_offset_may_have_half_of_a_transaction() -> None:
    script = first_alone()
    script.commits(T1)
    script.reads("reader", 0, {0: Copy(A, T1)})
    script.is_stable("reader", 1, 0)
    script.reads("reader", 0, {1: Copy(B, T1)})
    script.is_stable("reader", 0, 3)
    assert kinds(script, ONLY_FIRST, offsets={0: 2, 1: 1}) == set()


@pytest.mark.parametrize(
    ("stable", "found"), [(1, set()), (2, {"intermediate_read"}), (4, {"intermediate_read"})]
)
def test_an_open_transaction_may_part_another_one(stable: int, found: set[str]) -> None:
    """Its first record, at 1, is the last stable offset while it is open, and at no other time."""
    script = first_alone()
    script.begins(OTHER, (0, C))
    script.commits(T1)
    log = {0: {0: Copy(A, T1), 2: Copy(B, T1)}, 1: ASIDE}
    raw = {0: {**log[0], 1: Copy(C, OTHER)}, 1: ASIDE}
    script.reads("reader", 0, {0: Copy(A, T1)})
    script.is_stable("reader", 0, stable)
    script.reads("reader", 0, {2: Copy(B, T1)})
    assert kinds(script, log, raw=raw, offsets={0: 2, 1: 1}) == found


# --- G0 ------------------------------------------------------------------------------------------


def test_a_transaction_writes_behind_one_that_began_after_its_end() -> None:
    script = plain()
    late = {0: {3: Copy(A, T1), 4: Copy(B, T1), 1: Copy(C, T2)}, 1: ASIDE}
    ops = [op for op in script.ops if op.action != "read" and op.action != "stable"]
    script.ops = ops
    assert "dirty_write" in kinds(script, late)


def test_open_transactions_may_write_in_any_order() -> None:
    script = first_alone()
    script.init("two/1")
    script.begins(OTHER, (0, C))
    script.commits(T1)
    script.aborts(OTHER)
    raw = {0: {0: Copy(A, T1), 1: Copy(C, OTHER), 2: Copy(B, T1)}, 1: ASIDE}
    log = {0: {0: Copy(A, T1), 2: Copy(B, T1)}, 1: ASIDE}
    assert kinds(script, log, raw=raw, offsets={0: 2, 1: 1}) == set()


def test_a_fenced_producer_writes_behind_its_successor() -> None:
    """Although its record is never read: it would hold up the last stable offset."""
    script = Script()
    script.init("one/1")
    script.begins(T1, (0, A))
    script.init("one/2")
    script.writes(HEIR, (0, A), offsets={0: 1})
    script.commits(HEIR)
    log = {0: {1: Copy(A, HEIR)}, 1: {}}
    before = {0: {**log[0], 0: Copy(A, T1)}, 1: {}}
    behind = {0: {**log[0], 2: Copy(A, T1)}, 1: {}}
    assert kinds(script, log, raw=before, offsets={0: 1}) == set()
    assert kinds(script, log, raw=behind, offsets={0: 1}) == {"dirty_write"}


def test_producers_that_come_at_the_same_time_may_fence_each_other_in_any_order() -> None:
    script = Script()
    script.init_asks("one/1")
    script.init_asks("one/2")
    script.init_done("one/2")
    script.init_done("one/1")
    script.writes(HEIR, (0, A), offsets={0: 1})
    script.writes(T1, (0, B), offsets={0: 2})
    script.commits(HEIR)
    raw = {0: {0: Copy(B, T1), 1: Copy(A, HEIR)}, 1: {}}
    log = {0: {1: Copy(A, HEIR)}, 1: {}}
    assert kinds(script, log, raw=raw, offsets={0: 1}) == set()


# --- copies --------------------------------------------------------------------------------------


def test_a_record_is_copied_by_two_transactions() -> None:
    script = first_alone()
    script.commits(T1)
    script.init("two/1")
    script.writes(OTHER, (0, B), offsets={0: 2})
    script.commits(OTHER)
    twice = {0: {**FIRST, 3: Copy(B, OTHER)}, 1: ASIDE}
    assert kinds(script, twice, offsets={0: 2, 1: 1}) == {"duplicate"}


def test_a_record_is_there_twice_in_its_transaction() -> None:
    script = first_alone()
    script.commits(T1)
    twice = {0: {**FIRST, 2: Copy(B, T1)}, 1: ASIDE}
    assert kinds(script, twice, offsets={0: 2, 1: 1}) == {"duplicate"}


def test_a_record_may_be_written_again_after_an_abort() -> None:
    script = first_alone()
    script.aborts(T1)
    script.writes(T2, (0, A), (0, B), offsets={0: 2})
    script.commits(T2)
    log = {0: {3: Copy(A, T2), 4: Copy(B, T2)}, 1: {}}
    raw = {0: {**FIRST, **log[0]}, 1: ASIDE}
    assert kinds(script, log, raw=raw, offsets={0: 2}) == set()


def test_copies_in_another_order_than_the_input() -> None:
    script = first_alone()
    script.commits(T1)
    swapped = {0: {0: Copy(B, T1), 1: Copy(A, T1)}, 1: ASIDE}
    assert kinds(script, swapped, offsets={0: 2, 1: 1}) == {"reordered"}


def test_copies_of_two_partitions_have_no_order_and_may_be_equal() -> None:
    script = Script()
    script.init("one/1")
    script.writes(T1, (1, A), (0, A), offsets={1: 1, 0: 1})
    script.commits(T1)
    log = {0: {5: Copy(A, T1)}, 1: {0: Copy(A, T1)}}
    sound = Copying(script.ops, {0: {0: A}, 1: {0: A}}, log, log, {0: 1, 1: 1})
    assert check_copying(sound) == []


@pytest.mark.parametrize(
    "stranger", [Copy(C, T1), Copy(D, T1), Copy(C, "nobody/1/1"), Copy(NONE, "")]
)
def test_a_record_that_nobody_wrote_there(stranger: Copy) -> None:
    script = first_alone()
    script.commits(T1)
    log = {0: {**FIRST, 2: stranger}, 1: ASIDE}
    assert "phantom" in kinds(script, log, offsets={0: 3, 1: 1})


def test_a_copy_of_nothing() -> None:
    script = Script()
    script.init("one/1")
    script.writes(T1, (1, A), offsets={})
    script.commits(T1)
    assert kinds(script, {0: {}, 1: {0: Copy(A, T1)}}, offsets={}) == {"phantom"}


# --- the group's offsets -------------------------------------------------------------------------


def test_the_offset_is_ahead_of_the_output() -> None:
    script = first_alone()
    script.commits(T1)
    assert kinds(script, ONLY_FIRST, offsets={0: 3, 1: 1}) == {"ahead"}
    assert kinds(script, ONLY_FIRST, offsets={0: 2, 1: 1}) == set()


def test_the_offset_is_there_and_the_output_is_not() -> None:
    script = first_alone()
    script.commits(T1, "unknown")
    assert kinds(script, NOTHING, offsets={0: 2, 1: 1}) == {"ahead"}


def test_the_offset_is_behind_the_output() -> None:
    script = first_alone()
    script.commits(T1, "unknown")
    assert kinds(script, ONLY_FIRST, offsets={0: 1, 1: 1}) == {"behind"}
    assert kinds(script, ONLY_FIRST, offsets={}) == {"behind"}


def test_a_committed_offset_is_forgotten() -> None:
    """Without a record, as when all of a batch was filtered out."""
    script = Script()
    script.init("one/1")
    script.writes(T1, offsets={0: 1})
    script.commits(T1)
    assert kinds(script, NOTHING, offsets={}) == {"behind"}


@pytest.mark.parametrize("end", ["abort", "nothing", "commit later"])
def test_an_offset_is_told_that_nobody_has_committed(end: str) -> None:
    script = first_alone()
    if end == "abort":
        script.aborts(T1)
    script.add("watcher", "committed", "ok", 0, offset=2)
    log, offsets = NOTHING, dict[int, int]()
    if end == "commit later":
        script.commits(T1)
        log, offsets = ONLY_FIRST, {0: 2, 1: 1}
    assert kinds(script, log, raw=ONLY_FIRST, offsets=offsets) == {"ahead"}


def test_an_offset_is_told_while_its_commit_is_not_answered() -> None:
    script = first_alone()
    script.add("watcher", "committed", "ok", 0, offset=-1001)
    script.ends(T1, "commit_transaction", "invoke")
    script.add("watcher", "committed", "ok", 0, offset=2)
    assert kinds(script, ONLY_FIRST, offsets={0: 2, 1: 1}) == set()


# --- readers -------------------------------------------------------------------------------------


def test_a_reader_skips_a_committed_record_or_goes_back() -> None:
    script = plain()
    script.reads("another", 0, SECOND)
    assert kinds(script) == {"skipped"}
    script = plain()
    script.reads("reader", 0, SECOND)
    assert kinds(script) == {"backwards"}


def test_a_reader_skips_an_aborted_record() -> None:
    script = plain()
    script.begins("one/1/3", (0, A))
    script.aborts("one/1/3")
    script.reads("another", 0, FIRST | SECOND)
    raw = {0: {**FIRST, 2: Copy(A, "one/1/3"), **SECOND}, 1: ASIDE}
    # That it was written behind the second one is another matter.
    assert kinds(script, raw=raw) == {"dirty_write"}


def test_a_reader_has_another_record_at_an_offset() -> None:
    script = plain()
    script.reads("another", 0, {0: Copy(B, T1)})
    assert "inconsistent" in kinds(script)


def test_a_reader_is_told_that_its_position_is_not_there() -> None:
    script = plain()
    script.add("reader", "read", "fail", 0)
    assert kinds(script) == {"unreadable"}


# --- any history ---------------------------------------------------------------------------------


class Simulated:
    """Two producers that copy two partitions in turns, some of which die; and a reader."""

    def __init__(self, seed: int, count: int) -> None:
        self._chance = random.Random(seed)
        self._script = Script()
        self._source = {p: {at: value_of(p + 1, at) for at in range(count)} for p in (0, 1)}
        self._logs: list[dict[int, Copy]] = [{}, {}]
        self._ends = [0, 0]
        self._committed: set[str] = set()
        self._offsets = {0: 0, 1: 0}
        self._positions = [0, 0]
        self._lives = {"one": 0, "two": 0}
        self._numbers = {"one": 0, "two": 0}
        for name in self._lives:
            self._dies(name)
        for _ in range(count):
            self._step(self._chance.choice(list(self._lives)))
        for partition in (0, 1):
            self._read(partition)
        committed = {
            p: {at: copy for at, copy in log.items() if copy.transaction in self._committed}
            for p, log in enumerate(self._logs)
        }
        raw = dict(enumerate(self._logs))
        self.copying = Copying(self._script.ops, self._source, committed, raw, self._offsets)

    def _dies(self, name: str) -> None:
        self._lives[name] += 1
        self._script.init(f"{name}/{self._lives[name]}")

    def _step(self, name: str) -> None:
        self._numbers[name] += 1
        transaction = str(TransactionId(name, self._lives[name], self._numbers[name]))
        self._script.begins(transaction)
        offsets = {}
        for partition in (0, 1):
            start = self._offsets[partition]
            offsets[partition] = start + self._chance.randrange(3)
            for place in range(start, offsets[partition]):
                self._write(transaction, partition, self._source[partition].get(place))
            offsets[partition] = min(offsets[partition], len(self._source[partition]))
        self._end(name, transaction, offsets)
        for partition in (0, 1):
            self._ends[partition] += 1  # a marker
            if self._chance.random() < 0.3:
                self._read(partition)

    def _write(self, transaction: str, partition: int, value: int | None) -> None:
        if value is None:
            return
        client = transaction.rsplit("/", 1)[0]
        self._script.add(client, "send", "invoke", partition, value=value, transaction=transaction)
        self._logs[partition][self._ends[partition]] = Copy(value, transaction)
        self._ends[partition] += 1

    def _end(self, name: str, transaction: str, offsets: dict[int, int]) -> None:
        match self._chance.choice(["commit", "commit", "abort", "dies", "dies in its commit"]):
            case "abort":
                self._script.aborts(transaction)
                return
            case "dies":
                self._dies(name)
                return
            case end:
                self._script.ends(transaction, "send_offsets", "invoke", offsets)
                self._script.commits(transaction, "ok" if end == "commit" else "invoke")
                if end == "commit" or self._chance.random() < 0.5:
                    self._committed.add(transaction)
                    self._offsets = {**self._offsets, **offsets}
                if end != "commit":
                    self._dies(name)

    def _read(self, partition: int) -> None:
        for offset in range(self._positions[partition], self._ends[partition]):
            copy = self._logs[partition].get(offset)
            if copy is not None and copy.transaction in self._committed:
                self._script.reads("reader", partition, {offset: copy})
        self._positions[partition] = self._ends[partition]
        self._script.is_stable("reader", partition, self._ends[partition])


HISTORIES = st.tuples(st.integers(0, 2**32), st.integers(1, 60))


@given(HISTORIES)
@settings(max_examples=100, deadline=None)
def test_simulated_sound_histories_have_no_anomaly(terms: tuple[int, int]) -> None:
    assert check_copying(Simulated(*terms).copying) == []


def _show_aborted(found: Copying) -> Copying:
    return replace(found, committed=found.raw)


def _lose_the_last(found: Copying) -> Copying:
    logs = {p: dict(log) for p, log in found.committed.items()}
    log = logs[0] or logs[1]
    del log[max(log)]
    return replace(found, committed=logs)


def _offsets_from_before(found: Copying) -> Copying:
    return replace(found, offsets={p: max(0, at - 1) for p, at in found.offsets.items()})


PLANTED: dict[str, tuple[Callable[[Copying], Copying], str]] = {
    "readers see aborted records": (_show_aborted, "aborted_read"),
    "a committed record is gone": (_lose_the_last, "lost_write"),
    "the offsets are old ones": (_offsets_from_before, "behind"),
}


@pytest.mark.parametrize("plant", PLANTED)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_fault_injected_into_a_sound_history_is_found(plant: str, seed: int) -> None:
    change, kind = PLANTED[plant]
    changed = change(Simulated(seed, 60).copying)
    assert kind in {anomaly.kind for anomaly in check_copying(changed)}
