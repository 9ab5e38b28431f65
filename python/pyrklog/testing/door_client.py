"""The test's side of the door (:mod:`.door`): what a test may ask of its broker."""

from __future__ import annotations

import difflib
import json
import math
import re
import socket
import threading
from collections.abc import Callable, Iterable
from numbers import Real
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyrklog.errors import ErrorCode

TIMEOUT_S = 30.0
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_DURATION = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*([smhd])\s*")
Ask = Callable[..., Any]


class DoorError(Exception):
    """The broker could not do what was asked; the message says why."""


class DoorClient:
    """One side of a pair of sockets; ``descriptor`` is of the other side, for the broker."""

    def __init__(self) -> None:
        self._socket, self._other = socket.socketpair()
        self._socket.settimeout(TIMEOUT_S)
        self._received = bytearray()
        self._number = 0
        self._turn = threading.Lock()
        self.descriptor = self._other.fileno()

    def handed_over(self) -> None:
        """The broker has its side."""
        self._other.close()

    def ask(self, do: str, **fields: object) -> Any:
        """Raises :class:`DoorError`, ConnectionError if the broker has ended, TimeoutError."""
        with self._turn:
            self._number += 1
            asked = {"do": do, "number": self._number, **fields}
            self._socket.sendall(json.dumps(asked).encode() + b"\n")
            answer = self._receive()
            while answer["number"] != self._number:
                answer = self._receive()  # one that came too late
        if "error" in answer:
            raise DoorError(answer["error"])
        return answer["result"]

    def _receive(self) -> dict[str, Any]:
        while (end := self._received.find(b"\n")) < 0:
            data = self._socket.recv(1 << 16)
            if not data:
                raise ConnectionError("the broker has ended")
            self._received += data
        line = bytes(self._received[:end])
        del self._received[: end + 1]
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        self._socket.close()
        self._other.close()


class ArmedFault:
    """A fault of :class:`TestBroker` that waits for requests."""

    def __init__(self, ask: Ask, number: int) -> None:
        self._ask = ask
        self._number = number
        self._removed: int | None = None

    @property
    def fired(self) -> int:
        """How many requests it has met; 0 after its broker was started again."""
        if self._removed is not None:
            return self._removed
        return int(self._ask("fired", id=self._number))

    def cancel(self) -> None:
        """It meets no more requests."""
        if self._removed is None:
            self._removed = int(self._ask("remove", id=self._number))


class Clock:
    """The broker's time of day: timestamps that it gives, retention, expiry of offsets and
    transactions. Session time-outs of groups and waits of requests keep the machine's time."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self.ahead_s = 0.0
        """Of the machine's, in seconds."""

    def jump(
        self, seconds: float = 0, *, minutes: float = 0, hours: float = 0, days: float = 0
    ) -> None:
        """Goes ahead at once, or back, if negative; several jumps add up. Raises TypeError for what
        is no number, ValueError for one that is not finite."""
        given = {"seconds": seconds, "minutes": minutes, "hours": hours, "days": days}
        for name, value in given.items():
            _check_number(name, value)
        self._set(self.ahead_s + seconds + 60 * (minutes + 60 * (hours + 24 * days)))

    def reset(self) -> None:
        """The machine's time again."""
        self._set(0.0)

    def apply(self) -> None:
        """Tells a broker that has started again."""
        if self.ahead_s:
            self._set(self.ahead_s)

    def _set(self, ahead_s: float) -> None:
        self._ask("clock", ahead_ms=round(ahead_s * 1000))
        self.ahead_s = ahead_s


def _check_number(name: str, value: object) -> None:
    if not isinstance(value, Real):
        raise TypeError(f"{name} is {value!r}; clock.jump takes numbers{_as_numbers(value)}")
    if not math.isfinite(value):
        raise ValueError(f"{name} is {value!r}; clock.jump takes finite numbers")


def _as_numbers(text: object) -> str:
    """How to write a duration such as ``8d``."""
    found = _DURATION.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        return ": clock.jump(90), clock.jump(days=8)"
    return f": clock.jump({_UNITS[found[2]]}={found[1]})"


def api_key(api: str | int) -> int:
    """Of a name as Kafka's protocol has it, in any case. Raises ValueError."""
    from pyrklog.plane.core_plane import api_table

    known = {row.name: row.key for row in api_table()}
    if isinstance(api, int):
        if api in known.values():
            return api
        raise ValueError(f"the broker serves no API of key {api}")
    return known[_one_of(api, known, "API")]


def error_code(error: str | int) -> ErrorCode:
    """Of a name as Kafka's protocol has it, in any case. Raises ValueError."""
    from pyrklog.errors import ErrorCode

    code: ErrorCode
    if isinstance(error, int):
        code = ErrorCode(error)
    else:
        code = ErrorCode[_one_of(error, ErrorCode.__members__, "error")]
    if code is ErrorCode.NONE:
        raise ValueError("NONE is no error")
    return code


def _one_of(name: str, known: Iterable[str], what: str) -> str:
    names = {one.lower(): one for one in known}
    found = names.get(name.lower())
    if found is None:
        near = difflib.get_close_matches(name.lower(), names, n=1)
        hint = f"; did you mean {names[near[0]]}?" if near else ""
        raise ValueError(f"no {what} of Kafka's protocol is called {name!r}{hint}")
    return found
