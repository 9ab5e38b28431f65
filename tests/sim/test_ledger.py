"""The ledger of transactional clients: what may be read, and what must be."""

from collections.abc import Callable

import pytest

from tests.sim.transactions.ledger import Ledger, Reading, Record


class Broken(Exception):
    """What the ledger finds."""


def _raise(what: str) -> None:
    raise Broken(what)


def made() -> tuple[Ledger, Reading]:
    ledger = Ledger(_raise, lambda _line: None)
    return ledger, Reading(ledger, "reader", 0)


def commit(ledger: Ledger, number: int, records: int = 2) -> Record:
    attempt = ledger.begin("one", number)
    attempt.records = [(0, place) for place in range(records)]
    attempt.is_committing = True
    ledger.ended(attempt, commit=True)
    return Record(attempt.serial, 0)


def test_whole_transactions_in_order_are_right() -> None:
    ledger, reading = made()
    for number in (1, 2):
        first = commit(ledger, number)
        reading.take(first)
        reading.take(first._replace(place=1))
    ledger.offset_seen("one", 2)
    ledger.conclude({"one": 2}, [reading])


def reads_what_nobody_committed(ledger: Ledger, reading: Reading) -> None:
    reading.take(Record(ledger.begin("one", 1).serial, 0))


def reads_two_attempts_of_a_number(ledger: Ledger, reading: Reading) -> None:
    reading.take(commit(ledger, 1))
    again = ledger.begin("one", 1)
    again.is_committing = True
    reading.take(Record(again.serial, 0))


def reads_backwards(ledger: Ledger, reading: Reading) -> None:
    first = commit(ledger, 1)
    reading.take(commit(ledger, 2))
    reading.take(first)


def reads_twice(ledger: Ledger, reading: Reading) -> None:
    first = commit(ledger, 1)
    reading.take(first)
    reading.take(first)


def sees_an_offset_too_early(ledger: Ledger, _reading: Reading) -> None:
    ledger.begin("one", 1)
    ledger.offset_seen("one", 1)


def misses_a_record(ledger: Ledger, reading: Reading) -> None:
    reading.take(commit(ledger, 1))
    ledger.conclude({"one": 1}, [reading])


def misses_a_transaction(ledger: Ledger, reading: Reading) -> None:
    commit(ledger, 1)
    ledger.conclude({"one": 0}, [reading])


def reads_beyond_the_offset(ledger: Ledger, reading: Reading) -> None:
    attempt = ledger.begin("one", 1)
    attempt.is_committing = True
    reading.take(Record(attempt.serial, 0))
    ledger.conclude({"one": 0}, [reading])


def finds_an_offset_without_records(ledger: Ledger, reading: Reading) -> None:
    ledger.conclude({"one": 1}, [reading])


@pytest.mark.parametrize(
    "wrong",
    [
        reads_what_nobody_committed,
        reads_two_attempts_of_a_number,
        reads_backwards,
        reads_twice,
        sees_an_offset_too_early,
        misses_a_record,
        misses_a_transaction,
        reads_beyond_the_offset,
        finds_an_offset_without_records,
    ],
)
def test_anomalies_are_found(wrong: Callable[[Ledger, Reading], None]) -> None:
    with pytest.raises(Broken):
        wrong(*made())
