"""Ctrl-C, or SIGTERM, while librdkafka is at work.

Its calls run callbacks of ours inside them, and a KeyboardInterrupt raised there is lost on the way
out: the call ends with a SystemError. So a Ctrl-C that comes during such a call is noted, and
raised behind it. What follows the first one (records on their way, commits, leaving a group) may
take a while; the second one ends the process at once, whatever it is doing. SIGTERM, by which
containers and service managers end a process, is the same with an exit code of its own.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, TypeVar

T = TypeVar("T")


class Terminated(KeyboardInterrupt):
    """SIGTERM."""


_DEFAULTS: dict[signal.Signals, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
}


@contextmanager
def taken_over() -> Iterator[None]:
    """Ctrl-C and SIGTERM are handled here, unless they are ignored or somebody else's already."""
    ours = threading.current_thread() is threading.main_thread()
    taken = [one for one in _DEFAULTS if ours and signal.getsignal(one) is _DEFAULTS[one]]
    for number in taken:
        signal.signal(number, held.interrupt)
    try:
        yield
    finally:
        # After the first one the system's defaults stay: what still happens can be cut short.
        for number in taken:
            if signal.getsignal(number) == held.interrupt:
                signal.signal(number, _DEFAULTS[number])


class _Held:
    """``with held:`` around a call into librdkafka on the main thread; also inside another one."""

    def __init__(self) -> None:
        self._depth = 0
        self._noted: type[KeyboardInterrupt] | None = None

    def interrupt(self, number: int, _frame: FrameType | None) -> None:
        """The handler of both signals."""
        for one in _DEFAULTS:
            if signal.getsignal(one) == self.interrupt:
                signal.signal(one, signal.SIG_DFL)
        kind = Terminated if number == signal.SIGTERM else KeyboardInterrupt
        if not self._depth:
            raise kind
        self._noted = kind

    def __enter__(self) -> None:
        self._depth += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._depth -= 1
        if self._noted is not None and not self._depth:
            kind, self._noted = self._noted, None
            raise kind


held = _Held()


def waited_for(call: Callable[[], T]) -> T:
    """What a call returns that blocks without looking for signals: Ctrl-C ends the wait for it."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:  # raised again where it is waited for
            errors.append(error)

    # A daemon: nobody waits for it after a Ctrl-C.
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
