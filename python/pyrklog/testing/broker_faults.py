"""Faults of a :class:`TestBroker`."""

from __future__ import annotations

import dataclasses
import itertools
from abc import ABC, abstractmethod
from typing import Any

from pyrklog.testing.door_client import ArmedFault, Clock, api_key, error_code
from pyrklog.testing.faults import Fault


class BrokerFaults(ABC):
    """What a test may do to the requests of its broker's clients.

    Names of APIs and errors are those of Kafka's protocol (``"Produce"``,
    ``"NOT_LEADER_OR_FOLLOWER"``). With ``client_id`` only requests of clients of this id count.
    Faults end with the broker's process. All raise RuntimeError without a running broker, or
    without a door.
    """

    def __init__(self) -> None:
        self._fault_numbers = itertools.count(1)
        self._is_touched = False
        """A fault was added, or the clock set, since the last :meth:`clear_faults`."""
        self.clock = Clock(self._touch)
        """The broker's time of day."""

    def fail_next(
        self, api: str | int, error: str | int, times: int = 1, *, client_id: str | None = None
    ) -> ArmedFault:
        """Answers the next ``times`` requests of an API with an error in every part.

        They do not reach the broker (Metadata and ApiVersions do: their answers are changed). A
        Produce with ``acks=0`` has its connection closed, as by Kafka.
        """
        code = error_code(error)
        fault = Fault("fail", api_key(api), times, client_id, error_code=int(code))
        return self._add(fault)

    def delay(
        self,
        api: str | int,
        ms: int,
        times: int | None = None,
        *,
        client_id: str | None = None,
    ) -> ArmedFault:
        """Holds the answers of an API back by ``ms`` milliseconds, and later answers of the same
        connections with them; ``times`` None: until ``cancel()`` or ``clear_faults()``."""
        if ms < 0:
            raise ValueError(f"a delay of {ms} ms")
        return self._add(Fault("delay", api_key(api), times, client_id, delay_ms=ms))

    def disconnect(
        self,
        api: str | int | None = None,
        times: int = 1,
        *,
        after: bool = False,
        client_id: str | None = None,
    ) -> ArmedFault | None:
        """Closes connections: without an API all of them, now.

        With an API, that of each of the next ``times`` requests: before the broker gets the
        request, or ``after`` it was carried out, so that only the answer is lost.
        """
        if api is None:
            if after or client_id is not None or times != 1:
                raise ValueError("without an API, all connections are closed at once")
            self._touch("cut")
            return None
        return self._add(Fault("disconnect", api_key(api), times, client_id, after=after))

    def clear_faults(self) -> None:
        """Takes back all faults, and sets the clock right."""
        if self._is_touched and self._is_open:
            self._ask("clear")
            if self.clock.ahead_s:
                self.clock.reset()
        self.clock.ahead_s = 0.0
        self._is_touched = False

    def _add(self, fault: Fault) -> ArmedFault:
        if fault.times_left is not None and fault.times_left < 1:
            raise ValueError(f"{fault.times_left} times")
        # Never one of an earlier process.
        number = next(self._fault_numbers)
        self._touch("add", id=number, fault=dataclasses.asdict(fault))
        return ArmedFault(self._ask, number)

    def _touch(self, do: str, **fields: object) -> Any:
        self._is_touched = True
        return self._ask(do, **fields)

    @property
    @abstractmethod
    def _is_open(self) -> bool:
        """Whether a broker runs that has a door."""

    @abstractmethod
    def _ask(self, do: str, **fields: object) -> Any:
        """Asks the door."""
