"""Structured fuzzing of the Python half, by hypothesis.

FUZZ_EXAMPLES sets the number of examples, always the same ones unless FUZZ_RANDOM is set. A
property is a function that raises AssertionError. The tests run it over the real code and over each
injected bug.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "300"))
_IS_RANDOM = bool(os.environ.get("FUZZ_RANDOM"))
_LIES = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f", b"\0\xff\xff\xff", b"\xff\xff", b"\0\0\0\0")


def damaged(data: bytes, draw: Callable[[Any], Any]) -> bytes:
    """The bytes cut, lengthened, with another byte, or with a false count."""
    at: int = draw(st.integers(0, max(0, len(data) - 1)))
    match draw(st.integers(0, 3)):
        case 0:
            return data[:at]
        case 1:
            more: bytes = draw(st.binary(min_size=1, max_size=20))
            return data + more
        case 2:
            other: int = draw(st.integers(1, 255))
            return data[:at] + bytes(byte ^ other for byte in data[at : at + 1]) + data[at + 1 :]
        case _:
            lie: bytes = draw(st.sampled_from(_LIES))
            return data[:at] + lie + data[at + len(lie) :]


def run(
    strategy: st.SearchStrategy[Any],
    check: Callable[[Any], None],
    *,
    examples: int = EXAMPLES,
    shrink: bool = True,
) -> None:
    phases = [Phase.generate, Phase.shrink] if shrink else [Phase.generate]

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=not _IS_RANDOM,
        phases=phases,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def attempt(example: Any) -> None:
        check(example)

    attempt()


def finds(strategy: st.SearchStrategy[Any], check: Callable[[Any], None]) -> None:
    """Fails unless the property finds the injected bug."""
    with pytest.raises(AssertionError):
        run(strategy, check, examples=max(EXAMPLES, 2_000), shrink=False)
