"""The faults of one broker that are to come, and which of them meets a request. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

TOOLS_CLIENT_ID = "pyrklog-testing"
"""Of the requests of :class:`TestBroker` itself: no fault meets them."""

FaultKind = Literal["fail", "delay", "disconnect"]


@dataclass
class Fault:
    """``fail`` answers with ``error_code``; ``delay`` holds the answer back; ``disconnect`` closes
    the connection: before the request reaches the broker or, with ``after``, instead of its
    answer."""

    kind: FaultKind
    api_key: int | None
    """None: any."""
    times_left: int | None
    """None: until it is taken back."""
    client_id: str | None = None
    """None: any."""
    error_code: int = 0
    delay_ms: int = 0
    after: bool = False
    fired: int = 0

    def meets(self, api_key: int, client_id: str) -> bool:
        return (
            self.times_left != 0
            and self.api_key in (None, api_key)
            and self.client_id in (None, client_id)
        )


class Verdict(NamedTuple):
    """What is to happen to a request: at most one fault that ends it, after all delays."""

    delay_ms: int
    end: Fault | None


class Faults:
    def __init__(self, on_fired: Callable[[Fault, int, str], None]) -> None:
        """``on_fired`` hears of each fault, API key and client id."""
        self._on_fired = on_fired
        self._faults: dict[int, Fault] = {}

    def add(self, number: int, fault: Fault) -> None:
        """Faults meet requests in the order in which they were added. ``number`` is a new one."""
        self._faults[number] = fault

    def remove(self, number: int) -> int:
        """Returns how many requests it has met; an unknown one: 0."""
        fault = self._faults.pop(number, None)
        return 0 if fault is None else fault.fired

    def clear(self) -> None:
        self._faults.clear()

    def fired(self, number: int) -> int:
        """How many requests it has met."""
        fault = self._faults.get(number)
        return 0 if fault is None else fault.fired

    def take(self, api_key: int, client_id: str) -> Verdict | None:
        """Counts the faults that meet a request; None: none does."""
        if not self._faults or client_id == TOOLS_CLIENT_ID:
            return None
        met = [one for one in self._faults.values() if one.meets(api_key, client_id)]
        delays = [one for one in met if one.kind == "delay"]
        end = next((one for one in met if one.kind != "delay"), None)
        for fault in [*delays, *([] if end is None else [end])]:
            self._count(fault, api_key, client_id)
        return Verdict(sum(one.delay_ms for one in delays), end) if delays or end else None

    def _count(self, fault: Fault, api_key: int, client_id: str) -> None:
        fault.fired += 1
        if fault.times_left is not None:
            fault.times_left -= 1
        self._on_fired(fault, api_key, client_id)

    def give_back(self, fault: Fault) -> None:
        """It met a request that it cannot end; it waits for another one."""
        fault.fired -= 1
        if fault.times_left is not None:
            fault.times_left += 1
