"""Memory that hosts of clients share. Pure.

A host may take at most as much as it leaves free: the first a half, the next a quarter. Requests
beyond that are refused. What is taken anyway counts too, but a host's part beyond a half, and the
part of no host, take no room from others.
"""

from __future__ import annotations

NO_HOST = ""
"""The host of what was loaded and nobody has asked for since. It takes no room from others: the log
bounds it."""


def text_bytes(text: str) -> int:
    """One wide character makes all characters wide."""
    return len(text) if text.isascii() else 4 * len(text)


class MemoryPool:
    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.used_bytes = 0
        self._by_host: dict[str, int] = {}
        self._counted_bytes = 0
        """Bytes that take room from others: at most a half for each host, none of NO_HOST."""

    def has_room(self, host: str, more_bytes: int, total_bytes: int | None = None) -> bool:
        """Whether the host may take ``more_bytes`` while all hosts take ``total_bytes`` more;
        taking nothing is always allowed."""
        if more_bytes <= 0:
            return True
        free_bytes = self.max_bytes - self._counted_bytes - (total_bytes or more_bytes)
        return self.of_host(host) + more_bytes <= free_bytes

    def of_host(self, host: str) -> int:
        return self._by_host.get(host, 0)

    def change(self, host: str, bytes_more: int) -> None:
        self._counted_bytes -= self._counted(host)
        add_bytes(self._by_host, host, bytes_more)
        self._counted_bytes += self._counted(host)
        self.used_bytes += bytes_more

    def _counted(self, host: str) -> int:
        return 0 if host == NO_HOST else min(self.of_host(host), self.max_bytes // 2)


def add_bytes(by_host: dict[str, int], host: str, bytes_more: int) -> None:
    """Changes a host's bytes; forgets one without any."""
    by_host[host] = by_host.get(host, 0) + bytes_more
    if not by_host[host]:
        del by_host[host]
