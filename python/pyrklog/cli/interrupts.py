"""Ctrl-C while librdkafka is at work.

Its calls run callbacks of ours inside them, and a KeyboardInterrupt raised there is lost on the way
out: the call ends with a SystemError. So a Ctrl-C that comes during such a call is noted, and
raised behind it. What follows the first one (records on their way, commits, leaving a group) may
take a while; the second one ends the process at once, whatever it is doing.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def taken_over() -> Iterator[None]:
    """Ctrl-C is handled here, unless it is ignored or somebody else's already."""
    number = signal.SIGINT
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(number) is not signal.default_int_handler:
        yield
        return
    signal.signal(number, held.interrupt)
    try:
        yield
    finally:
        # After a Ctrl-C its default stays: what still happens until the end can be cut short.
        if signal.getsignal(number) == held.interrupt:
            signal.signal(number, signal.default_int_handler)


class _Held:
    """``with held:`` around a call into librdkafka on the main thread; also inside another one."""

    def __init__(self) -> None:
        self._depth = 0
        self._is_noted = False

    def interrupt(self, number: int, _frame: FrameType | None) -> None:
        """The signal's handler."""
        signal.signal(number, signal.SIG_DFL)
        if not self._depth:
            raise KeyboardInterrupt
        self._is_noted = True

    def __enter__(self) -> None:
        self._depth += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._depth -= 1
        if self._is_noted and not self._depth:
            self._is_noted = False
            raise KeyboardInterrupt


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
