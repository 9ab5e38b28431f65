"""Ctrl-C: noted during calls into librdkafka and raised after them; a second one ends
the process."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from pyrklog import cli
from pyrklog.cli import consume, records
from pyrklog.cli.interrupts import Terminated, held, taken_over, waited_for
from pyrklog.cli.schemas import RecordDecoder


@pytest.fixture(autouse=True)
def python_handles_it() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def a_process_that_can_be_terminated() -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("a_process_that_can_be_terminated")
def test_sigterm_raises_terminated_after_the_call() -> None:
    def call() -> None:
        with held:
            os.kill(os.getpid(), signal.SIGTERM)
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL  # the second one ends it
            assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL

    with pytest.raises(Terminated), taken_over():
        call()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    with taken_over():
        assert signal.getsignal(signal.SIGTERM) == held.interrupt
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_interrupt_outside_of_a_call_is_raised_at_once() -> None:
    with pytest.raises(KeyboardInterrupt), taken_over():
        interrupt()


def test_interrupt_waits_for_the_end_of_the_call() -> None:
    done: list[int] = []

    def call() -> None:
        with held:
            with held:
                interrupt()
                done.append(1)
            done.append(2)
        done.append(3)

    with pytest.raises(KeyboardInterrupt), taken_over():
        call()
    assert done == [1, 2]


def test_interrupt_replaces_the_error_that_it_causes() -> None:
    def call() -> None:
        interrupt()
        raise SystemError

    with pytest.raises(KeyboardInterrupt), taken_over(), held:
        call()


def test_second_interrupt_ends_the_process() -> None:
    with pytest.raises(KeyboardInterrupt), taken_over(), held:
        interrupt()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL


def test_signal_handlers_are_restored_without_an_interrupt() -> None:
    with taken_over(), held:
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ignored_sigint_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with taken_over(), held:
        interrupt()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_other_threads_leave_signal_handlers_alone() -> None:
    seen: list[object] = []

    def run() -> None:
        with taken_over():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]


def test_results_and_errors_come_out_of_the_thread() -> None:
    assert waited_for(lambda: 5) == 5
    with pytest.raises(ZeroDivisionError):
        waited_for(lambda: 1 // 0)


def test_interrupt_before_the_command_ends_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_arguments: list[str]) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_run", interrupted)
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 130


class _Output:
    """Standard output whose reader presses Ctrl-C once it has seen something."""

    def __init__(self) -> None:
        self.buffer = self
        self.seen = b""

    def write(self, data: bytes) -> None:
        self.seen += data

    def flush(self) -> None:
        interrupt()


def test_interrupt_during_output_counts_the_printed_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise a group member would not commit it."""
    output = _Output()
    monkeypatch.setattr(sys, "stdout", output)
    monkeypatch.setattr(records, "from_message", lambda message: message)
    written: list[object] = []
    reading: Any = SimpleNamespace(
        finished=lambda at_end: False,
        read=lambda limit, wait_s: [b"a", b"b"],
        written=written.extend,
    )
    write: Any = bytes
    decode = RecordDecoder(None, None, "fail", 1.0, is_quiet=True)
    with pytest.raises(KeyboardInterrupt), taken_over():
        consume._copy(reading, decode, write, (), None, False, False)
    assert (written, output.seen) == ([b"a", b"b"], b"ab")
