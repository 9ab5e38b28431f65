"""How far a group is behind, as its coordinator tells it."""

from __future__ import annotations

from pyrklog.protocol.lag import GROUP_LAG, GroupLag, GroupLagRequest
from tests.support.raw_client import RawClient
from tests.support.waiting import wait_until


def group_lag(bootstrap: str, group: str) -> GroupLag | None:
    """None: no broker of the list tells it yet."""
    for place in bootstrap.split(","):
        with RawClient(place) as raw:
            told = raw.ask(GROUP_LAG, 0, GroupLagRequest([group]))
        for one in told.groups if told.error_code == 0 else ():
            if one.error_code == 0 and one.lag_ms >= 0:
                found: GroupLag = one
                return found
    return None


def lag_of(bootstrap: str, group: str) -> dict[str, int | bool]:
    """Its lag in records and in milliseconds, once both are known."""
    found = wait_until(lambda: group_lag(bootstrap, group), f"the lag of {group} is unknown")
    return {"records": found.lag, "ms": found.lag_ms, "is_least": found.is_least}
