"""Places for requests that wait. One client has a part of them: a flood keeps no other out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address, IPv6Network, ip_address

NETWORK_BITS = 64
"""Of an IPv6 address: a host may have all the addresses of such a network."""
CLIENT_SHARE = 4
"""One client has at most a quarter of the places."""


class NoPlaceError(Exception):
    """All places, or those of this client, are taken. That passes."""


class ClientPlaces:
    """``places_max``: of all clients together."""

    def __init__(self, places_max: int) -> None:
        self._places_max = places_max
        self._of_client_max = max(1, places_max // CLIENT_SHARE)
        self._taken: Counter[str] = Counter()

    def __len__(self) -> int:
        """Places that are taken."""
        return self._taken.total()

    @contextmanager
    def place(self, address: str) -> Iterator[str]:
        """Has a place until it is left; tells whose it is. Raises :class:`NoPlaceError`."""
        client = client_of(address)
        if len(self) >= self._places_max or self._taken[client] >= self._of_client_max:
            raise NoPlaceError
        self._taken[client] += 1
        try:
            yield client
        finally:
            self._taken[client] -= 1
            if not self._taken[client]:
                del self._taken[client]


def client_of(address: str) -> str:
    """Who has this address, so far as it tells: an IPv4 address, or a network of IPv6."""
    found = ip_address(address.partition("%")[0])
    if isinstance(found, IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(IPv6Network((found, NETWORK_BITS), strict=False))
