"""What metrics tell about lag."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class LagNumbers(NamedTuple):
    """``worst``: the groups that are most behind, and by how many milliseconds."""

    worst: Sequence[tuple[str, int]] = ()
    groups_left_out: int = 0
    histories: int = 0
    history_points: int = 0
    histories_left_out: int = 0
    forgotten_points: int = 0
