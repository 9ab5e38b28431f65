"""Figures for people."""

import math

ROUNDING = 1e-6


def amount(count: float) -> str:
    """Bytes."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def percent(share: float) -> str:
    """``90 %``, ``89.7 %``: what is nearly full is not told as full."""
    return f"{math.floor(1000 * share + ROUNDING) / 10:g} %"
