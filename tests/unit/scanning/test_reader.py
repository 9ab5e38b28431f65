"""A scan as pyarrow's reader."""

from __future__ import annotations

import sys
from typing import Any

import pytest

import pyrklog
from pyrklog.scanning import LeftOut, Scan, ScanClosedError
from pyrklog.scanning.settings import ScanSettings


class Core:
    """Of a scan that was not read."""

    def stream_capsule(self) -> object:
        raise AssertionError("the scan was read")


def test_without_pyarrow_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    core: Any = Core()
    with pytest.raises(ImportError, match="is not installed: pip install pyarrow"):
        Scan(core).reader()


@pytest.mark.parametrize(
    ("named", "environment", "asked"),
    [
        (None, None, "127.0.0.1:9092"),
        (None, "", "127.0.0.1:9092"),
        (None, "k:1,l:2", "k:1,l:2"),
        ("m:3", "k:1", "m:3"),
    ],
)
def test_the_environment_names_brokers_as_for_commands(
    monkeypatch: pytest.MonkeyPatch, named: str | None, environment: str | None, asked: str
) -> None:
    monkeypatch.delenv("PYRKLOG_BOOTSTRAP", raising=False)
    if environment is not None:
        monkeypatch.setenv("PYRKLOG_BOOTSTRAP", environment)
    opened: list[ScanSettings] = []

    def note(settings: ScanSettings) -> Any:
        opened.append(settings)
        return Core()

    monkeypatch.setattr(sys.modules["pyrklog.scanning.scan"], "open_scan", note)
    pyrklog.scan("t", bootstrap_servers=named)
    assert [settings.bootstrap_servers for settings in opened] == [asked]


class EndedCore:
    """All of whose batches were there when it was closed, and are gone then."""

    def __init__(self) -> None:
        self.batches: list[tuple[str, str] | None] = [("schema", "array"), ("schema", "array")]
        self.waits: list[int | None] = []

    def next_batch(self, most_ms: int | None) -> tuple[tuple[str, str] | None, bool]:
        self.waits.append(most_ms)
        return (self.batches.pop(), False) if self.batches else (None, True)

    def left_out(self) -> list[tuple[str, int, str]]:
        return [("t", 3, "no answer")]

    def stream_capsule(self) -> object:
        return "a stream without batches"

    def close(self) -> None:
        self.batches.clear()


def test_a_closed_scan_does_not_look_as_if_it_was_read_to_its_end() -> None:
    core: Any = EndedCore()
    scan = Scan(core)
    next(scan)
    scan.close()
    with pytest.raises(ScanClosedError, match="closed"):
        next(scan)
    for read in (scan.reader, scan.__arrow_c_stream__, lambda: iter(scan)):
        with pytest.raises(ScanClosedError, match="the scan was closed: open another one"):
            read()


def test_a_scan_that_was_read_to_its_end_is_not_read_again() -> None:
    core: Any = EndedCore()
    scan = Scan(core)
    assert len(list(scan)) == 2
    for _ in range(2):
        with pytest.raises(ScanClosedError, match="read already, to its end: open another one"):
            list(scan)
        with pytest.raises(ScanClosedError, match="read already, to its end: open another one"):
            scan.reader()
        with pytest.raises(ScanClosedError, match="read already, to its end: open another one"):
            scan.__arrow_c_stream__()
        with pytest.raises(StopIteration):
            next(scan)
        scan.close()


def test_an_iteration_that_was_left_goes_on() -> None:
    core: Any = EndedCore()
    scan = Scan(core)
    for _ in scan:
        break
    assert len(list(scan)) == 1


def test_a_batch_is_waited_for_as_long_as_wanted() -> None:
    core: Any = EndedCore()
    core.batches = [("schema", "array"), None]
    scan = Scan(core)
    found = [(scan.next_batch(wait), scan.has_ended) for wait in (0.25, 1, 2)]
    assert [batch is not None for batch, _ in found] == [False, True, False]
    assert [has_ended for _, has_ended in found] == [False, False, True]
    assert core.waits == [250, 1000, 2000]
    with pytest.raises(ScanClosedError, match="read already"):
        scan.next_batch(1)
    with pytest.raises(ValueError, match="timeout_s"):
        Scan(core).next_batch(0)


def test_a_closed_scan_does_not_look_as_if_a_batch_came_late() -> None:
    core: Any = EndedCore()
    scan = Scan(core)
    scan.close()
    with pytest.raises(ScanClosedError, match="closed"):
        scan.next_batch(1)


def test_partitions_that_are_left_out_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[ScanSettings] = []

    def note(settings: ScanSettings) -> Any:
        opened.append(settings)
        return EndedCore()

    monkeypatch.setattr(sys.modules["pyrklog.scanning.scan"], "open_scan", note)
    assert pyrklog.scan("t", unanswered="leave").left_out == [LeftOut("t", 3, "no answer")]
    pyrklog.scan("t")
    assert [settings.unanswered for settings in opened] == ["leave", "fail"]
    with pytest.raises(ValueError, match="unknown unanswered 'skip'; it can be fail or leave"):
        pyrklog.scan("t", unanswered="skip")
