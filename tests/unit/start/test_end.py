"""The exit code of a broker that a second signal ends at once."""

import os
import signal

import pytest
import trio
from trio.testing import MockClock

from pyrklog.start.end import SAME_SIGNAL_SECONDS, BrokerEnd


class Ended(Exception):
    """Stands for the end of the process."""


@pytest.mark.parametrize(
    ("second", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_second_signal_ends_at_once_with_its_own_code(
    monkeypatch: pytest.MonkeyPatch, second: signal.Signals, code: int
) -> None:
    codes: list[int] = []

    def exit_at_once(given: int) -> None:
        codes.append(given)
        raise Ended

    monkeypatch.setattr(os, "_exit", exit_at_once)
    clock = MockClock()

    async def run() -> None:
        end = BrokerEnd(trio.Event())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(end.watch_signals)
            await trio.testing.wait_all_tasks_blocked()
            signal.raise_signal(signal.SIGINT)
            await end.wait_asked()
            assert codes == []
            clock.jump(SAME_SIGNAL_SECONDS)
            signal.raise_signal(second)

    with pytest.RaisesGroup(Ended):
        trio.run(run, clock=clock)
    assert codes == [code]
