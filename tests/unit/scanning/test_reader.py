"""A scan as pyarrow's reader."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from pyrklog.scanning import Scan


class Core:
    """Of a scan that was not read."""

    def stream_capsule(self) -> object:
        raise AssertionError("the scan was read")


def test_without_pyarrow_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    core: Any = Core()
    with pytest.raises(ImportError, match="is not installed: pip install pyarrow"):
        Scan(core).reader()
