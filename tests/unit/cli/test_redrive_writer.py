"""How a redrive waits for brokers."""

import os
import signal
from types import SimpleNamespace
from typing import Any

import pytest

from pyrklog.cli import redrive_writer
from pyrklog.cli.interrupts import held, taken_over
from pyrklog.cli.options import Settings
from pyrklog.cli.records import InputRecord
from pyrklog.cli.redrive_rules import Moved
from pyrklog.cli.redrive_writer import RedriveWriter


class Producer:
    """Acknowledges in its third flush; a Ctrl-C comes in the first."""

    def __init__(self) -> None:
        self.flushes = 0
        self._deliver: Any = None

    def produce(self, *_: object, on_delivery: Any, **_more: object) -> None:
        self._deliver = on_delivery

    def poll(self, _timeout_s: float) -> int:
        return 0

    def flush(self, _timeout_s: float) -> int:
        self.flushes += 1
        if self.flushes == 1:
            os.kill(os.getpid(), signal.SIGINT)
        if self.flushes < 3:
            return 1
        place = SimpleNamespace(topic=lambda: "t", partition=lambda: 0, offset=lambda: 7)
        self._deliver(None, place)
        return 0


@pytest.mark.parametrize("quiet", [False, True])
def test_ctrl_c_is_told_what_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], quiet: bool
) -> None:
    connection = SimpleNamespace(configuration=lambda **more: more, make=lambda *_: Producer())
    monkeypatch.setattr(redrive_writer, "Connection", lambda _settings: connection)
    writer = RedriveWriter(Settings(quiet=quiet))
    writer.send(("dlq", 0), 3, Moved("t", InputRecord(None, b"v")))
    sent = []
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), taken_over(), held:
            sent += writer.flush()
    finally:
        signal.signal(signal.SIGINT, before)
    assert [(one.offset, one.place, one.error) for one in sent] == [(3, ("t", 0, 7), None)]
    told = (
        "note: waiting for brokers to acknowledge 1 record; Ctrl-C ends at once, and a second run "
        "may move what is on its way again\n"
    )
    assert capsys.readouterr().err == ("" if quiet else told)
