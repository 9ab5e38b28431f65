"""Long answers that several readers share, so that slow ones do not hold one each.

A body lives as long as one of its readers takes it. While as many are alive as may be, further
readers get the newest of them, however old it is by then.
"""

from __future__ import annotations

from weakref import ref

from pyrklog.observability.exposition import Exposition

ALIVE_MAX = 2
"""Bodies of one format that readers still take."""


class SharedBody:
    """An answer keeps it until the reader has taken it."""

    __slots__ = ("__weakref__", "exposition")

    def __init__(self, exposition: Exposition) -> None:
        self.exposition = exposition


class SharedBodies:
    def __init__(self) -> None:
        self._alive: dict[bool, list[ref[SharedBody]]] = {False: [], True: []}
        """Those in text, and in OpenMetrics; oldest first."""

    def reused(self, *, is_openmetrics: bool) -> SharedBody | None:
        """The one to answer with; None where a new one may be made."""
        alive = [one for one in self._alive[is_openmetrics] if one() is not None]
        self._alive[is_openmetrics] = alive
        return alive[-1]() if len(alive) >= ALIVE_MAX else None

    def add(self, body: SharedBody, *, is_openmetrics: bool) -> SharedBody:
        self._alive[is_openmetrics].append(ref(body))
        return body
