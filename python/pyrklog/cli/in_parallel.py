from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

ASKED_AT_ONCE_MAX = 16

T = TypeVar("T")
R = TypeVar("R")


def in_parallel(ask: Callable[[T], R], asked: Sequence[T]) -> list[R]:
    """The answers in the order of the asked."""
    with ThreadPoolExecutor(min(ASKED_AT_ONCE_MAX, len(asked)) or 1) as pool:
        return list(pool.map(ask, asked))
