"""The simulation's extension: the broker's own, built with the feature ``sim``.

``make`` builds it into ``target/sim``, apart from the installed one.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

EXTENSION = Path(__file__).parents[2] / "target" / "sim" / "lib_core.so"


@cache
def core() -> Any:
    """The module. Raises ``ImportError`` if it was not built."""
    loader = importlib.machinery.ExtensionFileLoader("pyrklog_sim._core", str(EXTENSION))
    spec = importlib.util.spec_from_loader("pyrklog_sim._core", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
