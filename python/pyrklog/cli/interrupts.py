"""Ctrl-C and SIGTERM during calls of librdkafka.

A KeyboardInterrupt in one of our callbacks is lost: the call ends with a SystemError. So a Ctrl-C
during such a call is raised after it. The orderly end (sending records, committing, leaving a
group) may take a while; a second Ctrl-C ends the process at once. SIGTERM differs only in the exit
code.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
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
    """Handles Ctrl-C and SIGTERM here, unless they are ignored or have another handler."""
    ours = threading.current_thread() is threading.main_thread()
    taken = [one for one in _DEFAULTS if ours and signal.getsignal(one) is _DEFAULTS[one]]
    for number in taken:
        signal.signal(number, held.interrupt)
    try:
        yield
    finally:
        # After the first signal the system's defaults stay, so that a second one ends the process.
        for number in taken:
            if signal.getsignal(number) == held.interrupt:
                signal.signal(number, _DEFAULTS[number])


class _Held:
    """``with held:`` goes around calls into librdkafka on the main thread; it may be nested."""

    def __init__(self) -> None:
        self._depth = 0
        self._noted: type[KeyboardInterrupt] | None = None

    @property
    def is_interrupted(self) -> bool:
        """Whether a Ctrl-C waits for the end of the call."""
        return self._noted is not None

    def interrupt(self, number: int, _frame: FrameType | None) -> None:
        for one in _DEFAULTS:
            if signal.getsignal(one) == self.interrupt:
                signal.signal(one, signal.SIG_DFL)
        kind = Terminated if number == signal.SIGTERM else KeyboardInterrupt
        if not self._depth:
            raise kind
        self._noted = kind

    def __enter__(self) -> None:
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._noted is not None and not self._depth:
            noted, self._noted = self._noted, None
            raise noted


held = _Held()


def waited_for(call: Callable[[], T]) -> T:
    """The result of a blocking call that ignores signals. Ctrl-C ends the wait."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:  # raised again by the waiting thread
            errors.append(error)

    # A daemon, since nothing waits for it after a Ctrl-C.
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
