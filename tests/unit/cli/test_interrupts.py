"""Ctrl-C: noted during calls into librdkafka, raised behind them; the second one ends all."""

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from pyrklog import cli
from pyrklog.cli.interrupts import held, taken_over, waited_for


@pytest.fixture(autouse=True)
def python_handles_it() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_outside_of_calls_it_is_raised_at_once() -> None:
    with pytest.raises(KeyboardInterrupt), taken_over():
        interrupt()


def test_a_call_is_finished_first() -> None:
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


def test_it_wins_over_the_error_that_it_causes() -> None:
    def call() -> None:
        interrupt()
        raise SystemError

    with pytest.raises(KeyboardInterrupt), taken_over(), held:
        call()


def test_the_second_one_ends_the_process() -> None:
    with pytest.raises(KeyboardInterrupt), taken_over(), held:
        interrupt()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL


def test_without_one_all_is_as_before() -> None:
    with taken_over(), held:
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ignored_it_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with taken_over(), held:
        interrupt()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_threads_leave_it_alone() -> None:
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


def test_ctrl_c_before_there_is_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_arguments: list[str]) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_run", interrupted)
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 130
