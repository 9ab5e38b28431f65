"""Requests that wait for an id that changes, and what results become."""

from __future__ import annotations

from typing import Any

import pytest

from pyrklog.base.pending import Pending, answered, then
from pyrklog.transactions.holds import HOLD_SECONDS, Holds


class Ids:
    """Ids that change, and the requests that wait for them."""

    def __init__(self) -> None:
        self.changing: set[Any] = set()
        self.holds = Holds(lambda one: one in self.changing)
        self.told: list[tuple[Any, int, bool]] = []
        self.now = 100.0

    def hold(self, machine: Any, request: int, *, changes: bool = True) -> Pending[bool]:
        held = self.holds.hold(machine, self.now)

        def go_on() -> None:
            self.told.append((machine, request, held.take()))
            if changes:
                self.changing.add(machine)
            else:
                self.holds.release(machine)

        held.when_done(go_on)
        return held

    def pass_seconds(self, seconds: float) -> None:
        self.now += seconds
        self.holds.end_due(self.now)

    def settle(self, machine: Any) -> None:
        self.changing.discard(machine)
        self.holds.release(machine)


def test_requests_go_on_one_by_one_in_order() -> None:
    ids = Ids()
    ids.changing |= {"a", "b"}
    for request in range(3):
        ids.hold("a", request)
    ids.hold("b", 9)
    ids.settle("a")
    assert ids.told == [("a", 0, True)]
    ids.settle("a")
    ids.settle("b")
    ids.settle("a")
    assert ids.told[1:] == [("a", 1, True), ("b", 9, True), ("a", 2, True)]
    ids.settle("a")
    assert len(ids.told) == 4


def test_requests_that_change_nothing_hold_up_no_others() -> None:
    ids = Ids()
    ids.changing.add("a")
    for request in range(5_000):
        ids.hold("a", request, changes=False)
    ids.settle("a")
    assert [request for _, request, _ in ids.told] == list(range(5_000))


def test_a_request_waits_for_a_limited_time() -> None:
    ids = Ids()
    ids.changing |= {"a", "b"}
    assert ids.holds.next_end() is None
    ids.hold("a", 1)
    ids.pass_seconds(HOLD_SECONDS / 2)
    ids.hold("b", 2)
    ids.hold("a", 3).abandon()
    ids.hold("a", 4)
    assert ids.holds.next_end() == ids.now + HOLD_SECONDS / 2
    ids.pass_seconds(HOLD_SECONDS / 2 - 0.01)
    assert ids.told == []
    ids.pass_seconds(0.01)
    assert ids.told == [("a", 1, False)]
    ids.pass_seconds(HOLD_SECONDS / 2)
    assert ids.told[1:] == [("b", 2, False), ("a", 4, False)]
    assert ids.holds.next_end() is None
    assert ids.holds._of == {}


def test_an_abandoned_request_does_not_go_on() -> None:
    ids = Ids()
    ids.changing.add("a")
    ids.hold("a", 1).abandon()
    ids.hold("a", 2)
    ids.settle("a")
    assert ids.told == [("a", 2, True)]


async def test_a_result_becomes_another_one() -> None:
    first: Pending[int] = Pending()
    second: Pending[str] = Pending()
    last: Pending[str] = then(first, lambda _: second)
    first.answer(1)
    assert last.result is None
    second.answer("done")
    assert await last == "done"
    assert await then(answered(2), lambda number: number + 1) == 3


@pytest.mark.parametrize("where", ["first", "step", "second"])
async def test_a_failure_reaches_the_one_who_waits(where: str) -> None:
    first: Pending[int] = Pending()
    second: Pending[int] = Pending()

    def step(number: int) -> Pending[int]:
        if where == "step":
            raise RuntimeError("planted")
        return second

    last: Pending[int] = then(first, step)
    if where == "first":
        first.fail(RuntimeError("planted"))
    else:
        first.answer(1)
    if where == "second":
        second.fail(RuntimeError("planted"))
    with pytest.raises(RuntimeError, match="planted"):
        await last


@pytest.mark.parametrize("is_second", [False, True])
async def test_giving_up_reaches_what_is_waited_for(is_second: bool) -> None:
    given_up = []
    first: Pending[int] = Pending(lambda: given_up.append("first"))
    second: Pending[int] = Pending(lambda: given_up.append("second"))
    last: Pending[int] = then(first, lambda _: second)
    if is_second:
        first.answer(1)
    last.abandon()
    assert given_up == ["second" if is_second else "first"]
